//! The reservation of an owner name: one acquisition per key and owner at a time in this process.
//!
//! To the server an owner is one flow of control; it cannot distinguish two tasks that use one name. A withdrawal by
//! the first would release what the second has just been granted, and both would believe that they hold one grant. So
//! an acquisition under a fixed name reserves that name in this process, until the guard is released and none of its
//! requests can still be served.
//!
//! A name whose hold is released, and whose requests only have no answer yet, is no sign of another holder. An
//! acquisition that finds it so at its end has an error, as one that gets no answer itself.

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Server, key, owner, and the kind of the hold.
pub(crate) type Name = (String, Vec<u8>, Vec<u8>, &'static str);

/// The reserved names, and whether each only waits for answers of the server.
static RESERVED: LazyLock<Mutex<HashMap<Name, bool>>> = LazyLock::new(Mutex::default);
static FREED: Notify = Notify::const_new();

/// A reserved name; without a name it belongs to a fresh owner and excludes nothing. Dropping it frees the name.
#[derive(Debug, Default)]
pub(crate) struct Reservation {
    name: Option<Name>,
}

impl Reservation {
    /// Reserves this name if it is free. A fresh owner has no name and always succeeds.
    pub(crate) fn try_reserve(name: Option<Name>) -> Option<Reservation> {
        if let Some(name) = &name {
            match reserved().entry(name.clone()) {
                Entry::Occupied(_) => return None,
                Entry::Vacant(free) => free.insert(false),
            };
        }
        Some(Reservation { name })
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

    /// From now on nothing is held or asked for under the name: it only waits for answers of the server.
    pub(crate) fn settle(&self) {
        if let Some(name) = &self.name {
            reserved().insert(name.clone(), true);
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

/// Whether this name is reserved, but only waits for answers of the server.
pub(crate) fn is_settling(name: Option<&Name>) -> bool {
    name.is_some_and(|name| reserved().get(name) == Some(&true))
}

fn reserved() -> MutexGuard<'static, HashMap<Name, bool>> {
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
        assert!(!is_settling(name(b"a").as_ref()));
        first.settle();
        assert!(is_settling(name(b"a").as_ref()));
        drop(first);
        assert!(next.await.is_ok_and(|reservation| reservation.is_named()));
    }
}
