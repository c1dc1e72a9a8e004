//! What is alike for locks, semaphores and latches: the numbers and limits of waiters, the deadlines, and the settle
//! loop, which serves the kinds in rotation (the *next resource* cursor).

use crate::lock::effect::{Cx, Outcome};
use crate::lock::locks::Locks;
use crate::lock::resource::{Resource, ALL};
use crate::lock::session::bindings::BoundRef;
use crate::lock::slot::semaphores_of;
use crate::lock::wait::due::Due;
use crate::lock::wait::request::WaiterId;
use crate::lock::wait::waiters::{Grace, Waiters};
use crate::lock::{KeyId, KeyRef, LockError, Now};

impl Locks {
    /// The waiters for one kind of resource.
    pub fn queues(&self, resource: Resource) -> &Waiters {
        match resource {
            Resource::Lock => &self.waiters,
            Resource::Semaphore => &self.sems.waiters,
            Resource::Latch => &self.latches.waiters,
        }
    }

    fn queues_mut(&mut self, resource: Resource) -> &mut Waiters {
        match resource {
            Resource::Lock => &mut self.waiters,
            Resource::Semaphore => &mut self.sems.waiters,
            Resource::Latch => &mut self.latches.waiters,
        }
    }

    fn all(&self) -> impl Iterator<Item = &Waiters> {
        ALL.into_iter().map(|resource| self.queues(resource))
    }

    /// Places of parked requests on this server, which [`crate::lock::Limits::max_waiters`] limits.
    pub(crate) fn all_places(&self) -> usize {
        self.all().map(Waiters::live_places).sum()
    }

    /// Whether this request is still parked.
    pub fn is_parked(&self, waiter: WaiterId) -> bool {
        self.all().any(|queues| queues.is_parked(waiter))
    }

    /// Sets the rule for kept places. (Latches keep no place: all waiters are answered at once.)
    pub fn set_grace(&mut self, grace: Grace) {
        (self.waiters.grace, self.sems.waiters.grace) = (grace, grace);
    }

    /// Whether no wait, place, lease, window or key is due, now or later.
    pub fn is_quiet(&self) -> bool {
        self.all().all(Waiters::is_quiet) && self.windows.open() == 0
    }

    /// Milliseconds until the next end of a wait or of a kept place.
    pub fn next_wait(&self, now: Now) -> Option<u64> {
        self.all().filter_map(|queues| queues.next_wait(now)).min()
    }

    /// Milliseconds until the next key is to be settled.
    pub fn next_settle(&self, now: Now) -> Option<u64> {
        self.all()
            .filter_map(|queues| queues.next_settle(now))
            .chain(self.windows.next_end(now))
            .min()
    }

    /// The next key to settle, of the kinds in rotation. A lock that was taken during its Redisson window is settled
    /// before the window ends.
    pub fn pop_unsettled(&mut self, now: Now) -> Option<(Resource, KeyId)> {
        let unsettled = self.pop(|queues| queues.pop_unsettled(now));
        unsettled.or_else(|| Some((Resource::Lock, self.pop_window(now)?)))
    }

    /// The next request on several keys that may be grantable.
    pub fn pop_unsettled_request(&mut self, now: Now) -> Option<WaiterId> {
        self.waiters.pop_unsettled_request(now)
    }

    /// Whether keys are postponed because writes to them were refused.
    pub fn has_postponed(&self) -> bool {
        self.all().any(Waiters::has_postponed)
    }

    /// The next postponed key, of the kinds in rotation.
    pub fn pop_postponed(&mut self) -> Option<(Resource, KeyId)> {
        self.pop(Waiters::pop_postponed)
    }

    fn pop(
        &mut self,
        mut next: impl FnMut(&mut Waiters) -> Option<KeyId>,
    ) -> Option<(Resource, KeyId)> {
        for _ in ALL {
            self.last_settled = self.last_settled.next();
            if let Some(key) = next(self.queues_mut(self.last_settled)) {
                return Some((self.last_settled, key));
            }
        }
        None
    }

    /// A grant is due at this key, but writes to it are refused at the moment.
    pub fn postpone(&mut self, resource: Resource, key: KeyId) {
        self.queues_mut(resource).postpone(key);
    }

    /// The state of this key changed by other means.
    pub fn schedule_settle(&mut self, key: KeyRef<'_>) {
        for resource in ALL {
            self.queues_mut(resource).schedule_settle(key);
        }
        for name in semaphores_of(key.name) {
            self.sems
                .waiters
                .schedule_settle(KeyRef { db: key.db, name });
        }
    }

    /// A key of this request holds another resource than the one waited for.
    pub fn schedule_settle_waiter(&mut self, waiter: WaiterId) {
        for resource in ALL {
            self.queues_mut(resource).schedule_settle_waiter(waiter);
        }
    }

    /// The state of a whole database (`None`: of all) changed by other means.
    pub fn schedule_settle_all(&mut self, db: Option<i32>) {
        for resource in ALL {
            self.queues_mut(resource).schedule_settle_all(db);
        }
    }

    /// A key that was absent now holds this kind of resource: waiters for another kind at the key are settled. (The
    /// server sends no event for the module's own writes.)
    pub(crate) fn begins_as(&mut self, resource: Resource, key: KeyRef<'_>) {
        for other in ALL.into_iter().filter(|other| *other != resource) {
            self.queues_mut(other).schedule_settle(key);
        }
        if self.sems.waiters.live() > 0 {
            // The key may be the permit set of a semaphore.
            for name in semaphores_of(key.name) {
                self.sems
                    .waiters
                    .schedule_settle(KeyRef { db: key.db, name });
            }
        }
    }

    /// Answers nil to the next request whose wait has run out. False when none is left.
    pub fn end_next_wait(&mut self, cx: &mut Cx<'_>) -> bool {
        for resource in ALL {
            let Some(due) = self.queues_mut(resource).pop_due(cx.now) else {
                continue;
            };
            if let Due::Wait(waiter) = due {
                match resource {
                    Resource::Lock => self.stats.waits_timed_out += 1,
                    Resource::Semaphore => self.sems.stats.sem_waits_timed_out += 1,
                    Resource::Latch => self.latches.stats.latch_waits_timed_out += 1,
                }
                cx.answer(waiter, Outcome::Nil);
            }
            return true;
        }
        false
    }

    /// A parked request was answered nil by `CLIENT UNBLOCK ... TIMEOUT`.
    pub fn unblocked(&mut self, waiter: WaiterId, now: Now) {
        if self.waiters.leave(waiter, now) {
            self.stats.waits_unblocked += 1;
        } else if self.sems.waiters.leave(waiter, now) {
            self.sems.stats.sem_waits_unblocked += 1;
        } else if self.latches.waiters.leave(waiter, now) {
            self.latches.stats.latch_waits_unblocked += 1;
        }
    }

    /// The server could not block the client of this new request: the request is removed, and counted as refused at
    /// once.
    pub fn not_parked(&mut self, waiter: WaiterId, now: Now) {
        if self.waiters.leave_for_good(waiter) {
            self.stats.waits_parked -= 1;
            self.stats.refusals += 1;
        } else if self.sems.waiters.leave_for_good(waiter) {
            self.sems.stats.sem_waits_parked -= 1;
            self.sems.stats.sem_refusals += 1;
        } else if self.latches.waiters.leave_for_good(waiter) {
            self.latches.stats.latch_waits_parked -= 1;
            self.latches.stats.latch_closed += 1;
        } else {
            self.gone(waiter, now);
        }
    }

    /// The connection of a request for a semaphore or a latch is closed.
    pub(crate) fn disconnected_other_resource(&mut self, waiter: WaiterId, now: Now) {
        if let Some((key, id, token)) = self.sems.in_flight.lost(waiter) {
            // The undo ends the permit, so there is nothing to release.
            let what = BoundRef::permit(key.as_ref(), &id);
            self.sessions.unbind_grant(what, token);
            self.sems.waiters.schedule_settle_id(key);
        } else if self.sems.waiters.leave(waiter, now) {
            self.sems.stats.sem_waits_disconnected += 1;
        } else if self.latches.waiters.leave(waiter, now) {
            self.latches.stats.latch_waits_disconnected += 1;
        }
    }

    /// A key of a semaphore or a latch was deleted, by an event of the server.
    pub(crate) fn lost_other_resource(&mut self, key: KeyRef<'_>) {
        self.lose_permits(key);
        self.sems.waiters.schedule_settle(key);
        self.latches.waiters.schedule_settle(key);
        for name in semaphores_of(key.name) {
            let key = KeyRef { db: key.db, name };
            self.lose_permits(key);
            self.sems.waiters.schedule_settle(key);
        }
    }

    /// Whether an event of this key concerns a semaphore or a latch.
    pub(crate) fn concerns_other_resource(&self, key: KeyRef<'_>) -> bool {
        let of_semaphore = |key: KeyRef<'_>| {
            self.sems.remembered.contains(key) || self.sems.waiters.live_on(key) > 0
        };
        let db = key.db;
        self.latches.waiters.live_on(key) > 0
            || of_semaphore(key)
            || semaphores_of(key.name).any(|name| of_semaphore(KeyRef { db, name }))
    }

    /// Whether no semaphore or latch has waiters or recorded permits.
    pub(crate) fn are_other_resources_idle(&self) -> bool {
        self.sems.waiters.live() == 0
            && self.latches.waiters.live() == 0
            && self.sems.remembered.len() == 0
    }

    /// Removes the recorded permits of these semaphores.
    pub(crate) fn forget_permits(&mut self, is_gone: impl Fn(KeyRef<'_>) -> bool) {
        self.sems.stats.sem_grants_lost += self.sems.remembered.forget(is_gone);
    }

    /// This server has become a replica.
    pub(crate) fn demote_other_resources(&mut self) {
        self.sems.in_flight.forget_lost();
        for queues in [&mut self.sems.waiters, &mut self.latches.waiters] {
            queues.forget_unsettled();
            queues.give_up_places();
        }
    }

    /// Answers an error to every waiter for a permit or a latch.
    pub(crate) fn drain_other_resources(&mut self, cx: &mut Cx<'_>) {
        let permits = self.sems.waiters.clear_all();
        self.fail_permits(permits, &LockError::Drained, cx);
        let latches = self.latches.waiters.clear_all();
        self.fail_latches(latches, &LockError::Drained, cx);
        self.sems.waiters.schedule_postponed();
        self.latches.waiters.schedule_postponed();
    }
}
