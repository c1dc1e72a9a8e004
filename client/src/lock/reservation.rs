//! The reservation of an owner name: one acquisition per key and owner at a time in this process.
//!
//! To the server an owner is one flow of control; it cannot distinguish two tasks that use one name. A withdrawal by
//! the first would release what the second has just been granted, and both would believe that they hold one grant. So
//! an acquisition under a fixed name reserves that name in this process, until the guard is released and none of its
//! requests can still be served. The acquisitions that wait for a name get it in their order.
//!
//! A name whose hold is released, and whose requests only have no answer yet, is no sign of another holder. An
//! acquisition that finds it so at its end has an error, as one that gets no answer itself.
//!
//! A release without a token of an exclusive lock names no mode: it would end a hold of the owner for READ or WRITE
//! too. So an exclusive request is not undone while the owner holds the lock in one of these modes, or asks for it; and
//! such an acquisition waits while an exclusive request is being undone.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Server, key, owner, and the kind of the hold.
pub(crate) type Name = (String, Vec<u8>, Vec<u8>, &'static str);

/// The words of [`Kind::word`](crate::net::command::Kind::word) for an exclusive lock, and for the modes of a
/// read-write lock.
const EXCLUSIVE: &str = "";
const SHARED: [&str; 2] = ["READ", "WRITE"];

static NAMES: LazyLock<Mutex<Names>> = LazyLock::new(Mutex::default);

/// The names that are reserved in this process, or waited for.
#[derive(Default)]
struct Names {
    /// The reserved names, and whether each only waits for answers of the server.
    reserved: HashMap<Name, bool>,
    /// The acquisitions that wait for a name, the first one first.
    waiting: HashMap<Name, VecDeque<Arc<Notify>>>,
}

/// A reserved name; without a name it belongs to a fresh owner and excludes nothing. Dropping it frees the name.
#[derive(Default)]
pub(crate) struct Reservation {
    name: Option<Name>,
}

impl Reservation {
    /// Reserves this name if it is free and nothing waits for it. A fresh owner has no name and always succeeds.
    pub(crate) fn try_reserve(name: Option<Name>) -> Option<Reservation> {
        match name {
            Some(name) => names().reserve(&name, None),
            None => Some(Reservation::default()),
        }
    }

    /// Reserves this name to undo a late request, if that can end nothing else of the owner.
    pub(crate) fn try_reserve_to_undo(name: Option<Name>) -> Option<Reservation> {
        let reservation = Reservation::try_reserve(name)?;
        reservation.settle();
        (!reservation.has_other_mode()).then_some(reservation)
    }

    /// Waits until the name is free and reserves it.
    pub(crate) async fn reserve(name: Option<Name>) -> Reservation {
        let Some(name) = name else {
            return Reservation::default();
        };
        let place = Place::behind_others(name);
        loop {
            // A statement of its own: the names are locked until its end.
            let reserved = names().reserve(&place.name, Some(&place.turn));
            if let Some(reservation) = reserved {
                return reservation;
            }
            place.turn.notified().await;
        }
    }

    /// From now on nothing is held or asked for under the name: it only waits for answers of the server.
    pub(crate) fn settle(&self) {
        if let Some(name) = &self.name {
            names().reserved.insert(name.clone(), true);
        }
    }

    /// Whether a release without a token and a mode would end a hold or a wait of the owner in another mode.
    pub(crate) fn has_other_mode(&self) -> bool {
        let Some(name) = self.name.as_ref().filter(|name| name.3 == EXCLUSIVE) else {
            return false;
        };
        let names = names();
        let mut others = SHARED.iter().map(|mode| with_mode(name, mode));
        others.any(|other| names.reserved.contains_key(&other))
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
            let mut names = names();
            names.reserved.remove(name);
            names.wake_first(name);
        }
    }
}

impl Names {
    /// Reserves this name if it is free and this is the first place in its queue, or without a place if none waits.
    fn reserve(&mut self, name: &Name, place: Option<&Arc<Notify>>) -> Option<Reservation> {
        let first = self.waiting.get(name).and_then(VecDeque::front);
        let is_first = match (first, place) {
            (Some(first), Some(place)) => Arc::ptr_eq(first, place),
            (first, _) => first.is_none(),
        };
        if !is_first || self.reserved.contains_key(name) || self.is_undone(name) {
            return None;
        }
        self.reserved.insert(name.clone(), false);
        let name = Some(name.clone());
        Some(Reservation { name })
    }

    /// Whether an exclusive request of the same owner is being undone, which would end a hold under this name.
    fn is_undone(&self, name: &Name) -> bool {
        SHARED.contains(&name.3) && self.reserved.get(&with_mode(name, EXCLUSIVE)) == Some(&true)
    }

    /// Wakes the first acquisitions that may have waited for this name to be freed.
    fn wake_first(&self, name: &Name) {
        let mut freed = vec![name.clone()];
        if name.3 == EXCLUSIVE {
            freed.extend(SHARED.map(|mode| with_mode(name, mode)));
        }
        let waiting = freed.iter().filter_map(|name| self.waiting.get(name));
        waiting
            .filter_map(VecDeque::front)
            .for_each(|first| first.notify_one());
    }
}

/// A place in the queue for a name. Dropping it leaves the queue.
struct Place {
    name: Name,
    turn: Arc<Notify>,
}

impl Place {
    fn behind_others(name: Name) -> Place {
        let turn = Arc::new(Notify::new());
        let mut names = names();
        let queue = names.waiting.entry(name.clone()).or_default();
        queue.push_back(turn.clone());
        Place { name, turn }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut names = names();
        let Some(queue) = names.waiting.get_mut(&self.name) else {
            return;
        };
        queue.retain(|turn| !Arc::ptr_eq(turn, &self.turn));
        match queue.front() {
            // It may have been woken in vain.
            Some(next) => next.notify_one(),
            None => drop(names.waiting.remove(&self.name)),
        }
    }
}

/// Whether this name is not free, but only waits for answers of the server.
pub(crate) fn is_settling(name: Option<&Name>) -> bool {
    name.is_some_and(|name| {
        let names = names();
        match names.reserved.get(name) {
            Some(is_settling) => *is_settling,
            None => names.is_undone(name),
        }
    })
}

fn with_mode(name: &Name, mode: &'static str) -> Name {
    let (server, key, owner, _) = name;
    (server.clone(), key.clone(), owner.clone(), mode)
}

fn names() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::expect_used, clippy::indexing_slicing)]
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

    #[tokio::test]
    async fn a_name_goes_to_the_acquisitions_that_wait_for_it_in_their_order() {
        let of = || name(b"turns");
        let first = Reservation::reserve(of()).await;
        let waits: Vec<_> = (0..4)
            .map(|_| tokio::spawn(Reservation::reserve(of())))
            .collect();
        tokio::task::yield_now().await;
        waits[1].abort();
        drop(first);
        assert!(Reservation::try_reserve(of()).is_none(), "others wait");
        for (i, wait) in waits.into_iter().enumerate() {
            assert_eq!(wait.await.is_ok(), i != 1);
        }
        let name = of().expect("a name");
        assert!(!names().waiting.contains_key(&name));
        assert!(Reservation::try_reserve(of()).is_some());
    }

    #[test]
    fn the_undoing_of_an_exclusive_request_excludes_the_other_modes() {
        let of = |mode| Some(("s".into(), b"modes".to_vec(), b"a".to_vec(), mode));
        let exclusive = Reservation::try_reserve(of("")).expect("free");
        let reader = Reservation::try_reserve(of("READ")).expect("not being undone");
        exclusive.settle();
        assert!(exclusive.has_other_mode() && !reader.has_other_mode());
        assert!(Reservation::try_reserve(of("WRITE")).is_none());
        assert!(is_settling(of("WRITE").as_ref()) && !is_settling(of("READ").as_ref()));
        drop(exclusive);
        assert!(Reservation::try_reserve_to_undo(of("")).is_none());
        assert!(Reservation::try_reserve_to_undo(of("PERMIT")).is_some());
        drop(reader);
        let undone = Reservation::try_reserve_to_undo(of(""));
        assert!(undone.is_some() && Reservation::try_reserve(of("READ")).is_none());
    }
}
