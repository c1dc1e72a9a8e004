//! The command in its own process group: its start, its signals and its end, with all its descendants.

use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::signal::{kill, killpg, Signal};
use nix::unistd::Pid;

use crate::failure::{Failure, NOT_FOUND, NOT_RUNNABLE, USAGE};
use crate::os::{before_exec, wait, Before};
use crate::run::descendants::{named, Family, Process};

/// A started command, which leads its process group.
pub struct Child {
    pub group: Pid,
    /// Whether it was stopped when its state last changed, and has not been continued since.
    pub is_stopped: Cell<bool>,
    /// The process that tells a signal to all from one to redis-lock alone, as long as it lives.
    pub witness: Cell<Option<Pid>>,
    /// The signal that has ended it.
    sent_to_all: Cell<Option<i32>>,
    /// None where descendants outside of the process group cannot be followed.
    family: Option<Family>,
}

/// The variables to set in its environment, or to remove.
pub type Variables = Vec<(String, Option<OsString>)>;

/// A change of the command's state. Signals are numbers: those of realtime have no names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Exited(i32),
    Killed(i32),
    Stopped(i32),
}

impl Child {
    pub fn start(
        words: &[OsString],
        variables: &Variables,
        before: Before,
        witness: Option<Pid>,
    ) -> Result<Child, Failure> {
        let family = Family::from_now_on();
        let group = spawn(command_of(words, before)?, variables)?;
        Ok(Child {
            group,
            is_stopped: Cell::new(false),
            witness: Cell::new(witness),
            sent_to_all: Cell::new(None),
            family,
        })
    }

    /// Sends a signal to its process group; false when the group has no process.
    pub fn signal(&self, signal: impl Into<Option<Signal>>) -> bool {
        killpg(self.group, signal) != Err(Errno::ESRCH)
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
        members.into_iter().map(|process| process.pid).collect()
    }

    /// The number and pids of the command and its descendants, for messages.
    pub fn named(&self) -> String {
        named(&self.members())
    }

    /// The living processes among the command and its descendants, as far as /proc shows them.
    pub fn members(&self) -> Vec<Process> {
        self.family.as_ref().map_or_else(Vec::new, Family::members)
    }

    /// Whether the ended command has left no process behind. A subreaper without children has no descendants either,
    /// because each of them would have become its child when the process between them ended.
    pub fn has_left_nothing(&self) -> bool {
        let is_childless = loop {
            match wait() {
                Ok(Some(_)) => {}
                ended => break ended.is_err(),
            }
        };
        match &self.family {
            None => !self.signal(None),
            Some(family) if family.has_strangers() => is_childless || family.members().is_empty(),
            Some(_) => is_childless,
        }
    }

    /// Whether this signal has been seen to be sent to all, once.
    pub fn was_sent_to_all(&self, signal: Signal) -> bool {
        let is_it = self.sent_to_all.get() == Some(signal as i32);
        if is_it {
            self.sent_to_all.set(None);
        }
        is_it
    }

    /// The next change of the command's state since the last call. It also reaps adopted orphans.
    pub fn change(&self) -> Option<Change> {
        loop {
            let (pid, status) = wait().ok()??;
            if self.witness.get() == Some(pid) && status.stopped_signal().is_none() {
                self.witness.set(None);
                self.sent_to_all.set(status.signal());
            }
            if pid != self.group {
                continue;
            }
            if let Some(status) = status.code() {
                return Some(Change::Exited(status));
            }
            if let Some(signal) = status.signal() {
                return Some(Change::Killed(signal));
            }
            if let Some(signal) = status.stopped_signal() {
                self.is_stopped.set(true);
                return Some(Change::Stopped(signal));
            }
        }
    }
}

/// Starts a script of the shell beside the command, if there is one. redis-lock does not wait for its end.
pub fn start_hook(script: Option<&OsString>, variables: &Variables) -> Option<Pid> {
    let words = ["sh".into(), "-c".into(), script?.clone()];
    let started = command_of(&words, Before::default()).and_then(|mut command| {
        command.stdin(Stdio::null());
        spawn(command, variables)
    });
    started.map_err(|failure| failure.tell()).ok()
}

/// Starts it in a process group of its own, with these variables.
fn spawn(mut command: Command, variables: &Variables) -> Result<Pid, Failure> {
    for (name, value) in variables {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let child = command.process_group(0).spawn();
    let child = child.map_err(|error| cannot_run(&command, &error))?;
    Ok(Pid::from_raw(i32::try_from(child.id()).unwrap_or_default()))
}

/// Becomes the command; returns why that is not possible.
pub fn become_command(words: &[OsString]) -> Failure {
    match command_of(words, Before::default()) {
        Ok(mut command) => {
            let error = command.exec();
            cannot_run(&command, &error)
        }
        Err(failure) => failure,
    }
}

fn command_of(words: &[OsString], before: Before<'_>) -> Result<Command, Failure> {
    let [program, arguments @ ..] = words else {
        return Err(Failure::new(USAGE, "no command"));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    before_exec(&mut command, before);
    Ok(command)
}

fn cannot_run(command: &Command, error: &io::Error) -> Failure {
    let status = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_RUNNABLE,
    };
    let program = command.get_program().to_string_lossy();
    Failure::new(status, format!("{program}: {error}"))
}
