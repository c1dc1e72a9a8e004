//! The servers of a long run: a primary with an AOF, and a replica; their data, memory and use of the processor.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use redis_lock_harness::replica::{follow, PROMPT_MASTER};
use redis_lock_harness::{Conn, TestServer};

use super::laws::until;

const AOF: &str = "appendonlydir";

/// The slow log and the automatic rewriting are off: their memory and time would be noise.
const OPTIONS: [&str; 4] = [
    "--slowlog-log-slower-than",
    "-1",
    "--auto-aof-rewrite-percentage",
    "0",
];
const PERSISTENT: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "everysec"];

/// Leases that end within this time are of the load, not of the residents, in milliseconds.
const SHORT: i64 = 600_000;

/// The primary and its replica.
pub struct Site {
    pub primary: Rc<RefCell<TestServer>>,
    pub replica: Rc<RefCell<TestServer>>,
}

/// The memory when no client is active.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    pub used: u64,
    /// Without the buffers of clients, replication and AOF.
    pub settled: u64,
    pub rss: u64,
}

/// The use of the servers so far.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    pub commands: u64,
    /// Ticks of the processor: of both servers and of this process.
    ticks: u64,
    at: Instant,
}

impl Usage {
    /// The share of a core since then.
    pub fn share_since(&self, before: &Usage) -> f64 {
        // A hundred ticks a second on every Linux.
        let seconds = self.ticks.saturating_sub(before.ticks) as f64 / 100.0;
        let share = seconds / (self.at - before.at).as_secs_f64();
        (share * 1000.0).round() / 1000.0
    }
}

/// The data of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digest {
    /// `DEBUG DIGEST`, which has no times.
    data: String,
    /// The keys, with the times of their ends.
    ends: BTreeMap<String, i64>,
}

impl Digest {
    fn of(conn: &mut Conn) -> Digest {
        let mut ends = BTreeMap::new();
        let mut cursor = "0".to_string();
        loop {
            let page = conn.run(["SCAN", &cursor, "COUNT", "1000"]).list();
            let keys = page.get(1).map_or(Vec::new(), |keys| keys.list());
            for key in &keys {
                conn.send(["PEXPIRETIME", &key.text()]);
            }
            for key in keys {
                ends.insert(key.text(), conn.recv().int());
            }
            cursor = page.first().map_or("0".into(), |cursor| cursor.text());
            if cursor == "0" {
                break;
            }
        }
        // A key that expired meanwhile.
        ends.retain(|_, end| *end != -2);
        let data = conn.run(["DEBUG", "DIGEST"]).text();
        Digest { data, ends }
    }

    pub fn data(&self) -> &str {
        &self.data
    }

    pub fn keys(&self) -> u64 {
        self.ends.len() as u64
    }

    /// A key whose lease ends soon.
    pub fn short_lived(&self) -> Option<&str> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let soon = now.map_or(0, |now| now.as_millis() as i64) + SHORT;
        let mut ends = self.ends.iter();
        let (key, _) = ends.find(|(key, end)| (0..soon).contains(*end) && !self.is_left(key))?;
        Some(key)
    }

    /// Whether it is the lease of a reader whose lock was deleted by `DEL`. It ends by itself, like Redisson's.
    fn is_left(&self, key: &str) -> bool {
        let of_reader = key
            .strip_prefix('{')
            .filter(|_| key.contains(":rwlock_timeout:"));
        let lock = of_reader.and_then(|rest| rest.split_once('}'));
        lock.is_some_and(|(lock, _)| !self.ends.contains_key(lock))
    }

    /// What differs in another server's data.
    fn difference(&self, other: &Digest) -> Option<String> {
        if self == other {
            return None;
        }
        let is_other = |(key, end): &(&String, &i64)| other.ends.get(*key) != Some(*end);
        let mine = self.ends.iter().filter(is_other);
        let is_new = |(key, _): &(&String, &i64)| !self.ends.contains_key(*key);
        let theirs = other.ends.iter().filter(is_new);
        let keys: Vec<_> = mine.chain(theirs).take(10).collect();
        let digests = (&self.data, &other.data);
        Some(format!("{digests:?}, keys and ends that differ: {keys:?}"))
    }
}

impl Site {
    /// Starts the servers with the data that was kept, or without data.
    ///
    /// # Errors
    /// The primary does not load it.
    pub fn start(kept: &Path) -> Result<Site, String> {
        let options = [&OPTIONS[..], &PROMPT_MASTER].concat();
        let mut primary = TestServer::with(&[&options[..], &PERSISTENT].concat());
        if kept.join(AOF).exists() {
            load(&mut primary, kept)?;
        }
        let replica = TestServer::with(&options);
        follow(&replica, &primary);
        Ok(Site {
            primary: Rc::new(RefCell::new(primary)),
            replica: Rc::new(RefCell::new(replica)),
        })
    }

    pub fn port(&self) -> u16 {
        self.primary.borrow().port
    }

    pub fn conn(&self) -> Conn {
        self.primary.borrow().conn()
    }

    /// The data of the primary.
    pub fn digest(&self) -> Digest {
        Digest::of(&mut self.conn())
    }

    /// The data, which is the same at the replica.
    ///
    /// # Errors
    /// The difference.
    pub fn equal_digests(&self) -> Result<Digest, String> {
        let (primary, replica) = (self.primary.borrow(), self.replica.borrow());
        until(|| {
            let link = replica.info_field("replication", "master_link_status");
            (link != "up").then(|| format!("the link of the replica: {link}"))
        })?;
        let offset = |server: &TestServer| server.info_field("replication", "master_repl_offset");
        let mut result = Err("the replication does not come to rest".to_string());
        let compared = until(|| {
            let before = offset(&primary);
            if offset(&replica) != before {
                return Some(format!("the replica does not reach offset {before}"));
            }
            let mine = Digest::of(&mut primary.conn());
            let theirs = Digest::of(&mut replica.conn());
            if offset(&primary) != before {
                return Some("the replication does not come to rest".into());
            }
            result = match mine.difference(&theirs) {
                None => Ok(mine),
                Some(text) => Err(format!("the replica has other data: {text}")),
            };
            None
        });
        compared.and(result)
    }

    /// The data, which is the same in a server that loads a copy of the AOF.
    ///
    /// # Errors
    /// The difference.
    pub fn digest_of_aof(&self) -> Result<Digest, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let before = self.copy_aof(dir.path())?;
        let mut other = TestServer::with(&[&OPTIONS[..], &PERSISTENT].concat());
        load(&mut other, dir.path())?;
        match before.difference(&Digest::of(&mut other.conn())) {
            None => Ok(before),
            Some(text) => Err(format!("the AOF has other data: {text}")),
        }
    }

    /// Copies the AOF, with all writes so far; returns the data.
    fn copy_aof(&self, to: &Path) -> Result<Digest, String> {
        let primary = self.primary.borrow();
        until(|| {
            let of = |name| primary.info_field("persistence", name);
            let is_busy = of("aof_rewrite_in_progress") != "0"
                || of("aof_rewrite_scheduled") != "0"
                || of("aof_buffer_length") != "0"
                || of("aof_pending_bio_fsync") != "0";
            is_busy.then(|| "the AOF is not written to its end".into())
        })?;
        let digest = self.digest();
        copy(&primary.dir().join(AOF), &to.join(AOF)).map_err(|error| error.to_string())?;
        Ok(digest)
    }

    /// Restarts the primary, which has the same data then, and keeps its data for the next run.
    ///
    /// # Errors
    /// The difference.
    pub fn finish(&self, kept: &Path) -> Result<(), String> {
        let before = self.equal_digests()?;
        self.primary.borrow_mut().restart();
        if let Some(text) = before.difference(&self.digest()) {
            return Err(format!("other data after a restart: {text}"));
        }
        self.keep(kept)
    }

    /// Keeps the data for the next run.
    ///
    /// # Errors
    /// The files cannot be copied.
    pub fn keep(&self, kept: &Path) -> Result<(), String> {
        self.copy_aof(kept).map(|_| ())
    }

    pub fn memory(&self) -> Memory {
        let info = self.conn().run(["INFO", "memory"]).text();
        let of = |name| field(&info, name);
        let buffers = [
            "mem_clients_normal",
            "mem_total_replication_buffers",
            "mem_aof_buffer",
        ];
        let buffers: u64 = buffers.iter().map(|name| of(name)).sum();
        let used = of("used_memory");
        Memory {
            used,
            settled: used.saturating_sub(buffers),
            rss: of("used_memory_rss"),
        }
    }

    pub fn usage(&self) -> Usage {
        let stats = self.conn().run(["INFO", "stats"]).text();
        let servers = [&self.primary, &self.replica].map(|server| server.borrow().pid());
        let own = std::process::id() as i32;
        Usage {
            commands: field(&stats, "total_commands_processed"),
            ticks: servers.into_iter().chain([own]).map(ticks).sum(),
            at: Instant::now(),
        }
    }
}

/// The ticks of a process in user and kernel mode: fields 14 and 15 of its `stat`, behind the name in parentheses.
fn ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks = fields.skip(11).take(2);
    ticks.filter_map(|text| text.parse::<u64>().ok()).sum()
}

/// Starts a server again, with this AOF.
fn load(server: &mut TestServer, from: &Path) -> Result<(), String> {
    server.crash();
    let own = server.dir().join(AOF);
    std::fs::remove_dir_all(&own)
        .and_then(|()| copy(&from.join(AOF), &own))
        .map_err(|error| error.to_string())?;
    server.try_start_again()
}

/// Replaces a directory by a copy of another one.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    let beside = to.with_extension("new");
    remove(&beside)?;
    std::fs::create_dir_all(&beside)?;
    for file in std::fs::read_dir(from)? {
        let file = file?;
        std::fs::copy(file.path(), beside.join(file.file_name()))?;
    }
    remove(to)?;
    std::fs::rename(beside, to)
}

fn remove(dir: &Path) -> std::io::Result<()> {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A number of a section of `INFO`; 0 when it is not there.
pub fn field(info: &str, name: &str) -> u64 {
    let mut values = info.lines().filter_map(|line| line.strip_prefix(name));
    let value = values.find_map(|rest| rest.strip_prefix(':'));
    value.map_or(0, |value| value.trim().parse().unwrap_or(0))
}
