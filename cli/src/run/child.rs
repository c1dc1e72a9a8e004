//! The command in its own process group: its start, its signals and its end, with all its descendants.
//!
//! Two settings can only be made by the process itself: to be in the terminal's foreground before its first
//! instruction, and to be killed by the kernel with its parent. For these a copy of this program is started, makes
//! them, and calls `exec` for the command.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{kill, killpg, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{getpgrp, Pid};

use crate::failure::{Failure, BY_SIGNAL, NOT_FOUND, NOT_RUNNABLE, USAGE};
use crate::run::descendants::{named, pids, Family, Process};
use crate::run::terminal::Terminal;

/// The first argument (its argument zero) of the copy, by which it recognizes itself.
const COPY: &str = "redis-lock: becoming the command";

/// The settings that the copy makes before it becomes the command.
#[derive(Debug, Clone, Copy, Default)]
pub struct Before {
    /// Take the terminal.
    pub foreground: bool,
    /// Die with the parent.
    pub die_with_parent: bool,
}

/// A started command, which leads its process group.
pub struct Child {
    group: Pid,
    /// Whether the last change that was seen is a stop.
    is_stopped: Cell<bool>,
    /// None where descendants outside of the process group cannot be followed.
    family: Option<Family>,
}

/// The variables to set in its environment, or to remove.
pub type Variables = Vec<(&'static str, Option<OsString>)>;

/// A change of the command's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Exited(i32),
    Killed(Signal),
    Stopped(Signal),
}

impl Child {
    pub fn start(
        words: &[OsString],
        variables: Variables,
        before: Before,
    ) -> Result<Child, Failure> {
        let [program, arguments @ ..] = words else {
            return Err(Failure::new(USAGE, "no command"));
        };
        let mut command = if before.foreground || before.die_with_parent {
            let mut copy = Command::new(this_program());
            copy.arg0(COPY).arg(parent_and(before)).args(words);
            copy
        } else {
            let mut command = Command::new(program);
            command.args(arguments);
            command
        };
        for (name, value) in variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.process_group(0);
        let family = Family::from_now_on();
        let child = command
            .spawn()
            .map_err(|error| cannot_run(program, &error))?;
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or_default());
        Ok(Child {
            group,
            is_stopped: Cell::new(false),
            family,
        })
    }

    pub fn group(&self) -> Pid {
        self.group
    }

    /// Sends a signal to its process group; false when the group has no process.
    pub fn signal(&self, signal: impl Into<Option<Signal>>) -> bool {
        killpg(self.group, signal) != Err(Errno::ESRCH)
    }

    /// Whether it was stopped when its state last changed, and has not been continued since.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped.get()
    }

    /// Continues its process group.
    pub fn resume(&self) {
        self.is_stopped.set(false);
        self.signal(Signal::SIGCONT);
    }

    /// Sends a signal to its process group and to its descendants outside of it. Returns their pids.
    pub fn signal_all(&self, signal: Signal) -> Vec<Pid> {
        let members = self.members();
        // The number of a group without members may have been reused.
        if self.family.is_none() || members.iter().any(|member| member.group == self.group) {
            self.signal(signal);
        }
        for process in &members {
            if process.group != self.group {
                // It may have ended by now, or belong to another user.
                let _ = kill(process.pid, signal);
            }
        }
        pids(members)
    }

    /// The number and pids of the command and its descendants, for messages.
    pub fn named(&self) -> String {
        named(pids(self.members()))
    }

    /// The living processes among the command and its descendants, as far as /proc shows them.
    pub fn members(&self) -> Vec<Process> {
        self.family.as_ref().map_or_else(Vec::new, Family::members)
    }

    /// Whether the ended command has left no process behind. A subreaper without children has no descendants either,
    /// because each of them would have become its child when the process between them ended.
    pub fn has_left_nothing(&self) -> bool {
        let ended = || waitpid(None, Some(WaitPidFlag::WNOHANG));
        let is_childless = loop {
            match ended() {
                Ok(WaitStatus::StillAlive) => break false,
                Err(Errno::ECHILD) => break true,
                _ => {}
            }
        };
        match &self.family {
            None => !self.signal(None),
            Some(family) if family.has_strangers() => is_childless || family.members().is_empty(),
            Some(_) => is_childless,
        }
    }

    /// The next change of the command's state since the last call. It also reaps adopted orphans.
    pub fn change(&self) -> Option<Change> {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        loop {
            match waitpid(None, Some(flags)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return None,
                // A realtime signal, which has no name here, ended the command or an orphan.
                Err(_) if kill(self.group, None) == Err(Errno::ESRCH) => {
                    return Some(Change::Exited(BY_SIGNAL));
                }
                Ok(status) if status.pid() == Some(self.group) => match status {
                    WaitStatus::Exited(_, status) => return Some(Change::Exited(status)),
                    WaitStatus::Signaled(_, signal, _) => return Some(Change::Killed(signal)),
                    WaitStatus::Stopped(_, signal) => {
                        self.is_stopped.set(true);
                        return Some(Change::Stopped(signal));
                    }
                    _ => {}
                },
                _ => {}
            }
        }
    }
}

/// In the copy: becomes the command, or returns the failure. None in the program itself.
pub fn become_command() -> Option<Failure> {
    let mut words = std::env::args_os();
    if words.next()? != COPY {
        return None;
    }
    let what = words.next().unwrap_or_default();
    let program = words.next().unwrap_or_default();
    let what = what.to_string_lossy();
    if let Some(parent) = what.strip_prefix(DIE_WITH) {
        die_with(parent.trim_end_matches(FOREGROUND));
    }
    if what.ends_with(FOREGROUND) {
        if let Some(terminal) = Terminal::open() {
            terminal.give(getpgrp());
        }
    }
    let error = Command::new(&program).args(words).exec();
    Some(cannot_run(&program, &error))
}

const DIE_WITH: &str = "die with ";
const FOREGROUND: &str = " foreground";

fn parent_and(before: Before) -> String {
    let parent = match before.die_with_parent {
        true => format!("{DIE_WITH}{}", std::process::id()),
        false => String::new(),
    };
    let foreground = if before.foreground { FOREGROUND } else { "" };
    format!("{parent}{foreground}")
}

#[cfg(target_os = "linux")]
fn die_with(parent: &str) {
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    // The parent may have died before the setting was made.
    if nix::unistd::getppid().to_string() != parent {
        crate::failure::exit(crate::failure::LOST);
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with(_parent: &str) {}

/// The running program, also when its file has been replaced meanwhile.
fn this_program() -> OsString {
    if cfg!(target_os = "linux") {
        return "/proc/self/exe".into();
    }
    std::env::current_exe().unwrap_or_default().into()
}

fn cannot_run(program: &OsStr, error: &io::Error) -> Failure {
    let status = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUNNABLE,
    };
    Failure::new(status, format!("{}: {error}", program.to_string_lossy()))
}
