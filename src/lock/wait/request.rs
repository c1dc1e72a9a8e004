//! A request that waits: its number, what it asks for, and its places.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::num::{NonZeroU32, NonZeroU64};

use crate::lock::{KeyId, Lease, Mode};

/// One parked request, as the shell and the core both call it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WaiterId(pub u64);

/// A table by [`WaiterId`]. These are our own numbers, counted up, which no client can choose: a multiplication
/// scatters them.
pub type WaiterMap<V> = HashMap<WaiterId, V, BuildHasherDefault<OwnNumber>>;

/// The hash of one number of our own.
#[derive(Debug, Default)]
pub struct OwnNumber(u64);

impl Hasher for OwnNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((self.0 << 8) ^ u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 divided by the golden ratio.
        self.0 = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// The number of a place: the order of arrival, unique on this server. Never 0, which halves the links
/// of a place: there may be very many.
pub type Seq = NonZeroU64;

/// What a parked request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// Its identity.
    pub id: WaiterId,
    /// The kind of hold.
    pub mode: Mode,
    /// The lease it gets, from the moment of the grant.
    pub lease: Lease,
    /// Whether the hold is to be bound to the connection; the lease is the session's then.
    pub session: bool,
    /// When its wait ends, on the monotonic clock; `None`: never.
    pub deadline_ms: Option<u64>,
    /// When it was parked, on the monotonic clock.
    pub since_ms: u64,
    /// The server's id of its connection.
    pub client: u64,
    /// For a permit: with how many the semaphore is made if there is none.
    pub limit: Option<NonZeroU32>,
}

/// A parked request on many keys.
#[derive(Debug)]
pub(crate) struct MultiKeyRequest {
    /// Where it stands, in the order of its keys.
    pub places: Vec<(KeyId, Seq)>,
    pub reentry: ReentryTerms,
}

/// What a request on many keys means for those that its owner holds already.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ReentryTerms {
    /// They are not counted.
    pub once: bool,
    /// They are no longer bound to a connection, unless this request asks for it.
    pub names_lease: bool,
}
