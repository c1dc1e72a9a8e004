//! The requests of the lock commands and their results, and what the requests of other kinds share with them.

use std::num::NonZeroU32;

use crate::lock::wait::request::{Waiter, WaiterId};
use crate::lock::wait::ticket::Notify;
use crate::lock::{Lease, Mode, Now, Token};

/// A user of the server, by the number that the shell gives to its name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UserId(pub u32);

impl UserId {
    /// All calls without a user that the server knows, of other modules, count as one.
    pub const UNKNOWN: UserId = UserId(0);
}

/// How long an acquire may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all. Also in a context that cannot block.
    No,
    /// Until granted.
    ForEver,
    /// At most this many milliseconds.
    Ms(u64),
}

/// A request to acquire, or to wait: `LOCK.ACQUIRE`, `LOCK.MACQUIRE`, `SEM.ACQUIRE`, `LATCH.WAIT`.
#[derive(Debug, Clone, Copy)]
pub struct Acquire<'a> {
    /// The owner; of a permit its id.
    pub owner: &'a [u8],
    /// The kind of hold of a lock.
    pub mode: Mode,
    /// The lease, from the moment of the grant.
    pub lease: Lease,
    /// Whether the request names the lease, by `EX` or `PX`: then a binding ends.
    pub names_lease: bool,
    /// Bind the hold to the connection; the lease is then that of the session.
    pub session: bool,
    /// Do not count a re-entry, so that the request can be sent again.
    pub once: bool,
    /// Exclusive locks only: a text beside the hold.
    pub note: Option<&'a [u8]>,
    /// Semaphores only: how many permits, from 1 to 64.
    pub count: u8,
    /// Semaphores only: makes one with this many permits if it does not exist.
    pub limit: Option<NonZeroU32>,
    /// How long to wait.
    pub wait: Wait,
    /// The most requests of others that may wait for a key when this one begins to.
    pub queue: Option<u32>,
    /// Where the outcome of a wait is published; `None`: the client is parked.
    pub notify: Option<Notify<'a>>,
    /// The server's id of the connection.
    pub client: u64,
    /// The user, of a request that may wait or asks for a session.
    pub user: UserId,
}

impl<'a> Acquire<'a> {
    /// A request that has waited, with its note, as what is granted to it.
    pub(crate) fn of_waiter(
        owner: &'a [u8],
        waiter: &Waiter,
        note: Option<&'a [u8]>,
    ) -> Acquire<'a> {
        Acquire {
            owner,
            mode: waiter.mode,
            lease: waiter.lease,
            names_lease: false,
            session: waiter.session(),
            once: false,
            note,
            count: waiter.count(),
            limit: None,
            wait: Wait::ForEver,
            queue: None,
            notify: None,
            client: waiter.client,
            user: waiter.user,
        }
    }
}

/// The result of an acquire: of one key with a token, of several with the token of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<T = Token> {
    /// The owner holds the lock under this token.
    Granted(T),
    /// Another owner holds the lock, or waits for it already.
    Refused,
    /// The request waits, parked or as a ticket; its outcome comes as an [`crate::lock::Effect::Answer`] or a
    /// [`crate::lock::Effect::Tell`].
    Waits(WaiterId),
}

/// `LOCK.RELEASE`.
#[derive(Debug, Clone, Copy)]
pub struct Release<'a> {
    /// The owner.
    pub owner: &'a [u8],
    /// READ or WRITE; `None`: the only hold of the owner.
    pub mode: Option<Mode>,
    /// Drop every hold, not only one.
    pub all: bool,
    /// Only if the grant has this token.
    pub token: Option<u64>,
}

/// The result of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The owner has no hold left: the lock is free or handed off.
    Freed,
    /// One hold was dropped, and the owner still holds the lock.
    StillHeld,
    /// The owner does not hold the lock, or not under that token.
    NotHeld,
}

/// `LOCK.RENEW`.
#[derive(Debug, Clone, Copy)]
pub struct Renew<'a> {
    /// The owner.
    pub owner: &'a [u8],
    /// READ or WRITE; `None`: the only hold of the owner.
    pub mode: Option<Mode>,
    /// The new lease.
    pub lease: Lease,
    /// Whether the request names the lease, by `EX` or `PX`: then a binding ends. A bound hold that is renewed without
    /// it gets the lease of the session.
    pub names_lease: bool,
    /// Only if the grant has this token.
    pub token: Option<u64>,
    /// Exclusive locks only: another text beside the hold.
    pub note: Option<&'a [u8]>,
}

/// `LOCK.BREAK`.
#[derive(Debug, Clone, Copy)]
pub struct Break {
    /// Only if the grant has this token.
    pub token: Option<u64>,
    /// Waiters are answered an error instead of being granted.
    pub purge: bool,
}

impl Wait {
    /// The end of the wait in milliseconds of the monotonic clock.
    pub(crate) fn deadline(self, now: Now) -> Option<u64> {
        match self {
            Wait::No | Wait::ForEver => None,
            Wait::Ms(ms) => Some(now.mono_ms.saturating_add(ms)),
        }
    }
}

/// The condition of a SET command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetIf {
    /// Always.
    Always,
    /// `NX`: only if it does not exist.
    Absent,
    /// `XX`: only if it exists.
    There,
}

impl SetIf {
    pub(crate) fn allows(self, is_there: bool) -> bool {
        match self {
            SetIf::Always => true,
            SetIf::Absent => !is_there,
            SetIf::There => is_there,
        }
    }
}
