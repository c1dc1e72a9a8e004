//! SS

use crate::lock::semaphore::in_flight::PermitsInFlight;
use crate::lock::semaphore::state::{Remembered, SemView, GRANTS_AT_ONCE};
use crate::lock::stats::SemStats;
use crate::lock::wait::queue::Queue;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyRef, Now, OwnerId};

/// The semaphores of one server, as far as memory goes.
#[derive(Debug, Default)]
pub struct Semaphores {
    /// Who waits for a permit.
    pub waiters: Waiters,
    /// What has happened so far.
    pub stats: SemStats,
    pub(crate) remembered: Remembered,
    pub(crate) in_flight: PermitsInFlight,
}

impl Semaphores {
    /// The queue of a semaphore, if somebody waits.
    pub fn queue(&self, key: KeyRef<'_>) -> Option<&Queue> {
        self.waiters.queue(key).filter(|queue| queue.live() > 0)
    }

    /// How many permits are in the bounded table.
    pub fn remembered_len(&self) -> usize {
        self.remembered.len()
    }

    /// Whether the permit that this id holds is one that this server granted here: it has the end that is remembered.
    /// (One with another end may be of another semaphore with the same set, made after this one was deleted.)
    pub fn knows(&self, view: &SemView<'_>, id: &[u8], now: Now) -> bool {
        let known = self.remembered.get(view.key, id);
        known.is_some_and(|permit| Some(permit.end_ms) == view.held_until(now))
    }

    /// How many permits the next decision about this semaphore may grant.
    pub fn wanted(&self, key: KeyRef<'_>) -> usize {
        self.waiters.live_on(key).min(GRANTS_AT_ONCE) + 1
    }

    /// The ids whose permits may have to be undone.
    pub fn lost_on(&self, key: KeyRef<'_>) -> Vec<OwnerId> {
        self.in_flight.lost_on(key)
    }
}
