//! The guard of a RedLock: its renewal by a majority, the report of a loss, and the release on every server.
//!
//! After every third of the lease a round of renewals is opened. A server that has lost the hold, or was down at the
//! grant, is asked to grant it again in the next round, so that a lock survives the restart of one server after
//! another. A server whose startup delay has become too short has no vote.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout_at, Instant};

use super::node::{NodeRequests, Vote};
use super::round::{count, Answer, Outcome};
use super::rule::{is_out_of_reach, round_patience, validity, Tally, Verdict};
use crate::error::{Error, Result};
use crate::lock::events;
use crate::lock::guard::released;
use crate::lock::loss::{LossNotice, LossOnDrop, Lost};
use crate::lock::release::{self, Until};
use crate::lock::terms::Terms;
use crate::moment::Moment;
use crate::net::command::{Claim, Ending};
use crate::outcome::{LostReason, Released};
use crate::runtime::{self, Task};
use crate::statistics::Counted;

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
    hold: Arc<Hold>,
    renewal: Task,
    is_released: bool,
    _counted: Vec<Counted>,
}

struct Hold {
    locks: Vec<Terms>,
    claim: Claim,
    lease: Duration,
    margin: Duration,
    tokens: Mutex<Vec<Option<u64>>>,
    /// When the last round with a majority was opened.
    confirmed: watch::Sender<Moment>,
    notice: Arc<LossNotice>,
}

impl RedGuard {
    /// The guard of an attempt that has a majority.
    pub(super) fn new(locks: &[Terms], claim: Claim, won: Outcome) -> RedGuard {
        let lease = locks.first().map_or(Duration::ZERO, |lock| lock.lease);
        let hold = Arc::new(Hold {
            locks: locks.to_vec(),
            claim,
            lease,
            margin: locks.first().map_or(Duration::ZERO, Terms::margin),
            tokens: Mutex::new(vec![None; locks.len()]),
            confirmed: watch::Sender::new(won.opened),
            notice: LossNotice::new(won.opened.steady),
        });
        hold.record_answers(&won.answers);
        hold.confirm(won.opened);
        let renewal = runtime::spawn(keep(hold.clone()));
        RedGuard {
            hold,
            renewal,
            is_released: false,
            _counted: locks
                .iter()
                .map(|lock| lock.server.counts().holds.count())
                .collect(),
        }
    }

    /// Records the grant, `waited` after the acquisition began.
    pub(super) fn record_grant(&self, waited: Duration) {
        let tokens = self.hold.tokens().clone();
        for (lock, token) in self.hold.locks.iter().zip(tokens) {
            if let Some(token) = token {
                events::acquired(&lock.server, &self.hold.claim, token, waited);
            }
        }
    }

    /// The owner that holds the lock on every server; each acquisition has its own.
    pub fn owner(&self) -> &[u8] {
        &self.hold.claim.owner
    }

    /// The highest of the servers' tokens. It fences only as far as the servers' clocks agree, and while none of them
    /// restarts: a restarted server counts on from an hour ahead of its clock. [`tokens`](RedGuard::tokens) fences
    /// without these conditions.
    pub fn token(&self) -> u64 {
        let tokens = self.hold.tokens();
        tokens.iter().flatten().copied().max().unwrap_or_default()
    }

    /// The fencing token on each server where the lock is held, by server name. Two majorities share a server, and
    /// there the later holder's token is higher: a resource that keeps the highest token of each server, and refuses a
    /// request with a lower one, refuses every earlier holder.
    pub fn tokens(&self) -> Vec<(String, u64)> {
        let tokens = self.hold.tokens();
        let named = self.hold.locks.iter().zip(tokens.iter());
        named
            .filter_map(|(lock, token)| Some((lock.server.name().to_string(), (*token)?)))
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
        match self.hold.notice.reason() {
            None | Some(LostReason::Unconfirmed) => {
                let passed = self.hold.confirmed.borrow().elapsed();
                validity(self.hold.lease).saturating_sub(passed)
            }
            Some(_) => Duration::ZERO,
        }
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
        let tokens = self.hold.tokens().clone();
        let begun = self.hold.locks.iter().zip(tokens).map(|(lock, token)| {
            let release = release(lock.clone(), self.hold.claim.clone(), token);
            let begun = runtime::handle().map(|handle| handle.spawn(release));
            (lock.server.name().to_string(), begun)
        });
        let begun: Vec<_> = begun.collect();
        let mut released = Vec::with_capacity(begun.len());
        for (server, release) in begun {
            let vote = match release {
                Ok(release) => release.await,
                Err(error) => Ok(Err(error)),
            };
            let vote = vote.unwrap_or_else(|_| Err(Error::no_answer(&server)));
            released.push((server, vote));
        }
        released
    }

    fn stop_renewal(&self) {
        self.hold.notice.finish();
        self.renewal.end();
    }
}

/// Releases the lock on one server; without a reply the release continues in the background.
async fn release(lock: Terms, claim: Claim, token: Option<u64>) -> Result<Released> {
    let end = Instant::now() + round_patience(lock.lease);
    let releasing = release::release(&lock.server, &claim, Ending::All, end);
    let released = timeout_at(end, releasing).await;
    let released = released.unwrap_or_else(|_| Err(Error::no_answer(lock.server.name())));
    match &released {
        Ok(_) => events::released(&lock.server, &claim, token),
        Err(_) => drop(give_up(&lock, claim)),
    }
    released
}

/// Releases the lock on one server in the background.
fn give_up(lock: &Terms, claim: Claim) -> impl Future<Output = ()> {
    let until = Until {
        at: Instant::now() + lock.lease,
        is_bound: false,
    };
    release::give_up(&lock.server, claim, Some(None), Ending::Final, until)
}

impl Drop for RedGuard {
    fn drop(&mut self) {
        self.stop_renewal();
        if !self.is_released {
            for lock in &self.hold.locks {
                drop(give_up(lock, self.hold.claim.clone()));
            }
        }
    }
}

impl fmt::Debug for RedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("RedGuard");
        debug
            .field("tokens", &self.tokens())
            .finish_non_exhaustive()
    }
}

impl Hold {
    fn tokens(&self) -> MutexGuard<'_, Vec<Option<u64>>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the answers; without an answer the last token is kept.
    fn record_answers(&self, answers: &[Answer]) {
        for (token, answer) in self.tokens().iter_mut().zip(answers) {
            match answer {
                Answer::Yes(new) => *token = Some(*new),
                Answer::No => *token = None,
                Answer::Unanswered => {}
            }
        }
    }

    fn record_renewals(&self, answers: &[Answer]) {
        for (lock, answer) in self.locks.iter().zip(answers) {
            match answer {
                Answer::Yes(token) => events::renewed(&lock.server, &self.claim, *token),
                Answer::No | Answer::Unanswered => {
                    events::not_renewed(&lock.server, &self.claim, None, None);
                }
            }
        }
    }

    /// Records a round with a majority that was opened at this moment.
    fn confirm(&self, opened: Moment) {
        self.confirmed.send_replace(opened);
        let span = validity(self.lease).saturating_sub(self.margin);
        self.notice.hold_until(opened.steady + span);
    }

    /// Opens a round of renewals.
    fn ask_all(&self, end: Instant) -> JoinSet<(usize, Result<Vote>)> {
        let known = self.tokens().clone();
        let mut votes = JoinSet::new();
        for (place, (lock, token)) in self.locks.iter().zip(known).enumerate() {
            let (lock, claim) = (lock.clone(), self.claim.clone());
            votes.spawn(async move {
                let requests = NodeRequests::new(&lock, &claim, end);
                (place, requests.renew(token).await)
            });
        }
        votes
    }
}

/// Renews until the lock is lost.
async fn keep(hold: Arc<Hold>) {
    let on_drop = LossOnDrop(hold.notice.clone());
    let why = loop {
        let confirmed = hold.confirmed.borrow().steady;
        sleep_until(confirmed + validity(hold.lease) / 3).await;
        match timeout_at(hold.notice.end(), renew(&hold)).await {
            Ok(Some(opened)) => hold.confirm(opened),
            Ok(None) => break LostReason::Taken,
            Err(_) => break LostReason::Unconfirmed,
        }
    };
    if !on_drop.0.is_over() {
        let tokens = hold.tokens().clone();
        for (lock, token) in hold.locks.iter().zip(tokens) {
            events::lost(&lock.server, &hold.claim, token, &why);
        }
    }
    on_drop.0.lose(why);
}

/// Opens rounds until a majority confirms, and returns when that round was opened; None when so many servers refuse
/// that no majority is possible.
async fn renew(hold: &Hold) -> Option<Moment> {
    let servers = hold.locks.len();
    loop {
        let opened = Moment::now();
        let votes = hold.ask_all(opened.steady + round_patience(hold.lease));
        let round = count(votes, servers, opened, hold.lease).await;
        hold.record_answers(&round.answers);
        hold.record_renewals(&round.answers);
        if round.verdict == Verdict::Held {
            return Some(round.opened);
        }
        if is_out_of_reach(servers, round.refusals()) {
            return None;
        }
        sleep(round_patience(hold.lease) / 10).await;
    }
}
