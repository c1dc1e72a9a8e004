//! While the command runs: signals are passed on to it, its stops are ours, and it is stopped when the lock
//! is lost.

use std::time::Duration;

use nix::sys::signal::{kill, killpg, Signal};
use nix::unistd::{getpgrp, getpid};
use redis_lock_client::LostReason;
use tokio::time::{sleep, sleep_until, Instant};

use crate::child::{Change, Child};
use crate::held::Held;
use crate::signals::Signals;
use crate::terminal::Terminal;

/// Looked at so often whether all of a stopped group have ended.
const LOOK: Duration = Duration::from_millis(20);

/// A command under its lock.
pub struct Watch<'a> {
    pub held: &'a Held,
    pub child: &'a Child,
    pub terminal: Option<&'a Terminal>,
    /// Whether the command has had the terminal from the beginning.
    pub foreground: bool,
    /// Leave the command alone when the lock is lost.
    pub keep: bool,
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
}

/// How the command ended.
pub struct End {
    pub change: Change,
    /// Why the lock was lost before that, if it was.
    pub lost: Option<LostReason>,
}

impl Watch<'_> {
    /// Waits for the command's end. Says what happens to the lock meanwhile by `tell`.
    pub async fn until_end(&self, signals: &mut Signals, tell: impl Fn(&str)) -> End {
        let mut lost = None;
        let mut kill_at = None;
        let change = loop {
            tokio::select! {
                why = self.held.lost(), if lost.is_none() => {
                    lost = Some(why);
                    if self.keep {
                        tell(&format!("{why}; the command goes on (--keep)"));
                    } else {
                        self.stop();
                        kill_at = Some(Instant::now() + self.grace);
                        tell(&format!("{why}; the command is stopped"));
                    }
                }
                () = at(kill_at) => {
                    self.child.signal(Signal::SIGKILL);
                    kill_at = None;
                }
                signal = signals.next() => {
                    if let Some(end) = self.heard(signal) {
                        break end;
                    }
                }
            }
        };
        if let Some(end) = kill_at {
            self.sweep(end).await;
        }
        End { change, lost }
    }

    /// Asks the command to end, also one that is stopped.
    fn stop(&self) {
        Child::adopt_orphans();
        self.child.signal(Signal::SIGTERM);
        self.child.signal(Signal::SIGCONT);
    }

    /// The command has ended: what it has left behind in its group has the rest of the grace.
    async fn sweep(&self, end: Instant) {
        while self.child.has_left_somebody() {
            if Instant::now() >= end {
                self.child.signal(Signal::SIGKILL);
                return;
            }
            sleep(LOOK).await;
        }
    }

    /// Passes a signal on; tells when the command has ended.
    fn heard(&self, signal: Signal) -> Option<Change> {
        match signal {
            Signal::SIGCHLD => {
                while let Some(change) = self.child.change() {
                    match change {
                        Change::Stopped(by) => self.stopped(by),
                        end => return Some(end),
                    }
                }
            }
            Signal::SIGCONT => self.resume(),
            other => {
                self.child.signal(other);
            }
        }
        None
    }

    /// The command was stopped. By the terminal: then it gets the terminal, if that is what it lacks, or
    /// we stop as well, so that the shell around us knows. By somebody else: that is between them.
    fn stopped(&self, by: Signal) {
        let Some(terminal) = self.terminal else {
            return;
        };
        let group = self.child.group();
        let lacks_terminal = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        if lacks_terminal && (terminal.is_ours() || terminal.is_of(group)) {
            terminal.give(group);
            self.child.signal(Signal::SIGCONT);
        } else if lacks_terminal {
            // Until we are in the foreground. The kernel ignores this where no shell could continue us.
            let _ = kill(getpid(), Signal::SIGTTIN);
        } else if by == Signal::SIGTSTP {
            // Who shares our group has been sent the signal if the keyboard was ours.
            let was_there = terminal.take_back(group);
            let signal = if self.foreground {
                Signal::SIGTSTP
            } else {
                Signal::SIGTTIN
            };
            let _ = match was_there {
                true => killpg(getpgrp(), signal),
                false => kill(getpid(), signal),
            };
            // Here we go on again, or at once where no shell could continue us.
            if was_there && terminal.is_ours() {
                terminal.give(group);
            }
            self.resume();
        }
    }

    /// Continues the command; but not if the lock has been lost meanwhile: that notice is on its way.
    fn resume(&self) {
        if self.foreground {
            if let Some(terminal) = self.terminal.filter(|terminal| terminal.is_ours()) {
                terminal.give(self.child.group());
            }
        }
        if self.keep || self.held.is_valid() {
            self.child.signal(Signal::SIGCONT);
        }
    }
}

async fn at(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}
