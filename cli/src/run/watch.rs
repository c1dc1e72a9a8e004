//! The supervision of the running command: signals are passed on to it, redis-lock stops with it, and it is ended when
//! the lock is lost.

use std::cell::Cell;
use std::collections::HashSet;
use std::time::Duration;

use nix::sys::signal::{kill, killpg, Signal};
use nix::unistd::{getpgrp, getpid, Pid};
use redis_lock_client::LostReason;
use tokio::time::{sleep, sleep_until, Instant};

use crate::run::child::{Change, Child};
use crate::run::lock::Held;
use crate::run::options::Args;
use crate::run::terminal::Terminal;
use crate::signals::{is_end, Signals};

/// A command under its lock.
pub struct Watch<'a> {
    pub args: &'a Args,
    pub held: &'a Held,
    pub child: &'a Child,
    pub terminal: Option<&'a Terminal>,
    /// Whether the command has had the terminal from its start.
    pub foreground: bool,
    /// Whether the command is stopped until a renewal confirms that the lock is held.
    pub is_to_resume: Cell<bool>,
    /// Starts what --on-loss names.
    pub on_loss: &'a dyn Fn() -> Option<Pid>,
}

/// How the command ended.
pub struct End {
    pub change: Change,
    /// Why the lock was lost before that, if it was.
    pub lost: Option<LostReason>,
    /// Whether it was ended because its time was over.
    pub is_late: bool,
    /// Whether the command had the terminal then.
    pub had_terminal: bool,
    pub rest: Rest,
}

/// The state of the processes that the command left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// They continue: the command ended by itself.
    Alone,
    /// All have ended.
    Ended,
    /// Some cannot be ended, and a signal ended the wait for them.
    Left,
}

/// The first and the longest pause between two looks for processes that the ended command has left.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// Time after which a wait is explained, and after which killed processes should have ended.
const A_WHILE: Duration = Duration::from_secs(1);

/// How long a signal is held back where it may have been sent to the command, too.
const SENT_TO_ALL: Duration = Duration::from_millis(250);

/// The steps taken to end the command.
#[derive(Default)]
struct Ending {
    /// When SIGKILL is due.
    kill_at: Option<Instant>,
    is_killed: bool,
    /// When a message is due that says what is waited for.
    explain_at: Option<Instant>,
    /// Whether a message has said that a process cannot be killed: one more signal leaves it running.
    is_explained: bool,
    /// When a signal that ends programs was passed on. A command that continues for long after it uses the signal for
    /// something else (a daemon that reloads at SIGHUP).
    signalled_at: Option<Instant>,
    /// A signal to pass on, and when.
    forward: Option<(Signal, Instant)>,
    /// Processes that have been sent SIGTERM.
    asked: HashSet<Pid>,
}

impl Watch<'_> {
    /// Waits for the end of the command, and for that of its descendants when the lock is lost or a signal has ended
    /// it: those must not continue without the lock. Messages go to `tell`.
    pub async fn until_end(&self, signals: &mut Signals, tell: impl Fn(&str)) -> End {
        let (mut lost, mut change) = (None, None);
        let (mut ending, mut had_terminal) = (Ending::default(), false);
        let mut over = self.args.at_most.map(|span| Instant::now() + span);
        let (mut is_late, mut pause) = (false, FIRST_PAUSE);
        let take_back = |tty: &Terminal| tty.take_back(self.child.group);
        let rest = loop {
            if change.is_some() {
                if self.child.has_left_nothing() {
                    break Rest::Ended;
                }
                self.end_orphans(&mut ending);
            }
            tokio::select! {
                // SIGCHLD reports the end of the last one.
                () = sleep(pause), if change.is_some() => pause = (pause * 2).min(LONGEST_PAUSE),
                why = self.held.lost(), if lost.is_none() => {
                    let what = match (change, self.args.keep) {
                        (Some(_), _) => "what the command started is stopped",
                        (None, true) => "the command goes on (--keep)",
                        (None, false) => {
                            self.stop(&mut ending);
                            "the command is stopped"
                        }
                    };
                    // It is not asked to end.
                    ending.asked.extend((self.on_loss)());
                    tell(&format!("{why}; {what}"));
                    lost = Some(why);
                }
                () = sleep(LONGEST_PAUSE), if self.is_to_resume.get() && lost.is_none() => self.resume(),
                () = at(over) => {
                    (over, is_late) = (None, true);
                    self.stop(&mut ending);
                    tell("the time of the command is over (--at-most); it is stopped");
                }
                () = at(ending.forward.map(|(_, at)| at)) => self.forward(&mut ending),
                () = at(ending.kill_at), if !ending.is_killed => {
                    self.child.signal_all(Signal::SIGKILL);
                    ending.is_killed = true;
                }
                () = at(ending.kill_at.map(|at| at + A_WHILE)), if !ending.is_explained => {
                    (ending.is_explained, ending.explain_at) = (true, None);
                    tell(&format!("cannot end {}; waiting", self.child.named()));
                }
                () = at(ending.explain_at) => {
                    ending.explain_at = None;
                    tell(&format!("waiting for {}", self.child.named()));
                }
                signal = signals.next() => {
                    if is_end(signal) && ending.is_explained {
                        tell(&format!("left running: {}", self.child.named()));
                        break Rest::Left;
                    } else if change.is_some() {
                        if is_end(signal) {
                            self.child.signal_all(signal);
                        }
                        continue;
                    }
                    change = self.handle(signal, &mut ending);
                    let Some(change) = change else { continue };
                    had_terminal = self.terminal.is_some_and(take_back);
                    if ending.kill_at.is_none() && !self.was_signalled(change, &ending) {
                        break Rest::Alone;
                    }
                    (over, ending.forward) = (None, None);
                    ending.kill_at.get_or_insert_with(|| Instant::now() + self.args.grace);
                    ending.explain_at = Some(Instant::now() + A_WHILE);
                }
            }
        };
        End {
            change: change.unwrap_or(Change::Killed(Signal::SIGKILL as i32)),
            lost,
            is_late,
            had_terminal: had_terminal || self.terminal.is_some_and(take_back),
            rest,
        }
    }

    /// Whether a signal has ended the command, as far as known.
    fn was_signalled(&self, change: Change, ending: &Ending) -> bool {
        let passed = ending.signalled_at;
        let is_recent = passed.is_some_and(|at| at.elapsed() < self.args.grace.max(A_WHILE));
        matches!(change, Change::Killed(by) if Signal::try_from(by).is_ok_and(is_end)) || is_recent
    }

    /// Sends SIGTERM to the command and its descendants, SIGCONT for those that are stopped, and after the grace
    /// SIGKILL.
    fn stop(&self, ending: &mut Ending) {
        let kill_at = Instant::now() + self.args.grace;
        ending.kill_at.get_or_insert(kill_at);
        ending.asked.extend(self.child.signal_all(Signal::SIGTERM));
        self.child.signal_all(Signal::SIGCONT);
    }

    /// Ends what the ended command has left behind: processes whose parent has ended get SIGTERM. They were forked
    /// while the others were signalled, or ignored the signal that ended the command (a shell's background jobs ignore
    /// SIGINT). A process that still has its parent gets no signal: it may be a part of that parent's handling of the
    /// signal. After the grace all get SIGKILL.
    fn end_orphans(&self, ending: &mut Ending) {
        if ending.is_killed {
            self.child.signal_all(Signal::SIGKILL);
            return;
        }
        for process in self.child.members() {
            if process.parent == getpid() && ending.asked.insert(process.pid) {
                let _ = kill(process.pid, Signal::SIGTERM);
                let _ = kill(process.pid, Signal::SIGCONT);
            }
        }
    }

    /// Handles a signal; returns the change when the command has ended.
    fn handle(&self, signal: Signal, ending: &mut Ending) -> Option<Change> {
        match signal {
            Signal::SIGCHLD => {
                let end = self.handle_changes();
                let is_sent = |(signal, _): &_| self.child.was_sent_to_all(*signal);
                ending.forward = ending.forward.filter(|forward| !is_sent(forward));
                return end;
            }
            Signal::SIGCONT => {
                let end = self.handle_changes();
                // The signal may be the one that ended a stop in `handle_stop`, and the command may have been stopped
                // again since: to continue it now would undo a stop that has not been seen yet.
                match self.child.is_stopped.get() {
                    true => self.resume(),
                    false => self.give_terminal(),
                }
                return end;
            }
            end if is_end(end) => {
                ending.signalled_at = Some(Instant::now());
                if self.child.was_sent_to_all(end) {
                    return None;
                }
                self.forward(ending);
                ending.forward = Some((end, Instant::now() + SENT_TO_ALL));
                if self.child.witness.get().is_none() {
                    self.forward(ending);
                }
            }
            other => {
                self.child.signal(other);
            }
        }
        None
    }

    /// Passes the signal on that was held back.
    fn forward(&self, ending: &mut Ending) {
        if let Some((signal, _)) = ending.forward.take() {
            let sent = self.child.signal_all(signal);
            if signal == Signal::SIGTERM {
                ending.asked.extend(sent);
            }
        }
    }

    /// Handles the changes of the command's state; returns its end.
    fn handle_changes(&self) -> Option<Change> {
        while let Some(change) = self.child.change() {
            match change {
                Change::Stopped(by) => self.handle_stop(by),
                end => return Some(end),
            }
        }
        None
    }

    /// Handles a stop of the command. A stop by the terminal either means that the command needs the terminal and gets
    /// it, or redis-lock stops as well, so that the shell sees it. A stop by another process needs no action.
    fn handle_stop(&self, by: i32) {
        let Ok(by) = Signal::try_from(by) else {
            return;
        };
        let Some(terminal) = self.terminal else {
            return;
        };
        let group = self.child.group;
        let lacks_terminal = matches!(by, Signal::SIGTTIN | Signal::SIGTTOU);
        if lacks_terminal && (terminal.is_ours() || terminal.is_of(group)) {
            terminal.give(group);
            self.child.resume();
        } else if lacks_terminal {
            // Stops until redis-lock is in the foreground. The kernel ignores this where no shell could continue it.
            let _ = kill(getpid(), Signal::SIGTTIN);
        } else if by == Signal::SIGTSTP {
            // The other processes of our group have got the signal if the group was in the foreground.
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
            // Continues here after SIGCONT, or at once where no shell could continue redis-lock.
            if was_there && terminal.is_ours() {
                terminal.give(group);
            }
            self.resume();
        }
    }

    /// Continues the command, unless the lock may have been lost meanwhile: then the loss is about to be reported, or a
    /// renewal to be confirmed.
    fn resume(&self) {
        self.give_terminal();
        let may_go_on = self.args.keep || self.held.is_valid();
        self.is_to_resume.set(!may_go_on);
        if may_go_on {
            self.child.resume();
        }
    }

    /// Gives the command the terminal, if it has had it from its start and the shell has given it to redis-lock.
    fn give_terminal(&self) {
        if let Some(terminal) = self.terminal.filter(|terminal| terminal.is_ours()) {
            if self.foreground {
                terminal.give(self.child.group);
            }
        }
    }
}

async fn at(end: Option<Instant>) {
    match end {
        Some(end) => sleep_until(end).await,
        None => std::future::pending().await,
    }
}
