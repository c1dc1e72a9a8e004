//! The upkeep of the data that a search for a deadlock reads: the live places of each owner and the holders of each key
//! with waiters.

use std::rc::Rc;

use crate::lock::table::give_back;
use crate::lock::wait::index::Holders;
use crate::lock::wait::request::Seq;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyId, KeyRef, KeyState, Now, ReadWrite};

impl Waiters {
    /// Records that a place has become live.
    pub(crate) fn waits(&mut self, key: &KeyId, seq: Seq) {
        let queue = self.waited.get(key).map(|waited| &waited.queue);
        let Some(owner) = queue.and_then(|queue| queue.owner_of(seq)) else {
            return;
        };
        let places = self.places_by_owner.by_owner.entry(owner).or_default();
        places.push((key.clone(), seq));
        let now_busy = match &places[..] {
            [] | [_] => &[],
            [_, _] => &places[..],
            [.., last] => std::slice::from_ref(last),
        };
        for (key, seq) in now_busy {
            if let Some(waited) = self.waited.get_mut(key) {
                waited.search_places.busy.insert(*seq);
            }
        }
    }

    /// Records that a place is no longer live.
    pub(crate) fn waits_no_more(&mut self, key: &KeyId, seq: Seq) {
        let Some(waited) = self.waited.get_mut(key) else {
            return;
        };
        waited.search_places.busy.remove(&seq);
        waited.search_places.writers.remove(&seq);
        let Some(owner) = waited.queue.owner_of(seq) else {
            return;
        };
        let by_owner = &mut self.places_by_owner.by_owner;
        let Some(places) = by_owner.get_mut(&owner) else {
            return;
        };
        places.retain(|place| place.1 != seq);
        match &places[..] {
            [] => {
                by_owner.remove(&owner);
                give_back(by_owner);
            }
            [(key, seq)] => {
                if let Some(waited) = self.waited.get_mut(key) {
                    waited.search_places.busy.remove(seq);
                }
            }
            _ => {}
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
