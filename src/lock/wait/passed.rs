//! How many places decisions may pass over: so many in a millisecond, whatever the number of decisions and keys, and
//! again in each step of a tick that has time left. After the last of them no waiter is granted in this event.

use crate::lock::Now;

/// Places that are passed over at most in one millisecond, and so in one event: of all keys, because their waits are
/// over, are not heard, or cannot be granted. The last request may have more. More follow at the end of the tick.
pub const PASSED_AT_ONCE: usize = 500;

/// The places that were passed over in one millisecond.
#[derive(Debug, Default)]
pub(super) struct Passed {
    at_ms: u64,
    places: usize,
}

impl Passed {
    /// Whether one more may be passed over.
    pub fn has_room(&self, now: Now) -> bool {
        self.at_ms != now.mono_ms || self.places < PASSED_AT_ONCE
    }

    /// Counts the places of a request that is passed over, or requests that were checked beside one.
    pub fn add(&mut self, places: usize, now: Now) {
        if self.at_ms != now.mono_ms {
            (self.at_ms, self.places) = (now.mono_ms, 0);
        }
        self.places += places;
    }
}
