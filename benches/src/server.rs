//! A server for a measurement: on a loopback port and in a directory of its own, ended by its pid.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::wire::{info_field, Conn};

/// The core to which servers are pinned, if there are two; the load has the other.
pub const SERVER_CPU: &str = "0";

/// The other core, if there is one: the load's, and a replica's.
const OTHER_CPU: &str = "1";

/// A running server; dropping it ends the process.
pub struct Server {
    process: Child,
    /// Its port on 127.0.0.1.
    pub port: u16,
    /// Its directory, removed with it.
    pub dir: tempfile::TempDir,
}

/// The server binary: `LOCK_SERVER`, or `redis-server`.
pub fn binary() -> String {
    std::env::var("LOCK_SERVER").unwrap_or_else(|_| "redis-server".into())
}

/// The cores of the machine. (`available_parallelism` counts only those that this process may use,
/// and the load is pinned to one of them.)
pub fn cores() -> usize {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    cpuinfo.matches("processor\t").count().max(1)
}

/// The words that pin a command to a core, if there are two.
pub fn pin(cpu: &str) -> Vec<&str> {
    match cores() {
        1 => Vec::new(),
        _ => vec!["taskset", "-c", cpu],
    }
}

/// A free port.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Microseconds that a thread, named by its directory in `/proc`, has spent on a core (Linux).
pub fn cpu_us_of(thread: &str) -> f64 {
    let text = std::fs::read_to_string(format!("{thread}/schedstat")).unwrap_or_default();
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.unwrap_or(0.0) / 1_000.0
}

/// The module: `LOCK_MODULE`, or the release build.
pub fn module() -> PathBuf {
    let default =
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/release/libredis_lock.so");
    std::env::var_os("LOCK_MODULE").map_or_else(default, PathBuf::from)
}

impl Server {
    /// Starts a server under these command words (`["taskset", "-c", "0"]`, `["valgrind", ...]`), with
    /// these options, with or without the module, and waits until it answers.
    pub fn start(under: &[&str], options: &[&str], with_module: bool) -> io::Result<Server> {
        let dir = tempfile::tempdir()?;
        let port = free_port()?;
        let binary = binary();
        let mut words = under.iter().copied().chain([binary.as_str()]);
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).current_dir(dir.path());
        command.args([
            "--port",
            &port.to_string(),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
        ]);
        command
            .arg("--dir")
            .arg(dir.path())
            .arg("--logfile")
            .arg(dir.path().join("log"));
        command.args(options);
        if with_module {
            command.arg("--loadmodule").arg(module());
        }
        let process = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut server = Server { process, port, dir };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// A server on its own core, if there are two.
    pub fn pinned(options: &[&str], with_module: bool) -> io::Result<Server> {
        Server::start(&pin(SERVER_CPU), options, with_module)
    }

    /// A server without the module that replicates this one; returns when it has acknowledged a write.
    pub fn replica(&self) -> io::Result<Server> {
        let replica = Server::start(&pin(OTHER_CPU), &[], false)?;
        let follow = format!("REPLICAOF 127.0.0.1 {}", self.port);
        replica.conn()?.ask(&follow)?;
        let mut conn = self.conn()?;
        for _ in 0..300 {
            conn.ask("SET written-for-the-replica 1")?;
            if conn.ask("WAIT 1 100")?.starts_with(":1") {
                return Ok(replica);
            }
        }
        Err(io::Error::other("the replica does not follow"))
    }

    fn wait_until_it_answers(&mut self) -> io::Result<()> {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(60) {
            if self.process.try_wait()?.is_some() {
                break;
            }
            if self.conn().is_ok_and(|mut conn| conn.ask("PING").is_ok()) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        Err(io::Error::other(format!(
            "the server does not answer:\n{log}"
        )))
    }

    /// A connection.
    pub fn conn(&self) -> io::Result<Conn> {
        Conn::open(self.port)
    }

    /// The pid (of the wrapper, if the server runs under one that stays).
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Microseconds that the server's main thread has spent on a core (Linux).
    pub fn cpu_us(&self) -> f64 {
        cpu_us_of(&self.main_thread())
    }

    /// The directory of the main thread in `/proc`.
    pub fn main_thread(&self) -> String {
        format!("/proc/{0}/task/{0}", self.pid())
    }

    /// The server's name and version: "redis 7.0.15".
    pub fn version(&self) -> io::Result<String> {
        let info = self.conn()?.ask("INFO server")?;
        let field = |name| info_field(&info, name);
        let name = field("server_name").unwrap_or("redis");
        let version = field("valkey_version")
            .or(field("redis_version"))
            .unwrap_or("?");
        Ok(format!("{name} {version}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
