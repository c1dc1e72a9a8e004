//! Changes of the keys that are held here, as the server tells them.
//!
//! A loss is not worth waiting a third of the lease for. Redis can tell a client when a key changes that it has
//! read (`CLIENT TRACKING`, in a connection of RESP3): also when it is deleted, runs out, is flushed or replaced. So the shared
//! connection asks for that, without what it changes itself (`NOLOOP`), and a holder reads its own field of the key. Where a server
//! will not do that, or the user may not, the next renewal finds the loss.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use redis::{cmd, PushInfo, PushKind, Value};
use tokio::sync::Notify;

use crate::net::connection::Connection;

/// Who is to hear of which key. Two keys of one name in two databases hear of each other, which does no harm.
#[derive(Default)]
pub(crate) struct Changes {
    holders: Mutex<HashMap<Vec<u8>, Vec<Weak<Notify>>>>,
    /// The user may not read the keys: not asked again.
    is_forbidden: AtomicBool,
}

/// A holder that hears of its key, until it is dropped.
pub(crate) struct Hearing {
    changes: Arc<Changes>,
    key: Vec<u8>,
    told: Arc<Notify>,
}

impl Changes {
    /// From now on the holder hears of changes of this key, each time it has read it.
    pub(crate) fn hear(self: &Arc<Changes>, key: &[u8]) -> Hearing {
        let told = Arc::new(Notify::new());
        let mut holders = self.holders();
        let of_key = holders.entry(key.to_vec()).or_default();
        of_key.push(Arc::downgrade(&told));
        Hearing {
            changes: self.clone(),
            key: key.to_vec(),
            told,
        }
    }

    pub(crate) fn may_look(&self) -> bool {
        !self.is_forbidden.load(Ordering::Relaxed)
    }

    pub(crate) fn may_not_look(&self) {
        self.is_forbidden.store(true, Ordering::Relaxed);
    }

    /// What a server has sent without being asked.
    pub(crate) fn tell(&self, push: &PushInfo) {
        let holders = self.holders();
        match (&push.kind, push.data.first()) {
            (PushKind::Invalidate, Some(Value::Array(keys))) => {
                let named = keys.iter().filter_map(|key| match key {
                    Value::BulkString(key) => holders.get(key),
                    _ => None,
                });
                named.for_each(|holders| tell(holders));
            }
            // All of the server's keys; or the connection on which it would have told of them has gone.
            (PushKind::Invalidate | PushKind::Disconnection, _) => {
                holders.values().for_each(|holders| tell(holders))
            }
            _ => {}
        }
    }

    fn holders(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Vec<Weak<Notify>>>> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(holders: &[Weak<Notify>]) {
    for told in holders.iter().filter_map(Weak::upgrade) {
        told.notify_one();
    }
}

impl Hearing {
    /// Ends when the key has changed.
    pub(crate) async fn change(&self) {
        self.told.notified().await;
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        let mut holders = self.changes.holders();
        if let Some(of_key) = holders.get_mut(&self.key) {
            let own = Arc::downgrade(&self.told);
            of_key.retain(|told| !told.ptr_eq(&own));
            if of_key.is_empty() {
                holders.remove(&self.key);
            }
        }
    }
}

/// Asks a server to tell. One that will not, says so, and the connection is as good for all else.
pub(crate) async fn ask(connection: &mut Connection) {
    let mut command = cmd("CLIENT");
    command.arg("TRACKING").arg("ON").arg("NOLOOP");
    let _ = connection.send(&command).await;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn invalidate(data: Value) -> PushInfo {
        PushInfo {
            kind: PushKind::Invalidate,
            data: vec![data],
        }
    }

    #[tokio::test]
    async fn who_holds_a_key_hears_of_it_and_of_a_flush() {
        let changes = Arc::new(Changes::default());
        let (one, other) = (changes.hear(b"a"), changes.hear(b"b"));
        let named = |key: &[u8]| Value::Array(vec![Value::BulkString(key.to_vec())]);
        changes.tell(&invalidate(named(b"a")));
        one.change().await;
        changes.tell(&invalidate(Value::Nil));
        one.change().await;
        other.change().await;
        drop((one, other));
        assert!(changes.holders().is_empty());
    }
}
