//! The command: a process group of its own, started, signalled and waited for.
//!
//! Two things a process can only do for itself: to be in the terminal's foreground before its first
//! instruction, and to ask the kernel to be killed with its parent. For these a copy of this program is
//! started, does them, and becomes the command.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::errno::Errno;
use nix::sys::signal::{killpg, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{getpgrp, Pid};

use crate::failure::{Failure, NOT_FOUND, NOT_RUNNABLE, USAGE};
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
        let child = command
            .spawn()
            .map_err(|error| cannot_run(program, &error))?;
        let group = Pid::from_raw(i32::try_from(child.id()).unwrap_or_default());
        Ok(Child { group })
    }

    pub fn group(&self) -> Pid {
        self.group
    }

    /// Sends a signal to all of its group; false when nobody is there.
    pub fn signal(&self, signal: impl Into<Option<Signal>>) -> bool {
        killpg(self.group, signal) != Err(Errno::ESRCH)
    }

    /// From now on the orphans of the command are ours to wait for, and not init's: that may take its time, and
    /// a group of which nobody was waited for looks like a living one.
    pub fn adopt_orphans() {
        #[cfg(target_os = "linux")]
        let _ = nix::sys::prctl::set_child_subreaper(true);
    }

    /// Whether anybody of its group is left, when the command itself has ended.
    pub fn has_left_somebody(&self) -> bool {
        let group = Pid::from_raw(-self.group.as_raw());
        let ended = || waitpid(group, Some(WaitPidFlag::WNOHANG));
        while matches!(
            ended(),
            Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..))
        ) {}
        self.signal(None)
    }

    /// What has happened since the last call.
    pub fn change(&self) -> Option<Change> {
        let flags = WaitPidFlag::WNOHANG | WaitPidFlag::WUNTRACED;
        match waitpid(self.group, Some(flags)) {
            Ok(WaitStatus::Exited(_, status)) => Some(Change::Exited(status)),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(Change::Killed(signal)),
            Ok(WaitStatus::Stopped(_, signal)) => Some(Change::Stopped(signal)),
            _ => None,
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
