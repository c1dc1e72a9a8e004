//! The end of the processes that a command leaves behind, where they must not continue without the lock.

use std::collections::HashSet;
use std::time::Duration;

use nix::sys::signal::{kill, Signal};
use nix::unistd::{getpid, Pid};
use redis_lock_client::LostReason;
use tokio::time::{sleep, Instant};

use crate::run::child::Child;
use crate::run::lock::Held;
use crate::signals::{is_end, Signals};

/// The first and the longest pause between two checks for processes. SIGCHLD reports the end of the last one.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Time after which a wait is explained, and after which killed processes should have ended.
pub const A_WHILE: Duration = Duration::from_secs(1);

/// The processes that an ended command has left behind.
pub struct Leftovers<'a> {
    pub held: &'a Held,
    pub child: &'a Child,
    /// Until then orphans get SIGTERM, from then on all get SIGKILL.
    pub kill_at: Instant,
    /// Processes that have been sent SIGTERM.
    pub asked: HashSet<Pid>,
    /// Starts what --on-loss names.
    pub on_loss: &'a dyn Fn() -> Option<Pid>,
}

impl Leftovers<'_> {
    /// Waits until no process is left; false when a signal ended the wait because the rest cannot be killed.
    pub async fn until_gone(
        mut self,
        signals: &mut Signals,
        lost: &mut Option<LostReason>,
        tell: &impl Fn(&str),
    ) -> bool {
        let mut explain_at = Some(Instant::now() + A_WHILE);
        let mut give_up_at = Some(self.kill_at + A_WHILE);
        let mut pause = FIRST_PAUSE;
        while !self.child.has_left_nothing() {
            let now = Instant::now();
            if now >= self.kill_at {
                self.child.signal_all(Signal::SIGKILL);
            } else {
                self.ask_orphans();
            }
            if give_up_at.is_some_and(|at| now >= at) {
                (explain_at, give_up_at) = (None, None);
                tell(&format!("cannot end {}; waiting", self.child.named()));
            } else if explain_at.is_some_and(|at| now >= at) {
                explain_at = None;
                tell(&format!("waiting for {}", self.child.named()));
            }
            tokio::select! {
                () = sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
                why = self.held.lost(), if lost.is_none() => {
                    *lost = Some(why.clone());
                    self.asked.extend((self.on_loss)());
                    tell(&format!("{why}; what the command started is stopped"));
                }
                signal = signals.next() => {
                    if is_end(signal) && give_up_at.is_none() {
                        tell(&format!("left running: {}", self.child.named()));
                        return false;
                    } else if is_end(signal) {
                        self.child.signal_all(signal);
                    }
                }
            }
        }
        true
    }

    /// Sends SIGTERM to processes whose parent has ended: they were forked while the others were signalled, or ignored
    /// the signal that ended the command (a shell's background jobs ignore SIGINT). A process that still has its parent
    /// gets no signal: it may be a part of that parent's handling of the signal.
    fn ask_orphans(&mut self) {
        for process in self.child.members() {
            if process.parent == getpid() && self.asked.insert(process.pid) {
                let _ = kill(process.pid, Signal::SIGTERM);
                let _ = kill(process.pid, Signal::SIGCONT);
            }
        }
    }
}
