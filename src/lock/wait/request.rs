//! A waiter: its number, its place, its request and, for a request on several keys, its places.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::num::{NonZeroU32, NonZeroU64};
use std::rc::Rc;

use crate::lock::name::Resource;
use crate::lock::wait::arena::Slot;
use crate::lock::wait::ticket::{Channel, Ticket};
use crate::lock::{KeyId, Lease, Mode, Now, Outcome, UserId};

/// The number of a request that waits, shared with the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaiterId(pub u64);

/// A table by [`WaiterId`]. The ids are counted up by this module and no client can choose them, so one multiplication
/// is hash enough.
pub type WaiterMap<V> = HashMap<WaiterId, V, BuildHasherDefault<OwnNumber>>;

/// The hash of a number that this module has counted up.
#[derive(Debug, Default)]
pub struct OwnNumber(u64);

impl WaiterId {
    /// Its hash, as in a [`WaiterMap`].
    pub(super) fn hash(self) -> u64 {
        let mut hasher = OwnNumber::default();
        hasher.write_u64(self.0);
        hasher.finish()
    }
}

impl Hasher for OwnNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((self.0 << 8) ^ u64::from(*byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio.
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// The number of a place: the order of arrival, unique on this server. It is never 0, which halves the size of a link
/// between places.
pub type Seq = NonZeroU64;

/// A place: its number, and where it is stored. One that has been given up is not found any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlaceId {
    /// The order of arrival.
    pub seq: Seq,
    pub(super) slot: Slot,
}

impl PlaceId {
    pub(super) fn new(seq: Seq, slot: Slot) -> PlaceId {
        PlaceId { seq, slot }
    }
}

/// The request of a waiter. There is no room: with one more field a place (128 bytes, a test checks it) needs a third
/// cache line. A flag shares a byte with another; a longer value goes into a table beside the places, as
/// `Places::notes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// Its number.
    pub id: WaiterId,
    /// What it waits for; set when it takes its place.
    pub(crate) resource: Resource,
    /// The kind of hold.
    pub mode: Mode,
    /// The lease of the hold, from the moment of the grant.
    pub lease: Lease,
    pub(crate) terms: Terms,
    /// See [`Waiter::deadline_ms`].
    pub(crate) deadline: Deadline,
    /// The moment of parking in milliseconds of the monotonic clock.
    pub since_ms: u64,
    /// The server's id of the connection.
    pub client: u64,
    /// The user.
    pub user: UserId,
    /// Semaphores only: the number of permits with which the semaphore is created if it does not exist.
    pub limit: Option<NonZeroU32>,
    /// Where the outcome is published; `None`: the client is parked, and the outcome is its reply.
    pub ticket: Option<Ticket>,
}

impl Waiter {
    /// A request that asks for no terms.
    pub fn new(id: WaiterId, client: u64, deadline_ms: Option<u64>, now: Now) -> Waiter {
        Waiter {
            id,
            resource: Resource::Lock,
            mode: Mode::Exclusive,
            lease: Lease::SHORTEST,
            terms: Terms::new(false, 1),
            deadline: Deadline::new(deadline_ms),
            since_ms: now.mono_ms,
            client,
            user: UserId::UNKNOWN,
            limit: None,
            ticket: None,
        }
    }

    /// Of a ticket: its channel.
    pub(super) fn channel(&self) -> Option<&Rc<Channel>> {
        Some(&self.ticket.as_ref()?.channel)
    }

    /// Whether the hold is to be bound to the connection; the lease is then that of the session.
    pub fn session(&self) -> bool {
        self.terms.0 & Terms::SESSION != 0
    }

    /// Semaphores only: how many permits it asks for.
    pub fn count(&self) -> u8 {
        self.terms.0 & !Terms::SESSION
    }

    /// Whether the wait has run out.
    pub fn is_over(&self, now: Now) -> bool {
        self.deadline_ms().is_some_and(|end| now.mono_ms >= end)
    }

    /// The end of the wait in milliseconds of the monotonic clock; `None`: no end.
    pub fn deadline_ms(&self) -> Option<u64> {
        self.deadline.get()
    }
}

/// Whether a request is for a session, and for how many permits, in one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms(u8);

impl Terms {
    const SESSION: u8 = 0x80;

    pub fn new(session: bool, count: u8) -> Terms {
        let session = if session { Terms::SESSION } else { 0 };
        Terms(session | count)
    }
}

/// The end of a wait in milliseconds of the monotonic clock, or none, in five bytes: a place has no room for more.
/// (Their greatest number is 34 years.)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline([u8; 5]);

impl Deadline {
    const NONE: u64 = (1 << 40) - 1;

    fn new(end_ms: Option<u64>) -> Deadline {
        let end_ms = end_ms.map_or(Deadline::NONE, |end| end.min(Deadline::NONE - 1));
        let [a, b, c, d, e, ..] = end_ms.to_le_bytes();
        Deadline([a, b, c, d, e])
    }

    fn get(self) -> Option<u64> {
        let [a, b, c, d, e] = self.0;
        let end_ms = u64::from_le_bytes([a, b, c, d, e, 0, 0, 0]);
        (end_ms != Deadline::NONE).then_some(end_ms)
    }
}

/// A request on several keys that waits.
#[derive(Debug)]
pub(crate) struct MultiKeyRequest {
    /// Its places, in the order of its keys.
    pub places: Vec<(KeyId, PlaceId)>,
    pub reentry: ReentryTerms,
    pub look: Look,
}

/// What is known of the keys of a request on several keys. While one of them excludes the request, no change of another
/// can make it grantable: it is settled again only after a change of that one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Look {
    /// The key with this index excludes the request.
    Excluded(usize),
    /// So many keys from this index on were found to be free for it, one after the other; behind the last comes the
    /// first. What they are is read again before the grant.
    Free { from: usize, keys: usize },
}

impl Default for Look {
    fn default() -> Look {
        Look::Free { from: 0, keys: 0 }
    }
}

/// The effect of a request on several keys on holds that its owner has already.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReentryTerms {
    /// The hold is not counted again.
    pub once: bool,
    /// The hold is unbound from its connection, unless the request asks for a session.
    pub names_lease: bool,
}

/// The waiters of a key up to this place end with this outcome: an error, or the opening of a latch.
#[derive(Debug, Clone)]
pub(crate) struct Ending {
    pub last: Seq,
    pub with: Outcome,
}
