//! Resources of the module besides locks: semaphores with their permits, and latches.

pub(crate) mod latch;
pub(crate) mod permit;
pub(crate) mod semaphore;
