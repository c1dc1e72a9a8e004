//! Latches: a number that is counted down, and parked who waits until nothing is left of it.
//!
//! The layout is that of Redisson's `RCountDownLatch`: a string with the count. No key, or a count that is
//! not above zero, is an open latch. A waiter has no owner: its connection is who it is, it keeps no place
//! when it goes, and all are let in at once.

pub(crate) mod commands;
pub(crate) mod state;
