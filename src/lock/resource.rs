//! The kinds of resource. Each has queues of its own; a client is parked in one of them only.
//!
//! The server serves all kinds in the same way where it can (`each_resource`). A kind beside the lock is a struct that
//! implements [`Kind`] and is listed in `Locks`.

use std::ops::{Deref, DerefMut};

use crate::lock::effect::Cx;
use crate::lock::session::bindings::Sessions;
use crate::lock::startup_delay::StartupDelay;
use crate::lock::token::Tokens;
use crate::lock::wait::ticket::{Channels, Notify};
use crate::lock::wait::usage::Used;
use crate::lock::wait::waiters::{Grace, Waiters};
use crate::lock::{KeyRef, Limits, LockError, WaiterId};

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
    /// The next kind in rotation.
    pub(crate) fn next(self) -> Resource {
        let mut rotation = ALL.into_iter().cycle().skip_while(|kind| *kind != self);
        rotation.nth(1).unwrap_or_default()
    }

    /// The other kinds beside the lock.
    pub(crate) fn others(self) -> impl Iterator<Item = Resource> {
        let beside = ALL.into_iter().filter(|kind| *kind != Resource::Lock);
        beside.filter(move |kind| *kind != self)
    }
}

/// A kind of resource beside the lock: what the server asks of it when an event concerns every kind. A kind without
/// grants in flight and without a table of grants implements the required methods only.
pub trait Kind {
    /// Its name.
    fn resource(&self) -> Resource;

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

    /// The module has created this key, as this kind of resource.
    fn began(&mut self, _key: KeyRef<'_>) {}

    /// The key was deleted or has expired, by an event of the server.
    fn lost(&mut self, key: KeyRef<'_>) {
        self.schedule_settle(key);
    }

    /// Whether an event of this key concerns the kind.
    fn cares_about(&self, key: KeyRef<'_>) -> bool {
        self.waiters().live_on(key) > 0
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

/// The context of a decision about a kind beside the lock: moment and effects, and the parts of the server that all
/// kinds share.
pub(crate) struct KindCx<'a> {
    pub cx: Cx<'a>,
    pub limits: Limits,
    /// The places of all kinds on this server, and the part of the user of an acquire or a wait.
    pub used: Used,
    /// Whether a request for another kind beside the lock is parked at the key.
    pub is_waited_as_other: bool,
    pub sessions: &'a mut Sessions,
    pub tokens: &'a mut Tokens,
    pub startup_delay: &'a StartupDelay,
    pub last_waiter_id: &'a mut u64,
    pub channels: &'a mut Channels,
}

impl<'a> Deref for KindCx<'a> {
    type Target = Cx<'a>;

    fn deref(&self) -> &Cx<'a> {
        &self.cx
    }
}

impl<'a> DerefMut for KindCx<'a> {
    fn deref_mut(&mut self) -> &mut Cx<'a> {
        &mut self.cx
    }
}

impl KindCx<'_> {
    /// Refuses a key at which a request for another kind beside the lock is parked. The key of a semaphore and that of
    /// a latch are both a string with a number: only the waiters tell them apart.
    ///
    /// # Errors
    /// [`LockError::OtherCount`]
    pub fn check_is_not_other(&self) -> Result<(), LockError> {
        match self.is_waited_as_other {
            true => Err(LockError::OtherCount),
            false => Ok(()),
        }
    }

    /// The number of a new waiter.
    ///
    /// # Errors
    /// [`LockError::Busy`] when a limit on waiters is reached, and the request continues no parked one.
    pub fn admit(
        &mut self,
        waiters: &mut Waiters,
        key: KeyRef<'_>,
        owner: &[u8],
        notify: Option<Notify<'_>>,
    ) -> Result<WaiterId, LockError> {
        let at = (key, owner);
        if self.limits.exclude_at(self.used, waiters, at, notify) {
            waiters.stats.busy += 1;
            return Err(LockError::Busy);
        }
        *self.last_waiter_id += 1;
        Ok(WaiterId(*self.last_waiter_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::locks::Locks;
    use crate::lock::tests::sim::Settings;

    #[test]
    fn every_kind_is_served_in_rotation_and_listed() {
        let mut served = vec![Resource::default()];
        while let Some(kind) = served.last().map(|kind| kind.next()) {
            if served.contains(&kind) {
                break;
            }
            served.push(kind);
        }
        assert_eq!(served, ALL);
        let locks = Locks::new(Settings::default().limits);
        let listed = locks.kinds().map(|kind| kind.resource());
        assert_eq!(listed, ALL[1..]);
    }
}
