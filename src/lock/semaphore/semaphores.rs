//! The semaphores of one server: the part in memory.

use crate::lock::histogram::Histogram;
use crate::lock::resource::{Kind, Resource};
use crate::lock::semaphore::in_flight::PermitsInFlight;
use crate::lock::semaphore::state::{Permit, Remembered, SemView, GRANTS_AT_ONCE};
use crate::lock::session::bindings::{BoundRef, Sessions};
use crate::lock::slot::semaphores_of;
use crate::lock::stats::counters;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyRef, Now, OwnerId, WaiterId};

counters! {
    /// The counters of semaphores. The first two sums of `lock::stats` hold for them too, with `adoptions` added to the
    /// grants.
    SemStats
    /// Granted permits, immediate or by hand-off.
    grants,
    /// Permits that this server had not recorded (granted to a Redisson client, or before a restart) and whose holder
    /// asked for a token.
    adoptions,
    /// Acquires by an id with a permit.
    reentries,
    /// Renewals of a permit.
    renewals,
    /// Renewals by an id without a permit.
    renewal_misses,
    /// Releases by an id without a permit.
    release_misses,
    /// Permits ended by their holder.
    grants_released,
    /// Permits released because the connection that they were bound to has closed.
    grants_session_ended,
    /// Permits taken back after they expired.
    grants_expired,
    /// Permits whose semaphore was deleted, or whose id was found with a permit of another grant.
    grants_lost,
    /// Permits whose reply could not be delivered, which were undone.
    grants_undone,
    /// Recorded permits that were pushed out of the bounded table.
    grants_unwatched,
}

/// The semaphores of one server.
#[derive(Debug, Default)]
pub struct Semaphores {
    /// The requests that wait for a permit.
    pub waiters: Waiters,
    /// The statistics.
    pub stats: SemStats,
    /// The times of the permits that `grants_released` and `grants_session_ended` count.
    pub holds: Histogram,
    pub(crate) remembered: Remembered,
    pub(crate) in_flight: PermitsInFlight,
}

impl Semaphores {
    /// Whether this server granted the permit that this id holds: the recorded end is equal. (A permit with another end
    /// may belong to another semaphore with the same set, created after this one was deleted.)
    pub fn knows(&self, view: &SemView<'_>, id: &[u8], now: Now) -> bool {
        let known = self.remembered.get(view.key, id);
        known.is_some_and(|permit| Some(permit.end_ms) == view.held_until(now))
    }

    /// The most permits that the next decision about this semaphore grants.
    pub fn wanted(&self, key: KeyRef<'_>) -> usize {
        self.waiters.live_on(key).min(GRANTS_AT_ONCE) + 1
    }

    /// The ids whose permits may have to be undone.
    pub fn lost_on(&self, key: KeyRef<'_>) -> Vec<OwnerId> {
        self.in_flight.lost_on(key)
    }

    /// Counts the time of a permit that its holder or the end of its connection has ended. Returns 1 if it was
    /// recorded.
    pub(crate) fn count_hold(&mut self, ended: Option<Permit>, now: Now) -> u64 {
        let Some(permit) = ended else {
            return 0;
        };
        self.holds
            .record(now.mono_ms.saturating_sub(permit.since_ms));
        1
    }

    /// Counts a permit of a Redisson client, which was removed from this set while requests waited.
    pub(crate) fn count_redisson_permit(&mut self, set: KeyRef<'_>) {
        for key in at_and_beside(set).skip(1) {
            if self.waiters.live_on(key) > 0 {
                self.waiters.windows.redisson_hold_ended(key);
            }
        }
    }

    /// The semaphore was deleted: no recorded permit of it is held any more.
    pub fn lose(&mut self, key: KeyRef<'_>) {
        self.stats.grants_lost += self.remembered.lose(key);
    }
}

/// A key and the semaphores of which it is the permit set, as Redisson names it.
fn at_and_beside(key: KeyRef<'_>) -> impl Iterator<Item = KeyRef<'_>> {
    let KeyRef { db, name } = key;
    let semaphores = semaphores_of(name).map(move |name| KeyRef { db, name });
    std::iter::once(key).chain(semaphores)
}

impl Kind for Semaphores {
    fn resource(&self) -> Resource {
        Resource::Semaphore
    }

    fn prefix(&self) -> &'static str {
        "sem_"
    }

    fn fields(&self) -> Vec<(&'static str, u64)> {
        let gauges = [
            ("waiters", self.waiters.parked_requests() as u64),
            ("keys_waited", self.waiters.keys_waited() as u64),
            ("places_kept", self.waiters.kept_places() as u64),
            ("waits_kept", self.waiters.kept_waits(false) as u64),
            ("grants_tracked", self.remembered.len() as u64),
        ];
        let counters = self.stats.fields().chain(self.waiters.stats.fields());
        gauges.into_iter().chain(counters).collect()
    }

    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn waiters_mut(&mut self) -> &mut Waiters {
        &mut self.waiters
    }

    fn schedule_settle(&mut self, key: KeyRef<'_>) {
        for key in at_and_beside(key) {
            self.waiters.schedule_settle(key);
        }
    }

    fn began(&mut self, key: KeyRef<'_>) {
        for key in at_and_beside(key).skip(1) {
            self.waiters.schedule_settle(key);
        }
    }

    fn lost(&mut self, key: KeyRef<'_>) {
        for key in at_and_beside(key) {
            self.lose(key);
            self.waiters.schedule_settle(key);
        }
    }

    fn cares_about(&self, key: KeyRef<'_>) -> bool {
        at_and_beside(key).any(|key| self.remembered.contains(key) || self.waiters.live_on(key) > 0)
    }

    fn delivered(&mut self, waiter: WaiterId) {
        self.in_flight.delivered(waiter);
    }

    fn undo_in_flight(&mut self, waiter: WaiterId, sessions: &mut Sessions) -> bool {
        let Some((key, id, token)) = self.in_flight.lost(waiter) else {
            return false;
        };
        // The undo ends the permit, so there is nothing to release.
        sessions.unbind_grant(BoundRef::permit(key.as_ref(), &id), token);
        self.waiters.schedule_settle_id(key);
        true
    }

    fn forget(&mut self, is_gone: &dyn Fn(KeyRef<'_>) -> bool) {
        self.stats.grants_lost += self.remembered.forget(is_gone);
    }

    fn swap(&mut self, first: i32, second: i32) {
        self.remembered.swap(first, second);
        self.in_flight.swap(first, second);
        // Permits to undo are now in the other database.
        for key in self.in_flight.lost_keys() {
            self.waiters.schedule_settle_id(key.clone());
        }
    }

    fn demote(&mut self) {
        self.in_flight.forget_lost();
        self.waiters.forget_unsettled();
        self.waiters.give_up_places();
    }
}
