//! A peer's server: a process on loopback in a directory of its own, ended by its pid.

use std::io::{self, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::server::{pin, SERVER_CPU};

/// No start and no reply takes longer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running process; dropping it ends the process and removes the directory.
pub struct Daemon {
    process: Child,
    /// The name of the signal that makes it end cleanly.
    goodbye: &'static str,
    /// Its output.
    log: PathBuf,
    _dir: tempfile::TempDir,
}

impl Daemon {
    /// Starts this command in this directory; `goodbye` is the signal that ends it cleanly.
    pub fn start(
        mut command: Command,
        dir: tempfile::TempDir,
        goodbye: &'static str,
    ) -> io::Result<Daemon> {
        let log = dir.path().join("log");
        let file = std::fs::File::create(&log)?;
        let process = command
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        Ok(Daemon {
            process,
            goodbye,
            log,
            _dir: dir,
        })
    }

    /// Waits until `answer` returns a value, as long as the process runs.
    pub fn wait_for<T>(&mut self, answer: impl Fn() -> io::Result<T>) -> io::Result<T> {
        let start = Instant::now();
        let mut last = io::Error::other("it ended");
        while self.process.try_wait()?.is_none() && start.elapsed() < PATIENCE {
            match answer() {
                Ok(answer) => return Ok(answer),
                Err(error) => last = error,
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(5)..].join("\n");
        Err(io::Error::other(format!("does not answer: {last}\n{tail}")))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = self.process.id().to_string();
        // kill(1) of the shell: not every machine has it as a program of its own.
        let _ = Command::new("sh")
            .args(["-c", "kill -s $0 $1", self.goodbye, &pid])
            .status();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(5) {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// These words as a command on the servers' core, if there are two cores.
pub fn pinned(words: &[&str]) -> Command {
    let under = pin(SERVER_CPU);
    let mut words = under.iter().chain(words);
    let mut command = Command::new(words.next().unwrap_or(&""));
    command.args(words);
    command
}

/// The output of a command, which must succeed.
pub fn said(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(error));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// A connection to a port on loopback: written to at once, read through a buffer.
pub fn connect(port: u16) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(BufReader::new(stream))
}

/// This file, or an error that it is missing.
pub fn must_exist(path: PathBuf) -> io::Result<PathBuf> {
    if Path::new(&path).exists() {
        return Ok(path);
    }
    let missing = format!("{} is not installed", path.display());
    Err(io::Error::new(io::ErrorKind::NotFound, missing))
}
