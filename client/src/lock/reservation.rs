//! One owner does one thing at a time with a lock.
//!
//! To the server an owner is one flow of control: what two tasks do under one name, it takes for one. A
//! withdrawal of the first would give back what the second has just been granted, and both would believe
//! to hold one grant. So an acquisition under a fixed name has the *turn* of that name in
//! this process, until the guard is released and nothing of it is under way any more.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Server, key, owner, and which of the owner's holds.
pub(crate) type Name = (String, Vec<u8>, Vec<u8>, &'static str);

static TAKEN: LazyLock<Mutex<HashSet<Name>>> = LazyLock::new(Mutex::default);
static FREED: Notify = Notify::const_new();

/// The turn of a name, or of an owner of this acquisition alone. Dropped, it is the next one's.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    name: Option<Name>,
}

impl Turn {
    /// The turn of this name, if it is free. None is the name of an owner of this acquisition alone.
    pub(crate) fn take(name: Option<Name>) -> Option<Turn> {
        match &name {
            Some(name) if !taken().insert(name.clone()) => None,
            _ => Some(Turn { name }),
        }
    }

    /// The same, when it is free.
    pub(crate) async fn wait(name: Option<Name>) -> Turn {
        loop {
            let freed = FREED.notified();
            if let Some(turn) = Turn::take(name.clone()) {
                return turn;
            }
            freed.await;
        }
    }

    pub(crate) fn name(&self) -> Option<Name> {
        self.name.clone()
    }

    /// Whether another acquisition may use the owner's name.
    pub(crate) fn is_known(&self) -> bool {
        self.name.is_some()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            taken().remove(name);
            FREED.notify_waiters();
        }
    }
}

fn taken() -> MutexGuard<'static, HashSet<Name>> {
    TAKEN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(owner: &[u8]) -> Option<Name> {
        Some(("s".into(), b"k".to_vec(), owner.to_vec(), ""))
    }

    #[tokio::test]
    async fn the_next_has_the_turn_when_the_former_has_gone() {
        let first = Turn::wait(name(b"a")).await;
        assert!(Turn::take(name(b"a")).is_none());
        assert!(Turn::take(name(b"b")).is_some());
        assert!(Turn::take(None).is_some() && Turn::take(None).is_some());
        let next = tokio::spawn(Turn::wait(name(b"a")));
        tokio::task::yield_now().await;
        assert!(!next.is_finished());
        drop(first);
        assert!(next.await.is_ok_and(|turn| turn.is_known()));
    }
}
