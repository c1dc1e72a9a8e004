//! The kinds of resource. The name of a key says which is meant ([`crate::lock::KeyRef`]), so one store of waiters
//! serves all of them.

use std::ops::{Index, IndexMut};

/// A kind of resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
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

/// One for each kind of resource.
#[derive(Debug, Default)]
pub struct Each<T> {
    lock: T,
    semaphore: T,
    latch: T,
}

impl<T> Index<Resource> for Each<T> {
    type Output = T;

    fn index(&self, resource: Resource) -> &T {
        match resource {
            Resource::Lock => &self.lock,
            Resource::Semaphore => &self.semaphore,
            Resource::Latch => &self.latch,
        }
    }
}

impl<T> IndexMut<Resource> for Each<T> {
    fn index_mut(&mut self, resource: Resource) -> &mut T {
        match resource {
            Resource::Lock => &mut self.lock,
            Resource::Semaphore => &mut self.semaphore,
            Resource::Latch => &mut self.latch,
        }
    }
}
