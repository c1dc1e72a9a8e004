//! A safe measure of the time since a request was sent.
//!
//! The monotonic clock stops while the machine is suspended, but the server's lease does not. The wall clock continues,
//! but may be set back. The larger of the two elapsed times is safe in both cases.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// The present moment by the monotonic clock. `Instant::now` of tokio has that of the caller's runtime, which a test
/// may have paused, while the thread of this crate goes on.
pub(crate) fn now() -> Instant {
    Instant::from_std(std::time::Instant::now())
}

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
            steady: now(),
            wall: SystemTime::now(),
        }
    }

    /// The elapsed time, by the clock that shows more.
    pub(crate) fn elapsed(&self) -> Duration {
        let wall = self.wall.elapsed().unwrap_or_default();
        (now() - self.steady).max(wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_elapsed_time_counts_after_a_suspension_or_a_set_back() {
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
