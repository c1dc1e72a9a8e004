//! The semaphores of one server: the part in memory.

use crate::lock::semaphore::in_flight::PermitsInFlight;
use crate::lock::semaphore::state::{Remembered, SemView, GRANTS_AT_ONCE};
use crate::lock::stats::SemStats;
use crate::lock::wait::queue::Queue;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyRef, Now, OwnerId};

/// The semaphores of one server.
#[derive(Debug, Default)]
pub struct Semaphores {
    /// The requests that wait for a permit.
    pub waiters: Waiters,
    /// The statistics.
    pub stats: SemStats,
    pub(crate) remembered: Remembered,
    pub(crate) in_flight: PermitsInFlight,
}

impl Semaphores {
    /// The queue of a semaphore, if it has parked requests.
    pub fn queue(&self, key: KeyRef<'_>) -> Option<&Queue> {
        self.waiters.queue(key).filter(|queue| queue.live() > 0)
    }

    /// The number of permits in the bounded table.
    pub fn remembered_len(&self) -> usize {
        self.remembered.len()
    }

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
}
