//! While the command runs: signals are passed on to it, its stops are ours, and it is stopped when the lock
//! is lost.

use std::collections::HashSet;
use std::time::Duration;

use nix::sys::signal::{kill, killpg, Signal};
use nix::unistd::{getpgrp, getpid, Pid};
use redis_lock_client::LostReason;
use tokio::time::{sleep_until, Instant};

use crate::child::{Change, Child};
use crate::held::Held;
use crate::signals::{is_end, Signals};
use crate::sweep::{Sweep, A_WHILE};
use crate::terminal::Terminal;

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
    /// Whether the command had the terminal then.
    pub had_terminal: bool,
    pub rest: Rest,
}

/// What became of the processes that the command left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// They were left alone: the command ended by itself.
    Alone,
    /// All have ended.
    Ended,
    /// Some cannot be ended, and a signal said not to wait for them.
    Left,
}

/// What has been done to end the command.
#[derive(Default)]
struct Ending {
    /// When SIGKILL is due, because the lock is lost.
    kill_at: Option<Instant>,
    is_killed: bool,
    /// Whether it was said that something cannot be killed.
    is_explained: bool,
    /// Whether it is left running, after one more signal.
    is_left: bool,
    /// When a signal that ends programs was passed on. A command that goes on for long after it has taken it for
    /// something else (a daemon reads its configuration again at SIGHUP).
    signalled_at: Option<Instant>,
    /// Those that have been sent SIGTERM.
    asked: HashSet<Pid>,
}

impl Watch<'_> {
    /// Waits for the command's end, and for that of all it started where the lock is lost or a signal has ended
    /// it. Says what happens to the lock meanwhile by `tell`.
    pub async fn until_end(&self, signals: &mut Signals, tell: impl Fn(&str)) -> End {
        let mut lost = None;
        let mut ending = Ending::default();
        let change = loop {
            tokio::select! {
                why = self.held.lost(), if lost.is_none() => {
                    lost = Some(why.clone());
                    if self.keep {
                        tell(&format!("{why}; the command goes on (--keep)"));
                    } else {
                        ending.kill_at = Some(Instant::now() + self.grace);
                        self.stop(&mut ending);
                        tell(&format!("{why}; the command is stopped"));
                    }
                }
                () = at(ending.kill_at), if !ending.is_killed => {
                    self.child.signal_all(Signal::SIGKILL);
                    ending.is_killed = true;
                }
                () = at(ending.kill_at.map(|at| at + A_WHILE)), if !ending.is_explained => {
                    ending.is_explained = true;
                    tell(&format!("cannot end {}; waiting", self.child.named()));
                }
                signal = signals.next() => {
                    if is_end(signal) && ending.is_explained {
                        tell(&format!("left running: {}", self.child.named()));
                        ending.is_left = true;
                        break Change::Killed(Signal::SIGKILL);
                    }
                    if let Some(end) = self.heard(signal, &mut ending) {
                        break end;
                    }
                }
            }
        };
        let group = self.child.group();
        let had_terminal = self.terminal.is_some_and(|tty| tty.take_back(group));
        let was_signalled = matches!(change, Change::Killed(signal) if is_end(signal))
            || ending
                .signalled_at
                .is_some_and(|at| at.elapsed() < self.grace.max(A_WHILE));
        let rest = match (ending.is_left, ending.kill_at, was_signalled) {
            (true, ..) => Rest::Left,
            (false, None, false) => Rest::Alone,
            _ => self.sweep(ending, signals, &mut lost, &tell).await,
        };
        End {
            change,
            lost,
            had_terminal,
            rest,
        }
    }

    /// Asks the command and its descendants to end, also those that are stopped.
    fn stop(&self, ending: &mut Ending) {
        ending.asked.extend(self.child.signal_all(Signal::SIGTERM));
        self.child.signal_all(Signal::SIGCONT);
    }

    /// The command has ended: what it has left behind has the rest of the grace, or all of it.
    async fn sweep(
        &self,
        ending: Ending,
        signals: &mut Signals,
        lost: &mut Option<LostReason>,
        tell: &impl Fn(&str),
    ) -> Rest {
        let sweep = Sweep {
            held: self.held,
            child: self.child,
            kill_at: ending
                .kill_at
                .unwrap_or_else(|| Instant::now() + self.grace),
            asked: ending.asked,
        };
        match sweep.until_gone(signals, lost, tell).await {
            true => Rest::Ended,
            false => Rest::Left,
        }
    }

    /// Passes a signal on; tells when the command has ended.
    fn heard(&self, signal: Signal, ending: &mut Ending) -> Option<Change> {
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
            end if is_end(end) => {
                ending.signalled_at = Some(Instant::now());
                let sent = self.child.signal_all(end);
                if end == Signal::SIGTERM {
                    ending.asked.extend(sent);
                }
            }
            other => {
                self.child.signal(other);
            }
        }
        None
    }

    /// The command was stopped. By the terminal: then it gets the terminal, if that is what it lacks, or
    /// we stop as well, so that the shell around us knows. By another process: that is between the two.
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
