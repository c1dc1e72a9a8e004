//! The samples of `top`: the locks of a server, read at each interval.
//!
//! The waited locks are in the server's memory and are read completely each time. The held locks need a scan of the
//! whole database, which continues in steps from sample to sample.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Instant, SystemTime};

use redis_lock_client::{LockInfo, Scan, Search, Server};
use serde_json::{json, Value};

use crate::failure::Failure;
use crate::ls;
use crate::report;

/// Steps of the scan in one sample, of 1,000 keys each.
const STEPS: usize = 20;
/// Upper bound of locks whose state is read in one sample.
const MAX_LOCKS: usize = 1_000;

/// The order of the rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Wait,
    Held,
    Name,
}

impl Order {
    pub fn name(self) -> &'static str {
        match self {
            Order::Wait => "wait",
            Order::Held => "time held",
            Order::Name => "name",
        }
    }
}

/// The state of a server at one moment.
#[derive(Debug, Default)]
pub struct Sample {
    pub locks: Vec<(Vec<u8>, LockInfo)>,
    /// The number of found locks above the bound, whose state was not read.
    pub left_out: usize,
    /// Whether the database has been scanned to its end at least once.
    pub whole: bool,
    /// Grants per second, and those of them that went to waiters.
    pub rates: Option<(f64, f64)>,
    pub waiters: u64,
}

impl Sample {
    pub fn sort(&mut self, order: Order) {
        let descending = std::cmp::Reverse::<std::time::Duration>;
        self.locks.sort_by_cached_key(|(key, info)| {
            let held = report::held(info).unwrap_or_default();
            let by = match order {
                Order::Wait => (info.longest_wait, held),
                Order::Held => (held, info.longest_wait),
                Order::Name => Default::default(),
            };
            (descending(by.0), descending(by.1), key.clone())
        });
    }

    /// The sample as an object.
    pub fn json(&self, server: &str) -> Value {
        let locks = self.locks.iter();
        let longest = locks.clone().map(|(_, info)| info.longest_wait).max();
        json!({
            "time": report::utc(SystemTime::now()),
            "server": server,
            "held": self.held(),
            "waited": self.waited(),
            "waiters": self.waiters,
            "longest_wait_ms": report::millis(longest.filter(|wait| !wait.is_zero())),
            "hand_offs_per_s": self.rates.map(|(_, hand_offs)| hand_offs),
            "grants_per_s": self.rates.map(|(grants, _)| grants),
            "whole": self.whole,
            "left_out": self.left_out,
            "locks": locks.map(|(key, info)| report::lock(key, info)).collect::<Vec<_>>(),
        })
    }

    pub fn held(&self) -> usize {
        let is_held = |(_, info): &&(_, LockInfo)| !info.holders.is_empty();
        self.locks.iter().filter(is_held).count()
    }

    pub fn waited(&self) -> usize {
        let is_waited = |(_, info): &&(_, LockInfo)| info.waiters > 0;
        self.locks.iter().filter(is_waited).count()
    }
}

/// Takes samples.
pub struct Sampler {
    server: Server,
    scan: Option<Scan>,
    known: BTreeSet<Vec<u8>>,
    whole: bool,
    /// How many waiters of each lock are read.
    pub waiters: u64,
    counted: Option<(Instant, BTreeMap<String, u64>)>,
}

impl Sampler {
    pub fn new(server: Server) -> Sampler {
        Sampler {
            server,
            scan: None,
            known: BTreeSet::new(),
            whole: false,
            waiters: 0,
            counted: None,
        }
    }

    /// Takes the next sample: of the whole database, however long that takes, or of some more steps.
    pub async fn take(&mut self, whole: bool) -> Result<Sample, Failure> {
        let (rates, waiters) = self.count().await?;
        let mut keys: Vec<Vec<u8>> = Vec::new();
        let mut scan = self.server.scan(Search::waited()).await?;
        while let Some(found) = scan.step().await? {
            keys.extend(found);
        }
        self.continue_scan(whole).await?;
        let waited: BTreeSet<Vec<u8>> = keys.iter().cloned().collect();
        keys.extend(self.known.difference(&waited).cloned());
        let left_out = keys.len().saturating_sub(MAX_LOCKS);
        keys.truncate(MAX_LOCKS);
        // Those that are free by now are forgotten.
        for key in &keys {
            self.known.remove(key);
        }
        let locks = ls::ask(&self.server, keys, self.waiters).await?;
        self.known.extend(locks.iter().map(|(key, _)| key.clone()));
        Ok(Sample {
            locks,
            left_out,
            whole: self.whole,
            rates,
            waiters,
        })
    }

    /// Continues the scan for held locks.
    async fn continue_scan(&mut self, whole: bool) -> Result<(), Failure> {
        for _ in 0..if whole { usize::MAX } else { STEPS } {
            let mut scan = match self.scan.take() {
                Some(scan) => scan,
                None => self.server.scan(Search::held()).await?,
            };
            let Some(found) = scan.step().await? else {
                self.whole = true;
                break;
            };
            self.known.extend(found);
            self.scan = Some(scan);
        }
        Ok(())
    }

    /// The rates of the counters since the last sample, and the number of waiters.
    async fn count(&mut self) -> Result<(Option<(f64, f64)>, u64), Failure> {
        let now = self.server.module_counters().await?;
        let at = Instant::now();
        // Clients are parked, or wait by tickets, as `run` does.
        let sum = |counters: &BTreeMap<String, u64>, names: [&str; 2]| -> u64 {
            names.iter().filter_map(|name| counters.get(*name)).sum()
        };
        let rates = self.counted.as_ref().map(|(then, before)| {
            let seconds = at.duration_since(*then).as_secs_f64().max(0.001);
            let rate = |names| sum(&now, names).saturating_sub(sum(before, names)) as f64 / seconds;
            (
                rate(["grants", ""]),
                rate(["waits_granted", "tickets_granted"]),
            )
        });
        let waiters = sum(&now, ["waiters", "tickets"]);
        self.counted = Some((at, now));
        Ok((rates, waiters))
    }
}

/// The object in place of a sample that failed.
pub fn failed_json(server: &str, failure: &Failure) -> Value {
    json!({
        "time": report::utc(SystemTime::now()),
        "server": server,
        "error": failure.to_string(),
    })
}
