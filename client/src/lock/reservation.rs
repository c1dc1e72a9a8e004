//! The reservation of an owner name: one acquisition per key and owner at a time in this process.
//!
//! To the server an owner is one flow of control; it cannot distinguish two tasks that use one name. A withdrawal by
//! the first would release what the second has just been granted, and both would believe that they hold one grant. So
//! an acquisition under a fixed name reserves that name in this process, until the guard is released and none of its
//! requests can still be served.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Server, key, owner, and the kind of the hold.
pub(crate) type Name = (String, Vec<u8>, Vec<u8>, &'static str);

static RESERVED: LazyLock<Mutex<HashSet<Name>>> = LazyLock::new(Mutex::default);
static FREED: Notify = Notify::const_new();

/// A reserved name; without a name it belongs to a fresh owner and excludes nothing. Dropping it frees the name.
#[derive(Debug, Default)]
pub(crate) struct Reservation {
    name: Option<Name>,
}

impl Reservation {
    /// Reserves this name if it is free. A fresh owner has no name and always succeeds.
    pub(crate) fn try_reserve(name: Option<Name>) -> Option<Reservation> {
        match &name {
            Some(name) if !reserved().insert(name.clone()) => None,
            _ => Some(Reservation { name }),
        }
    }

    /// Waits until the name is free and reserves it.
    pub(crate) async fn reserve(name: Option<Name>) -> Reservation {
        loop {
            let freed = FREED.notified();
            if let Some(reservation) = Reservation::try_reserve(name.clone()) {
                return reservation;
            }
            freed.await;
        }
    }

    pub(crate) fn name(&self) -> Option<Name> {
        self.name.clone()
    }

    /// Whether another acquisition may use the owner's name.
    pub(crate) fn is_named(&self) -> bool {
        self.name.is_some()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            reserved().remove(name);
            FREED.notify_waiters();
        }
    }
}

fn reserved() -> MutexGuard<'static, HashSet<Name>> {
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(owner: &[u8]) -> Option<Name> {
        Some(("s".into(), b"k".to_vec(), owner.to_vec(), ""))
    }

    #[tokio::test]
    async fn a_name_is_free_again_when_its_reservation_is_dropped() {
        let first = Reservation::reserve(name(b"a")).await;
        assert!(Reservation::try_reserve(name(b"a")).is_none());
        assert!(Reservation::try_reserve(name(b"b")).is_some());
        assert!(
            Reservation::try_reserve(None).is_some() && Reservation::try_reserve(None).is_some()
        );
        let next = tokio::spawn(Reservation::reserve(name(b"a")));
        tokio::task::yield_now().await;
        assert!(!next.is_finished());
        drop(first);
        assert!(next.await.is_ok_and(|reservation| reservation.is_named()));
    }
}
