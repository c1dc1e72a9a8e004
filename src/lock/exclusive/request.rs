//! REQ

use crate::lock::wait::request::WaiterId;
use crate::lock::{Lease, Mode, Now, Token};

/// How long an acquire is ready to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all, or in a context that cannot block.
    No,
    /// Until granted.
    ForEver,
    /// At most so many milliseconds.
    Ms(u64),
}

/// `LOCK.ACQUIRE`.
#[derive(Debug, Clone, Copy)]
pub struct Acquire<'a> {
    /// Who asks.
    pub owner: &'a [u8],
    /// The kind of hold.
    pub mode: Mode,
    /// The lease, from the moment of the grant.
    pub lease: Lease,
    /// Whether the request names it, by `EX` or `PX`: that ends a binding.
    pub names_lease: bool,
    /// Bind the hold to the connection; the lease is the session's then.
    pub session: bool,
    /// Do not count a re-entry: re-sending is safe.
    pub once: bool,
    /// How long to wait.
    pub wait: Wait,
    /// The server's id of the connection.
    pub client: u64,
}

/// How an acquire went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The owner holds the lock under this token.
    Granted(Token),
    /// Somebody else holds it, or comes first.
    Refused,
    /// The request is parked; its answer comes as an [`Effect::Answer`].
    Parked(WaiterId),
}

/// `LOCK.RELEASE`.
#[derive(Debug, Clone, Copy)]
pub struct Release<'a> {
    /// Who releases.
    pub owner: &'a [u8],
    /// Which hold: READ or WRITE; `None` for the only one.
    pub mode: Option<Mode>,
    /// Drop every hold, not one.
    pub all: bool,
    /// Only if the grant has this token.
    pub token: Option<u64>,
}

/// How a release went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The owner holds no more: the lock is free or handed off.
    Freed,
    /// One hold less, still held.
    StillHeld,
    /// Not held by this owner, or not under that token.
    NotHeld,
}

/// `LOCK.RENEW`.
#[derive(Debug, Clone, Copy)]
pub struct Renew<'a> {
    /// Who renews.
    pub owner: &'a [u8],
    /// Which hold: READ or WRITE; `None` for the only one.
    pub mode: Option<Mode>,
    /// The new lease, from now.
    pub lease: Lease,
    /// Whether the request names it, by `EX` or `PX`: that ends a binding. A bound hold that is renewed
    /// without it gets the session's lease.
    pub names_lease: bool,
    /// Only if the grant has this token.
    pub token: Option<u64>,
}

/// `LOCK.BREAK`.
#[derive(Debug, Clone, Copy)]
pub struct Break {
    /// Only if the grant has this token.
    pub token: Option<u64>,
    /// Waiters are sent away instead of being granted.
    pub purge: bool,
}

impl Wait {
    /// When the wait ends, on the monotonic clock.
    pub(crate) fn deadline(self, now: Now) -> Option<u64> {
        match self {
            Wait::No | Wait::ForEver => None,
            Wait::Ms(ms) => Some(now.mono_ms.saturating_add(ms)),
        }
    }
}
