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
use crate::lock::wait::queue::Queue;
use crate::lock::wait::request::Seq;
use crate::lock::{KeyId, KeyState, Mode, Now, ReadWrite};

#[derive(Debug, Default)]
pub(crate) struct WaitedKey {
    pub(crate) queue: Queue,
    /// The lease that the waiters wait out, as last seen; an entry of `leases`.
    pub(crate) lease_ms: Option<i64>,
    /// Who holds the lock, as last seen.
    pub(crate) holders: Holders,
    /// Places that a search for a deadlock looks at.
    pub(crate) search_places: SearchPlaces,
}

/// Who holds a lock, as it was last seen.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Holders {
    /// Each with the end of its lease, Unix milliseconds. (That of a lock with one holder is noted elsewhere,
    /// and this one without end.)
    pub owners: SmallVec<[(Rc<[u8]>, i64); 1]>,
    /// They hold it for reading, and readers are not in each other's way.
    pub shared: bool,
    /// There may be others, or some may have gone: the lock was not read whole.
    pub is_partial: bool,
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
            is_partial: !lock.is_whole && !lock.is_over(now),
        }
    }

    pub fn alone(owner: Rc<[u8]>) -> Holders {
        Holders {
            owners: SmallVec::from_buf([(owner, i64::MAX)]),
            shared: false,
            is_partial: false,
        }
    }

    /// Those whose leases are not over.
    pub fn unexpired(&self, now: Now) -> impl Iterator<Item = &Rc<[u8]>> {
        let unexpired = self
            .owners
            .iter()
            .filter(move |(_, end)| *end > now.wall_ms);
        unexpired.map(|(owner, _)| owner)
    }

    /// Whether this owner is one of them.
    pub fn contain(&self, owner: &[u8], now: Now) -> bool {
        self.unexpired(now).any(|holder| holder[..] == *owner)
    }
}

/// Places in one line by what they mean to others.
#[derive(Debug, Default)]
pub(crate) struct SearchPlaces {
    /// Of owners who wait elsewhere, too.
    pub busy: BTreeSet<Seq>,
    /// Of those who wait to write: readers behind them wait for them.
    pub writers: BTreeSet<Seq>,
}

impl SearchPlaces {
    pub fn set_mode(&mut self, seq: Seq, mode: Mode) {
        match mode {
            Mode::Write => self.writers.insert(seq),
            Mode::Exclusive | Mode::Read => self.writers.remove(&seq),
        };
    }
}

/// The live places of each owner.
#[derive(Debug, Default)]
pub(crate) struct PlacesByOwner {
    pub(super) by_owner: HashMap<Rc<[u8]>, Places, Secret>,
}

pub(super) type Places = SmallVec<[(KeyId, Seq); 1]>;

impl PlacesByOwner {
    /// Where this owner waits.
    pub fn places(&self, owner: &[u8]) -> &[(KeyId, Seq)] {
        self.by_owner.get(owner).map_or(&[], |places| places)
    }
}
