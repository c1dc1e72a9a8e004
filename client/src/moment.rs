//! How much time has passed since a request was sent, for certain.
//!
//! The steady clock stands still while the machine sleeps, and the server's lease does not. The wall clock
//! goes on, but may be set back. The later of the two is never late for either reason.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// A moment by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// For timers.
    pub steady: Instant,
    wall: SystemTime,
}

impl Moment {
    pub(crate) fn now() -> Moment {
        Moment {
            steady: Instant::now(),
            wall: SystemTime::now(),
        }
    }

    /// A moment so long before.
    pub(crate) fn before(self, span: Duration) -> Moment {
        Moment {
            steady: self.steady.checked_sub(span).unwrap_or(self.steady),
            wall: self.wall.checked_sub(span).unwrap_or(self.wall),
        }
    }

    /// By the clock that says more.
    pub(crate) fn elapsed(&self) -> Duration {
        let wall = self.wall.elapsed().unwrap_or_default();
        self.steady.elapsed().max(wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_stood_still_or_was_set_back_makes_nobody_late() {
        let now = Moment::now();
        let hour = Duration::from_secs(3_600);
        let slept = Moment {
            wall: now.wall - hour,
            ..now
        };
        assert!(slept.elapsed() >= hour);
        let set_back = Moment {
            wall: now.wall + hour,
            ..now
        };
        assert!(set_back.elapsed() < hour);
    }
}
