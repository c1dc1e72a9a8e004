//! A primary, two replicas and three sentinels, all of them real processes.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::MutexGuard;

use crate::cluster::lock_scenes;
use crate::replica::{follow, PROMPT_MASTER};
use crate::{
    comes_true, free_port, server_binary, start_silently, wait_for, Conn, Reply, TestServer,
};

/// The sentinels' name of the primary.
pub const NAME: &str = "locks";

/// A server that does not answer for this long counts as dead while a fail-over is waited for. Longer where none came:
/// on a busy machine the living servers are silent for a second too, and none of them is chosen.
const DOWN_AFTER_MS: [u32; 3] = [1_000, 4_000, 10_000];

/// The same at other times: on a busy machine a living server is silent for seconds, and must not be replaced then.
const PATIENT_MS: u32 = 600_000;

/// Servers that sentinels watch. Only one such scene runs at a time.
pub struct Watched {
    /// The first one starts as the primary.
    pub servers: Vec<TestServer>,
    sentinels: Vec<Sentinel>,
    _scene: MutexGuard<'static, ()>,
}

impl Watched {
    /// All of them are running, in sync, and known to each other.
    pub fn start() -> Watched {
        let guard = lock_scenes();
        let servers: Vec<_> = (0..3).map(|_| TestServer::with(&PROMPT_MASTER)).collect();
        for replica in &servers[1..] {
            follow(replica, &servers[0]);
        }
        let sentinels: Vec<_> = (0..3).map(|_| Sentinel::start(servers[0].port)).collect();
        for sentinel in &sentinels {
            sentinel.wait_until_all_are_known();
        }
        Watched {
            servers,
            sentinels,
            _scene: guard,
        }
    }

    /// The ports of the sentinels.
    pub fn sentinel_ports(&self) -> Vec<u16> {
        let ports = self.sentinels.iter().map(|sentinel| sentinel.port);
        ports.collect()
    }

    /// Waits until all sentinels name another primary than this one, and that server is one; returns its index.
    pub fn wait_for_another_primary_than(&self, old: usize) -> usize {
        let old = self.servers[old].port;
        let is_replaced = DOWN_AFTER_MS.iter().any(|ms| {
            self.set_down_after(*ms);
            comes_true(|| self.agreed().is_some_and(|port| port != old))
        });
        assert!(is_replaced, "no new primary");
        // One that was begun before this may still replace it.
        self.set_down_after(PATIENT_MS);
        let mut port = 0;
        wait_for("a new primary that stays", || {
            port = self.agreed().unwrap_or(old);
            port != old && self.sentinels.iter().all(Sentinel::is_at_rest)
        });
        let new = self.servers.iter().position(|server| server.port == port);
        new.expect("one of the servers")
    }

    fn set_down_after(&self, ms: u32) {
        for sentinel in &self.sentinels {
            let line = format!("SENTINEL SET {NAME} down-after-milliseconds {ms}");
            assert_eq!(sentinel.conn().line(&line).text(), "OK");
        }
    }

    /// The port of the primary, if all sentinels name the same.
    fn agreed(&self) -> Option<u16> {
        let ports: Vec<_> = self.sentinels.iter().map(Sentinel::primary).collect();
        ports
            .windows(2)
            .all(|two| two[0] == two[1])
            .then(|| ports[0])
    }

    /// Waits until all sentinels see two healthy replicas: then they reconfigure nothing any more. A sentinel that
    /// reconfigures a server ends its connections, possibly more than once.
    pub fn wait_until_settled(&self) {
        for sentinel in &self.sentinels {
            let mut conn = sentinel.conn();
            wait_for("two healthy replicas", || {
                let replicas = conn.run(["SENTINEL", "REPLICAS", NAME]).list();
                let is = |replica: &Reply, field: &str, value: &str| {
                    replica.field(field).map(|text| text.text()).as_deref() == Some(value)
                };
                replicas.len() == 2
                    && replicas.iter().all(|replica| {
                        is(replica, "flags", "slave")
                            && is(replica, "role-reported", "slave")
                            && is(replica, "master-link-status", "ok")
                    })
            });
        }
    }
}

/// One sentinel. Dropping it ends the process.
struct Sentinel {
    process: Child,
    port: u16,
    _dir: tempfile::TempDir,
}

impl Sentinel {
    fn start(primary: u16) -> Sentinel {
        // Another process may take a free port before the sentinel does: then try the next one.
        for _ in 0..20 {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let port = free_port();
            let mut sentinel = Sentinel {
                process: spawn(port, primary, dir.path()),
                port,
                _dir: dir,
            };
            if sentinel.comes_up() {
                sentinel.hurry();
                return sentinel;
            }
        }
        panic!("no sentinel came up");
    }

    fn comes_up(&mut self) -> bool {
        let mut ended = false;
        wait_for("a sentinel", || {
            ended = self.process.try_wait().expect("a child").is_some();
            let pid = self.process.id();
            ended || Conn::try_open(self.port).is_some_and(|mut conn| conn.is_ready_as(pid))
        });
        !ended
    }

    /// Makes the sentinel publish and query more often than once in two seconds, or in ten.
    fn hurry(&self) {
        for line in [
            "SENTINEL DEBUG PUBLISH-PERIOD 200",
            "SENTINEL DEBUG INFO-PERIOD 500",
        ] {
            assert_eq!(self.conn().line(line).text(), "OK", "{line}");
        }
    }

    fn conn(&self) -> Conn {
        Conn::open(self.port)
    }

    fn wait_until_all_are_known(&self) {
        let mut conn = self.conn();
        wait_for("two replicas and two other sentinels", || {
            let primary = conn.run(["SENTINEL", "MASTER", NAME]);
            let count = |field: &str| primary.field(field).map(|n| n.text());
            count("num-slaves").as_deref() == Some("2")
                && count("num-other-sentinels").as_deref() == Some("2")
                && primary.field("flags").map(|flags| flags.text()).as_deref() == Some("master")
        });
        let quorum = conn.run(["SENTINEL", "CKQUORUM", NAME]);
        assert!(!quorum.is_error(), "{quorum:?}");
    }

    /// Whether the primary is healthy, and no fail-over goes on.
    fn is_at_rest(&self) -> bool {
        let primary = self.conn().run(["SENTINEL", "MASTER", NAME]);
        primary.field("flags").map(|flags| flags.text()).as_deref() == Some("master")
    }

    fn primary(&self) -> u16 {
        let address = self
            .conn()
            .run(["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
        let port = address.list().get(1).map(Reply::text);
        port.and_then(|port| port.parse().ok()).expect("an address")
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(port: u16, primary: u16, dir: &Path) -> Child {
    let dir_name = dir.display();
    let config = format!(
        "port {port}\n\
         bind 127.0.0.1\n\
         dir {dir_name}\n\
         logfile {dir_name}/log\n\
         sentinel monitor {NAME} 127.0.0.1 {primary} 2\n\
         sentinel down-after-milliseconds {NAME} {PATIENT_MS}\n\
         sentinel failover-timeout {NAME} 3000\n\
         sentinel parallel-syncs {NAME} 2\n"
    );
    let file = dir.join("sentinel.conf");
    std::fs::write(&file, config).expect("a file");
    let mut command = Command::new(server_binary());
    command.arg(&file).arg("--sentinel").current_dir(dir);
    start_silently(&mut command)
}
