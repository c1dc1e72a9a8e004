//! The guard of a RedLock: its renewal by a majority, the report of a loss, and the release on every server.
//!
//! After every third of the lease a round of renewals is opened. A server that has lost the hold, or was down at the
//! grant, is asked to grant it again in the next round, so that a lock survives the restart of one server after
//! another. A server whose startup delay has become too short has no vote.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, sleep_until, timeout_at, Instant};

use super::hold::{give_up_at, Answer, Hold};
use super::rule::{is_out_of_reach, round_patience, Tally, Verdict};
use crate::backoff::after;
use crate::error::{Error, Result};
use crate::lock::events;
use crate::lock::guard::released;
use crate::lock::loss::{LossOnDrop, Lost};
use crate::lock::release::{self, at_once};
use crate::lock::terms::Terms;
use crate::moment::{now, Moment};
use crate::net::command::{Claim, Ending};
use crate::observer::Observed;
use crate::outcome::{LostReason, Released};
use crate::runtime::{self, Task};
use crate::statistics::Counted;
use crate::trace::shown;

/// How long the end of an acquisition waits for the servers that have answered. It never waits for the others.
const UNDO_PATIENCE: Duration = Duration::from_millis(200);

/// A RedLock that is held. Dropping it releases the lock in the background.
///
/// ```no_run
/// # async fn example(guard: redis_lock_client::RedGuard) {
/// for (server, token) in guard.tokens() {
///     println!("{server}: {token}");
/// }
/// eprintln!("stopped: {:?}", guard.lost().await);
/// # }
/// ```
#[must_use = "dropped, the lock is given back"]
pub struct RedGuard {
    pub(super) hold: Arc<Hold>,
    renewal: Task,
    is_released: bool,
    granted: Instant,
    /// Empty until a majority has granted.
    counted: Vec<Counted>,
}

impl RedGuard {
    /// The acquisition by a fresh owner, which holds nothing yet. Dropped, it is given up.
    pub(super) fn acquiring(locks: &[Terms]) -> Result<RedGuard> {
        Ok(RedGuard {
            hold: Arc::new(Hold::new(locks)?),
            renewal: Task::default(),
            is_released: false,
            granted: now(),
            counted: Vec::new(),
        })
    }

    /// A majority has granted it in a round that was opened at this moment.
    pub(super) fn held(mut self, opened: Moment) -> RedGuard {
        self.hold.confirm(opened);
        self.granted = now();
        self.renewal = runtime::spawn(keep(self.hold.clone()));
        let servers = self.hold.claims.iter().map(|claim| &claim.server);
        self.counted = servers
            .map(|server| server.counts().holds.count())
            .collect();
        self
    }

    /// Gives the acquisition up: waits briefly for the servers that have answered, and leaves the others to the
    /// background.
    pub(super) async fn undo(mut self) {
        self.is_released = true;
        let end = now() + UNDO_PATIENCE;
        for (undone, is_answered) in self.hold.give_up(false) {
            if is_answered {
                let _ = timeout_at(end, undone).await;
            }
        }
    }

    /// Records the grant, `waited` after the acquisition began.
    pub(super) fn record_grant(&self, observed: Option<Observed>, waited: Duration) {
        if let Some(observed) = observed {
            let observed = self.hold.observed.get_or_init(|| observed);
            if let Some(why) = self.hold.notice.reason() {
                observed.lost(&why);
            }
        }
        for (claim, member) in self.hold.each() {
            if let Some(token) = member.token {
                events::acquired(claim, token, waited);
            }
        }
    }

    /// The owner that holds the lock on every server; each acquisition has its own.
    pub fn owner(&self) -> &[u8] {
        let claim = self.hold.claims.first();
        claim.map_or(&[], |claim| &claim.owner)
    }

    /// The highest of the servers' tokens. It fences only as far as the servers' clocks agree, and while none of them
    /// restarts: a restarted server counts on from an hour ahead of its clock. [`tokens`](RedGuard::tokens) fences
    /// without these conditions.
    pub fn token(&self) -> u64 {
        let tokens = self.tokens().into_iter().map(|(_, token)| token);
        tokens.max().unwrap_or_default()
    }

    /// The fencing token on each server where the lock is held, by server name. Two majorities share a server, and
    /// there the later holder's token is higher: a resource that keeps the highest token of each server, and refuses a
    /// request with a lower one, refuses every earlier holder.
    pub fn tokens(&self) -> Vec<(String, u64)> {
        let each = self.hold.each().into_iter();
        each.filter_map(|(claim, member)| Some((claim.server.name().into(), member.token?)))
            .collect()
    }

    /// A future that completes when a majority is no longer certainly held; see [`Guard::lost`](crate::Guard::lost).
    pub fn lost(&self) -> Lost {
        self.hold.notice.lost()
    }

    /// How long a majority is certainly still held: the lease, less the tolerated clock drift, less the time since the
    /// last round with a majority was opened, by the monotonic or the wall clock of this machine, whichever shows more.
    /// Zero when the servers have reported the loss.
    pub fn valid_for(&self) -> Duration {
        self.hold.notice.valid_for()
    }

    /// Runs the work and releases the lock. A loss stops the work; see [`Guard::run`](crate::Guard::run).
    ///
    /// # Errors
    /// As there.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Result<T> {
        let done = self.lost().stops(work).await?;
        let is_valid = !self.valid_for().is_zero();
        released(self.release().await, is_valid)?;
        Ok(done)
    }

    /// Releases the lock on all servers at the same time: [`Released::Yes`] when it was still held on a majority. A
    /// release without a reply (within a tenth of the lease, 1 s at most) is repeated in the background until the lease
    /// is over.
    ///
    /// # Errors
    /// The last error, when so many servers did not answer or refused that the result is unknown.
    pub async fn release(self) -> Result<Released> {
        let votes = self.release_each().await;
        let mut tally = Tally::of(votes.len());
        let mut failure = None;
        for (_, vote) in votes {
            match vote {
                Ok(released) => tally.count(released == Released::Yes),
                Err(error) => failure = Some(error),
            }
        }
        match (tally.verdict(), failure) {
            (Verdict::Held, _) => Ok(Released::Yes),
            (Verdict::Open, Some(error)) => Err(error),
            _ => Ok(Released::NotHeld),
        }
    }

    /// The same, with the result for each server, by its name.
    pub async fn release_each(mut self) -> Vec<(String, Result<Released>)> {
        self.stop_renewal();
        self.is_released = true;
        let was_valid = !self.valid_for().is_zero();
        let releases = self.hold.each().into_iter().map(|(claim, member)| {
            let release = release(claim.clone(), member.token, self.hold.lease, was_valid);
            (claim.server.name().to_string(), release)
        });
        // Each ends by itself.
        at_once(releases, after(Duration::MAX)).await
    }

    fn stop_renewal(&self) {
        let notice = &self.hold.notice;
        let is_held = !self.counted.is_empty() && !notice.is_over() && notice.reason().is_none();
        if let (true, Some(observed)) = (is_held, self.hold.observed.get()) {
            observed.released(now() - self.granted);
        }
        self.hold.notice.finish();
        self.renewal.end();
    }
}

/// Releases the lock on one server; without a reply the release continues in the background.
async fn release(
    claim: Claim,
    token: Option<u64>,
    lease: Duration,
    was_valid: bool,
) -> Result<Released> {
    let end = now() + round_patience(lease);
    let released = release::release(&claim, Ending::All, end, was_valid);
    let released = timeout_at(end, released).await;
    let released = released.unwrap_or_else(|_| Err(Error::no_answer(claim.server.name())));
    match &released {
        Ok(_) => events::released(&claim, token),
        Err(_) => drop(give_up_at(claim, Some(token), lease)),
    }
    released
}

impl Drop for RedGuard {
    fn drop(&mut self) {
        self.stop_renewal();
        if !self.is_released {
            drop(self.hold.give_up(!self.counted.is_empty()));
        }
    }
}

shown! { RedGuard, guard, tokens = guard.tokens() }

/// Renews until the lock is lost.
async fn keep(hold: Arc<Hold>) {
    let on_drop = LossOnDrop(hold.notice.clone());
    let why = loop {
        let last = hold.notice.confirmed();
        let due = last.sent.steady + last.certain / 3;
        sleep_until(due).await;
        let renewing = Observed::renews(hold.observed.get(), (due, last.certain), renew(&hold));
        match timeout_at(hold.notice.end(), renewing).await {
            Ok(Some(opened)) => hold.confirm(opened),
            Ok(None) => break LostReason::Taken,
            Err(_) => break LostReason::Unconfirmed,
        }
    };
    if !on_drop.0.is_over() {
        for (claim, member) in hold.each() {
            events::lost(claim, member.token, &why);
        }
        if let Some(observed) = hold.observed.get() {
            observed.lost(&why);
        }
    }
    on_drop.0.lose(why);
}

/// Opens rounds until a majority confirms, and returns when that round was opened; None when so many servers refuse
/// that no majority is possible.
async fn renew(hold: &Arc<Hold>) -> Option<Moment> {
    let servers = hold.claims.len();
    loop {
        let round = hold.round(false).await;
        for (claim, answer) in hold.claims.iter().zip(&round.answers) {
            match answer {
                Answer::Yes(token) => events::renewed(claim, *token),
                _ => events::not_renewed(claim, None, None),
            }
        }
        if round.verdict == Verdict::Held {
            return Some(round.opened);
        }
        if is_out_of_reach(servers, round.refusals()) {
            return None;
        }
        sleep(round_patience(hold.lease) / 10).await;
    }
}
