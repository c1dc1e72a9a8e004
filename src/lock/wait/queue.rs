//! The queue of one key: first come, first served.
//!
//! A *place* belongs to an owner and is numbered in the order of arrival. It is live while the owner's request is
//! parked. When the connection closes or the wait runs out, the place stays *empty* for a grace time, so that a client
//! that asks again continues at the same place.
//!
//! Places form a doubly linked list through a map: parking, cancelling and taking the head cost the same at any length.
//! Empty places at the head are unlinked when a grant passes them (each at most once). An owner that returns to such a
//! place is linked in again near the front, behind returned owners with lower numbers only. An index of the places that
//! were linked in there names the one before it.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use crate::lock::table::give_back;
use crate::lock::wait::request::{Seq, Waiter};

#[derive(Debug)]
struct Place {
    owner: Rc<[u8]>,
    at: At,
    linked: bool,
    prev: Option<Seq>,
    next: Option<Seq>,
}

#[derive(Debug)]
enum At {
    Live(Waiter),
    /// Kept for its owner until this moment, in milliseconds of the monotonic clock.
    Empty(u64),
}

impl Place {
    fn new(owner: Rc<[u8]>, at: At) -> Place {
        Place {
            owner,
            at,
            linked: false,
            prev: None,
            next: None,
        }
    }

    fn waiter(&self) -> Option<&Waiter> {
        match &self.at {
            At::Live(waiter) => Some(waiter),
            At::Empty(_) => None,
        }
    }
}

impl At {
    fn into_waiter(self) -> Option<Waiter> {
        match self {
            At::Live(waiter) => Some(waiter),
            At::Empty(_) => None,
        }
    }
}

/// The queue of one key.
#[derive(Debug, Default)]
pub struct Queue {
    places: HashMap<Seq, Place>,
    by_owner: HashMap<Rc<[u8]>, Seq>,
    head: Option<Seq>,
    tail: Option<Seq>,
    /// The linked places that were not appended at the end.
    early: BTreeSet<Seq>,
    live: usize,
    /// How many of the live places are tickets.
    tickets: usize,
}

impl Queue {
    /// The number of waiters.
    pub fn live(&self) -> usize {
        self.live
    }

    /// The number of tickets among the waiters.
    pub fn tickets(&self) -> usize {
        self.tickets
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
        self.places.is_empty()
    }

    /// The owner's place, live or empty.
    pub fn place_of(&self, owner: &[u8]) -> Option<Seq> {
        self.by_owner.get(owner).copied()
    }

    /// The owner of a place.
    pub fn owner_of(&self, seq: Seq) -> Option<Rc<[u8]>> {
        self.places.get(&seq).map(|place| place.owner.clone())
    }

    /// The request parked at a place; `None` when the place is empty.
    pub fn waiter(&self, seq: Seq) -> Option<&Waiter> {
        self.places.get(&seq)?.waiter()
    }

    /// The owner and the request at a place; `None` when the place is empty.
    pub fn at(&self, seq: Seq) -> Option<(&[u8], &Waiter)> {
        let place = self.places.get(&seq)?;
        Some((&place.owner, place.waiter()?))
    }

    /// The next deadline of a place in milliseconds of the monotonic clock: the end of its wait, or of its grace time.
    pub fn due(&self, seq: Seq) -> Option<u64> {
        match &self.places.get(&seq)?.at {
            At::Live(waiter) => waiter.deadline_ms,
            At::Empty(until_ms) => Some(*until_ms),
        }
    }

    /// The parked requests in the order of the queue.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &Waiter)> {
        let follow = |seq: Option<Seq>| seq.and_then(|seq| self.places.get(&seq));
        std::iter::successors(follow(self.head), move |place| follow(place.next))
            .filter_map(|place| Some((&*place.owner, place.waiter()?)))
    }

    /// Appends a place with this request at the end of the queue.
    pub fn push(&mut self, seq: Seq, owner: &[u8], waiter: Waiter) {
        let owner: Rc<[u8]> = owner.into();
        self.by_owner.insert(owner.clone(), seq);
        self.count(&waiter);
        self.places.insert(seq, Place::new(owner, At::Live(waiter)));
        self.link(seq, self.tail);
    }

    /// Inserts a place with this request at the head of the queue.
    pub fn push_front(&mut self, seq: Seq, owner: &[u8], waiter: Waiter) {
        let owner: Rc<[u8]> = owner.into();
        self.by_owner.insert(owner.clone(), seq);
        self.count(&waiter);
        self.places.insert(seq, Place::new(owner, At::Live(waiter)));
        self.early.insert(seq);
        self.link(seq, None);
    }

    /// Parks a request at an existing place. Returns the request that it replaces, if any.
    pub fn occupy(&mut self, seq: Seq, waiter: Waiter) -> Option<Waiter> {
        self.places.get(&seq)?;
        self.count(&waiter);
        let place = self.places.get_mut(&seq)?;
        let linked = place.linked;
        let old = std::mem::replace(&mut place.at, At::Live(waiter)).into_waiter();
        self.discount(old.as_ref());
        if !linked {
            self.link_at_front(seq);
        }
        old
    }

    /// Empties a live place and keeps it until `until_ms`. Returns the request that was parked there.
    pub fn vacate(&mut self, seq: Seq, until_ms: u64) -> Option<Waiter> {
        let place = self.places.get_mut(&seq)?;
        // A place that is empty already keeps its own deadline.
        place.waiter()?;
        let waiter = std::mem::replace(&mut place.at, At::Empty(until_ms)).into_waiter();
        self.discount(waiter.as_ref());
        waiter
    }

    /// Removes a place, live or empty.
    pub fn remove(&mut self, seq: Seq) -> Option<Waiter> {
        self.unlink(seq);
        let place = self.places.remove(&seq)?;
        self.by_owner.remove(&place.owner);
        give_back(&mut self.places);
        give_back(&mut self.by_owner);
        let waiter = place.at.into_waiter();
        self.discount(waiter.as_ref());
        waiter
    }

    /// Recreates an empty place, whose grant was undone, until `until_ms`. Returns false when the owner has another
    /// place by now.
    pub fn restore(&mut self, seq: Seq, owner: &[u8], until_ms: u64) -> bool {
        if self.by_owner.contains_key(owner) {
            return false;
        }
        let owner: Rc<[u8]> = owner.into();
        self.by_owner.insert(owner.clone(), seq);
        self.places
            .insert(seq, Place::new(owner, At::Empty(until_ms)));
        true
    }

    /// The first live place. Empty places before it are unlinked, and kept in the map.
    pub fn first_live(&mut self) -> Option<Seq> {
        while let Some(seq) = self.head {
            if self.places.get(&seq)?.waiter().is_some() {
                return Some(seq);
            }
            self.unlink(seq);
        }
        None
    }

    /// Every place, in no defined order.
    pub fn places(&self) -> impl Iterator<Item = Seq> + '_ {
        self.places.keys().copied()
    }

    fn link_at_front(&mut self, seq: Seq) {
        // Places that were appended and are still linked have greater numbers: this one was unlinked at the head.
        let before = self.early.range(..seq).next_back().copied();
        self.early.insert(seq);
        self.link(seq, before);
    }

    fn link(&mut self, seq: Seq, before: Option<Seq>) {
        let after = match before {
            Some(prev) => self.places.get_mut(&prev).and_then(|p| p.next.replace(seq)),
            None => self.head.replace(seq),
        };
        match after {
            Some(next) => {
                if let Some(place) = self.places.get_mut(&next) {
                    place.prev = Some(seq);
                }
            }
            None => self.tail = Some(seq),
        }
        if let Some(place) = self.places.get_mut(&seq) {
            (place.linked, place.prev, place.next) = (true, before, after);
        }
    }

    fn unlink(&mut self, seq: Seq) {
        let Some(place) = self.places.get_mut(&seq).filter(|place| place.linked) else {
            return;
        };
        place.linked = false;
        self.early.remove(&seq);
        let (prev, next) = (place.prev.take(), place.next.take());
        match prev.and_then(|prev| self.places.get_mut(&prev)) {
            Some(place) => place.next = next,
            None => self.head = next,
        }
        match next.and_then(|next| self.places.get_mut(&next)) {
            Some(place) => place.prev = prev,
            None => self.tail = prev,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::lock::wait::request::WaiterId;
    use crate::lock::{Lease, Mode};

    fn waiter(id: u64) -> Waiter {
        Waiter {
            id: WaiterId(id),
            mode: Mode::Exclusive,
            lease: Lease::from_ms(1).unwrap(),
            session: false,
            deadline_ms: None,
            since_ms: 0,
            client: 0,
            limit: None,
            ticket: None,
        }
    }

    fn seq(number: u64) -> Seq {
        Seq::new(number).unwrap()
    }

    fn queue_of(owners: &[&str]) -> Queue {
        let mut queue = Queue::default();
        for (number, owner) in (1..).zip(owners) {
            queue.push(seq(number), owner.as_bytes(), waiter(number));
        }
        queue
    }

    fn order(queue: &Queue) -> String {
        let owners = queue
            .iter()
            .map(|(owner, _)| String::from_utf8_lossy(owner).into_owned());
        owners.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn first_come_first_served_and_any_place_may_be_removed() {
        let mut queue = queue_of(&["a", "b", "c", "d"]);
        queue.remove(seq(2));
        assert_eq!(order(&queue), "a c d");
        queue.remove(seq(1));
        queue.remove(seq(4));
        assert_eq!((order(&queue).as_str(), queue.live()), ("c", 1));
        assert_eq!(queue.first_live(), Some(seq(3)));
        queue.remove(seq(3));
        assert!(queue.is_empty() && queue.first_live().is_none());
    }

    #[test]
    fn an_empty_place_is_skipped_and_can_be_taken_again() {
        let mut queue = queue_of(&["a", "b", "c"]);
        queue.vacate(seq(1), 0);
        queue.vacate(seq(2), 0);
        assert_eq!(
            queue.first_live(),
            Some(seq(3)),
            "both empty places are passed over"
        );
        queue.occupy(seq(2), waiter(11));
        assert_eq!(order(&queue), "b c");
        queue.occupy(seq(1), waiter(10));
        assert_eq!(order(&queue), "a b c", "places keep the order of arrival");
        assert_eq!(queue.live(), 3);
    }

    #[test]
    fn a_returning_owner_is_linked_behind_returned_owners_with_lower_places() {
        let mut queue = queue_of(&["a", "b", "c"]);
        queue.vacate(seq(1), 0);
        queue.vacate(seq(2), 0);
        assert_eq!(queue.first_live(), Some(seq(3)));
        queue.occupy(seq(1), waiter(10));
        queue.occupy(seq(2), waiter(11));
        assert_eq!(order(&queue), "a b c");
    }

    #[test]
    fn an_empty_place_in_the_middle_is_taken_again_where_it_was() {
        let mut queue = queue_of(&["a", "b", "c"]);
        queue.vacate(seq(2), 0);
        assert_eq!(order(&queue), "a c");
        assert_eq!(queue.occupy(seq(2), waiter(11)), None);
        assert_eq!(order(&queue), "a b c");
        assert_eq!(queue.occupy(seq(2), waiter(12)).unwrap().id, WaiterId(11));
    }

    #[test]
    fn a_restored_place_is_the_first() {
        let mut queue = queue_of(&["a", "b"]);
        queue.remove(seq(1));
        assert!(queue.restore(seq(1), b"a", 0));
        assert!(!queue.restore(seq(1), b"b", 0));
        assert_eq!(queue.first_live(), Some(seq(2)));
        queue.occupy(seq(1), waiter(20));
        assert_eq!(order(&queue), "a b");
    }
}
