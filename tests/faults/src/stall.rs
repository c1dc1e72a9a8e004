//! Stalls of the machine for seconds make every reply late, which is no fault of the servers. A heartbeat of this
//! process detects them, and one of the disk, for servers that sync before they reply; the history marks them.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::history::{now, Fault, Journal, Nanos, MS};

const BEAT: Duration = Duration::from_millis(10);

/// Between two syncs.
const BEAT_OF_DISK: Duration = Duration::from_millis(50);

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

/// Syncs a file of its own, beside the directories of the servers, until the run is stopped.
pub fn watch_disk(journal: &Journal, stop: &AtomicBool) {
    let mut file = tempfile::tempfile().expect("a file");
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(BEAT_OF_DISK);
        let from = now();
        file.write_all(b"x").expect("a disk with room");
        file.sync_data().expect("a disk");
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
