//! Notification of changes to held keys (client-side tracking).
//!
//! Without it a loss is found by the next renewal, up to a third of the lease later. With `CLIENT TRACKING` on a RESP3
//! connection the server notifies a client when a key that it has read is changed, deleted, expired, flushed or
//! replaced. The shared connection enables it, without its own changes (`NOLOOP`), and a holder reads its own field of
//! the key. Where the server does not support it or the ACL forbids it, the next renewal finds the loss.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use redis::{cmd, PushInfo, PushKind, Value};
use tokio::sync::Notify;

use crate::net::connection::Connection;

/// The watches by key. Keys of the same name in two databases notify each other, which costs one read.
#[derive(Default)]
pub(crate) struct Invalidations {
    watches: Mutex<HashMap<Vec<u8>, Vec<Weak<Notify>>>>,
    /// Whether the ACL forbids the read, which then is not tried again.
    is_forbidden: AtomicBool,
}

/// A watch on a key, removed on drop.
pub(crate) struct KeyWatch {
    invalidations: Arc<Invalidations>,
    key: Vec<u8>,
    notifier: Arc<Notify>,
}

impl Invalidations {
    /// Watches a key. The server sends one notification per read of the key.
    pub(crate) fn watch(self: &Arc<Invalidations>, key: &[u8]) -> KeyWatch {
        let notifier = Arc::new(Notify::new());
        let mut watches = self.watches();
        let of_key = watches.entry(key.to_vec()).or_default();
        of_key.push(Arc::downgrade(&notifier));
        KeyWatch {
            invalidations: self.clone(),
            key: key.to_vec(),
            notifier,
        }
    }

    pub(crate) fn may_read(&self) -> bool {
        !self.is_forbidden.load(Ordering::Relaxed)
    }

    pub(crate) fn forbid_reads(&self) {
        self.is_forbidden.store(true, Ordering::Relaxed);
    }

    /// This process has changed the key, which the server does not tell its own connection (`NOLOOP`).
    pub(crate) fn changed(&self, key: &[u8]) {
        self.watches()
            .get(key)
            .into_iter()
            .for_each(|of| notify(of));
    }

    /// Handles a push message of the server.
    pub(crate) fn notify(&self, push: &PushInfo) {
        let watches = self.watches();
        match (&push.kind, push.data.first()) {
            (PushKind::Invalidate, Some(Value::Array(keys))) => {
                let named = keys.iter().filter_map(|key| match key {
                    Value::BulkString(key) => watches.get(key),
                    _ => None,
                });
                named.for_each(|watches| notify(watches));
            }
            // A flush of all keys, or the end of the connection that would have carried the notifications.
            (PushKind::Invalidate | PushKind::Disconnection, _) => {
                watches.values().for_each(|watches| notify(watches))
            }
            _ => {}
        }
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Vec<Weak<Notify>>>> {
        self.watches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn notify(watches: &[Weak<Notify>]) {
    for notifier in watches.iter().filter_map(Weak::upgrade) {
        notifier.notify_one();
    }
}

impl KeyWatch {
    /// Completes when the key has changed.
    pub(crate) async fn change(&self) {
        self.notifier.notified().await;
    }
}

impl Drop for KeyWatch {
    fn drop(&mut self) {
        let mut watches = self.invalidations.watches();
        if let Some(of_key) = watches.get_mut(&self.key) {
            let own = Arc::downgrade(&self.notifier);
            of_key.retain(|notifier| !notifier.ptr_eq(&own));
            if of_key.is_empty() {
                watches.remove(&self.key);
            }
        }
    }
}

/// Enables tracking. A refusal is ignored: the connection works without it.
pub(crate) async fn enable_tracking(connection: &mut Connection) {
    let mut command = cmd("CLIENT");
    command.arg("TRACKING").arg("ON").arg("NOLOOP");
    let _ = connection.send(&command).await;
}

#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use super::*;

    fn invalidate(data: Value) -> PushInfo {
        PushInfo {
            kind: PushKind::Invalidate,
            data: vec![data],
        }
    }

    #[tokio::test]
    async fn a_watch_is_notified_of_its_key_and_of_a_flush() {
        let invalidations = Arc::new(Invalidations::default());
        let (one, other) = (invalidations.watch(b"a"), invalidations.watch(b"b"));
        let named = |key: &[u8]| Value::Array(vec![Value::BulkString(key.to_vec())]);
        invalidations.notify(&invalidate(named(b"a")));
        one.change().await;
        invalidations.notify(&invalidate(Value::Nil));
        one.change().await;
        other.change().await;
        drop((one, other));
        assert!(invalidations.watches().is_empty());
    }
}
