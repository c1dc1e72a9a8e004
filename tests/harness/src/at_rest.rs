//! At rest everything is zero: when every client is gone and every hold has ended, what the module was given has come
//! back, and replicas and the AOF have the data of the server.
//!
//! docs/COMMANDS.md divides the fields of `INFO lock` into gauges, settings and counters. A field that the page does
//! not know counts as a gauge, so a new one is checked without anybody adding it here.

use std::collections::BTreeSet;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::{patience, Conn, Reply, TestServer};

const PAGE: &str = include_str!("../../../docs/COMMANDS.md");

/// The fields of `INFO lock`, without their prefix, of which the page says that they may differ from 0 at rest.
static MAY_STAY: LazyLock<BTreeSet<&'static str>> = LazyLock::new(|| {
    let (_, section) = PAGE.split_once("\n## INFO lock\n").expect("the section");
    let (_, tables) = section
        .split_once("\nSettings and the state of the server:\n")
        .expect("the tables behind that of the gauges");
    let (tables, _) = tables.split_once("\nHistograms ").expect("their end");
    let firsts = tables.lines().filter_map(|line| line.split('|').nth(1));
    let names = firsts.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.collect()
});

/// Whether a field of `INFO lock` must be 0 at rest.
pub fn is_gauge(name: &str) -> bool {
    // The page describes the fields of semaphores by those of locks.
    let as_of_locks = name.strip_prefix("sem_").unwrap_or(name);
    ![name, as_of_locks]
        .iter()
        .any(|name| MAY_STAY.contains(name))
}

/// The gauges that are not 0, as `name:value`.
pub fn gauges_above_zero(info: &str) -> Vec<String> {
    let fields = info.lines().filter_map(|line| line.strip_prefix("lock_"));
    let numbers = fields.filter_map(|line| {
        let (name, value) = line.trim_end().split_once(':')?;
        Some((name, value.parse::<u64>().ok()?))
    });
    let left = numbers.filter(|(name, value)| *value > 0 && is_gauge(name));
    left.map(|(name, value)| format!("{name}:{value}"))
        .collect()
}

/// The keys of all databases but the horizons, as `database:key`.
fn keys_left(conn: &mut Conn) -> Vec<String> {
    let mut left = Vec::new();
    for db in databases(conn) {
        conn.line(&format!("SELECT {db}"));
        let keys = conn.line("KEYS *").list();
        let keys = keys
            .iter()
            .map(|key| String::from_utf8_lossy(&key.bytes()).into_owned());
        let keys = keys.filter(|key| !key.starts_with("redis_lock:horizon"));
        left.extend(keys.map(|key| format!("{db}:{key}")));
    }
    conn.line("SELECT 0");
    left
}

/// The databases that have keys.
fn databases(conn: &mut Conn) -> Vec<String> {
    let info = conn.line("INFO keyspace").text();
    let names = info.lines().filter_map(|line| line.strip_prefix("db"));
    names
        .filter_map(|line| Some(line.split_once(':')?.0.to_string()))
        .collect()
}

/// Waits until nothing is left.
fn until_nothing(mut left: impl FnMut() -> Vec<String>) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let found = left();
        if found.is_empty() {
            return Ok(());
        }
        if start.elapsed() > patience() {
            return Err(format!("left at rest: {}", found.join(" ")));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl TestServer {
    /// All clients of the test have left, and all holds have ended: waits until every gauge is 0 and no key but the
    /// horizon is left.
    ///
    /// # Errors
    /// What is left.
    pub fn is_at_rest(&self, conn: &mut Conn) -> Result<(), String> {
        until_nothing(|| gauges_above_zero(&conn.line("INFO lock").text()))?;
        until_nothing(|| keys_left(conn))
    }

    /// Ends a history: disconnects all clients, ends what is held, kept or remembered, and waits until nothing is left.
    /// A history may end with a server on which that cannot be done: a replica, a node of a cluster, one without the
    /// module, with a password, or with other names of commands.
    ///
    /// # Errors
    /// What is left.
    pub fn rest(&mut self) -> Result<(), String> {
        let Some(mut conn) = self.conn_that_may_end_all() else {
            return Ok(());
        };
        end_all(&mut conn);
        // Tickets and kept places have no client: a replica has neither. Final numbers end with their limit.
        for line in ["REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"] {
            conn.line(line);
        }
        let finals = "lock.max-finals";
        let former = setting(&mut conn, finals);
        conn.run(["CONFIG", "SET", finals, "0"]);
        // A grant whose key was deleted before the module had asked for key events is tracked until then.
        conn.line("FLUSHALL");
        let rest = self.is_at_rest(&mut conn);
        conn.run(["CONFIG", "SET", finals, &former.unwrap_or_default()]);
        rest?;
        self.counters()
    }

    fn conn_that_may_end_all(&mut self) -> Option<Conn> {
        if self.module.is_none() || !self.is_alive() {
            return None;
        }
        let mut conn = Conn::try_open(self.port)?;
        let is_set = |conn: &mut Conn, name, value| {
            let set = conn.run(["CONFIG", "SET", name, value]);
            !set.is_error()
        };
        let may = conn.is_ready()
            && is_set(&mut conn, "lock.startup-delay", "0")
            && is_set(&mut conn, "client-output-buffer-limit", "normal 0 0 0")
            && conn.line("ROLE").list()[0].text() == "master"
            && conn
                .line("INFO cluster")
                .text()
                .contains("cluster_enabled:0");
        may.then_some(conn)
    }

    /// Compares the data with that of every replica that is online, and with that of the AOF. No client may write
    /// meanwhile.
    ///
    /// # Errors
    /// What differs.
    pub fn has_equal_copies(&self) -> Result<(), String> {
        let mut conn = self.conn();
        let role = conn.line("ROLE").list();
        let replicas = role.get(2).filter(|replicas| replicas.is_array());
        for replica in replicas.map_or(Vec::new(), Reply::list) {
            let port = replica.list()[1].text().parse().expect("a port");
            let mut replica = Conn::open(port);
            // A lease may end meanwhile.
            until_nothing(|| {
                let differs = digest(&mut replica) != digest(&mut conn);
                differs
                    .then(|| format!("other data than the replica at port {port}"))
                    .into_iter()
                    .collect()
            })?;
        }
        if setting(&mut conn, "appendonly").as_deref() == Some("yes") {
            until_nothing(|| {
                let before = digest(&mut conn);
                let loaded = conn.line("DEBUG LOADAOF");
                let is_equal = !loaded.is_error() && before == digest(&mut conn);
                (!is_equal)
                    .then(|| format!("other data than the AOF: {loaded:?}"))
                    .into_iter()
                    .collect()
            })?;
        }
        Ok(())
    }
}

fn digest(conn: &mut Conn) -> String {
    conn.line("DEBUG DIGEST").text()
}

fn setting(conn: &mut Conn, name: &str) -> Option<String> {
    let value = conn.run(["CONFIG", "GET", name]);
    (!value.is_error()).then(|| value.field(name).map(|value| value.text()))?
}

/// Disconnects all other clients, and ends what they hold.
fn end_all(conn: &mut Conn) {
    conn.line("CLIENT UNPAUSE");
    for setting in [
        "min-replicas-to-write 0",
        "stop-writes-on-bgsave-error no",
        "maxmemory 0",
    ] {
        conn.line(&format!("CONFIG SET {setting}"));
    }
    for clients in ["normal", "pubsub"] {
        conn.line(&format!("CLIENT KILL TYPE {clients}"));
    }
    for db in databases(conn) {
        conn.line(&format!("SELECT {db}"));
        for key in conn.line("KEYS *").list() {
            let key = key.bytes();
            if !key.starts_with(b"redis_lock:horizon") {
                conn.run([&b"LOCK.BREAK"[..], &key]);
                conn.run([&b"DEL"[..], &key]);
            }
        }
    }
    conn.line("SELECT 0");
}
