//! What each command decides, given what the key holds and who waits: the exclusive lock, and what it
//! has in common with the read-write lock (whose own rules are in `read_write`).
//!
//! The rules are Redisson's `RLock` (re-entry by owner, a count, a lease), with three differences:
//! re-entry never shortens the lease, nobody passes a waiter, and each grant has a token.

pub(crate) mod acquire;
pub(crate) mod release;
pub(crate) mod request;
