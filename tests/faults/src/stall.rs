//! A machine that stands still for seconds makes every answer late, and that is nobody's fault here. A
//! heart beats in this process; where it missed beats, the history says so.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::history::{now, Fault, Journal, Nanos, MS};

const BEAT: Duration = Duration::from_millis(10);

/// A pause of this length is a stall.
const STALL: Nanos = 500 * MS;

/// Beats until told to stop.
pub fn watch(journal: &Journal, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let from = now();
        std::thread::sleep(BEAT);
        note(journal, from, now());
    }
}

fn note(journal: &Journal, from: Nanos, to: Nanos) {
    if to - from > STALL {
        journal.mark(Fault::Trouble, None, from);
    }
}

#[cfg(test)]
mod tests {
    use super::{note, STALL};
    use crate::history::{Fault, Journal};

    #[test]
    fn a_stall_is_marked_and_a_late_beat_is_not() {
        let journal = Journal::default();
        note(&journal, 0, STALL);
        assert!(journal.marks().is_empty());
        note(&journal, 1, STALL + 2);
        assert_eq!(journal.marks()[0].fault, Fault::Trouble);
    }
}
