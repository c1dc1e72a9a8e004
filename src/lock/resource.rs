//! The kinds of resource. Each has queues of its own; a client is parked in one of them only.

/// A kind of resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Resource {
    /// A lock.
    #[default]
    Lock,
    /// A permit of a semaphore.
    Semaphore,
    /// The opening of a latch.
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
