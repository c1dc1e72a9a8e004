//! Latches: a number that is counted down, and requests that wait until it reaches zero.
//!
//! The layout is that of Redisson's `RCountDownLatch`: a string with the count. A missing key, or a count of zero or
//! less, is an open latch. A waiter is identified by its connection, has no owner and keeps no place after a
//! disconnect. All waiters are answered at once.

pub(crate) mod commands;
pub(crate) mod locks;
pub(crate) mod state;
