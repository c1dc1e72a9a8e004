//! All queues of one server, and every moment at which something is due.
//!
//! Two kinds of deadline stand in ordered indexes: the ends of waits and of empty places (monotonic
//! clock) and the leases of locks that somebody waits for (wall clock). The shell arms one timer
//! for the nearest of all; a call that comes early or twice finds nothing due and does nothing.

pub(crate) mod deadlock;
pub(crate) mod due;
pub(crate) mod holders;
pub(crate) mod index;
pub(crate) mod multi_key;
pub(crate) mod queue;
pub(crate) mod request;
pub(crate) mod unsettled;
pub(crate) mod waiters;
