//! Bounds of time on a machine that has other things to do: each case is played a few times, and the best counts.

use std::fmt::Debug;
use std::time::Duration;

/// How often a case is played at most.
const MOST: usize = 4;

/// The cases that are still to be played.
pub struct Tries<T> {
    left: Vec<T>,
}

impl<T: Copy + PartialEq + Debug> Tries<T> {
    /// Of these cases.
    pub fn of(cases: &[T]) -> Tries<T> {
        Tries {
            left: cases.repeat(MOST),
        }
    }

    /// The next one to play.
    pub fn next_case(&mut self) -> Option<T> {
        self.left.pop()
    }

    /// The case took so long. It must take the bound at least, and, once of all times, no more than that and `over`.
    ///
    /// # Panics
    /// When it ended too early, or was too late each time.
    pub fn took(&mut self, case: T, took: Duration, bound: Duration, over: Duration) {
        assert!(took >= bound, "{took:?} for {case:?}");
        if took < bound + over {
            self.left.retain(|other| *other != case);
        } else {
            assert!(self.left.contains(&case), "{took:?} for {case:?}");
        }
    }
}
