//! A place in a queue. It belongs to an owner and is numbered in the order of arrival. It is live while a request of
//! the owner waits there. When the connection closes or the wait runs out, the place stays *empty* for a grace time, so
//! that a client that asks again continues at the same place.

use crate::lock::name::UserOwner;
use crate::lock::wait::arena::Slot;
use crate::lock::wait::limits::Usage;
use crate::lock::wait::request::{Seq, Waiter};
use crate::lock::{KeyId, Mode, Now, UserId};

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
    /// For `LOCK.TOP`: up to when the time of its request is counted, in milliseconds of the monotonic clock modulo
    /// 2^32: requests that are not replaced for 50 days are counted too low.
    pub counted_ms: u32,
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
    /// The place of this request, which leaves it now.
    pub fn of(waiter: &Waiter, now: Now, grace_ms: u64) -> Kept {
        Kept {
            until_ms: now.mono_ms.saturating_add(grace_ms),
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
        let counted_ms = match &at {
            At::Live(waiter) => waiter.since_ms as u32,
            At::Empty(_) => 0,
        };
        Place {
            seq,
            key,
            owner: owner.into(),
            at,
            in_queue: Links::default(),
            of_owner: Links::default(),
            in_heap: 0,
            counted_ms,
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
    pub fn usage(&self) -> Usage {
        let names = self.key.as_ref().name.len() + self.owner.len();
        match &self.at {
            At::Live(waiter) => match &waiter.ticket {
                Some(ticket) => Usage::place(true, names + ticket.names()),
                None => Usage::place(false, names),
            },
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
mod tests {
    use super::*;

    #[test]
    fn a_place_takes_two_cache_lines() {
        assert_eq!(size_of::<Place>(), 128);
    }
}
