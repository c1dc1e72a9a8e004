//! Compares the data after a loss of power with the history of the participants. Pure, but for `before_the_loss`.
//!
//! What is known of each kind:
//!
//! - A hold that its owner was granted is owed: by the reply to a parked request, or by the message of a ticket. A
//!   request without an outcome may have been granted before the loss: its owner does not know, and the hold is not
//!   owed, but may be in the data.
//! - A hold that is bound to a connection is owed for `lock.session-lease` after its grant, and is in the data no
//!   longer than that after the loss: the connection has ended, and no server renews it.
//! - A writer that also reads is listed as the writer. The token of readers may be a later one: it is not compared.
//! - A request for several keys, and the release of them, are one write: all of its keys are held, or none.
//! - The free permits of a semaphore and the held ones are as many as it has.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::data::{Data, Found};
use super::kinds::PERMITS;
use crate::check::{holds, requests, Hold};
use crate::history::{Call, History, Kind, Nanos, Op, Outcome, Tie, MS};
use crate::porcupine::{Porcupine, Verdict as Order};

/// The tolerance for leases, whose clocks differ.
const SLACK_MS: i64 = 2_000;

/// The groups of holds in the figures. The first that fits counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Class {
    Lock,
    ReadWrite,
    Permit,
    Bound,
    Several,
    Ticket,
}

/// What was answered, and what of it is missing in the data.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub grants: u64,
    /// Grants whose hold had to be in the data if nothing was lost.
    pub owed: u64,
    pub lost_grants: u64,
    pub releases: u64,
    pub lost_releases: u64,
    pub lost_renewals: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.grants += other.grants;
        self.owed += other.owed;
        self.lost_grants += other.lost_grants;
        self.releases += other.releases;
        self.lost_releases += other.lost_releases;
        self.lost_renewals += other.lost_renewals;
    }
}

/// The moments of a round.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub cut: Nanos,
    /// The same moment by the wall clock.
    pub cut_ms: i64,
    /// After the data was read.
    pub looked: Nanos,
}

impl Times {
    /// A moment by the wall clock, in milliseconds.
    pub fn wall_ms(&self, at: Nanos) -> i64 {
        self.cut_ms + (at as i64 - self.cut as i64) / MS as i64
    }
}

/// The result.
#[derive(Debug, Default)]
pub struct Verdict {
    pub counts: BTreeMap<Class, Counts>,
    /// Holds in the data of owners that do not know of their grant.
    pub unknown: u64,
    /// The highest token that was received.
    pub highest: i64,
    pub lowest: Option<i64>,
    /// When the reply to the oldest lost change was received.
    pub oldest_lost: Option<Nanos>,
    /// When the newest grant that is surely kept was requested.
    pub newest_kept: Option<Nanos>,
    /// What was answered and is lost.
    pub lost: Vec<String>,
    /// Keys that are inconsistent: only the loss of a piece in the middle of the data explains that.
    pub broken: Vec<String>,
    /// What no setting explains.
    pub violations: Vec<String>,
}

/// What became of a hold.
enum Fate {
    Kept,
    LostGrant,
    LostRelease,
    LostRenewal,
    /// It ended before the loss, or may have.
    Open,
}

/// Removes what was sent after the loss.
pub fn end(history: &mut History, cut: Nanos) {
    history.ops.retain(|op| op.sent <= cut);
    history.asks.retain(|ask| ask.sent <= cut);
}

/// What Porcupine refuses of a history that ends with the loss; its file has this name.
pub fn before_the_loss(history: &History, name: &str) -> Option<String> {
    match Porcupine::default().judge(history, name) {
        Ok(Order::Refused(text)) => Some(format!("before the loss: {text}")),
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// Judges the data by a history that ends with the loss.
pub fn judge(history: &History, data: &Data, times: Times) -> Verdict {
    let mut verdict = Verdict::default();
    let ops = requests(history);
    let holds = holds(history);
    let mut found: HashMap<(u32, u64), Vec<&Found>> = HashMap::new();
    for one in &data.found {
        found.entry((one.key, one.owner)).or_default().push(one);
    }
    let tickets: HashSet<u64> = history.asks.iter().map(|ask| ask.owner).collect();
    let is_of_several = |op: &&Op| matches!(op.call, Call::Acquire { tie, .. } if tie == Tie::Many);
    let several: HashSet<u64> = ops
        .iter()
        .filter(is_of_several)
        .map(|op| op.owner)
        .collect();
    let class = |hold: &Hold| match hold.kind {
        _ if hold.was_bound => Class::Bound,
        _ if tickets.contains(&hold.owner) => Class::Ticket,
        _ if several.contains(&hold.owner) => Class::Several,
        Kind::Exclusive => Class::Lock,
        Kind::Read | Kind::Write => Class::ReadWrite,
        Kind::Permit(_) => Class::Permit,
    };
    let mut of_owner: HashMap<(u32, u64), Vec<&Hold>> = HashMap::new();
    for hold in &holds {
        verdict.highest = verdict.highest.max(hold.token);
        verdict.lowest = verdict.lowest.into_iter().chain([hold.token]).min();
        let counts = verdict.counts.entry(class(hold)).or_default();
        counts.grants += 1;
        counts.releases += u64::from(hold.released.is_some());
        of_owner
            .entry((hold.key, hold.owner))
            .or_default()
            .push(hold);
    }
    for (id, holds) in &of_owner {
        let found = found.get(id).map_or(&[][..], Vec::as_slice);
        for (place, hold) in holds.iter().enumerate() {
            // Of the grants of one kind only the last can still be held.
            let is_last = !holds[place + 1..].iter().any(|h| h.kind == hold.kind);
            if is_last {
                let is_only = holds.iter().filter(|h| h.kind == hold.kind).count() == 1;
                verdict.judge_hold(hold, is_only, class(hold), found, times);
            }
        }
    }
    verdict.judge_unknown(data, &of_owner, &ops);
    verdict.judge_several(&ops, &several, &found, times);
    for semaphore in &data.semaphores {
        let (free, held) = (semaphore.free, semaphore.held);
        if free.map_or(held != 0, |free| free + held != i64::from(PERMITS)) {
            let text = format!("permits appeared or vanished: {semaphore:?}");
            verdict.broken.push(text);
        }
    }
    let refused = data.refused.iter();
    let refused = refused.map(|(key, error)| format!("the data of key {key} is refused: {error}"));
    verdict.broken.extend(refused);
    verdict
}

impl Verdict {
    fn judge_hold(
        &mut self,
        hold: &Hold,
        is_only: bool,
        class: Class,
        found: &[&Found],
        times: Times,
    ) {
        let same = found
            .iter()
            .find(|f| f.kind == hold.kind && f.token.is_none_or(|token| fits(hold, token)));
        if let (Some(found), Some(lease), false) = (same, hold.session, hold.doubtful) {
            let last = times.cut_ms + i64::from(lease) + SLACK_MS;
            if hold.released.is_none() && found.ends_ms > last {
                let text = format!("a bound hold outlives its lease: {found:?}, {hold:?}");
                self.violations.push(text);
            }
        }
        let fate = fate(hold, same.copied(), found, times);
        let counts = self.counts.entry(class).or_default();
        counts.owed += u64::from(hold.released.is_none() && is_owed(hold, times));
        let lost = match fate {
            Fate::Open => return,
            Fate::Kept => {
                if is_only {
                    self.newest_kept = self.newest_kept.max(Some(hold.asked));
                }
                return;
            }
            Fate::LostGrant => {
                counts.lost_grants += 1;
                hold.received
            }
            Fate::LostRelease => {
                counts.lost_releases += 1;
                hold.released.unwrap_or(hold.received)
            }
            Fate::LostRenewal => {
                counts.lost_renewals += 1;
                hold.agreed
            }
        };
        self.oldest_lost = self.oldest_lost.into_iter().chain([lost]).min();
        let before_ms = times.cut.saturating_sub(lost) / MS;
        self.lost
            .push(format!("lost {before_ms} ms before: {hold:?}, {found:?}"));
    }

    /// Holds in the data must have a grant, or a request without an outcome.
    fn judge_unknown(
        &mut self,
        data: &Data,
        of_owner: &HashMap<(u32, u64), Vec<&Hold>>,
        ops: &[Op],
    ) {
        let is_open = |op: &&Op| {
            let is_acquire = matches!(op.call, Call::Acquire { .. });
            is_acquire && matches!(op.outcome, Outcome::Lost | Outcome::Silent)
        };
        let open = ops.iter().filter(is_open);
        let open: HashSet<(u32, u64, Kind)> =
            open.map(|op| (op.key, op.owner, op.call.kind())).collect();
        for found in &data.found {
            let known = of_owner.get(&(found.key, found.owner));
            let mut known = known.into_iter().flatten();
            let fits =
                |h: &&Hold| h.kind == found.kind && found.token.is_none_or(|token| fits(h, token));
            if found.is_bound {
                self.violations
                    .push(format!("bound after a restart: {found:?}"));
            }
            if known.any(fits) {
                continue;
            }
            match open.contains(&(found.key, found.owner, found.kind)) {
                true => self.unknown += 1,
                false => self
                    .violations
                    .push(format!("a hold that was not granted: {found:?}")),
            }
        }
    }

    fn judge_several(
        &mut self,
        ops: &[Op],
        several: &HashSet<u64>,
        found: &HashMap<(u32, u64), Vec<&Found>>,
        times: Times,
    ) {
        // For each owner its keys, and the earliest end of a lease.
        let mut keys: HashMap<u64, (HashSet<u32>, Nanos)> = HashMap::new();
        for op in ops.iter().filter(|op| several.contains(&op.owner)) {
            if let Call::Acquire { lease, .. } | Call::Renew { lease, .. } = op.call {
                let of = keys
                    .entry(op.owner)
                    .or_insert_with(|| (HashSet::new(), Nanos::MAX));
                of.0.insert(op.key);
                of.1 = of.1.min(op.sent + Nanos::from(lease) * MS);
            }
        }
        for (owner, (keys, lease_end)) in keys {
            let held = keys
                .iter()
                .filter(|key| found.contains_key(&(**key, owner)));
            let held = held.count();
            if held != 0 && held != keys.len() && lease_end > times.looked {
                let text = format!("owner {owner} has {held} of its keys {keys:?}");
                self.violations.push(text);
            }
        }
    }
}

fn fate(hold: &Hold, same: Option<&Found>, found: &[&Found], times: Times) -> Fate {
    if hold.released.is_some() {
        return match same {
            Some(_) if !hold.doubtful => Fate::LostRelease,
            _ => Fate::Open,
        };
    }
    let Some(same) = same else {
        let is_covered = hold.kind == Kind::Read && found.iter().any(|f| f.kind == Kind::Write);
        return match is_owed(hold, times) && !is_covered {
            true => Fate::LostGrant,
            false => Fate::Open,
        };
    };
    let is_counted = hold.session.is_none() && !hold.doubtful && is_owed(hold, times);
    match is_counted && same.ends_by_ms + SLACK_MS < times.wall_ms(hold.surely_until) {
        true => Fate::LostRenewal,
        false => Fate::Kept,
    }
}

/// Whether the hold had not ended when the data was read. A bound one lasts for its lease from the grant on at least,
/// if its connection lived.
fn is_owed(hold: &Hold, times: Times) -> bool {
    let surely_until = match hold.session {
        Some(lease) if hold.surely_until == Nanos::MAX => hold.asked + Nanos::from(lease) * MS,
        Some(_) => 0,
        None => hold.surely_until,
    };
    surely_until > times.looked
}

fn fits(hold: &Hold, token: i64) -> bool {
    hold.kind == Kind::Read || hold.token == token
}
