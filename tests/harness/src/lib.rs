//! A real server for every test: started on a loopback port and in a directory of its own, ended by its pid. At the end
//! its counters must add up.
//!
//! `LOCK_SERVER` names the server binary (default `redis-server`), `LOCK_MODULE` the module (default
//! the release build). Tests wait for conditions, never for time. With `LOCK_CLEAN_END` set, a server ends by itself
//! after its test (SIGTERM) instead of being killed, so that a tool that runs it can look for leaks.

// `new_without_default`: a scene starts a server, which a default should not do.
#![allow(missing_docs, clippy::new_without_default)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod at_rest;
pub mod barrier;
pub mod bystander;
pub mod clock;
pub mod cluster;
pub mod conn;
pub mod disk;
pub mod ending;
mod file_identity;
pub mod foreign;
pub mod loss;
pub mod outside;
pub mod page;
pub mod process;
pub mod proxy;
pub mod replica;
pub mod scene;
pub mod scripts;
pub mod sentinel;
pub mod tls;
pub mod tries;

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

pub use bystander::{Bystander, Events};
pub use conn::{Conn, Reply};
pub use tries::Tries;

/// The time limit for a condition on a slow, shared machine: 20 s, or `LOCK_PATIENCE` seconds if a tool slows the
/// server down.
pub fn patience() -> Duration {
    static PATIENCE: OnceLock<Duration> = OnceLock::new();
    *PATIENCE.get_or_init(|| {
        let wanted = std::env::var("LOCK_PATIENCE").ok();
        Duration::from_secs(wanted.map_or(20, |text| text.parse().expect("seconds")))
    })
}

/// Waits until the condition holds.
///
/// # Panics
/// When it does not hold within [`patience`].
pub fn wait_for(what: &str, condition: impl FnMut() -> bool) {
    assert!(comes_true(condition), "timed out waiting for: {what}");
}

/// Waits until the condition holds. Returns whether it does within [`patience`].
pub fn comes_true(mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() >= patience() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Writes a file, whole or not at all: into another one beside it, which is renamed.
///
/// # Errors
/// As of `std::fs::write` and `rename`.
pub fn replace_file(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let beside = path.with_extension("new");
    std::fs::write(&beside, content)?;
    std::fs::rename(beside, path)
}

/// The server binary under test.
pub fn server_binary() -> String {
    std::env::var("LOCK_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// Options that every server of this run gets, e.g. `LOCK_SERVER_OPTIONS='--io-threads 4'`.
fn extra_options() -> String {
    std::env::var("LOCK_SERVER_OPTIONS").unwrap_or_default()
}

/// Whether the servers of this run read and write with threads. Redis 8 then closes a killed client a moment later, and
/// keeps buffers of its own.
pub fn has_io_threads() -> bool {
    extra_options().contains("--io-threads ")
}

/// The module under test.
pub fn module_path() -> PathBuf {
    let default =
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/libredis_lock.so");
    std::env::var_os("LOCK_MODULE").map_or_else(default, PathBuf::from)
}

/// Histograms of `INFO lock`, and the counters whose sum is the number of their times.
const HISTOGRAMS: [(&str, &[&str]); 5] = [
    ("wait_ms", &["waits_granted"]),
    ("hold_ms", &["grants_released", "grants_session_ended"]),
    ("sem_wait_ms", &["sem_waits_granted"]),
    (
        "sem_hold_ms",
        &["sem_grants_released", "sem_grants_session_ended"],
    ),
    ("tickets_wait_ms", &["tickets_granted"]),
];

/// The numbers of a histogram of `INFO lock`: each bucket includes all before it, the last one is `count`.
pub fn histogram_in(info: &str, name: &str) -> Option<Vec<u64>> {
    let start = format!("lock_{name}:le_1=");
    let line = info.lines().find(|line| line.starts_with(&start))?;
    let (_, parts) = line.split_once(':')?;
    let number = |part: &str| part.split_once('=')?.1.trim().parse().ok();
    parts.split(',').map(number).collect()
}

/// A running server. Dropping it checks the counters and ends the process.
pub struct TestServer {
    process: Child,
    /// Its port on 127.0.0.1.
    pub port: u16,
    dir: tempfile::TempDir,
    options: Vec<String>,
    module: Option<PathBuf>,
    env: Vec<(String, String)>,
    /// Whether it ever served; a server that found its port taken is no failure.
    served: bool,
}

impl TestServer {
    /// A server with the module and without persistence.
    pub fn start() -> TestServer {
        TestServer::with(&[])
    }

    /// A server with the module and more options, e.g. `["--appendonly", "yes"]`.
    pub fn with(options: &[&str]) -> TestServer {
        TestServer::launch(options, Some(module_path()))
    }

    /// A server without the module.
    pub fn without_module(options: &[&str]) -> TestServer {
        TestServer::launch(options, None)
    }

    /// A server with another build of the module.
    pub fn with_module(module: &Path, options: &[&str]) -> TestServer {
        TestServer::launch(options, Some(module.to_path_buf()))
    }

    fn launch(options: &[&str], module: Option<PathBuf>) -> TestServer {
        let options: Vec<String> = options.iter().map(ToString::to_string).collect();
        // Another process may take a free port before the server does: then try the next one.
        for _ in 0..20 {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let port = free_port();
            let process = spawn(port, dir.path(), &options, module.as_deref(), &[]);
            let mut server = TestServer {
                process,
                port,
                dir,
                options: options.clone(),
                module: module.clone(),
                env: Vec::new(),
                served: false,
            };
            if server.comes_up() {
                return server;
            }
            let log = server.log();
            let _ = server.process.wait();
            assert!(
                log.contains("Address already in use"),
                "the server did not start:\n{log}"
            );
        }
        panic!("no free port");
    }

    fn comes_up(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < patience() {
            if self.process.try_wait().expect("a child").is_some() {
                return false;
            }
            if self.answers() {
                self.served = true;
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the server does not answer:\n{}", self.log());
    }

    /// Whether this very process serves the port: another test's server may have taken it first.
    fn answers(&self) -> bool {
        let pid = self.process.id();
        Conn::try_open(self.port).is_some_and(|mut conn| conn.is_ready_as(pid))
    }

    /// A connection that speaks RESP2.
    pub fn conn(&self) -> Conn {
        Conn::open(self.port)
    }

    /// A connection that speaks RESP3.
    pub fn conn3(&self) -> Conn {
        let mut conn = self.conn();
        conn.run(["HELLO", "3"]);
        conn
    }

    /// The server's log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// The server's directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The process id, for signals.
    pub fn pid(&self) -> i32 {
        // The matrix starts some servers with a small shell wrapper that execs: the pid is the same.
        self.process.id() as i32
    }

    /// The processor time that the server has used, all its threads together.
    pub fn cpu_time(&self) -> Duration {
        let (mut clock, mut time) = (
            0,
            libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
        );
        // SAFETY: both pointers are valid for the calls.
        let read = unsafe {
            libc::clock_getcpuclockid(self.pid(), &mut clock) == 0
                && libc::clock_gettime(clock, &mut time) == 0
        };
        assert!(read, "no processor time of {}", self.pid());
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    /// Sends a signal to the server, as [`process::signal`] does.
    pub fn signal(&self, signal: i32) {
        process::signal(self.pid(), signal);
    }

    /// Ends the process at once (SIGKILL) and starts it again on the same port and directory.
    pub fn crash_and_restart(&mut self) {
        if has_io_threads() {
            // Redis 8 may reply with these before it has written to the AOF. It accepts a connection after that.
            assert_eq!(self.conn().line("PING").text(), "PONG");
        }
        self.crash();
        self.start_again();
    }

    /// Ends the process at once (SIGKILL).
    pub fn crash(&mut self) {
        self.signal(libc::SIGKILL);
        self.process.wait().expect("a child");
    }

    /// Sets the build of the module for the next start (`None`: no module at all).
    pub fn set_module(&mut self, module: Option<&Path>) {
        self.module = module.map(Path::to_path_buf);
    }

    /// Sets a variable in the server's environment for the next start.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.env.push((name.into(), value.into()));
    }

    /// Adds an option for the next start.
    pub fn add_option(&mut self, name: &str, value: &str) {
        self.options.extend([name.into(), value.into()]);
    }

    /// Ends the process with SHUTDOWN and starts it again on the same port and directory.
    pub fn restart(&mut self) {
        self.conn().send(["SHUTDOWN"]);
        self.process.wait().expect("a child");
        self.start_again();
    }

    /// Starts the ended process again on the same port and directory.
    ///
    /// # Panics
    /// When it does not start.
    pub fn start_again(&mut self) {
        if let Err(log) = self.try_start_again() {
            panic!("the server did not start again:\n{log}");
        }
    }

    /// The same. Another process may have the port for a moment: a client connection may use it as its local port.
    ///
    /// # Errors
    /// The server's log when it ends instead of serving.
    pub fn try_start_again(&mut self) -> Result<(), String> {
        let start = Instant::now();
        loop {
            let (dir, module) = (self.dir.path(), self.module.as_deref());
            let logged = self.log().len();
            self.process = spawn(self.port, dir, &self.options, module, &self.env);
            if self.comes_up() {
                return Ok(());
            }
            let log = self.log().split_off(logged);
            if !log.contains("Address already in use") || start.elapsed() >= patience() {
                return Err(log);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether the process is still running.
    pub fn is_alive(&mut self) -> bool {
        self.process.try_wait().expect("a child").is_none()
    }

    /// A field of a section of `INFO`; empty when it is not there.
    pub fn info_field(&self, section: &str, field: &str) -> String {
        let info = self.conn().run(["INFO", section]).text();
        let line = format!("{field}:");
        let value = info.lines().find_map(|l| l.strip_prefix(&line));
        value.map_or_else(String::new, |value| value.trim().to_string())
    }

    /// A counter or gauge of `INFO lock`, by its name without the prefix.
    pub fn stat(&self, name: &str) -> u64 {
        stat_in(&self.info(), name)
    }

    fn info(&self) -> String {
        self.conn().run(["INFO", "lock"]).text()
    }

    /// Waits until this number of requests are parked on the server.
    pub fn wait_for_waiters(&self, count: u64) {
        wait_for(&format!("{count} waiters"), || {
            self.stat("waiters") == count
        });
    }

    /// The number of waits at the server: parked requests and tickets, for locks, semaphores and latches.
    pub fn waits(&self) -> u64 {
        let info = self.info();
        let kinds = ["waiters", "sem_waiters", "latch_waiters", "tickets"];
        kinds.iter().map(|name| stat_in(&info, name)).sum()
    }

    /// Waits until there is this number of [`waits`](TestServer::waits).
    pub fn wait_for_waits(&self, count: u64) {
        wait_for(&format!("{count} waits"), || self.waits() == count);
    }

    /// The version that the server's binary reports, for example (7, 0, 15).
    pub fn version(&self) -> (u32, u32, u32) {
        let info = self.conn().run(["INFO", "server"]).text();
        let field = |name: &str| {
            info.lines()
                .find_map(|l| l.strip_prefix(name).map(|v| v.trim().to_string()))
        };
        let text = field("valkey_version:")
            .or_else(|| field("redict_version:"))
            .or_else(|| field("redis_version:"));
        let parts: Vec<u32> = text
            .unwrap_or_default()
            .split('.')
            .filter_map(|p| p.parse().ok())
            .collect();
        (parts[0], parts[1], parts[2])
    }

    /// Whether the server calls itself Valkey.
    pub fn is_valkey(&self) -> bool {
        self.conn()
            .run(["INFO", "server"])
            .text()
            .contains("valkey_version:")
    }

    /// Waits until a field of `INFO lock` has this value: a wait counts as timed out when its place goes.
    pub fn wait_for_stat(&self, name: &str, value: u64) {
        wait_for(&format!("{name} {value}"), || self.stat(name) == value);
    }

    /// The sums that hold whenever no command is running, see `src/lock/stats.rs`.
    pub fn check_counters(&self) {
        let counters = self.counters();
        assert!(counters.is_ok(), "{counters:?}");
    }

    fn counters(&self) -> Result<(), String> {
        // One INFO reply: connections that are being closed move requests from one counter to another.
        let info = self.info();
        // Another build of the module may not have them yet.
        if info.contains("lock_sem_grants:") {
            counters_of_semaphores_and_latches(&info)?;
        }
        let s = |name: &str| stat_in(&info, name);
        // Another build of the module may not have them yet.
        let kept = |name: &str| match info.contains(&format!("lock_{name}:")) {
            true => s(name),
            false => 0,
        };
        let ended_waits = s("waits_granted")
            + s("waits_timed_out")
            + s("waits_unblocked")
            + s("waits_disconnected")
            + s("waits_taken_over")
            + s("waits_withdrawn")
            + s("waits_failed")
            + kept("waits_kept");
        if s("waits_parked") != ended_waits + s("waiters") {
            return Err(format!("waits do not add up:\n{info}"));
        }
        let ended_grants = s("grants_released")
            + s("grants_expired")
            + s("grants_broken")
            + s("grants_lost")
            + s("grants_session_ended")
            + s("grants_undone")
            + s("grants_unwatched");
        if s("grants") != ended_grants + s("grants_tracked") {
            return Err(format!("grants do not add up:\n{info}"));
        }
        // Another build of the module may not have them yet.
        if info.contains("lock_windows:")
            && s("windows") != s("windows_taken") + s("windows_unused") + s("windows_open")
        {
            return Err(format!("windows do not add up:\n{info}"));
        }
        // Another build of the module may not have them yet.
        for (histogram, counters) in HISTOGRAMS {
            if let Some(times) = histogram_in(&info, histogram) {
                let counted = counters.iter().map(|name| s(name)).sum::<u64>();
                if !times.is_sorted() || times.last() != Some(&counted) {
                    return Err(format!("{histogram} does not add up:\n{info}"));
                }
            }
        }
        let ended_tickets = || {
            s("tickets_granted")
                + s("tickets_timed_out")
                + s("tickets_withdrawn")
                + s("tickets_taken_over")
                + s("tickets_failed")
                + s("tickets_unheard")
                + kept("tickets_kept")
        };
        if info.contains("lock_tickets:") && s("tickets_queued") != ended_tickets() + s("tickets") {
            return Err(format!("tickets do not add up:\n{info}"));
        }
        Ok(())
    }

    /// Asks the process to end and waits for it. A process that cannot end by itself (stopped, crashed, unable to save)
    /// is killed later.
    fn end_cleanly(&mut self) {
        // SAFETY: kill(2) with the pid of a child; a child that was waited for is not signalled.
        let asked = self.is_alive() && unsafe { libc::kill(self.pid(), libc::SIGTERM) } == 0;
        let start = Instant::now();
        while asked && self.is_alive() && start.elapsed() < patience() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the process and returns an error text if anything was wrong: for programs that continue after a failure,
    /// where dropping would panic.
    pub fn finish(mut self) -> Result<(), String> {
        self.served = false;
        self.health()?;
        self.has_equal_copies()?;
        self.rest()
    }

    /// Whether it serves, its log has no failure and its counters add up.
    ///
    /// # Errors
    /// What is wrong.
    pub fn health(&mut self) -> Result<(), String> {
        let log = self.log();
        if !self.is_alive() {
            return Err(format!("the server died:\n{log}"));
        }
        for sign in ["ASSERTION FAILED", "BUG REPORT", "panic at"] {
            if log.contains(sign) && !log.contains("injected") {
                return Err(format!("the log has '{sign}':\n{log}"));
            }
        }
        let has_counters = self.module.is_some()
            && Conn::try_open(self.port).is_some_and(|mut conn| conn.is_ready());
        if has_counters {
            self.counters()?;
        }
        Ok(())
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the server's log:\n{}", self.log());
        } else if self.served {
            let health = self.health();
            assert!(health.is_ok(), "{}", health.unwrap_err());
            let rest = self.rest();
            assert!(rest.is_ok(), "{}", rest.unwrap_err());
        }
        if std::env::var_os("LOCK_CLEAN_END").is_some() && self.served {
            self.end_cleanly();
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The same two sums of semaphores, and the one of latches.
fn counters_of_semaphores_and_latches(info: &str) -> Result<(), String> {
    // Another build of the module may not have it yet.
    let is_there =
        |name: &&&str| **name != "sem_waits_kept" || info.contains("lock_sem_waits_kept:");
    let sum = |names: &[&str]| -> u64 {
        let names = names.iter().filter(is_there);
        names.map(|name| stat_in(info, name)).sum()
    };
    let permits = [
        "sem_grants_released",
        "sem_grants_session_ended",
        "sem_grants_expired",
        "sem_grants_lost",
        "sem_grants_undone",
        "sem_grants_unwatched",
        "sem_grants_tracked",
    ];
    let waits = [
        "sem_waits_granted",
        "sem_waits_timed_out",
        "sem_waits_unblocked",
        "sem_waits_disconnected",
        "sem_waits_taken_over",
        "sem_waits_withdrawn",
        "sem_waits_failed",
        "sem_waits_kept",
        "sem_waiters",
    ];
    let of_latches = [
        "latch_waits_opened",
        "latch_waits_timed_out",
        "latch_waits_unblocked",
        "latch_waits_disconnected",
        "latch_waits_failed",
        "latch_waiters",
    ];
    for (begun, ended) in [
        (&["sem_grants", "sem_adoptions"][..], &permits[..]),
        (&["sem_waits_parked"], &waits),
        (&["latch_waits_parked"], &of_latches),
    ] {
        if sum(begun) != sum(ended) {
            return Err(format!("{begun:?} do not add up:\n{info}"));
        }
    }
    Ok(())
}

/// A field of `INFO lock`, by its name without the prefix.
pub fn stat_in(info: &str, name: &str) -> u64 {
    let line = format!("lock_{name}:");
    let value = info.lines().find_map(|l| l.strip_prefix(&line));
    value
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or_else(|| panic!("no {line} in:\n{info}"))
}

/// A port that was free a moment ago and that this process has not asked for before.
///
/// It lies below the ports that Linux gives to clients (32768 to 60999), so that no connection takes it as its local
/// port before the server starts or while it restarts. Each process begins at a random port.
pub fn free_port() -> u16 {
    const PORTS: std::ops::Range<u64> = 10_000..32_000;
    static FIRST: LazyLock<u64> = LazyLock::new(|| RandomState::new().build_hasher().finish());
    static NEXT: AtomicU64 = AtomicU64::new(0);
    loop {
        // The port after it is that for TLS.
        let step = if tls::is_on() { 2 } else { 1 };
        let number = FIRST.wrapping_add(NEXT.fetch_add(step, Ordering::Relaxed));
        let port = (PORTS.start + number % (PORTS.end - PORTS.start)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn spawn(
    port: u16,
    dir: &Path,
    options: &[String],
    module: Option<&Path>,
    env: &[(String, String)],
) -> Child {
    let mut command = Command::new(server_binary());
    command.envs(env.iter().cloned());
    command.args([
        "--port",
        &port.to_string(),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
    ]);
    command.args([
        "--enable-module-command",
        "yes",
        "--enable-debug-command",
        "yes",
    ]);
    command
        .arg("--dir")
        .arg(dir)
        .arg("--logfile")
        .arg(dir.join("log"));
    if let Some(module) = module {
        command.arg("--loadmodule").arg(module);
    }
    command.args(extra_options().split_whitespace());
    command.args(tls::options(port));
    command.args(options).current_dir(dir);
    start_silently(&mut command)
}

/// Starts a server with a log file and no other output.
fn start_silently(command: &mut Command) -> Child {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    process::spawn(command).unwrap_or_else(|error| panic!("{}: {error}", server_binary()))
}
