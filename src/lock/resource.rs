//! What locks, semaphores and latches share: the numbers of waiters, the limits on them, the one timer.
//!
//! Each family has its queues, because what is waited for at a key differs; a client is parked in one of
//! them only.

/// What is waited for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Resource {
    /// A lock.
    #[default]
    Lock,
    /// A permit of a semaphore.
    Semaphore,
    /// A latch that opens.
    Latch,
}

pub(crate) const ALL: [Resource; 3] = [Resource::Lock, Resource::Semaphore, Resource::Latch];

impl Resource {
    pub(crate) fn next(self) -> Resource {
        match self {
            Resource::Lock => Resource::Semaphore,
            Resource::Semaphore => Resource::Latch,
            Resource::Latch => Resource::Lock,
        }
    }
}
