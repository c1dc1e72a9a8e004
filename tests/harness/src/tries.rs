//! Time limits on a shared machine: each case runs a few times, and the best time counts.

use std::fmt::Debug;
use std::time::Duration;

/// The maximum number of runs of a case.
const MOST: usize = 4;

/// The cases that are still to be run.
pub struct Tries<T> {
    left: Vec<T>,
}

impl<T: Copy + PartialEq + Debug> Tries<T> {
    /// Starts with these cases.
    pub fn of(cases: &[T]) -> Tries<T> {
        Tries {
            left: cases.repeat(MOST),
        }
    }

    /// The next case to run.
    pub fn next_case(&mut self) -> Option<T> {
        self.left.pop()
    }

    /// The time of a run. It must not be below the bound, and in at least one run not above the bound plus `over`.
    ///
    /// # Panics
    /// When it ended too early, or was too late in each run.
    pub fn took(&mut self, case: T, took: Duration, bound: Duration, over: Duration) {
        assert!(took >= bound, "{took:?} for {case:?}");
        if took < bound + over {
            self.left.retain(|other| *other != case);
        } else {
            assert!(self.left.contains(&case), "{took:?} for {case:?}");
        }
    }
}
