//! The servers, the proxies before them, and the faults that the plan has for them.
//!
//! Each fault is in the log before it takes effect, and ends there after its effect has ended: what the log
//! calls calm was calm.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redis_lock_harness::process::spawn;
use redis_lock_harness::proxy::Proxy;
use redis_lock_harness::{Conn, TestServer};

use crate::check::Check;
use crate::fault_log::{FaultLog, Reach};
use crate::network;
use crate::plan::{Fault, Step, EXCLUSIVE, READ_WRITE, RED, SERVERS};

const SIGSTOP: i32 = 19;
const SIGCONT: i32 = 18;
/// No lease of a RedLock is longer, or its servers are refused.
pub const STARTUP_DELAY: Duration = Duration::from_secs(3);
/// So many files may the program have open that has few: the servers' connections, and not all of its waits.
const FEW_FILES: u32 = 24;
/// Where the program with few open files finds the servers, and the check.
pub const PORTS: &str = "LOCK_TRIAL_PORTS";
pub const SOCKET: &str = "LOCK_TRIAL_SOCKET";

/// The machines of the trial.
pub struct Fleet {
    pub servers: Vec<TestServer>,
    pub proxies: Vec<Proxy>,
    conns: Vec<Conn>,
    log: Arc<FaultLog>,
    check: Arc<Check>,
    program: Child,
    program_number: u64,
    socket: String,
    /// Of processes that have ended.
    connections: u64,
}

/// A fault that has begun.
struct Open {
    end: Instant,
    fault: Fault,
    /// Its events in the log.
    events: Vec<usize>,
}

impl Fleet {
    pub fn new(check: &Arc<Check>, seed: u64, socket: &str) -> Fleet {
        let delay = STARTUP_DELAY.as_millis().to_string();
        let options = ["--appendonly", "yes", "--appendfsync", "always"];
        let options = [&options[..], &["--lock.startup-delay", &delay]].concat();
        let servers: Vec<_> = (0..SERVERS).map(|_| TestServer::with(&options)).collect();
        for server in &servers {
            let mut conn = server.conn();
            conn.line("CONFIG SET lock.startup-delay 0");
            conn.line(&format!("CONFIG SET lock.startup-delay {delay}"));
        }
        let proxies = servers.iter().map(|server| Proxy::before(server.port));
        Fleet {
            proxies: proxies.collect(),
            conns: servers.iter().map(TestServer::conn).collect(),
            program: program(&servers, socket, seed),
            servers,
            log: check.log.clone(),
            check: check.clone(),
            program_number: seed,
            socket: socket.to_string(),
            connections: 0,
        }
    }

    /// Plays the plan, until its end or the first violation; then all faults end.
    pub fn play(&mut self, plan: &[Step]) {
        let start = Instant::now();
        let mut open: Vec<Open> = Vec::new();
        let mut steps = plan.iter().peekable();
        while (steps.peek().is_some() || !open.is_empty()) && !self.check.has_failed() {
            let now = Instant::now();
            if let Some(step) = steps.next_if(|step| start + step.at <= now) {
                let mut fault = step.fault.clone();
                if let Fault::Break { server, key, .. } = &mut fault {
                    *key = self.one_that_is_held(*server, key);
                }
                let events = self.begin(&fault);
                let end = now + fault.span();
                open.push(Open { end, fault, events });
            }
            for fault in &mut open {
                self.watch(fault);
            }
            let (ended, rest) = open
                .into_iter()
                .partition(|fault| fault.end <= Instant::now() && self.is_done(fault));
            open = rest;
            ended.into_iter().for_each(|fault: Open| self.end(fault));
            thread::sleep(Duration::from_millis(2));
        }
        open.into_iter().for_each(|fault| self.end(fault));
    }

    /// Whether a fault that waits for its request has met it.
    fn is_done(&self, open: &Open) -> bool {
        match &open.fault {
            Fault::Swallow { server, .. } => self.proxies[*server].has_swallowed(),
            _ => true,
        }
    }

    /// Of a server's locks one that is held, and the planned one if that is.
    fn one_that_is_held(&self, server: usize, planned: &'static str) -> &'static str {
        let others = [EXCLUSIVE[0], EXCLUSIVE[1], READ_WRITE];
        let keys = [planned].into_iter().chain(others);
        let mut held = keys.filter(|key| self.check.is_held(&format!("{server}/{key}")));
        held.next().unwrap_or(planned)
    }

    fn begin(&mut self, fault: &Fault) -> Vec<usize> {
        self.check.count(fault.kind());
        let reaches = match fault {
            Fault::Stop { servers, .. } => servers.iter().map(|s| Reach::Server(*s)).collect(),
            Fault::Kill { server, .. } | Fault::KillConnections { server } => {
                vec![Reach::Server(*server)]
            }
            Fault::Cut { servers, .. } => servers.iter().map(|s| Reach::Path(*s)).collect(),
            Fault::NoRoom {
                server,
                kills: true,
                ..
            } => vec![Reach::Server(*server), Reach::NoRoom(*server)],
            Fault::NoRoom { server, .. } => vec![Reach::NoRoom(*server)],
            Fault::NoPorts { kills, .. } => {
                let broken = (0..SERVERS).filter(|_| *kills).map(Reach::Server);
                broken.chain((0..SERVERS).map(Reach::NoRoom)).collect()
            }
            Fault::Break { server, key, .. } => vec![Reach::Key(format!("{server}/{key}"))],
            // Of these the moment is not known before.
            Fault::Swallow { .. } | Fault::Delay { .. } | Fault::KillProgram => Vec::new(),
        };
        let begun = reaches.into_iter();
        let events = begun
            .map(|reach| self.log.begin(reach, fault.kind()))
            .collect();
        self.act(fault);
        events
    }

    fn act(&mut self, fault: &Fault) {
        match fault {
            Fault::Stop { servers, .. } => servers
                .iter()
                .for_each(|server| self.servers[*server].signal(SIGSTOP)),
            Fault::Kill { server, .. } => {
                self.connections += self.connections_of(*server);
                self.servers[*server].crash();
            }
            Fault::KillConnections { server } => self.kill_connections(*server),
            Fault::Cut { servers, .. } => servers
                .iter()
                .for_each(|server| self.proxies[*server].cut(true)),
            Fault::Swallow { server, words } => self.proxies[*server].swallow_reply_to(words),
            Fault::Delay { server, words, .. } => self.proxies[*server].delay(words),
            Fault::NoRoom { server, kills, .. } => {
                self.conns[*server].line("CONFIG SET maxclients 1");
                if *kills {
                    self.kill_connections(*server);
                }
            }
            Fault::NoPorts { kills, .. } => {
                network::take_ports();
                (0..SERVERS)
                    .filter(|_| *kills)
                    .for_each(|server| self.kill_connections(server));
            }
            Fault::Break { server, key, how } => {
                let note = format!("{how} is sent to the server");
                self.check.note(&format!("{server}/{key}"), note);
                self.conns[*server].line(&format!("{how} {key}"));
            }
            Fault::KillProgram => {
                let _ = self.program.kill();
                let _ = self.program.wait();
                self.program_number += 1;
                self.program = program(&self.servers, &self.socket, self.program_number);
            }
        }
    }

    fn kill_connections(&mut self, server: usize) {
        self.conns[server].line("CLIENT KILL TYPE normal SKIPME yes");
    }

    /// A request that is held back blocks its connection from then on.
    fn watch(&mut self, open: &mut Open) {
        if let Fault::Delay { server, .. } = open.fault {
            if open.events.is_empty() && self.proxies[server].has_delayed() {
                let event = self.log.begin(Reach::Path(server), open.fault.kind());
                open.events.push(event);
            }
        }
    }

    fn end(&mut self, mut open: Open) {
        match &open.fault {
            Fault::Stop { servers, .. } => servers
                .iter()
                .for_each(|server| self.servers[*server].signal(SIGCONT)),
            Fault::Kill { server, .. } => {
                self.servers[*server].start_again();
                self.conns[*server] = self.servers[*server].conn();
            }
            Fault::Cut { servers, .. } => servers
                .iter()
                .for_each(|server| self.proxies[*server].cut(false)),
            Fault::Swallow { server, .. } => {
                let event = self.log.begin(Reach::Path(*server), open.fault.kind());
                open.events.push(event);
            }
            Fault::Delay { server, .. } => self.proxies[*server].let_go(),
            Fault::NoRoom { server, .. } => {
                self.conns[*server].line("CONFIG SET maxclients 10000");
            }
            Fault::NoPorts { .. } => network::give_ports(),
            Fault::KillConnections { .. } | Fault::Break { .. } | Fault::KillProgram => {}
        }
        open.events
            .into_iter()
            .for_each(|event| self.log.end(event));
    }

    fn connections_of(&self, server: usize) -> u64 {
        let count = self.servers[server].info_field("stats", "total_connections_received");
        count.parse().unwrap_or_default()
    }

    /// The connections that all servers have accepted, those of the trial itself among them.
    pub fn connections(&self) -> u64 {
        let running = (0..SERVERS).map(|server| self.connections_of(server));
        self.connections + running.sum::<u64>()
    }

    /// The locks that are still held, by a reading of every server.
    pub fn held(&self) -> Vec<String> {
        let keys = || EXCLUSIVE.into_iter().chain([READ_WRITE, RED]);
        let mut held = Vec::new();
        for (place, server) in self.servers.iter().enumerate() {
            let mut conn = server.conn();
            for key in keys() {
                let info = conn.run(["LOCK.INFO", key]);
                let holders = info.field("holders").map(|holders| holders.list().len());
                let waiters = info.field("waiters").map(|waiters| waiters.list().len());
                if holders.unwrap_or(0) + waiters.unwrap_or(0) > 0 {
                    held.push(format!("{place}/{key}: {info:?}"));
                }
            }
        }
        held
    }

    /// Waits until the program with few open files has ended, which it does when the trial is over.
    pub fn finish_program(&mut self) {
        let end = Instant::now() + Duration::from_secs(40);
        while self.program.try_wait().is_ok_and(|ended| ended.is_none()) {
            if Instant::now() > end {
                let _ = self.program.kill();
                self.check.fail("the client program does not end".into());
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// This test's own program once more, with few open files, as one more client.
fn program(servers: &[TestServer], socket: &str, seed: u64) -> Child {
    let ports: Vec<String> = servers.iter().map(|s| s.port.to_string()).collect();
    let me = std::env::current_exe().expect("this test's own program");
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n \"$0\" && exec \"$@\""])
        .arg(FEW_FILES.to_string())
        .arg(me)
        .args(["few_files", "--ignored", "--exact", "--nocapture"])
        .env(PORTS, ports.join(","))
        .env(SOCKET, socket)
        .env("SEED", seed.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    spawn(&mut command).expect("a client program")
}
