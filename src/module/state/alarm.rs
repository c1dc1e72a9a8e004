//! The state of the timer.

use redis_module::raw;

use crate::lock::Now;

/// While writes are refused (a pause, too few replicas, a full disk) keys are looked at this often.
pub const RETRY_MS: u64 = 20;

/// After a panic no key is settled for so long.
const PAUSE_AFTER_PANIC_MS: u64 = 1_000;

/// The state of the timer.
#[derive(Default)]
pub struct Alarm {
    /// The timer, and when it fires on the monotonic clock; 0: at the end of this turn.
    pub(in crate::module) armed: Option<(raw::RedisModuleTimerID, u64)>,
    /// The timer fires just now: it is armed again at the end of that.
    pub(in crate::module) firing: bool,
    /// How many times in a row it has fired too early, by the monotonic clock.
    pub(in crate::module) early: u32,
    /// No key is settled before this moment of the monotonic clock.
    pub(in crate::module) paused_until_ms: u64,
    /// No key that stood back is settled again, and no lost horizon written, before this moment.
    pub(in crate::module) retry_at_ms: u64,
    /// Nothing that is bound to a connection is renewed or released before this moment.
    pub sessions_at_ms: u64,
    /// The server will call back when the present unit of execution is over: until then the timer is armed.
    pub job: bool,
}

impl Alarm {
    /// No key is settled for a second: after a bug in that very place, rather slow than spinning.
    pub fn pause(&mut self, now: Now) {
        self.paused_until_ms = now.mono_ms + PAUSE_AFTER_PANIC_MS;
    }

    /// The timer fires.
    pub fn fires(&mut self, now: Now) {
        self.firing = true;
        self.job = false;
        let is_early = self.armed.is_some_and(|(_, at)| now.mono_ms < at);
        self.early = if is_early { self.early + 1 } else { 0 };
    }
}
