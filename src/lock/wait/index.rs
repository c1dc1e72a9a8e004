//! Data for the search for deadlocks: the holders of each key with waiters, and the places of each owner.
//!
//! In a queue only those places matter whose owners wait for other keys too: all other owners wait for the same
//! holders. Each queue has an index of such places, which are few, so the search does not walk along queues.

use std::collections::BTreeMap;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::lock::wait::arena::Slot;
use crate::lock::wait::queue::Queue;
use crate::lock::wait::request::PlaceId;
use crate::lock::wait::request::{Seq, Waiter, WaiterId};
use crate::lock::wait::ticket::Channel;
use crate::lock::{KeyState, Mode, Now, ReadWrite, UserId};

#[derive(Debug, Default)]
pub(crate) struct WaitedKey {
    pub(crate) queue: Queue,
    /// The lease after which the first waiter is due, as last read; an entry of `Waiters::leases`.
    pub(crate) lease_ms: Option<i64>,
    /// The holders of the lock, as last read.
    pub(crate) holders: Holders,
    /// The places that a search for a deadlock visits.
    pub(crate) search_places: SearchPlaces,
    /// The waiters that may be granted the key, as far as was asked in the event of the decision.
    pub(super) heard: SmallVec<[Heard; 1]>,
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

/// A lock with more readers has none of them recorded: a search asks for some by name.
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

impl SearchPlaces {
    pub fn set_mode(&mut self, place: PlaceId, mode: Mode) {
        match mode {
            Mode::Write => self.writers.insert(place.seq, place.slot),
            Mode::Exclusive | Mode::Read => self.writers.remove(&place.seq),
        };
    }
}
