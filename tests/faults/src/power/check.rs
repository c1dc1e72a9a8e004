//! Compares the data after a restart with the replies that the clients received before the loss of power.

use std::collections::BTreeMap;
use std::time::Duration;

use redis_lock_harness::Conn;
use serde::{Deserialize, Serialize};

use super::judge::{Class, Counts, Times, Verdict};
use super::load::Hold;
use super::{Setting, LONG_LEASE};
use crate::history::{Nanos, MS};

/// The holds that are looked for, or deleted, in one write.
pub const CHUNK: usize = 400;
const HOUR_US: i64 = 3_600_000_000;

/// What the losses of power of one setting on one server did.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Figures {
    /// Name and version of the server.
    pub server: String,
    pub rounds: u64,
    /// Losses after which the server began with a clock that was set back, by half an hour and by a month.
    pub half_hours_back: u64,
    pub months_back: u64,
    pub rewrites: u64,
    pub bytes_lost: u64,
    /// What was answered, and what of it was lost, by the kinds of holds.
    pub kinds: BTreeMap<Class, Counts>,
    /// Holds that were found and whose owners do not know of their grant.
    pub unknown: u64,
    /// For each loss, the time from the reply of the oldest lost change to the loss, in milliseconds; 0: nothing lost.
    pub lost_ms: Vec<f64>,
    /// First tokens after a restart that were not above all received ones, where the premise of tokens did not hold.
    pub expected_falls: u64,
    /// Holds of earlier owners, asked for by others, that were granted before their lease was over.
    pub asked_again: u64,
    pub two_holders: u64,
    /// Losses in the middle of the data, between two files of the AOF, that the server did not notice.
    pub holes: u64,
    /// Keys that are inconsistent after such a loss.
    pub broken: u64,
    /// Losses in the middle of the data: the server ends at its start, and begins without data here.
    pub refused_starts: u64,
    /// Whether the server sends replies before it syncs, against `appendfsync always`.
    pub replies_early: bool,
    pub violations: Vec<String>,
}

/// A hold in the data of the restarted server.
struct Found {
    is_held: bool,
    token: String,
    /// By the wall clock.
    ends_ms: i64,
}

/// What is lost of a round, and what is kept.
#[derive(Debug, Default, Clone, Copy)]
pub struct Ends {
    /// When the reply to the oldest lost change was received.
    pub oldest_lost: Option<Nanos>,
    /// When the newest grant that is kept was requested.
    pub newest_kept: Option<Nanos>,
}

impl Ends {
    fn lost(&mut self, at: Nanos) {
        self.oldest_lost = self.oldest_lost.into_iter().chain([at]).min();
    }
}

impl Figures {
    /// Adds the figures of another run on the same server.
    pub fn add(&mut self, other: Figures) {
        self.rounds += other.rounds;
        self.half_hours_back += other.half_hours_back;
        self.months_back += other.months_back;
        self.rewrites += other.rewrites;
        self.bytes_lost += other.bytes_lost;
        for (class, counts) in &other.kinds {
            self.kinds.entry(*class).or_default().add(counts);
        }
        self.unknown += other.unknown;
        self.lost_ms.extend(other.lost_ms);
        self.expected_falls += other.expected_falls;
        self.asked_again += other.asked_again;
        self.two_holders += other.two_holders;
        self.holes += other.holes;
        self.broken += other.broken;
        self.refused_starts += other.refused_starts;
        self.violations.extend(other.violations);
    }

    pub fn violation(&mut self, text: String) {
        eprintln!("VIOLATION: {text}");
        self.violations.push(text);
    }

    /// The sum over all kinds of holds.
    pub fn all(&self) -> Counts {
        let mut sum = Counts::default();
        self.kinds.values().for_each(|counts| sum.add(counts));
        sum
    }

    fn is_promised(&self, setting: &Setting) -> bool {
        setting.keeps_replied && !self.replies_early
    }

    /// Judges the exclusive locks of a round by the data.
    pub fn judge(
        &mut self,
        setting: &Setting,
        conn: &mut Conn,
        holds: &[Hold],
        times: Times,
    ) -> Ends {
        let found: Vec<Found> = holds
            .chunks(CHUNK)
            .flat_map(|part| look(conn, part))
            .collect();
        let mut ends = Ends::default();
        for (hold, found) in holds.iter().zip(&found) {
            let Some(lost_at) = self.lost(setting, hold, found, times) else {
                if found.is_held {
                    ends.newest_kept = ends.newest_kept.max(Some(hold.sent));
                }
                continue;
            };
            ends.lost(lost_at);
            if self.is_promised(setting) {
                let before_ms = times.cut.saturating_sub(lost_at) / MS;
                let text = format!("{}: lost {before_ms} ms before: {hold:?}", setting.name);
                self.violation(text);
            }
        }
        ends
    }

    /// Adds the verdict about other kinds of locks. `is_split`: the AOF may lack the end of a file that is not its
    /// last.
    pub fn add_verdict(
        &mut self,
        setting: &Setting,
        verdict: Verdict,
        ends: &mut Ends,
        is_split: bool,
    ) {
        for (class, counts) in &verdict.counts {
            self.kinds.entry(*class).or_default().add(counts);
        }
        self.unknown += verdict.unknown;
        verdict.oldest_lost.into_iter().for_each(|at| ends.lost(at));
        ends.newest_kept = ends.newest_kept.max(verdict.newest_kept);
        let is_promised = self.is_promised(setting);
        if is_split {
            self.broken += verdict.broken.len() as u64;
        }
        let lost = verdict.lost.into_iter().filter(|_| is_promised);
        let broken = verdict.broken.into_iter().filter(|_| !is_split);
        let texts: Vec<String> = lost.chain(broken).chain(verdict.violations).collect();
        for text in texts {
            self.violation(format!("{}: {text}", setting.name));
        }
    }

    /// Judges whether what is lost is an end, and notes how long it is. `is_split` as above.
    pub fn conclude(&mut self, name: &str, ends: Ends, cut: Nanos, is_split: bool) {
        if let (Some(lost), Some(kept)) = (ends.oldest_lost, ends.newest_kept) {
            let by = Duration::from_nanos(kept.saturating_sub(lost));
            match is_split {
                _ if by.is_zero() => (),
                true => self.holes += 1,
                false => self.violation(format!("{name}: a later change is kept, by {by:?}")),
            }
        }
        let lost = ends.oldest_lost.map_or(0, |lost| cut.saturating_sub(lost));
        self.lost_ms.push(lost as f64 / MS as f64);
    }

    /// When the reply to the change of this hold that is missing in the data was received.
    fn lost(
        &mut self,
        setting: &Setting,
        hold: &Hold,
        found: &Found,
        times: Times,
    ) -> Option<Nanos> {
        if found.is_held && found.token != format!("t{}", hold.token) {
            let token = &found.token;
            self.violation(format!("{}: {token} is stored for {hold:?}", setting.name));
        }
        let counts = self.kinds.entry(Class::Lock).or_default();
        match (hold.release_sent, found.is_held) {
            (None, false) => {
                counts.lost_grants += 1;
                Some(hold.replied)
            }
            (Some(_), true) => {
                counts.lost_releases += u64::from(hold.released.is_some());
                hold.released
            }
            (None, true) => {
                // A renewal sets a longer lease than a grant.
                let granted = times.wall_ms(hold.replied) + LONG_LEASE as i64;
                let is_lost = hold.renewed.is_some() && found.ends_ms <= granted;
                counts.lost_renewals += u64::from(is_lost);
                hold.renewed.filter(|_| is_lost)
            }
            (Some(_), false) => None,
        }
    }

    /// Counts the grants and releases of exclusive locks that were answered.
    pub fn count(&mut self, holds: &[Hold]) {
        let counts = self.kinds.entry(Class::Lock).or_default();
        for hold in holds {
            counts.grants += 1;
            counts.owed += u64::from(hold.release_sent.is_none());
            counts.releases += u64::from(hold.released.is_some());
        }
    }

    /// Judges the first token after a restart by the highest one that a client has received.
    pub fn judge_token(&mut self, name: &str, first: i64, highest: i64, horizon: i64, clock: i64) {
        if first > highest {
            return;
        }
        // docs/RELIABILITY.md, "Premise of tokens". Without any horizon a server starts at its clock.
        let ahead = if horizon > 0 { HOUR_US } else { 0 };
        match horizon >= highest || clock + ahead > highest {
            true => self.violation(format!(
                "{name}: token {first} after {highest}, horizon {horizon}, clock {clock}"
            )),
            false => self.expected_falls += 1,
        }
    }
}

fn look(conn: &mut Conn, holds: &[Hold]) -> Vec<Found> {
    let lines: Vec<String> = holds
        .iter()
        .flat_map(|hold| {
            [
                format!("HMGET {} {} #token", hold.key, hold.owner),
                format!("PEXPIRETIME {}", hold.key),
            ]
        })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    conn.send_lines(&lines);
    let read = |_| {
        let fields = conn.recv().list();
        let ends_ms = conn.recv().int();
        Found {
            is_held: !fields[0].is_nil(),
            token: match fields[1].is_nil() {
                true => String::new(),
                false => fields[1].text(),
            },
            ends_ms,
        }
    };
    (0..holds.len()).map(read).collect()
}
