//! Semaphores with permits that expire.
//!
//! The rules are those of Redisson's `RPermitExpirableSemaphore` with three differences: the server's clock decides
//! when a permit has expired, no request passes a waiter, and a permit that expires is granted to a waiter at that
//! moment. An id has at most one grant, of one permit or several, so that a request can be sent again.

use crate::lock::grant::tracked::{TrackedGrant, TrackedGrants};
use crate::lock::name::Resource;
use crate::lock::stats::counters;
use crate::lock::stats::Histogram;
use crate::lock::{KeyRef, Now};

pub(crate) mod commands;
pub(crate) mod settle;
pub(crate) mod state;

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
    /// The statistics.
    pub(super) stats: SemStats,
    /// The times of the permits that `grants_released` and `grants_session_ended` count.
    pub(super) holds: Histogram,
    pub(super) tracked: TrackedGrants,
}

impl Semaphores {
    /// Counts the time of a permit that its holder or the end of its connection has ended. Returns 1 if it was
    /// recorded.
    pub(crate) fn count_hold(&mut self, ended: Option<TrackedGrant>, now: Now) -> u64 {
        let Some(permit) = ended else {
            return 0;
        };
        self.holds
            .record(now.mono_ms.saturating_sub(permit.since_ms));
        1
    }

    /// The semaphore was deleted: no recorded permit of it is held any more.
    pub(crate) fn lose(&mut self, key: KeyRef<'_>) {
        self.stats.grants_lost += self.tracked.remove_all_of(key);
    }
}

/// A semaphore of this name, and the one whose permits a key of this name has.
fn at_and_beside(key: KeyRef<'_>) -> impl Iterator<Item = KeyRef<'_>> {
    let at = key.of(Resource::Semaphore);
    std::iter::once(at).chain(key.semaphore())
}

impl Semaphores {
    /// The key was deleted or has expired, by an event of the server.
    pub(crate) fn lost(&mut self, key: KeyRef<'_>) {
        for key in at_and_beside(key) {
            self.lose(key);
        }
    }

    /// Whether this key has a recorded permit.
    pub(crate) fn has_grant(&self, key: KeyRef<'_>) -> bool {
        at_and_beside(key).any(|key| self.tracked.contains(key))
    }
}
