//! Time limits on a shared machine: a case is repeated until it is once in time. A limit that does not hold is missed
//! each time.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use crate::patience;

/// The least runs of a case before it counts as late.
const LEAST: usize = 4;

/// The cases that are still to be run.
pub struct Tries<T> {
    left: Vec<T>,
    begin: Instant,
    late: usize,
}

impl<T: Copy + PartialEq + Debug> Tries<T> {
    /// Starts with these cases.
    pub fn of(cases: &[T]) -> Tries<T> {
        Tries {
            left: cases.to_vec(),
            begin: Instant::now(),
            late: 0,
        }
    }

    /// The next case to run.
    pub fn next_case(&self) -> Option<T> {
        self.left.last().copied()
    }

    /// The time of a run. It must not be below the bound, and in at least one run not above the bound plus `over`.
    ///
    /// # Panics
    /// When it ended too early, or was too late in each run.
    pub fn took(&mut self, case: T, took: Duration, bound: Duration, over: Duration) {
        assert!(took >= bound, "{took:?} for {case:?}");
        if took < bound + over {
            self.left.retain(|other| *other != case);
            (self.begin, self.late) = (Instant::now(), 0);
        } else {
            self.late += 1;
            let is_late = self.late >= LEAST && self.begin.elapsed() > 3 * patience();
            assert!(!is_late, "{took:?} for {case:?}");
        }
    }
}
