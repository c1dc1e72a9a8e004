//! The command: a process group of its own, started, signalled and waited for, with all that it starts.
//!
//! Two things a process can only do for itself: to be in the terminal's foreground before its first
//! instruction, and to ask the kernel to be killed with its parent. For these a copy of this program is
//! started, does them, and becomes the command.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{kill, killpg, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{getpgrp, Pid};

use crate::descendants::{named, pids, Family, Process};
use crate::failure::{Failure, BY_SIGNAL, NOT_FOUND, NOT_RUNNABLE, USAGE};
use crate::terminal::Terminal;

/// The name by which the copy knows what it is, and its first argument.
const COPY: &str = "redis-lock: becoming the command";

/// What the copy does before it is the command.
#[derive(Debug, Clone, Copy, Default)]
pub struct Before {
    /// Take the terminal.
    pub foreground: bool,
    /// Die with the parent.
    pub die_with_parent: bool,
}

/// A command that was started, and the leader of its process group.
pub struct Child {
    group: Pid,
    /// None where descendants outside of the process group cannot be followed.
    family: Option<Family>,
}

/// What is set in its environment, and what is not to be there.
pub type Variables = Vec<(&'static str, Option<OsString>)>;

/// What has happened to it.
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
        Ok(Child { group, family })
    }

    pub fn group(&self) -> Pid {
        self.group
    }

    /// Sends a signal to all of its group; false when it has no process.
    pub fn signal(&self, signal: impl Into<Option<Signal>>) -> bool {
        killpg(self.group, signal) != Err(Errno::ESRCH)
    }

    /// Sends a signal to its group and to its descendants outside of the group. Returns those that were there.
    pub fn signal_all(&self, signal: Signal) -> Vec<Pid> {
        let members = self.members();
        // Of a group without members the number may be another group's by now.
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

    /// The command and its descendants, for messages: their number and pids.
    pub fn named(&self) -> String {
        named(pids(self.members()))
    }

    /// The command and its descendants, as far as they live and can be seen.
    pub fn members(&self) -> Vec<Process> {
        self.family.as_ref().map_or_else(Vec::new, Family::members)
    }

    /// Whether the command, which has ended, has left nothing behind. A parent without children has no
    /// descendants either, because each of them would be its child when the one between them ended.
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

    /// What has happened to it since the last call. Waits for adopted orphans on the way.
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
                    WaitStatus::Stopped(_, signal) => return Some(Change::Stopped(signal)),
                    _ => {}
                },
                _ => {}
            }
        }
    }
}

/// In the copy: becomes the command, or says why not.
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
    // It may have died before we asked.
    if nix::unistd::getppid().to_string() != parent {
        crate::failure::exit(crate::failure::LOST);
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with(_parent: &str) {}

/// This very program, also when its file has been replaced meanwhile.
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
