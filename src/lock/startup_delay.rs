//! The startup delay: for a time after a start or a promotion no lock is granted.
//!
//! A server does not know what it has lost (an AOF not yet on the disk, a grant that no replica had), so a lock that is
//! free in its data may still be held by an owner that was granted it before. If every lease is shorter than the delay,
//! such holds are over when the delay ends. Holds that are in the data are served meanwhile, and requests may park.

use crate::lock::Now;

/// The startup delay.
#[derive(Debug, Default)]
pub struct StartupDelay {
    began_ms: u64,
    ms: u64,
}

impl StartupDelay {
    /// Begins the delay of `ms` milliseconds: the server has started, or was promoted.
    pub fn begin(&mut self, now: Now, ms: u64) {
        *self = StartupDelay {
            began_ms: now.mono_ms,
            ms,
        };
    }

    /// Applies a changed setting: a running delay may become shorter, never longer (the server may have granted locks
    /// since).
    pub fn limit(&mut self, ms: u64) {
        self.ms = self.ms.min(ms);
    }

    /// The first moment at which locks are granted, in milliseconds of the monotonic clock.
    pub fn end_ms(&self) -> u64 {
        self.began_ms.saturating_add(self.ms)
    }

    /// Milliseconds left; 0 when locks are granted.
    pub fn left(&self, now: Now) -> u64 {
        self.end_ms().saturating_sub(now.mono_ms)
    }

    /// Whether the delay is on.
    pub fn is_on(&self, now: Now) -> bool {
        self.left(now) > 0
    }
}
