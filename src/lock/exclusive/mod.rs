//! The exclusive lock, and the entry of the commands that the read-write lock shares with it (its own rules are in
//! `read_write`).
//!
//! The rules are those of Redisson's `RLock` (re-entry by owner, a hold count, a lease), with three differences: a
//! re-entry never shortens the lease, no request passes a waiter, and each grant has a token.

pub(crate) mod acquire;
pub(crate) mod release;
