//! Compares the data after a restart with the replies that the clients received before the loss of power.

use std::time::{Duration, Instant};

use redis_lock_harness::disk::Cut;
use redis_lock_harness::Conn;
use serde::{Deserialize, Serialize};

use super::load::Hold;
use super::{Setting, LONG_LEASE};

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
    pub grants: u64,
    pub lost_grants: u64,
    pub lost_releases: u64,
    pub lost_renewals: u64,
    /// For each loss, the time from the reply of the oldest lost change to the loss, in milliseconds; 0: nothing lost.
    pub lost_ms: Vec<f64>,
    /// First tokens after a restart that were not above all received ones, where the premise of tokens did not hold.
    pub expected_falls: u64,
    /// Holds of earlier owners, asked for by others, that were granted before their lease was over.
    pub asked_again: u64,
    pub two_holders: u64,
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
    ttl_ms: i64,
}

impl Figures {
    /// Adds the figures of another run on the same server.
    pub fn add(&mut self, other: Figures) {
        self.rounds += other.rounds;
        self.half_hours_back += other.half_hours_back;
        self.months_back += other.months_back;
        self.rewrites += other.rewrites;
        self.bytes_lost += other.bytes_lost;
        self.grants += other.grants;
        self.lost_grants += other.lost_grants;
        self.lost_releases += other.lost_releases;
        self.lost_renewals += other.lost_renewals;
        self.lost_ms.extend(other.lost_ms);
        self.expected_falls += other.expected_falls;
        self.asked_again += other.asked_again;
        self.two_holders += other.two_holders;
        self.refused_starts += other.refused_starts;
        self.violations.extend(other.violations);
    }

    pub fn violation(&mut self, text: String) {
        eprintln!("VIOLATION: {text}");
        self.violations.push(text);
    }

    /// Judges the holds of a round by the data.
    pub fn judge(&mut self, setting: &Setting, conn: &mut Conn, holds: &[Hold], cut: &Cut) {
        let found: Vec<Found> = holds
            .chunks(CHUNK)
            .flat_map(|part| look(conn, part))
            .collect();
        let mut oldest_lost: Option<Instant> = None;
        let mut newest_kept: Option<Instant> = None;
        for (hold, found) in holds.iter().zip(&found) {
            let Some(lost_at) = self.lost(setting, hold, found) else {
                if found.is_held {
                    newest_kept = newest_kept.max(Some(hold.sent));
                }
                continue;
            };
            oldest_lost = Some(oldest_lost.map_or(lost_at, |oldest| oldest.min(lost_at)));
            if setting.keeps_replied && !self.replies_early {
                let before = cut.at.saturating_duration_since(lost_at);
                self.violation(format!(
                    "{}: lost {before:?} before: {hold:?}",
                    setting.name
                ));
            }
        }
        if let (Some(lost), Some(kept)) = (oldest_lost, newest_kept) {
            if kept > lost {
                let by = kept - lost;
                self.violation(format!(
                    "{}: a later change is kept, by {by:?}",
                    setting.name
                ));
            }
        }
        let lost = oldest_lost.map_or(Duration::ZERO, |lost| {
            cut.at.saturating_duration_since(lost)
        });
        self.lost_ms.push(lost.as_secs_f64() * 1_000.0);
    }

    /// When the reply to the change of this hold that is missing in the data was received.
    fn lost(&mut self, setting: &Setting, hold: &Hold, found: &Found) -> Option<Instant> {
        if found.is_held && found.token != format!("t{}", hold.token) {
            let token = &found.token;
            self.violation(format!("{}: {token} is stored for {hold:?}", setting.name));
        }
        match (hold.release_sent, found.is_held) {
            (None, false) => {
                self.lost_grants += 1;
                Some(hold.replied)
            }
            (Some(_), true) => {
                self.lost_releases += u64::from(hold.released.is_some());
                hold.released
            }
            (None, true) => {
                let is_lost = hold.renewed.is_some() && found.ttl_ms <= LONG_LEASE as i64;
                self.lost_renewals += u64::from(is_lost);
                hold.renewed.filter(|_| is_lost)
            }
            (Some(_), false) => None,
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
                format!("PTTL {}", hold.key),
            ]
        })
        .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    conn.send_lines(&lines);
    let read = |_| {
        let fields = conn.recv().list();
        let ttl_ms = conn.recv().int();
        Found {
            is_held: !fields[0].is_nil(),
            token: match fields[1].is_nil() {
                true => String::new(),
                false => fields[1].text(),
            },
            ttl_ms,
        }
    };
    (0..holds.len()).map(read).collect()
}
