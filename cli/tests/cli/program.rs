//! A running `redis-lock`: what it prints, line by line, and how it ends.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{kill, Signal};
use nix::unistd::Pid;
use redis_lock_harness::process::{spawn_with_last_signal, Family};
use redis_lock_harness::{patience, wait_for, TestServer};

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_redis-lock");

/// The URL of a server of ours.
pub fn url(real: &TestServer) -> String {
    format!("redis://127.0.0.1:{}", real.port)
}

/// `redis-lock` with a server, as the environment names it.
pub fn program(real: &TestServer) -> Command {
    let mut command = Command::new(PROGRAM);
    reach(&mut command, &url(real));
    command.env_remove("REDISCLI_AUTH");
    command.env("REDIS_LOCK_CONFIG", "/dev/null");
    command
}

/// The environment of a program that calls `redis-lock`: the servers, and patience.
pub fn reach<'a>(command: &'a mut Command, urls: &str) -> &'a mut Command {
    command.env("REDIS_LOCK_URL", urls);
    command.env("REDIS_LOCK_TIMEOUT", PATIENT[1])
}

/// `redis-lock` with these arguments, one a word.
pub fn start(real: &TestServer, words: &str) -> Running {
    start_args(real, words.split_whitespace())
}

/// The longest time for a reply, of which a twentieth is for that to a `run -n`.
pub const PATIENT: [&str; 2] = ["--timeout", "100"];

/// `redis-lock` with these arguments.
pub fn start_args<A: AsRef<OsStr>>(
    real: &TestServer,
    args: impl IntoIterator<Item = A>,
) -> Running {
    Running::of(program(real).args(args))
}

/// `redis-lock` with these options, and a script of the shell under the lock `k`.
pub fn script(real: &TestServer, options: &str, script: &str) -> Running {
    let options = options.split_whitespace();
    start_args(
        real,
        ["run"]
            .into_iter()
            .chain(options)
            .chain(["k", "--", "sh", "-c", script]),
    )
}

/// How it ended, and what it said.
pub struct Ended {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn code(&self) -> i32 {
        let code = self.status.code();
        code.unwrap_or_else(|| panic!("ended by {:?}: {}", self.status.signal(), self.err))
    }

    /// Its standard output, if all was well.
    pub fn ok(self) -> String {
        assert_eq!(self.code(), 0, "{}", self.err);
        self.out
    }
}

pub struct Running {
    child: Child,
    family: Family,
    lines: Receiver<String>,
    err: Receiver<String>,
}

impl Running {
    pub fn of(command: &mut Command) -> Running {
        let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
        let family = Family::of(command);
        // On SIGTERM it ends its command, too.
        let last_signal = Signal::SIGTERM as i32;
        let started = spawn_with_last_signal(command.stderr(Stdio::piped()), last_signal);
        let mut child = started.expect("redis-lock");
        Running {
            lines: lines_of(child.stdout.take().expect("a pipe")),
            err: lines_of(child.stderr.take().expect("a pipe")),
            child,
            family,
        }
    }

    /// The next line of its standard output.
    pub fn line(&self) -> String {
        let line = self.lines.recv_timeout(patience());
        line.unwrap_or_else(|_| {
            panic!(
                "no line; it said {:?}",
                self.err.try_iter().collect::<Vec<_>>()
            )
        })
    }

    /// The next line of its standard error.
    pub fn complaint(&self) -> String {
        self.err.recv_timeout(patience()).expect("a line")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The pids of those of its descendants that run this program.
    pub fn descendants(&self, program: &str) -> Vec<i32> {
        let name = |pid: &i32| std::fs::read_to_string(format!("/proc/{pid}/comm"));
        let mut members = self.family.members();
        members.retain(|pid| name(pid).is_ok_and(|name| name.trim_end() == program));
        members
    }

    pub fn signal(&self, signal: Signal) {
        kill(pid(self.child.id()), signal).expect("a signal");
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_none()
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        wait_for("the end of redis-lock", || !self.is_running());
        let status = self.child.wait().expect("a child");
        // A command that goes on keeps the pipes open: then what is there has come by now.
        let rest = |lines: &Receiver<String>| -> String {
            let mut all = String::new();
            let begun = Instant::now();
            loop {
                match lines.recv_timeout(Duration::from_millis(200)) {
                    Ok(line) => all = all + &line + "\n",
                    Err(RecvTimeoutError::Disconnected) => return all,
                    Err(_) if !self.family.members().is_empty() => return all,
                    Err(_) => assert!(begun.elapsed() < patience(), "a pipe without an end"),
                }
            }
        };
        Ended {
            status,
            out: rest(&self.lines),
            err: rest(&self.err),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let was_running = self.is_running();
        if was_running {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // Killed, it has not ended its command; nor do tests that fail come to that.
        if was_running || thread::panicking() {
            self.family.kill();
        }
    }
}

fn lines_of(pipe: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let _ = sender.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    receiver
}

pub fn pid(number: u32) -> Pid {
    Pid::from_raw(i32::try_from(number).expect("a pid"))
}

/// Whether there is such a process, and it is no zombie.
pub fn is_alive(process: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next());
    !matches!(state, None | Some(Some('Z' | 'X')))
}
