//! Semaphores with permits that expire.
//!
//! The rules are those of Redisson's `RPermitExpirableSemaphore` with three differences: the server's clock decides
//! when a permit has expired, no request passes a waiter, and a permit that expires is granted to a waiter at that
//! moment. An id has at most one permit, so that a request can be sent again.

pub(crate) mod commands;
pub(crate) mod grant;
pub(crate) mod semaphores;
pub(crate) mod session;
pub(crate) mod settle;
pub(crate) mod state;
