//! The sums of many runs, kept in a file for each scenario, so that a long test can be run in parts, and several parts
//! at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use redis_lock_harness::replace_file;
use serde::{Deserialize, Serialize};

use crate::check::Rule;
use crate::counter::Updates;
use crate::play::{play, Nemesis, Plan, Played};
use crate::porcupine::{Porcupine, Verdict};

/// The directory of the sums.
const DIR: &str = "target/faults/long";

/// The sums of every scenario.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Totals(pub BTreeMap<String, Total>);

/// The sums of one scenario.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Total {
    pub runs: u64,
    pub operations: u64,
    pub grants: u64,
    /// Faults by their names.
    pub tally: BTreeMap<String, u64>,
    /// Simultaneous holders that a loss has made one too many.
    pub overlaps: u64,
    /// The reasons why they were expected.
    pub excuses: BTreeSet<String>,
    /// Histories that Porcupine refuses, and those of which it has no verdict.
    pub refused: u64,
    pub undecided: u64,
    pub fifo_breaks: u64,
    pub silent: u64,
    /// Sessions that outlived their connection.
    pub late_sessions: u64,
    /// Tickets without their one explained outcome, or not counted.
    pub bad_tickets: u64,
    /// Requests with `NOTIFY` that were queued, and messages read.
    pub tickets: u64,
    pub messages: u64,
    /// Grants compared with a waiter that was seen before.
    pub ordered: u64,
    /// Runs after which a server had died, or its counters did not add up.
    pub broken: u64,
    pub updates: Updates,
    pub seconds: f64,
    pub seeds: BTreeSet<u64>,
    pub versions: BTreeSet<String>,
    /// The last day of a run.
    pub date: String,
}

impl Totals {
    /// Reads the files.
    pub fn load() -> std::io::Result<Totals> {
        std::fs::create_dir_all(DIR)?;
        let mut totals = Totals::default();
        for file in std::fs::read_dir(DIR)? {
            let path = file?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let total = serde_json::from_slice(&std::fs::read(&path)?)?;
                totals.0.insert(name.into_owned(), total);
            }
        }
        Ok(totals)
    }

    /// Writes the file of one scenario, whole or not at all.
    pub fn save(&self, name: &str) -> std::io::Result<()> {
        let path = Path::new(DIR).join(format!("{name}.json"));
        replace_file(&path, &serde_json::to_vec_pretty(&self.0.get(name))?)
    }

    /// The sums of all scenarios together.
    pub fn sum(&self) -> Total {
        let mut sum = Total::default();
        self.0.values().for_each(|total| sum.add(total));
        sum
    }
}

impl Total {
    /// The sums of one run.
    pub fn of(played: &Played, seed: u64) -> Total {
        let findings = &played.findings;
        Total {
            runs: 1,
            operations: findings.operations,
            grants: findings.grants,
            tally: played.tally.clone(),
            overlaps: findings.overlaps,
            excuses: played.excuses.clone(),
            refused: u64::from(matches!(played.verdict, Verdict::Refused(_))),
            undecided: u64::from(matches!(played.verdict, Verdict::Undecided(_))),
            fifo_breaks: findings.count(Rule::Order),
            silent: findings.count(Rule::Silence),
            late_sessions: findings.count(Rule::Sessions),
            bad_tickets: findings.count(Rule::Tickets) + findings.count(Rule::Counters),
            tickets: findings.queued,
            messages: findings.messages,
            ordered: findings.ordered,
            broken: u64::from(played.broken.is_some()),
            updates: played.updates,
            seconds: played.seconds,
            seeds: [seed].into(),
            versions: [played.version.clone()].into(),
            date: today(),
        }
    }

    /// Plays one run, prints its result and returns its sums; arguments as of [`play`].
    pub fn of_run(
        name: &str,
        plan: &Plan,
        nemesis: Box<dyn Nemesis>,
        seed: u64,
        length: Duration,
        porcupine: &Porcupine,
    ) -> Total {
        let played = play(name, plan, nemesis, seed, length, Some(porcupine));
        let total = Total::of(&played, seed);
        println!("{name:<15} {}; {:.1} s", total.sentence(), total.seconds);
        played.complain();
        total
    }

    /// Adds other sums.
    pub fn add(&mut self, other: &Total) {
        self.runs += other.runs;
        self.operations += other.operations;
        self.grants += other.grants;
        for (what, count) in &other.tally {
            *self.tally.entry(what.clone()).or_default() += count;
        }
        self.overlaps += other.overlaps;
        self.excuses.extend(other.excuses.iter().cloned());
        self.refused += other.refused;
        self.undecided += other.undecided;
        self.fifo_breaks += other.fifo_breaks;
        self.silent += other.silent;
        self.late_sessions += other.late_sessions;
        self.bad_tickets += other.bad_tickets;
        self.tickets += other.tickets;
        self.messages += other.messages;
        self.ordered += other.ordered;
        self.broken += other.broken;
        self.updates += other.updates;
        self.seconds += other.seconds;
        self.seeds.extend(&other.seeds);
        self.versions.extend(other.versions.iter().cloned());
        self.date = other.date.clone().max(std::mem::take(&mut self.date));
    }

    /// The count of `operations`, or of a fault by its name.
    pub fn count(&self, what: &str) -> u64 {
        match what {
            "operations" => self.operations,
            fault => self.tally.get(fault).copied().unwrap_or(0),
        }
    }

    /// The number of faults by their names, without those that did not happen.
    pub fn faults(&self) -> String {
        let faults = self.tally.iter().filter(|(_, count)| **count > 0);
        let faults: Vec<_> = faults
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        match faults.is_empty() {
            true => "no faults".into(),
            false => faults.join(", "),
        }
    }

    /// The figures of tickets; empty if there were none.
    pub fn tickets(&self) -> String {
        match self.tickets {
            0 => String::new(),
            tickets => format!(", {tickets} tickets, {} messages", self.messages),
        }
    }

    /// The sum of all failures.
    pub fn violations(&self) -> u64 {
        self.refused
            + self.fifo_breaks
            + self.silent
            + self.late_sessions
            + self.bad_tickets
            + self.broken
            + self.updates.lost_checked.unsigned_abs()
    }

    /// The sums in one sentence.
    pub fn sentence(&self) -> String {
        format!(
            "{} operations{}, {} with {} overlaps (expected), {} histories refused by Porcupine ({} without a verdict), \
             {} FIFO breaks ({} compared), {} silent waiters, {} late sessions, {} bad tickets, \
             {} dead servers or wrong counters; lost updates: {} of {} with tokens checked, {} without",
            self.operations,
            self.tickets(),
            self.faults(),
            self.overlaps,
            self.refused,
            self.undecided,
            self.fifo_breaks,
            self.ordered,
            self.silent,
            self.late_sessions,
            self.bad_tickets,
            self.broken,
            self.updates.lost_checked,
            self.updates.accepted,
            self.updates.lost_unchecked,
        )
    }
}

/// The date.
pub fn today() -> String {
    let output = std::process::Command::new("date")
        .args(["-u", "+%F"])
        .output();
    let output = output.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).trim().to_string()
}
