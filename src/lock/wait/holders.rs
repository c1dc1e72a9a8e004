//! The upkeep of the data that a search for a deadlock reads: the live places of each owner and the holders of each key
//! with waiters.

use std::rc::Rc;

use crate::lock::resource::Resource;
use crate::lock::wait::index::Holders;
use crate::lock::wait::places::Others;
use crate::lock::wait::request::PlaceId;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyRef, KeyState, Mode, Now, ReadWrite};

impl Waiters {
    /// Whether a parked request of this owner asks for WRITE here.
    pub fn waits_to_write(&self, key: KeyRef<'_>, owner: &[u8]) -> bool {
        let is_waited = self.live_on(key) > 0;
        let place = is_waited.then(|| self.places.of(key, owner)).flatten();
        let waiter = place.and_then(|place| self.places.waiter(place));
        waiter.is_some_and(|waiter| waiter.mode == Mode::Write)
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

    /// Records the holder to which a lock with waiters was granted.
    pub(crate) fn set_holder(&mut self, key: KeyRef<'_>, owner: Rc<[u8]>) {
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
