//! A place in a queue. It belongs to an owner and is numbered in the order of arrival. It is live while a request of
//! the owner waits there. When the connection closes or the wait runs out, the place stays *empty* for a grace time,
//! so that a client that asks again continues at the same place.
//!
//! The places of all queues of one server, each stored once.
//!
//! A ticket may take 256 bytes at most, so places refer to each other by slots of four bytes: the neighbours in the
//! queue, the ring of the live places of an owner, and three tables (by key and owner, by owner, by request).
//! Deadlines are a heap of slots for each user.

use std::collections::hash_map::{Entry, HashMap};
use std::hash::{BuildHasher, BuildHasherDefault};

use crate::lock::name::{OwnerAtRef, Secret, UserOwner};
use crate::lock::table::give_back;
use crate::lock::wait::arena::{Arena, Deadlines, Slot, SlotTable};
use crate::lock::wait::limits::Usage;
use crate::lock::wait::request::{OwnNumber, PlaceId, Seq, Waiter, WaiterId};
use crate::lock::wait::ticket::Ticket;
use crate::lock::wait::turns::Round;
use crate::lock::{KeyId, KeyRef, Mode, UserId};

/// The live places of an owner beside one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    None,
    One(PlaceId),
    More,
}

#[derive(Debug, Default)]
pub(crate) struct Places {
    arena: Arena<Place>,
    by_owner_at: SlotTable,
    /// The first live place of each owner.
    by_owner: SlotTable,
    /// The place of each request; of one on several keys the first.
    by_request: SlotTable,
    /// The turns of users whose places have deadlines that have passed.
    round: Round<u64>,
    /// The places with a deadline.
    timed: usize,
    /// The notes of requests, of those that have one, by their places.
    notes: HashMap<Slot, Box<[u8]>, BuildHasherDefault<OwnNumber>>,
    /// Requests that wait with a ticket.
    pub(super) tickets: usize,
    used: Usage,
    users: HashMap<UserId, OfUser, BuildHasherDefault<OwnNumber>>,
    secret: Secret,
    /// Places that were read.
    #[cfg(test)]
    pub looks: std::cell::Cell<usize>,
}

impl Places {
    /// Live and kept places.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.arena.len()
    }

    /// Live places.
    #[cfg(test)]
    pub fn live(&self) -> usize {
        self.used.parked + self.used.tickets
    }

    /// What all places use.
    pub fn used(&self) -> Usage {
        self.used
    }

    /// What the places of a user use.
    pub fn used_by(&self, user: UserId) -> Usage {
        let user = self.users.get(&user);
        user.map_or(Usage::default(), |of_user| of_user.usage)
    }

    /// The users with places.
    pub fn users(&self) -> impl Iterator<Item = UserId> + '_ {
        self.users.keys().copied()
    }

    /// Requests.
    pub fn requests(&self) -> usize {
        self.by_request.len()
    }

    /// Asserts that the usages are the sums of those of the places.
    #[cfg(test)]
    pub fn assert_usage(&self) {
        let (mut used, mut used_by) = (Usage::default(), HashMap::<UserId, Usage>::new());
        for (slot, _) in self.arena.iter() {
            if let Some((user, usage)) = self.usage(slot) {
                used = used.plus(usage);
                let own = used_by.entry(user).or_default();
                *own = own.plus(usage);
            }
        }
        assert_eq!(self.used, used, "the usage of all");
        let users = self.users.iter();
        let known = users.map(|(user, of_user)| (*user, of_user.usage));
        assert_eq!(
            known.collect::<HashMap<_, _>>(),
            used_by,
            "the usage of users"
        );
        let noted = self
            .notes
            .keys()
            .filter(|slot| self.request_at(**slot).is_some());
        assert_eq!(noted.count(), self.notes.len(), "a note without a request");
    }

    /// A fault: one byte is taken that no place returns.
    #[cfg(test)]
    pub fn forget_a_byte(&mut self) {
        self.used.bytes += 1;
    }

    /// The places, live or empty, in no order, and whether each has a note.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Place, bool)> {
        let places = self.arena.iter();
        places.map(|(slot, place)| (place, self.note_at(slot).is_some()))
    }

    /// The requests of a chunk of places; `None` behind the last chunk.
    pub fn chunk(&self, number: usize) -> Option<impl Iterator<Item = &Waiter>> {
        let places = self.arena.chunk(number)?;
        Some(places.filter_map(|(_, place)| place.waiter()))
    }

    pub(super) fn slot(&self, slot: Slot) -> Option<&Place> {
        self.arena.get(slot)
    }

    pub(super) fn slot_mut(&mut self, slot: Slot) -> Option<&mut Place> {
        self.arena.get_mut(slot)
    }

    pub(super) fn id(&self, slot: Slot) -> Option<PlaceId> {
        let seq = self.arena.get(slot)?.seq;
        Some(PlaceId { seq, slot })
    }

    /// A place, live or empty.
    pub(super) fn get(&self, id: PlaceId) -> Option<&Place> {
        #[cfg(test)]
        self.looks.set(self.looks.get() + 1);
        self.arena.get(id.slot).filter(|place| place.seq == id.seq)
    }

    /// The request at a place; `None` when it is empty.
    pub fn waiter(&self, id: PlaceId) -> Option<&Waiter> {
        self.get(id)?.waiter()
    }

    /// The owner and the request at a place; `None` when it is empty.
    pub fn at(&self, id: PlaceId) -> Option<(&[u8], &Waiter)> {
        let place = self.get(id)?;
        Some((&place.owner, place.waiter()?))
    }

    /// The owner's place at a key, live or empty.
    pub fn of(&self, key: KeyRef<'_>, owner: &[u8]) -> Option<PlaceId> {
        if self.arena.len() == 0 {
            // Fast path of a plain acquire: no hash.
            return None;
        }
        let hash = self.secret.hash_one(OwnerAtRef { key, owner });
        let is_it = |slot| {
            let place = self.arena.get(slot);
            place.is_some_and(|place| *place.owner == *owner && place.key.as_ref() == key)
        };
        self.id(self.by_owner_at.find(hash, is_it)?)
    }

    /// The place of a request; of one on several keys the first.
    pub fn of_request(&self, request: WaiterId) -> Option<PlaceId> {
        let is_it = |slot| self.request_at(slot) == Some(request);
        self.id(self.by_request.find(request.hash(), is_it)?)
    }

    fn request_at(&self, slot: Slot) -> Option<WaiterId> {
        Some(self.arena.get(slot)?.waiter()?.id)
    }

    /// The live places of this owner, in the order in which they became live.
    pub fn of_owner(&self, owner: UserOwner<'_>) -> impl Iterator<Item = PlaceId> + '_ {
        let first = self.first_of_owner(owner);
        let next = move |slot: &Slot| {
            let next = self.arena.get(*slot)?.of_owner.next;
            next.filter(|next| Some(*next) != first)
        };
        std::iter::successors(first, next).filter_map(|slot| self.id(slot))
    }

    fn first_of_owner(&self, owner: UserOwner<'_>) -> Option<Slot> {
        let is_its = |slot| self.arena.get(slot).and_then(Place::of_user) == Some(owner);
        self.by_owner.find(self.secret.hash_one(owner), is_its)
    }

    /// Stores a new place.
    pub(super) fn insert(&mut self, seq: Seq, key: KeyId, owner: &[u8], at: At) -> PlaceId {
        let slot = self.arena.insert(Place::new(seq, key, owner, at));
        let hash = |slot| hash_at_key(&self.arena, &self.secret, slot);
        self.by_owner_at.insert(slot, hash);
        self.joined(slot);
        PlaceId { seq, slot }
    }

    /// Removes a place, live or empty, that is in no list.
    pub(super) fn remove(&mut self, id: PlaceId) -> Option<Waiter> {
        self.get(id)?;
        self.leaves(id.slot);
        let hash = |slot| hash_at_key(&self.arena, &self.secret, slot);
        self.by_owner_at.remove(id.slot, hash);
        self.arena.remove(id.slot)?.at.into_waiter()
    }

    /// Puts a request at a place, or none until a moment. Returns the request that was there.
    pub(super) fn set(&mut self, id: PlaceId, at: At) -> Option<Waiter> {
        self.get(id)?;
        self.leaves(id.slot);
        let place = self.arena.get_mut(id.slot)?;
        let was = std::mem::replace(&mut place.at, at);
        self.joined(id.slot);
        was.into_waiter()
    }

    /// Counts this place, and watches its deadline.
    fn joined(&mut self, slot: Slot) {
        if let Some((user, usage)) = self.usage(slot) {
            self.used = self.used.plus(usage);
            let of_user = self.users.entry(user).or_default();
            of_user.usage = of_user.usage.plus(usage);
            if let Some(due) = self.arena.get(slot).and_then(Place::due) {
                self.round.add(due);
                self.timed += 1;
                of_user.deadlines.insert(&mut self.arena, slot);
            }
        }
    }

    /// Returns exactly what was counted: what a usage is computed from changes only between this call and
    /// [`Places::joined`].
    fn discount(&mut self, slot: Slot) {
        let Some((user, usage)) = self.usage(slot) else {
            return;
        };
        self.used = self.used.minus(usage);
        if let Entry::Occupied(mut of_user) = self.users.entry(user) {
            let own = of_user.get_mut();
            own.usage = own.usage.minus(usage);
            self.timed -= usize::from(own.deadlines.remove(&mut self.arena, slot));
            if own.usage == Usage::default() {
                of_user.remove();
            }
        }
        self.note_earliest();
    }

    /// The request or the empty place goes, with all that it has.
    fn leaves(&mut self, slot: Slot) {
        self.discount(slot);
        if !self.notes.is_empty() {
            self.notes.remove(&slot);
            give_back(&mut self.notes);
        }
        if let Some(request) = self.request_at(slot) {
            self.forget(request);
        }
    }

    /// What a place counts towards the limits, and whose usage it is.
    pub(super) fn usage(&self, slot: Slot) -> Option<(UserId, Usage)> {
        let place = self.arena.get(slot)?;
        let note = self.note_at(slot).map_or(0, <[u8]>::len);
        Some((place.user(), place.usage(note)))
    }

    fn note_at(&self, slot: Slot) -> Option<&[u8]> {
        match self.notes.is_empty() {
            true => None,
            false => self.notes.get(&slot).map(Box::as_ref),
        }
    }

    /// The note of a request.
    pub fn note_of(&self, request: WaiterId) -> Option<&[u8]> {
        match self.notes.is_empty() {
            true => None,
            false => self.note_at(self.of_request(request)?.slot),
        }
    }

    /// Keeps the note of a request, which has taken its place, until it leaves.
    pub fn set_note(&mut self, request: WaiterId, note: &[u8]) {
        if let Some(PlaceId { slot, .. }) = self.of_request(request) {
            self.discount(slot);
            self.notes.insert(slot, note.into());
            self.joined(slot);
        }
    }

    /// The request of this place, which has no other place or is the first of its places, is found by its number from
    /// now on.
    pub fn enter(&mut self, id: PlaceId) {
        let waiter = self.arena.get(id.slot).and_then(Place::waiter);
        self.tickets += usize::from(waiter.is_some_and(|waiter| waiter.ticket.is_some()));
        let hash = |slot| hash_of_request(&self.arena, slot);
        self.by_request.insert(id.slot, hash);
    }

    /// A request has left its queues, or leaves one of its places. A second call changes nothing. Returns its place.
    pub fn forget(&mut self, request: WaiterId) -> Option<PlaceId> {
        let id = self.of_request(request)?;
        let waiter = self.waiter(id)?;
        self.tickets -= usize::from(waiter.ticket.is_some());
        let hash = |slot| hash_of_request(&self.arena, slot);
        self.by_request.remove(id.slot, hash);
        Some(id)
    }

    /// Appends a live place to the ring of its owner.
    pub(super) fn ring_in(&mut self, id: PlaceId) {
        let Some(owner) = self.get(id).and_then(Place::of_user) else {
            return;
        };
        let Some(first) = self.first_of_owner(owner) else {
            let hash = |slot| hash_of_owner(&self.arena, &self.secret, slot);
            self.by_owner.insert(id.slot, hash);
            return self.join_ring(id.slot, id.slot);
        };
        let last = self.arena.get(first).and_then(|place| place.of_owner.prev);
        self.join_ring(last.unwrap_or(first), id.slot);
        self.join_ring(id.slot, first);
    }

    /// Takes a place out of the ring of its owner.
    pub(super) fn ring_out(&mut self, id: PlaceId) {
        let Some(place) = self.get(id) else { return };
        let Links { prev, next } = place.of_owner;
        let hash = |slot| hash_of_owner(&self.arena, &self.secret, slot);
        if next == Some(id.slot) {
            self.by_owner.remove(id.slot, hash);
        } else if let (Some(before), Some(after)) = (prev, next) {
            // Has an effect if the place was the first of the ring.
            self.by_owner.replace(hash(id.slot), id.slot, after);
            self.join_ring(before, after);
        }
        if let Some(place) = self.arena.get_mut(id.slot) {
            place.of_owner = Links::default();
        }
    }

    /// The other live places of the owner of this live place.
    pub(super) fn others_of_owner(&self, id: PlaceId) -> Others {
        let ring = self.get(id).map(|place| place.of_owner);
        match ring {
            Some(Links {
                prev,
                next: Some(next),
            }) if next != id.slot => match prev == Some(next) {
                true => self.id(next).map_or(Others::None, Others::One),
                false => Others::More,
            },
            _ => Others::None,
        }
    }

    /// Makes these live places neighbours in the ring of their owner.
    fn join_ring(&mut self, before: Slot, after: Slot) {
        if let Some(place) = self.arena.get_mut(before) {
            place.of_owner.next = Some(after);
        }
        if let Some(place) = self.arena.get_mut(after) {
            place.of_owner.prev = Some(before);
        }
    }

    /// No deadline of a place is earlier, in milliseconds of the monotonic clock.
    pub fn next_due(&self) -> Option<u64> {
        self.round.earliest()
    }

    /// The place with the earliest deadline of the next user that has one which has passed. It is returned once.
    pub fn take_due(&mut self, mono_ms: u64) -> Option<PlaceId> {
        let (users, arena) = (&self.users, &self.arena);
        let firsts = || {
            let firsts = users.iter();
            firsts.filter_map(|(user, of_user)| Some((*user, of_user.first_due(arena)?)))
        };
        let of = |user: UserId| users.get(&user)?.first_due(arena);
        let user = self.round.next(mono_ms, |due| due <= mono_ms, firsts, of)?;
        let of_user = self.users.get_mut(&user)?;
        let slot = of_user.deadlines.first()?;
        self.timed -= usize::from(of_user.deadlines.remove(&mut self.arena, slot));
        self.note_earliest();
        self.id(slot)
    }

    /// Deadlines have gone. Where a user is alone, the earliest is exact at once.
    fn note_earliest(&mut self) {
        if self.users.len() <= 1 || self.timed == 0 {
            let users = self.users.values().take(usize::from(self.timed > 0));
            let first = users.filter_map(|of_user| of_user.first_due(&self.arena));
            let first = first.min();
            self.round.set_earliest(first);
        }
    }

    /// The kept places.
    pub fn kept(&self) -> Vec<PlaceId> {
        let users = self.users.values();
        let kept = users.flat_map(|of_user| of_user.deadlines.slots());
        let kept = kept.filter(|slot| self.request_at(*slot).is_none());
        kept.filter_map(|slot| self.id(slot)).collect()
    }
}

/// What the places of a user use, and their deadlines.
#[derive(Debug, Default)]
struct OfUser {
    usage: Usage,
    deadlines: Deadlines,
}

impl OfUser {
    fn first_due(&self, arena: &Arena<Place>) -> Option<u64> {
        arena.get(self.deadlines.first()?)?.due()
    }
}

fn hash_at_key(arena: &Arena<Place>, secret: &Secret, slot: Slot) -> u64 {
    arena.get(slot).map_or(0, |place| {
        secret.hash_one(OwnerAtRef {
            key: place.key.as_ref(),
            owner: &place.owner,
        })
    })
}

fn hash_of_owner(arena: &Arena<Place>, secret: &Secret, slot: Slot) -> u64 {
    let owner = arena.get(slot).and_then(Place::of_user);
    owner.map_or(0, |owner| secret.hash_one(owner))
}

fn hash_of_request(arena: &Arena<Place>, slot: Slot) -> u64 {
    let waiter = arena.get(slot).and_then(Place::waiter);
    waiter.map_or(0, |waiter| waiter.id.hash())
}

#[cfg(test)]
mod tests;

/// Neighbours in a list.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Links {
    pub prev: Option<Slot>,
    pub next: Option<Slot>,
}

#[derive(Debug)]
pub(super) struct Place {
    pub seq: Seq,
    pub key: KeyId,
    pub owner: Box<[u8]>,
    pub at: At,
    /// In the queue, or among its places that were passed.
    pub in_queue: Links,
    /// Among the live places of the owner, which form a ring.
    pub of_owner: Links,
    /// The position in the heap of deadlines, from 1.
    pub in_heap: u32,
}

#[derive(Debug)]
pub(super) enum At {
    Live(Waiter),
    Empty(Kept),
}

/// What is known of an empty place. Its moments are milliseconds of the monotonic clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    /// It is kept for its owner until then.
    pub until_ms: u64,
    /// The arrival of its owner: the wait of an owner that returns has lasted since then.
    pub since_ms: u64,
    /// The user of the last request.
    pub user: UserId,
    /// Whether a grant has passed it.
    pub is_passed: bool,
    /// Set if `BLOCK` of its last request ran out: whether that is a time-out is known when the place goes.
    pub timed_out: Option<TimedOut>,
}

/// A request whose `BLOCK` ran out, and that is in no counter of ends yet.
#[derive(Debug, Clone, Copy)]
pub(super) struct TimedOut {
    pub mode: Mode,
    pub is_ticket: bool,
}

impl Kept {
    /// The place of this request, which leaves it, until this moment.
    pub fn of(waiter: &Waiter, until_ms: u64) -> Kept {
        Kept {
            until_ms,
            since_ms: waiter.since_ms,
            user: waiter.user,
            is_passed: false,
            timed_out: None,
        }
    }
}

impl TimedOut {
    /// This request.
    pub fn of(waiter: &Waiter) -> TimedOut {
        TimedOut {
            mode: waiter.mode,
            is_ticket: waiter.ticket.is_some(),
        }
    }
}

impl Place {
    pub fn new(seq: Seq, key: KeyId, owner: &[u8], at: At) -> Place {
        Place {
            seq,
            key,
            owner: owner.into(),
            at,
            in_queue: Links::default(),
            of_owner: Links::default(),
            in_heap: 0,
        }
    }

    /// The owner, with the user of the request; `None` when the place is empty.
    pub fn of_user(&self) -> Option<UserOwner<'_>> {
        Some(UserOwner {
            db: self.key.as_ref().db,
            user: self.waiter()?.user,
            owner: &self.owner,
        })
    }

    pub fn waiter(&self) -> Option<&Waiter> {
        match &self.at {
            At::Live(waiter) => Some(waiter),
            At::Empty(_) => None,
        }
    }

    /// `None` while a request waits here.
    pub fn kept(&self) -> Option<&Kept> {
        match &self.at {
            At::Live(_) => None,
            At::Empty(kept) => Some(kept),
        }
    }

    /// The user of the request, or of the last one.
    pub fn user(&self) -> UserId {
        match &self.at {
            At::Live(waiter) => waiter.user,
            At::Empty(kept) => kept.user,
        }
    }

    /// What it counts towards the limits.
    pub fn usage(&self, note: usize) -> Usage {
        let names = self.key.as_ref().name.len() + self.owner.len() + note;
        match &self.at {
            At::Live(waiter) => {
                let ticket = waiter.ticket.as_ref();
                let names = names + ticket.map_or(0, Ticket::names);
                Usage::place(ticket.is_some(), names).binding(waiter.session())
            }
            At::Empty(_) => Usage::kept(names),
        }
    }

    /// Whether a grant has passed this empty place.
    pub fn is_passed(&self) -> bool {
        self.kept().is_some_and(|kept| kept.is_passed)
    }

    /// The arrival of its owner.
    pub fn since_ms(&self) -> u64 {
        match &self.at {
            At::Live(waiter) => waiter.since_ms,
            At::Empty(kept) => kept.since_ms,
        }
    }

    /// The next deadline in milliseconds of the monotonic clock: the end of the wait, or of the grace time.
    pub fn due(&self) -> Option<u64> {
        match &self.at {
            At::Live(waiter) => waiter.deadline_ms(),
            At::Empty(kept) => Some(kept.until_ms),
        }
    }
}

impl At {
    pub fn into_waiter(self) -> Option<Waiter> {
        match self {
            At::Live(waiter) => Some(waiter),
            At::Empty(_) => None,
        }
    }
}

#[cfg(test)]
mod size {
    use super::*;

    #[test]
    fn a_place_takes_two_cache_lines() {
        assert_eq!(size_of::<Place>(), 128);
    }
}
