//! A place in a queue. It belongs to an owner and is numbered in the order of arrival. It is live while a request of
//! the owner waits there. When the connection closes or the wait runs out, the place stays *empty* for a grace time, so
//! that a client that asks again continues at the same place.

use crate::lock::wait::arena::Slot;
use crate::lock::wait::request::{Seq, Waiter};
use crate::lock::KeyId;

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
    /// Whether a grant has passed this empty place.
    pub is_passed: bool,
}

#[derive(Debug)]
pub(super) enum At {
    Live(Waiter),
    /// Kept for its owner until this moment, in milliseconds of the monotonic clock.
    Empty(u64),
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
            is_passed: false,
        }
    }

    pub fn waiter(&self) -> Option<&Waiter> {
        match &self.at {
            At::Live(waiter) => Some(waiter),
            At::Empty(_) => None,
        }
    }

    /// The next deadline in milliseconds of the monotonic clock: the end of the wait, or of the grace time.
    pub fn due(&self) -> Option<u64> {
        match &self.at {
            At::Live(waiter) => waiter.deadline_ms(),
            At::Empty(until_ms) => Some(*until_ms),
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
