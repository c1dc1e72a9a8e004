//! The deadlines of waits, kept places and leases.
//!
//! Two ordered indexes: the ends of waits and of kept places (monotonic clock), and the leases of locks with waiters
//! (wall clock). The shell arms one timer for the earliest. An early or repeated call finds nothing due and has no
//! effect.

use crate::lock::effect::Cx;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyId, KeyRef, Now};

impl Waiters {
    /// Records the lease after which the first waiter of this key is due (`None`: no TTL, or no holder).
    pub fn set_lease(&mut self, key: KeyRef<'_>, lease_ms: Option<i64>) {
        let Some((_, id, waited)) = self.waited.get_full_mut(&key) else {
            return;
        };
        let lease_ms = lease_ms.filter(|_| waited.queue.live() > 0);
        if waited.lease_ms == lease_ms {
            return;
        }
        if let Some(old) = waited.lease_ms {
            self.leases.remove(&(old, id.clone()));
        }
        waited.lease_ms = lease_ms;
        if let Some(new) = lease_ms {
            self.leases.insert((new, id.clone()));
        }
    }

    /// The lease after which the first waiter of this key is due, in Unix milliseconds.
    pub fn lease(&self, key: KeyRef<'_>) -> Option<i64> {
        self.waited.get(&key)?.lease_ms
    }

    /// The keys with a recorded lease.
    pub fn waited_out(&self) -> impl Iterator<Item = &KeyId> {
        self.leases.iter().map(|(_, key)| key)
    }

    /// Ends the next wait or kept place whose deadline has passed: a parked request is answered nil, and its place is
    /// kept for the grace time; a kept place is given up. Returns the number of its places; `None` when none is due.
    fn end_next(&mut self, cx: &mut Cx<'_>) -> Option<usize> {
        // Taken out in any case: a place that stayed would be due for ever.
        let place = self.places.take_due(cx.now.mono_ms)?;
        let Some(waiter) = self.places.waiter(place) else {
            self.remove(place);
            return Some(1);
        };
        let count = self.places_count(waiter.id);
        let waiter = self.end_at(place, |waiters| waiters.vacate(place, true, cx.now));
        Waiters::time_out(waiter.as_ref(), cx);
        Some(count)
    }

    /// Whether nothing is due, now or later.
    pub fn is_quiet(&self) -> bool {
        self.places.next_due().is_none()
            && self.leases.is_empty()
            && self.unsettled.is_empty()
            && self.unsettled_requests.is_empty()
            && self.endings.is_empty()
            && self.windows.open() == 0
            && !self.has_postponed()
            && !self.is_demoting
    }

    /// Whether waiters are about to end.
    pub(super) fn has_endings(&self) -> bool {
        !self.endings.is_empty()
    }

    /// Milliseconds until the next end of a wait or of a kept place.
    pub fn next_wait(&self, now: Now) -> Option<u64> {
        if self.is_demoting || self.has_endings() {
            return Some(0);
        }
        let due = self.places.next_due()?;
        Some(due.saturating_sub(now.mono_ms))
    }

    /// Ends waits whose `BLOCK` has run out, gives up kept places whose time is over, and ends more of the waiters that
    /// are about to end: about `most` places of each sort. Returns whether more may be due.
    pub fn end_waits(&mut self, most: usize, cx: &mut Cx<'_>) -> bool {
        let (mut due, mut ending) = (most, most);
        while due > 0 {
            let Some(places) = self.end_next(cx) else {
                break;
            };
            due = due.saturating_sub(places);
        }
        self.end_more(&mut ending, cx);
        if self.is_demoting {
            self.fail_tickets(&mut ending, cx);
        }
        due == 0 || ending == 0
    }

    /// Milliseconds until the next key is to be settled.
    pub fn next_settle(&self, now: Now) -> Option<u64> {
        if !self.unsettled.is_empty() || !self.unsettled_requests.is_empty() {
            return Some(0);
        }
        let lease = self.leases.first();
        let lease =
            lease.map(|(end, _)| u64::try_from(end.saturating_sub(now.wall_ms)).unwrap_or(0));
        lease.into_iter().chain(self.windows.next_end(now)).min()
    }

    pub(super) fn forget_idle_lease(&mut self, key: &KeyId) {
        if self.live_on(key.as_ref()) == 0 {
            self.set_lease(key.as_ref(), None);
        }
    }
}
