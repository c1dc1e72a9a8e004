//! Stalls of the machine for seconds make every reply late, which is no fault of the servers. A heartbeat in this
//! process detects them, and the history marks them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::history::{now, Fault, Journal, Nanos, MS};

const BEAT: Duration = Duration::from_millis(10);

/// A pause of this length is a stall.
const STALL: Nanos = 500 * MS;

/// Beats until the run is stopped.
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
