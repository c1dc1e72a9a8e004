//! The start-up delay: for a while after a start or a promotion no lock is granted.
//!
//! What a server has lost (an AOF not yet on the disk, a grant that no replica had) it does not know,
//! so a lock that is free in its data may still be held by somebody who was granted it before. If
//! every lease is shorter than the delay, whoever that was holds nothing any more when the delay is
//! over. Holds that are in the data are served meanwhile, and requests may park.

use crate::lock::Now;

/// Whether locks are granted yet.
#[derive(Debug, Default)]
pub struct StartupDelay {
    began_ms: u64,
    ms: u64,
}

impl StartupDelay {
    /// The server has just started, or was just promoted: nothing is granted for so many milliseconds.
    pub fn begin(&mut self, now: Now, ms: u64) {
        *self = StartupDelay {
            began_ms: now.mono_ms,
            ms,
        };
    }

    /// The setting was changed: a delay that is under way may become shorter, never longer (the server
    /// may have granted locks since).
    pub fn limit(&mut self, ms: u64) {
        self.ms = self.ms.min(ms);
    }

    /// The first moment of the monotonic clock, in milliseconds, at which locks are granted.
    pub fn end_ms(&self) -> u64 {
        self.began_ms.saturating_add(self.ms)
    }

    /// Milliseconds that are left; 0 when locks are granted.
    pub fn left(&self, now: Now) -> u64 {
        self.end_ms().saturating_sub(now.mono_ms)
    }

    /// Whether nothing is granted yet.
    pub fn is_on(&self, now: Now) -> bool {
        self.left(now) > 0
    }
}
