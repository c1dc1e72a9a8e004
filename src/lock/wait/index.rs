//! What a search for a deadlock needs to know at a glance: who holds what is waited for, and who waits
//! where.
//!
//! Of the waiters before somebody in a queue only those matter that wait elsewhere, too: all others wait
//! for the same holders. So each line knows the places of such owners, which are few, and the search
//! does not walk along queues.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use smallvec::SmallVec;

use crate::lock::name::Secret;
use crate::lock::table::give_back;
use crate::lock::wait::queue::Seq;
use crate::lock::wait::Waiters;
use crate::lock::{KeyId, KeyRef, KeyState, Mode, Now, ReadWrite};

/// Who holds a lock, as it was last seen.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Holders {
    /// Each with the end of its lease, Unix milliseconds. (That of a lock with one holder is noted elsewhere,
    /// and this one without end.)
    pub owners: SmallVec<[(Rc<[u8]>, i64); 1]>,
    /// They hold it for reading, and readers are not in each other's way.
    pub shared: bool,
    /// There may be others, or some may have gone: the lock was not read whole.
    pub unsure: bool,
}

impl Holders {
    /// Whoever holds a key in this state.
    pub fn of(state: &KeyState, now: Now) -> Holders {
        if let KeyState::ReadWrite(lock) = state {
            return Holders::of_shared(lock, now);
        }
        match state.hold(now) {
            Some(hold) => Holders::alone((&hold.owner[..]).into()),
            None => Holders::default(),
        }
    }

    /// Whoever reads or writes.
    pub fn of_shared(lock: &ReadWrite, now: Now) -> Holders {
        if let Some(writer) = lock.writer(now) {
            return Holders::alone((&writer.owner[..]).into());
        }
        let readers = lock.readers(now);
        let readers = readers.map(|reader| ((&reader.owner[..]).into(), reader.until_ms));
        Holders {
            owners: readers.collect(),
            shared: true,
            unsure: !lock.is_whole && !lock.is_over(now),
        }
    }

    pub fn alone(owner: Rc<[u8]>) -> Holders {
        Holders {
            owners: SmallVec::from_buf([(owner, i64::MAX)]),
            shared: false,
            unsure: false,
        }
    }

    /// Those whose leases are not over.
    pub fn living(&self, now: Now) -> impl Iterator<Item = &Rc<[u8]>> {
        let living = self
            .owners
            .iter()
            .filter(move |(_, end)| *end > now.wall_ms);
        living.map(|(owner, _)| owner)
    }

    /// Whether this owner is one of them.
    pub fn contain(&self, owner: &[u8], now: Now) -> bool {
        self.living(now).any(|holder| holder[..] == *owner)
    }
}

/// Places in one line by what they mean to others.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    /// Of owners who wait elsewhere, too.
    pub busy: BTreeSet<Seq>,
    /// Of those who wait to write: readers behind them wait for them.
    pub writers: BTreeSet<Seq>,
}

impl Ranks {
    pub fn set_mode(&mut self, seq: Seq, mode: Mode) {
        match mode {
            Mode::Write => self.writers.insert(seq),
            Mode::Exclusive | Mode::Read => self.writers.remove(&seq),
        };
    }
}

/// The live places of each owner.
#[derive(Debug, Default)]
pub(crate) struct WaitsOf {
    by_owner: HashMap<Rc<[u8]>, Places, Secret>,
}

type Places = SmallVec<[(KeyId, Seq); 1]>;

impl WaitsOf {
    /// Where this owner waits.
    pub fn places(&self, owner: &[u8]) -> &[(KeyId, Seq)] {
        self.by_owner.get(owner).map_or(&[], |places| places)
    }
}

impl Waiters {
    /// A place has become live.
    pub(crate) fn waits(&mut self, key: &KeyId, seq: Seq) {
        let queue = self.lines.get(key).map(|line| &line.queue);
        let Some(owner) = queue.and_then(|queue| queue.owner_of(seq)) else {
            return;
        };
        let places = self.waits_of.by_owner.entry(owner).or_default();
        places.push((key.clone(), seq));
        let now_busy = match &places[..] {
            [] | [_] => &[],
            [_, _] => &places[..],
            [.., last] => std::slice::from_ref(last),
        };
        for (key, seq) in now_busy {
            if let Some(line) = self.lines.get_mut(key) {
                line.ranks.busy.insert(*seq);
            }
        }
    }

    /// A place is live no more.
    pub(crate) fn waits_no_more(&mut self, key: &KeyId, seq: Seq) {
        let Some(line) = self.lines.get_mut(key) else {
            return;
        };
        line.ranks.busy.remove(&seq);
        line.ranks.writers.remove(&seq);
        let Some(owner) = line.queue.owner_of(seq) else {
            return;
        };
        let by_owner = &mut self.waits_of.by_owner;
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
                if let Some(line) = self.lines.get_mut(key) {
                    line.ranks.busy.remove(seq);
                }
            }
            _ => {}
        }
    }

    /// Notes to whom a lock has been handed that others wait for.
    pub(crate) fn set_holder(&mut self, key: KeyRef<'_>, owner: Rc<[u8]>) {
        if let Some(line) = self.lines.get_mut(&key) {
            line.holders = Holders::alone(owner);
        }
    }

    /// Notes who holds a read-write lock that somebody waits for. What was not read whole adds nothing, but
    /// that it is to be read.
    pub(crate) fn set_shared_holders(&mut self, key: KeyRef<'_>, lock: &ReadWrite, now: Now) {
        let Some(line) = self.lines.get_mut(&key) else {
            return;
        };
        let holders = Holders::of_shared(lock, now);
        match holders.unsure && line.holders.shared {
            true => line.holders.unsure = true,
            false => line.holders = holders,
        }
    }

    #[cfg(test)]
    pub(crate) fn set_holders_for_test(&mut self, key: KeyRef<'_>, holders: Holders) {
        if let Some(line) = self.lines.get_mut(&key) {
            line.holders = holders;
        }
    }

    /// Requests of those who hold this lock and wait for it and others are looked at.
    pub(crate) fn schedule_settle_holders(&mut self, key: KeyRef<'_>) {
        let holders = self.lines.get(&key).filter(|_| !self.many.is_empty());
        let owners = holders.map_or(Vec::new(), |line| line.holders.owners.to_vec());
        for (owner, _) in owners {
            self.schedule_settle_owner(key, &owner);
        }
    }

    /// Notes who holds a lock that somebody waits for.
    pub(crate) fn set_holders(&mut self, key: KeyRef<'_>, state: &KeyState, now: Now) {
        let Some(line) = self.lines.get_mut(&key) else {
            return;
        };
        let known = &line.holders;
        let same = match (state, state.hold(now)) {
            (KeyState::ReadWrite(lock), _) => return self.set_shared_holders(key, lock, now),
            (_, Some(hold)) => {
                let known = (known.shared, &known.owners[..]);
                matches!(known, (false, [(one, _)]) if one[..] == hold.owner[..])
            }
            (_, None) => known.owners.is_empty() && !known.unsure,
        };
        if !same {
            line.holders = Holders::of(state, now);
        }
    }
}
