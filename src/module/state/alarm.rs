//! The state of the timer.

use std::time::{Duration, Instant};

use redis_module::raw;

use crate::lock::Now;

/// The delay before a refused key is tried again (during a pause, with too few replicas or a full disk).
pub const RETRY_MS: u64 = 20;

/// The time for one sort of work in a tick: the waits that end and the keys to settle, or the bound holds.
const TICK_BUDGET: Duration = Duration::from_millis(2);

/// The longest such time, for a server whose ticks are long.
const LONGEST_BUDGET: Duration = Duration::from_millis(100);

/// The time without settling after a panic.
const PAUSE_AFTER_PANIC_MS: u64 = 1_000;

/// The state of the timer.
#[derive(Default)]
pub struct Alarm {
    /// The timer, and when it fires on the monotonic clock; 0: at the end of this tick.
    pub(in crate::module) armed: Option<(raw::RedisModuleTimerID, u64)>,
    /// Whether the callback of the timer runs: it arms the timer itself, at its end.
    pub(in crate::module) firing: bool,
    /// Number of firings in a row that were too early, by the monotonic clock.
    pub(in crate::module) early: u32,
    /// No key is settled before this moment of the monotonic clock.
    pub(in crate::module) paused_until_ms: u64,
    /// No postponed key is settled, and no lost horizon written, before this moment of the monotonic clock.
    pub(in crate::module) retry_at_ms: u64,
    /// No bound hold is renewed or released before this moment of the monotonic clock.
    pub sessions_at_ms: u64,
    /// When the last firing ended, if it left due work.
    pub(in crate::module) left_at: Option<Instant>,
    /// How many bound holds jobs have released since the last firing.
    pub released_by_jobs: usize,
    /// Whether a job is registered that runs when the present unit of execution is over: until then the timer is armed.
    pub job: bool,
}

impl Alarm {
    /// Pauses settling for a second: a panic while settling must not repeat in a loop.
    pub fn pause(&mut self, now: Now) {
        self.paused_until_ms = now.mono_ms + PAUSE_AFTER_PANIC_MS;
    }

    /// The time for one sort of work in this firing. If the last one has left work, it is half of the time in between:
    /// where other commands make ticks long, a fixed time in each would be too small a part of all.
    pub fn budget(&mut self) -> Duration {
        let between = self.left_at.take().map(|at| at.elapsed());
        (between.unwrap_or_default() / 2).clamp(TICK_BUDGET, LONGEST_BUDGET)
    }

    /// Notes that the timer fires.
    pub fn fires(&mut self, now: Now) {
        self.firing = true;
        (self.job, self.released_by_jobs) = (false, 0);
        let is_early = self.armed.is_some_and(|(_, at)| now.mono_ms < at);
        self.early = if is_early { self.early + 1 } else { 0 };
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn work_that_was_left_gets_half_of_the_time_in_between() {
        let mut alarm = Alarm::default();
        let mut left_for = |ms| {
            alarm.left_at = Instant::now().checked_sub(Duration::from_millis(ms));
            alarm.budget()
        };
        assert!(left_for(60) >= Duration::from_millis(30));
        assert_eq!(left_for(60_000), LONGEST_BUDGET);
        assert_eq!(alarm.budget(), TICK_BUDGET);
    }
}
