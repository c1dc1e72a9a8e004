//! The figures of a long run: a file of JSON lines for each server, which is committed, so that another machine
//! continues with the next minute.

use std::io::Write;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The directory of the files.
pub const DIR: &str = "tests/faults/figures";
const PREFIX: &str = "long-run-";

/// Where the data of the servers is kept between two runs.
const DATA: &str = "target/long-run";

/// The median, the 99th and 99.9th percentile and the maximum, in microseconds.
pub type Quantiles = [u32; 4];

/// A minute.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Minute {
    /// The number of the run: a run has one process of the primary.
    pub run: u32,
    /// The number of the minute, over all runs.
    pub minute: u32,
    pub server: String,
    pub date: String,
    /// Requests of the clients, and their grants.
    pub operations: u64,
    pub grants: u64,
    /// Faults, changed settings, rewrites of the AOF and so on.
    pub faults: u64,
    pub tickets: u64,
    /// Simultaneous holders that a deleted key explains.
    pub overlaps: u64,
    /// Commands of the primary.
    pub commands: u64,
    /// The share of a core that the two servers and this process took.
    pub cpu: f64,
    /// `used_memory` when all queues are empty; the same without the buffers of clients, replication and AOF.
    pub used: u64,
    pub settled: u64,
    pub rss: u64,
    pub keys: u64,
    /// The largest numbers under load.
    pub used_most: u64,
    pub waiters_most: u64,
    pub tickets_most: u64,
    /// Replies that came more than two seconds late.
    #[serde(default)]
    pub late: u64,
    /// The number of `PING`s that took more than half a second.
    pub stalls: u64,
    /// The number of measurements of `pair`: `LOCK.ACQUIRE` and `LOCK.RELEASE` of a key of its own; `PING` beside it.
    pub probes: usize,
    pub pair: Quantiles,
    pub ping: Quantiles,
}

/// The end of a slice.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stop {
    pub run: u32,
    /// The last minute before it.
    pub minute: u32,
    pub server: String,
    pub date: String,
    pub settled_begin: u64,
    pub settled_end: u64,
    pub keys: u64,
    /// `DEBUG DIGEST` of the primary, the replica and a server with a copy of the AOF.
    pub digest: String,
    /// The law that was broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// A line of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Line {
    Minute(Minute),
    Stop(Stop),
}

impl Minute {
    /// The figures in one line.
    pub fn sentence(&self) -> String {
        format!(
            "minute {}: {} operations, {} grants, {} faults, {} tickets; {:.0} % of a core; {} keys, {} bytes settled, \
             {} resident; pair {:?} µs, PING {:?} µs",
            self.minute,
            self.operations,
            self.grants,
            self.faults,
            self.tickets,
            self.cpu * 100.0,
            self.keys,
            self.settled,
            self.rss,
            self.pair,
            self.ping,
        )
    }
}

impl Stop {
    /// The figures in one line.
    pub fn sentence(&self) -> String {
        format!(
            "stop after minute {}: {} keys, digest {}, {} bytes settled before, {} now",
            self.minute, self.keys, self.digest, self.settled_begin, self.settled_end
        )
    }
}

/// The file of a server.
#[derive(Debug)]
pub struct Figures {
    path: PathBuf,
    data: PathBuf,
    pub lines: Vec<Line>,
}

impl Figures {
    /// Those of `Redis 8.6.1` are in `long-run-redis-8.6.jsonl`.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn load(server: &str) -> std::io::Result<Figures> {
        let release = server
            .rsplit_once('.')
            .map_or(server, |(release, _)| release);
        let name = release.to_lowercase().replace(' ', "-");
        let path = PathBuf::from(DIR).join(format!("{PREFIX}{name}.jsonl"));
        Figures::at(path, PathBuf::from(DATA).join(name))
    }

    /// The file at this path, with the data of its servers in that directory.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn at(path: PathBuf, data: PathBuf) -> std::io::Result<Figures> {
        let text = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            text => text.unwrap_or_default(),
        };
        let lines: Result<_, serde_json::Error> = text.lines().map(serde_json::from_str).collect();
        Ok(Figures {
            path,
            data,
            lines: lines?,
        })
    }

    /// The files of all servers.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn all() -> std::io::Result<Vec<Figures>> {
        let mut paths = Vec::new();
        for file in std::fs::read_dir(DIR)? {
            let path = file?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(PREFIX) && name.ends_with(".jsonl") {
                paths.push(path);
            }
        }
        paths.sort();
        paths
            .into_iter()
            .map(|path| Figures::at(path, PathBuf::new()))
            .collect()
    }

    /// The name of the file.
    pub fn name(&self) -> String {
        let name = self.path.file_stem().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Where the data of the server is kept.
    pub fn data(&self) -> PathBuf {
        self.data.clone()
    }

    /// The numbers of the next run and of its first minute.
    pub fn next(&self) -> (u32, u32) {
        let last = self.minutes().last();
        last.map_or((1, 1), |last| (last.run + 1, last.minute + 1))
    }

    /// The minutes so far.
    pub fn minutes(&self) -> impl DoubleEndedIterator<Item = &Minute> {
        self.lines.iter().filter_map(|line| match line {
            Line::Minute(minute) => Some(minute),
            Line::Stop(_) => None,
        })
    }

    /// The stops so far.
    pub fn stops(&self) -> impl Iterator<Item = &Stop> {
        self.lines.iter().filter_map(|line| match line {
            Line::Stop(stop) => Some(stop),
            Line::Minute(_) => None,
        })
    }

    /// Appends a line.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn add(&mut self, line: Line) -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new();
        let mut file = file.create(true).append(true).open(&self.path)?;
        writeln!(file, "{}", serde_json::to_string(&line)?)?;
        self.lines.push(line);
        Ok(())
    }
}
