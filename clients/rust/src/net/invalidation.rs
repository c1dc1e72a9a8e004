//! Notification of changes to held keys (client-side tracking).
//!
//! Without it a loss is found by the next renewal, up to a third of the lease later. With `CLIENT TRACKING` on a RESP3
//! connection the server notifies a client when a key that it has read is changed, deleted, expired, flushed or
//! replaced. The shared connection enables it, without its own changes (`NOLOOP`), and a holder reads its own field of
//! the key. Where the server does not support it or the ACL forbids it, the next renewal finds the loss.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use redis::{PushInfo, PushKind, Value};
use tokio::sync::watch;

use crate::runtime::locked;

/// The watches by key. Keys of the same name in two databases notify each other, which costs one read.
#[derive(Default)]
pub(crate) struct Invalidations {
    watches: Mutex<HashMap<Vec<u8>, watch::Sender<()>>>,
    /// Whether the ACL forbids the read, which then is not tried again.
    is_forbidden: AtomicBool,
}

/// A watch on a key, removed on drop.
pub(crate) struct KeyWatch {
    invalidations: Arc<Invalidations>,
    key: Vec<u8>,
    changes: watch::Receiver<()>,
}

impl Invalidations {
    /// Watches a key. The server sends one notification per read of the key.
    pub(crate) fn watch(self: &Arc<Invalidations>, key: &[u8]) -> KeyWatch {
        let changes = self.watches().entry(key.to_vec()).or_default().subscribe();
        KeyWatch {
            invalidations: self.clone(),
            key: key.to_vec(),
            changes,
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
        self.watches().get(key).into_iter().for_each(notify);
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
                named.for_each(notify);
            }
            // A flush of all keys, or the end of the connection that would have carried the notifications.
            (PushKind::Invalidate | PushKind::Disconnection, _) => {
                watches.values().for_each(notify);
            }
            _ => {}
        }
    }

    fn watches(&self) -> MutexGuard<'_, HashMap<Vec<u8>, watch::Sender<()>>> {
        locked(&self.watches)
    }
}

fn notify(watches: &watch::Sender<()>) {
    watches.send_replace(());
}

impl KeyWatch {
    /// Completes when the key has changed.
    pub(crate) async fn change(&mut self) {
        // The sender is removed with the last watch.
        let _ = self.changes.changed().await;
    }
}

impl Drop for KeyWatch {
    fn drop(&mut self) {
        let mut watches = self.invalidations.watches();
        // Its receiver ends here, so that of two watches that are dropped at the same time one is the last.
        self.changes = watch::channel(()).1;
        let of_key = watches.get(&self.key);
        if of_key.is_some_and(|of_key| of_key.receiver_count() == 0) {
            watches.remove(&self.key);
        }
    }
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
        let (mut one, mut other) = (invalidations.watch(b"a"), invalidations.watch(b"b"));
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
