//! The queue of one key: first come, first served.
//!
//! Live places, and empty ones that no grant has passed, form a doubly linked list: parking, cancelling and taking the
//! head cost the same at any length. Empty places at the head leave it when a grant passes them (each at most once),
//! for a second list. An owner that returns to such a place is linked in again near the front, behind returned owners
//! with lower numbers only. An index of the places that were linked in there names the one before it.

use std::collections::BTreeMap;

use crate::lock::wait::arena::Slot;
use crate::lock::wait::places::Places;
use crate::lock::wait::places::{At, Kept, Links, Place};
use crate::lock::wait::request::{PlaceId, Seq, Waiter};
use crate::lock::{KeyId, UserId};

/// A list of places.
#[derive(Debug, Default)]
struct List {
    head: Option<Slot>,
    tail: Option<Slot>,
}

impl List {
    /// Links a place in behind another one, or at the head.
    fn link(&mut self, places: &mut Places, slot: Slot, before: Option<Slot>) {
        let after = match before.and_then(|before| places.slot_mut(before)) {
            Some(before) => before.in_queue.next.replace(slot),
            None => self.head.replace(slot),
        };
        match after.and_then(|after| places.slot_mut(after)) {
            Some(after) => after.in_queue.prev = Some(slot),
            None => self.tail = Some(slot),
        }
        if let Some(place) = places.slot_mut(slot) {
            place.in_queue = Links {
                prev: before,
                next: after,
            };
        }
    }

    fn unlink(&mut self, places: &mut Places, slot: Slot) {
        let Some(place) = places.slot_mut(slot) else {
            return;
        };
        let Links { prev, next } = std::mem::take(&mut place.in_queue);
        match prev.and_then(|prev| places.slot_mut(prev)) {
            Some(place) => place.in_queue.next = next,
            None => self.head = next,
        }
        match next.and_then(|next| places.slot_mut(next)) {
            Some(place) => place.in_queue.prev = prev,
            None => self.tail = prev,
        }
    }

    fn slots<'a>(&self, places: &'a Places) -> impl Iterator<Item = Slot> + 'a {
        std::iter::successors(self.head, |slot| places.slot(*slot)?.in_queue.next)
    }
}

/// The queue of one key.
#[derive(Debug, Default)]
pub struct Queue {
    list: List,
    /// Empty places that a grant has passed.
    passed: List,
    /// The linked places that were not appended at the end.
    early: BTreeMap<Seq, Slot>,
    live: usize,
    /// How many of the live places are tickets.
    tickets: usize,
}

impl Queue {
    /// The number of waiters.
    pub fn live(&self) -> usize {
        self.live
    }

    fn count(&mut self, waiter: &Waiter) {
        self.live += 1;
        self.tickets += usize::from(waiter.ticket.is_some());
    }

    fn discount(&mut self, waiter: Option<&Waiter>) {
        if let Some(waiter) = waiter {
            self.live -= 1;
            self.tickets -= usize::from(waiter.ticket.is_some());
        }
    }

    /// Whether the queue has no place at all, live or empty.
    pub fn is_empty(&self) -> bool {
        self.list.head.is_none() && self.passed.head.is_none()
    }

    /// Every place, live or empty.
    pub(crate) fn places<'a>(&self, places: &'a Places) -> impl Iterator<Item = PlaceId> + 'a {
        let slots = self.list.slots(places).chain(self.passed.slots(places));
        slots.filter_map(|slot| places.id(slot))
    }

    /// The waiters in the order of the queue.
    pub(crate) fn waiters<'a>(
        &self,
        places: &'a Places,
    ) -> impl Iterator<Item = (&'a [u8], &'a Waiter)> + 'a {
        let places = self.list.slots(places).filter_map(|slot| places.slot(slot));
        places.filter_map(|place| Some((&*place.owner, place.waiter()?)))
    }

    /// The user of the first waiter; unknown behind many empty places.
    pub(super) fn user(&self, places: &Places) -> UserId {
        const LOOKED_AT: usize = 8;
        let slots = self.list.slots(places).take(LOOKED_AT);
        let mut waiters = slots.filter_map(|slot| places.slot(slot)?.waiter());
        waiters.next().map_or(UserId::UNKNOWN, |first| first.user)
    }

    /// Adds a place with this request, at the head of the queue or at its end.
    pub(crate) fn push(
        &mut self,
        places: &mut Places,
        (seq, key): (Seq, KeyId),
        (owner, waiter): (&[u8], Waiter),
        is_first: bool,
    ) -> PlaceId {
        self.count(&waiter);
        let id = places.insert(seq, key, owner, At::Live(waiter));
        let before = match is_first {
            true => None,
            false => self.list.tail,
        };
        if is_first {
            self.early.insert(id.seq, id.slot);
        }
        self.list.link(places, id.slot, before);
        id
    }

    /// Parks a request at an empty place.
    pub(crate) fn occupy(&mut self, places: &mut Places, id: PlaceId, waiter: Waiter) {
        let Some(kept) = places.get(id).and_then(Place::kept) else {
            return;
        };
        let is_passed = kept.is_passed;
        self.count(&waiter);
        places.set(id, At::Live(waiter));
        if is_passed {
            self.passed.unlink(places, id.slot);
            self.link_at_front(places, id);
        }
    }

    /// Empties a live place and keeps it. Returns the request that waited there.
    pub(super) fn vacate(
        &mut self,
        places: &mut Places,
        id: PlaceId,
        kept: Kept,
    ) -> Option<Waiter> {
        // A place that is empty already keeps its own deadline.
        places.waiter(id)?;
        let waiter = places.set(id, At::Empty(kept));
        self.discount(waiter.as_ref());
        waiter
    }

    /// Removes a place, live or empty.
    pub(crate) fn remove(&mut self, places: &mut Places, id: PlaceId) -> Option<Waiter> {
        match places.get(id)?.is_passed() {
            true => self.passed.unlink(places, id.slot),
            false => self.unlink(places, id),
        }
        let waiter = places.remove(id);
        self.discount(waiter.as_ref());
        waiter
    }

    /// Recreates an empty place, whose grant was undone. Returns false when the owner has another place by now.
    pub(super) fn restore(
        &mut self,
        places: &mut Places,
        (seq, key): (Seq, KeyId),
        owner: &[u8],
        kept: Kept,
    ) -> bool {
        if places.of(key.as_ref(), owner).is_some() {
            return false;
        }
        let id = places.insert(seq, key, owner, At::Empty(kept));
        self.pass(places, id.slot);
        true
    }

    /// The first live place. Empty places before it leave the list.
    pub(crate) fn first_live(&mut self, places: &mut Places) -> Option<PlaceId> {
        while let Some(slot) = self.list.head {
            let id = places.id(slot)?;
            if places.waiter(id).is_some() {
                return Some(id);
            }
            self.unlink(places, id);
            self.pass(places, slot);
        }
        None
    }

    fn pass(&mut self, places: &mut Places, slot: Slot) {
        self.passed.link(places, slot, None);
        if let Some(At::Empty(kept)) = places.slot_mut(slot).map(|place| &mut place.at) {
            kept.is_passed = true;
        }
    }

    fn link_at_front(&mut self, places: &mut Places, id: PlaceId) {
        // Places that were appended and are still linked have greater numbers: this one was unlinked at the head.
        let before = self
            .early
            .range(..id.seq)
            .next_back()
            .map(|(_, slot)| *slot);
        self.early.insert(id.seq, id.slot);
        self.list.link(places, id.slot, before);
    }

    fn unlink(&mut self, places: &mut Places, id: PlaceId) {
        self.early.remove(&id.seq);
        self.list.unlink(places, id.slot);
    }
}

/// The queue of one key, to be read.
#[derive(Debug, Clone, Copy)]
pub struct QueueView<'a> {
    pub(super) queue: &'a Queue,
    pub(super) places: &'a Places,
}

impl<'a> QueueView<'a> {
    /// The number of waiters.
    pub fn live(&self) -> usize {
        self.queue.live
    }

    /// The number of tickets among the waiters.
    pub fn tickets(&self) -> usize {
        self.queue.tickets
    }

    /// The waiters in the order of the queue.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], &'a Waiter)> + 'a {
        self.queue.waiters(self.places)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::lock::wait::request::WaiterId;
    use crate::lock::{KeyRef, Now};

    const NOW: Now = Now {
        wall_ms: 0,
        wall_sub_us: 0,
        mono_ms: 0,
    };

    fn waiter(id: u64) -> Waiter {
        Waiter::new(WaiterId(id), 0, None, NOW)
    }

    /// A queue with the places of its owners.
    #[derive(Default)]
    struct QueueWithPlaces {
        queue: Queue,
        places: Places,
        ids: Vec<PlaceId>,
    }

    fn at(number: u64) -> (Seq, KeyId) {
        let key = KeyRef::lock(0, b"k");
        (Seq::new(number).unwrap(), key.to_id())
    }

    fn queue_of(owners: &[&str]) -> QueueWithPlaces {
        let mut queue = QueueWithPlaces::default();
        for (number, owner) in (1..).zip(owners) {
            let owner = owner.as_bytes();
            let id = queue.queue.push(
                &mut queue.places,
                at(number),
                (owner, waiter(number)),
                false,
            );
            queue.ids.push(id);
        }
        queue
    }

    impl QueueWithPlaces {
        fn order(&self) -> String {
            let owners = self.queue.waiters(&self.places);
            let owners = owners.map(|(owner, _)| String::from_utf8_lossy(owner).into_owned());
            owners.collect::<Vec<_>>().join(" ")
        }

        fn remove(&mut self, place: usize) {
            self.queue.remove(&mut self.places, self.ids[place - 1]);
        }

        fn vacate(&mut self, place: usize) {
            let kept = Kept::of(&waiter(0), 0);
            self.queue
                .vacate(&mut self.places, self.ids[place - 1], kept);
        }

        fn occupy(&mut self, place: usize, id: u64) {
            self.queue
                .occupy(&mut self.places, self.ids[place - 1], waiter(id));
        }

        /// The first live place, counted from 1.
        fn first_live(&mut self) -> Option<usize> {
            let first = self.queue.first_live(&mut self.places)?;
            self.ids.iter().position(|id| *id == first).map(|at| at + 1)
        }
    }

    #[test]
    fn first_come_first_served_and_any_place_may_be_removed() {
        let mut queue = queue_of(&["a", "b", "c", "d"]);
        queue.remove(2);
        assert_eq!(queue.order(), "a c d");
        queue.remove(1);
        queue.remove(4);
        assert_eq!((queue.order().as_str(), queue.queue.live()), ("c", 1));
        assert_eq!(queue.first_live(), Some(3));
        queue.remove(3);
        assert!(queue.queue.is_empty() && queue.first_live().is_none());
    }

    #[test]
    fn an_empty_place_is_skipped_and_can_be_taken_again() {
        let mut queue = queue_of(&["a", "b", "c"]);
        queue.vacate(1);
        queue.vacate(2);
        assert_eq!(
            queue.first_live(),
            Some(3),
            "both empty places are passed over"
        );
        queue.occupy(2, 11);
        assert_eq!(queue.order(), "b c");
        queue.occupy(1, 10);
        assert_eq!(queue.order(), "a b c", "places keep the order of arrival");
        assert_eq!(queue.queue.live(), 3);
    }

    #[test]
    fn a_returning_owner_is_linked_behind_returned_owners_with_lower_places() {
        let mut queue = queue_of(&["a", "b", "c"]);
        queue.vacate(1);
        queue.vacate(2);
        assert_eq!(queue.first_live(), Some(3));
        queue.occupy(1, 10);
        queue.occupy(2, 11);
        assert_eq!(queue.order(), "a b c");
    }

    #[test]
    fn an_empty_place_in_the_middle_is_taken_again_where_it_was() {
        let mut queue = queue_of(&["a", "b", "c"]);
        queue.vacate(2);
        assert_eq!(queue.order(), "a c");
        queue.occupy(2, 11);
        assert_eq!(queue.order(), "a b c");
        // A place that is not empty is taken by no other request.
        queue.occupy(2, 12);
        let at_place = queue.places.waiter(queue.ids[1]).unwrap().id;
        assert_eq!((at_place, queue.queue.live()), (WaiterId(11), 3));
    }

    #[test]
    fn a_restored_place_is_the_first() {
        let mut queue = queue_of(&["a", "b"]);
        queue.remove(1);
        let QueueWithPlaces {
            queue: of, places, ..
        } = &mut queue;
        let kept = Kept::of(&waiter(1), 0);
        assert!(of.restore(places, at(1), b"a", kept));
        assert!(!of.restore(places, at(1), b"b", kept));
        queue.ids[0] = queue.places.of(at(1).1.as_ref(), b"a").unwrap();
        assert_eq!(queue.first_live(), Some(2));
        queue.occupy(1, 20);
        assert_eq!(queue.order(), "a b");
    }
}
