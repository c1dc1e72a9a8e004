//! Stalls of the machine make replies late and let leases of bound holds end, which is no fault of the servers. A
//! heartbeat of this process detects them, one of the disk, for servers that sync before they reply, and one of each
//! server: a server that did not reply and did not run either. The history marks them. A server that computes or never
//! replies is not excused.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::history::{now, Fault, Journal, Nanos, MS};
use crate::route::Route;
use crate::wire::{NoReply, Wire};

const BEAT: Duration = Duration::from_millis(10);

/// Between two syncs.
const BEAT_OF_DISK: Duration = Duration::from_millis(50);

/// A pause of this length is a stall.
pub const STALL: Nanos = 500 * MS;

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

/// Sends `PING` to the servers of these keys, one at a time to each, until the run is stopped.
pub fn watch_servers(keys: &[String], route: &dyn Route, journal: &Journal, stop: &AtomicBool) {
    let mut pulses: Vec<Pulse> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        for key in keys {
            let port = route.port(key);
            if pulses.iter().all(|pulse| pulse.wire.port() != port) {
                pulses.extend(Pulse::of(port));
            }
        }
        pulses.retain_mut(|pulse| pulse.beat(journal));
        std::thread::sleep(BEAT);
    }
    // The last requests may have been answered before the last `PING`.
    for pulse in pulses {
        pulse.note(journal);
    }
}

/// The heartbeat of a server.
struct Pulse {
    wire: Wire,
    pid: u32,
    /// When the `PING` without a reply was sent, and the time for which the server had run before.
    ping: Option<(Nanos, Nanos)>,
}

impl Pulse {
    fn of(port: u16) -> Option<Pulse> {
        let mut wire = Wire::open(port)?;
        let info = wire.line("INFO server", Duration::from_millis(300))?;
        let mut lines = info.text().lines();
        let pid = lines.find_map(|line| line.strip_prefix("process_id:"))?;
        Some(Pulse {
            wire,
            pid: pid.trim().parse().ok()?,
            ping: None,
        })
    }

    /// False: the connection is lost.
    fn beat(&mut self, journal: &Journal) -> bool {
        if self.ping.is_none() {
            self.ping = Some((now(), run_time(self.pid).unwrap_or(0)));
            return self.wire.send(&[b"PING"]);
        }
        let reply = self.wire.poll();
        if matches!(reply, Err(NoReply::Late)) {
            return true;
        }
        self.note(journal);
        self.ping = None;
        reply.is_ok()
    }

    fn note(&self, journal: &Journal) {
        let Some((from, ran)) = self.ping else { return };
        let to = now();
        let runs = run_time(self.pid).map_or(to, |time| time.saturating_sub(ran));
        if runs < (to - from) / 2 {
            note(journal, from, to);
        }
    }
}

/// The time for which the main thread of a process has run.
fn run_time(pid: u32) -> Option<Nanos> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

fn note(journal: &Journal, from: Nanos, to: Nanos) {
    if to - from > STALL {
        journal.mark(Fault::Trouble, None, from);
    }
}

#[cfg(test)]
mod tests {
    use super::{note, run_time, STALL};
    use crate::history::{now, Fault, Journal, MS};

    #[test]
    fn a_stall_is_marked_and_a_late_beat_is_not() {
        let journal = Journal::default();
        note(&journal, 0, STALL);
        assert!(journal.marks().is_empty());
        note(&journal, 1, STALL + 2);
        assert_eq!(journal.marks()[0].fault, Fault::Trouble);
    }

    #[test]
    fn the_run_time_of_a_process_grows_when_it_computes() {
        // Of the main thread, which waits in a test for the other ones.
        let pid = std::process::id();
        assert!(run_time(pid).is_some());
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "while :; do :; done"]);
        let mut child = redis_lock_harness::process::spawn(&mut shell).expect("a shell");
        let (from, begin) = (now(), run_time(child.id()).expect("a process"));
        let has_run = || run_time(child.id()).expect("a process") - begin > 50 * MS;
        redis_lock_harness::wait_for("a process that computes", has_run);
        child.kill().expect("a child");
        child.wait().expect("a child");
        assert!(now() - from > 50 * MS);
    }
}
