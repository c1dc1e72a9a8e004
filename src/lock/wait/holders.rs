//! Data for the search for deadlocks: the holders of each key with waiters, and the places of each owner.
//!
//! In a queue only those places matter whose owners wait for other keys too: all other owners wait for the same
//! holders. Each queue has an index of such places, which are few, so the search does not walk along queues.

use std::collections::BTreeMap;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::lock::name::Resource;
use crate::lock::wait::arena::Slot;
use crate::lock::wait::places::Others;
use crate::lock::wait::queue::Queue;
use crate::lock::wait::request::{PlaceId, Seq, Waiter, WaiterId};
use crate::lock::wait::ticket::Channel;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyRef, KeyState, Mode, Now, ReadWrite, UserId};

impl Waiters {
    /// Whether this owner, a reader, waits for WRITE and is granted it once there is no other reader: the first in the
    /// queue, or a request on several keys.
    pub fn may_upgrade(&self, key: KeyRef<'_>, owner: &[u8]) -> bool {
        let is_waited = self.waiting_on(key) > 0;
        let waiter = is_waited.then(|| self.waiter_of(key, owner)).flatten();
        let is_next = |request| {
            self.is_multi_key(request)
                || self
                    .first(key)
                    .is_some_and(|(_, first)| first.id == request)
        };
        waiter.is_some_and(|waiter| waiter.mode == Mode::Write && is_next(waiter.id))
    }

    /// Records that a place has become live.
    pub(crate) fn waits(&mut self, place: PlaceId) {
        let waiter = self.places.waiter(place);
        if waiter.is_none_or(|waiter| waiter.resource != Resource::Lock) {
            // A search for a deadlock goes from lock to lock.
            return;
        }
        self.places.ring_in(place);
        match self.places.others_of_owner(place) {
            Others::None => {}
            Others::One(other) => {
                self.set_busy(other, true);
                self.set_busy(place, true);
            }
            Others::More => self.set_busy(place, true),
        }
    }

    /// Records that a place will not be live any more.
    pub(crate) fn waits_no_more(&mut self, place: PlaceId) {
        let others = self.places.others_of_owner(place);
        self.places.ring_out(place);
        self.set_busy(place, false);
        if let Others::One(last) = others {
            self.set_busy(last, false);
        }
        let key = self.key_of(place);
        if let Some(waited) = key.and_then(|key| self.waited.get_mut(&key)) {
            waited.search_places.writers.remove(&place.seq);
        }
    }

    /// Records whether the owner of this place waits for other keys too.
    fn set_busy(&mut self, place: PlaceId, is_busy: bool) {
        let key = self.key_of(place);
        if let Some(waited) = key.and_then(|key| self.waited.get_mut(&key)) {
            match is_busy {
                true => waited.search_places.busy.insert(place.seq, place.slot),
                false => waited.search_places.busy.remove(&place.seq),
            };
        }
    }

    /// Records the holder to which a lock with waiters was granted, and the end of its lease.
    pub(crate) fn set_holder(&mut self, key: KeyRef<'_>, owner: Rc<[u8]>, end_ms: i64) {
        self.set_lease(key, Some(end_ms));
        if let Some(waited) = self.waited.get_mut(&key) {
            waited.holders = Holders::alone(owner);
        }
    }

    /// Records the holders of a read-write lock with waiters. A lock that was not read whole only marks the recorded
    /// readers as partial.
    pub(crate) fn set_shared_holders(&mut self, key: KeyRef<'_>, lock: &ReadWrite, now: Now) {
        let Some(waited) = self.waited.get_mut(&key) else {
            return;
        };
        let holders = Holders::of_shared(lock, now);
        match holders.is_partial && waited.holders.shared {
            true => waited.holders.is_partial = true,
            false => waited.holders = holders,
        }
    }

    #[cfg(test)]
    pub(crate) fn set_holders_for_test(&mut self, key: KeyRef<'_>, holders: Holders) {
        if let Some(waited) = self.waited.get_mut(&key) {
            waited.holders = holders;
        }
    }

    /// Schedules the requests on several keys of the holders of this lock.
    pub(crate) fn schedule_settle_holders(&mut self, key: KeyRef<'_>) {
        let holders = self.waited.get(&key).filter(|_| !self.many.is_empty());
        let owners = holders.map_or(Vec::new(), |waited| waited.holders.owners.to_vec());
        for (owner, _) in owners {
            self.schedule_settle_owner(key, &owner);
        }
    }

    /// Records the holders of a lock with waiters.
    pub(crate) fn set_holders(&mut self, key: KeyRef<'_>, state: &KeyState, now: Now) {
        let Some(waited) = self.waited.get_mut(&key) else {
            return;
        };
        let known = &waited.holders;
        let same = match (state, state.hold(now)) {
            (KeyState::ReadWrite(lock), _) => return self.set_shared_holders(key, lock, now),
            (_, Some(hold)) => {
                let known = (known.shared, &known.owners[..]);
                matches!(known, (false, [(one, _)]) if one[..] == hold.owner[..])
            }
            (_, None) => known.owners.is_empty() && !known.is_partial,
        };
        if !same {
            waited.holders = Holders::of(state, now);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct WaitedKey {
    pub(crate) queue: Queue,
    /// The lease after which the first waiter is due, as last read; an entry of `Waiters::leases`.
    pub(crate) lease_ms: Option<i64>,
    /// The user for which that lease is recorded.
    pub(super) lease_user: UserId,
    /// The holders of the lock, as last read.
    pub(crate) holders: Holders,
    /// The places that a search for a deadlock visits.
    pub(crate) search_places: SearchPlaces,
    /// The waiters that may be granted the key, as far as was asked in the event of the decision.
    pub(super) heard: SmallVec<[Heard; 1]>,
    /// Whether the loss of the key was reported as it was deleted, and other data may be there now.
    pub(super) is_lost: bool,
    /// Where not every change of a key is reported: what the shell saw of it last.
    pub(super) seen: i64,
}

/// A waiter that may be granted the key. So may each one for an exclusive hold, of the same user and channel.
#[derive(Debug)]
pub(super) struct Heard {
    pub request: WaiterId,
    /// Of a ticket: its channel.
    pub channel: Option<Rc<Channel>>,
    pub user: UserId,
    pub mode: Mode,
}

impl WaitedKey {
    /// A waiter joins the queue. The channel of a ticket is asked for once more before a grant.
    pub(super) fn forget_heard(&mut self, joins: &Waiter) {
        if let Some(joined) = joins.channel() {
            let is_other = |channel: &Rc<Channel>| !Rc::ptr_eq(channel, joined);
            self.heard
                .retain(|heard| heard.channel.as_ref().is_none_or(is_other));
        }
    }
}

/// A lock with more readers has none of them recorded.
pub const MOST_READERS: usize = 64;

/// The holders of a lock, as last read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Holders {
    /// Each holder with the end of its lease in Unix milliseconds. (A lock with one holder has its lease in
    /// `WaitedKey::lease_ms`, and `i64::MAX` here.)
    pub owners: SmallVec<[(Rc<[u8]>, i64); 1]>,
    /// The holders are readers, which are compatible with each other.
    pub shared: bool,
    /// The lock was not read whole, or has many readers: holders may be missing, or some may have ended.
    pub is_partial: bool,
}

impl Holders {
    /// The holders of a key in this state.
    pub fn of(state: &KeyState, now: Now) -> Holders {
        if let KeyState::ReadWrite(lock) = state {
            return Holders::of_shared(lock, now);
        }
        match state.hold(now) {
            Some(hold) => Holders::alone((&hold.owner[..]).into()),
            None => Holders::default(),
        }
    }

    /// The writer or the readers of a lock.
    pub fn of_shared(lock: &ReadWrite, now: Now) -> Holders {
        if let Some(writer) = lock.writer(now) {
            return Holders::alone((&writer.owner[..]).into());
        }
        let has_many = lock.readers(now).nth(MOST_READERS).is_some();
        let readers = lock
            .readers(now)
            .take(if has_many { 0 } else { MOST_READERS });
        let readers = readers.map(|reader| ((&reader.owner[..]).into(), reader.until_ms));
        Holders {
            owners: readers.collect(),
            shared: true,
            is_partial: has_many || (!lock.is_whole && !lock.is_over(now)),
        }
    }

    pub fn alone(owner: Rc<[u8]>) -> Holders {
        Holders {
            owners: SmallVec::from_buf([(owner, i64::MAX)]),
            shared: false,
            is_partial: false,
        }
    }

    /// The holders whose leases are not over.
    pub fn unexpired(&self, now: Now) -> impl Iterator<Item = &Rc<[u8]>> {
        let unexpired = self
            .owners
            .iter()
            .filter(move |(_, end)| *end > now.wall_ms);
        unexpired.map(|(owner, _)| owner)
    }

    /// Whether this owner is a holder whose lease is not over.
    pub fn contain(&self, owner: &[u8], now: Now) -> bool {
        self.unexpired(now).any(|holder| holder[..] == *owner)
    }
}

/// The places of one queue that a search visits.
#[derive(Debug, Default)]
pub(crate) struct SearchPlaces {
    /// Places of owners that wait for other keys too.
    pub busy: BTreeMap<Seq, Slot>,
    /// Places of requests for WRITE: readers behind them wait for them.
    pub writers: BTreeMap<Seq, Slot>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::lock::{Waiter, WaiterId};

    #[test]
    fn a_lock_without_holders_is_known_whole() {
        let (mut waiters, now) = (Waiters::default(), Now::at_mono(0));
        let key = KeyRef::lock(0, b"k");
        let waiter = Waiter::new(WaiterId(1), 0, None, now);
        waiters.enqueue_for_test(key, b"w", &waiter);
        let partial = Holders {
            is_partial: true,
            ..Holders::default()
        };
        waiters.set_holders_for_test(key, partial);
        waiters.set_holders(key, &KeyState::Absent, now);
        assert!(!waiters.waited.get(&key).unwrap().holders.is_partial);
    }
}
