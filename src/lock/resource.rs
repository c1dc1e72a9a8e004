//! The kinds of resource. Each has queues of its own; a client is parked in one of them only.
//!
//! The server serves all kinds in the same way where it can (`each_resource`). A kind beside the lock is a struct that
//! implements [`Kind`] and is listed in `Locks`.

use crate::lock::session::bindings::Sessions;
use crate::lock::wait::waiters::{Grace, Waiters};
use crate::lock::{KeyRef, WaiterId};

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

/// A kind of resource beside the lock: what the server asks of it when an event concerns every kind. A kind without
/// grants in flight and without a table of grants implements the required methods only.
pub trait Kind {
    /// The prefix of its fields in `INFO lock`.
    fn prefix(&self) -> &'static str;

    /// Its counters and gauges for `INFO lock`, without the prefix.
    fn fields(&self) -> Vec<(&'static str, u64)>;

    /// Its waiters.
    fn waiters(&self) -> &Waiters;

    /// Its waiters.
    fn waiters_mut(&mut self) -> &mut Waiters;

    /// Sets the rule for kept places.
    fn set_grace(&mut self, grace: Grace) {
        self.waiters_mut().grace = grace;
    }

    /// The content of this key has changed: its waiters, if there are any, are settled at the end of the tick.
    fn schedule_settle(&mut self, key: KeyRef<'_>) {
        self.waiters_mut().schedule_settle(key);
    }

    /// The key was deleted or has expired, by an event of the server.
    fn lost(&mut self, key: KeyRef<'_>) {
        self.schedule_settle(key);
    }

    /// Whether an event of this key concerns the kind.
    fn cares_about(&self, key: KeyRef<'_>) -> bool {
        self.waiters().live_on(key) > 0
    }

    /// Whether the events of every key can be ignored.
    fn is_idle(&self) -> bool {
        self.waiters().live() == 0
    }

    /// A reply was written: a grant in flight is delivered.
    fn delivered(&mut self, _waiter: WaiterId) {}

    /// The connection of a request is closed. Returns whether the request had a grant in flight, which is undone when
    /// its key is settled.
    fn undo_in_flight(&mut self, _waiter: WaiterId, _sessions: &mut Sessions) -> bool {
        false
    }

    /// The content of these keys is gone: their recorded grants are lost.
    fn forget(&mut self, _is_gone: &dyn Fn(KeyRef<'_>) -> bool) {}

    /// `SWAPDB` has exchanged two databases.
    fn swap(&mut self, _first: i32, _second: i32) {}

    /// This server has become a replica.
    fn demote(&mut self) {
        self.waiters_mut().forget_unsettled();
        self.waiters_mut().give_up_places();
    }
}
