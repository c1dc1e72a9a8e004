//! Semaphores with permits that end: what each command decides.
//!
//! The rules are those of Redisson's `RPermitExpirableSemaphore` with three differences: the server's clock
//! says when a permit is over, nobody passes a waiter, and a permit that is over is handed on at that
//! moment if somebody waits for one. An id has one permit at most, so that a request may be sent twice.

pub(crate) mod commands;
pub(crate) mod grant;
pub(crate) mod in_flight;
pub(crate) mod semaphores;
pub(crate) mod session;
pub(crate) mod settle;
pub(crate) mod state;
