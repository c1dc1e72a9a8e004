//! A RedLock that is held: renewed by majority, told as lost when there is none in time, and given back
//! on every server.
//!
//! Every third of the lease a round of renewals is opened. A server that has lost the hold, or was away
//! when it was granted, is asked for it anew in the next round, so that a lock outlives the restart of one
//! server after another. A server whose start-up delay has become too short has no vote.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout_at, Instant};

use super::node::{Asker, Word};
use super::round::{count, Answer, Outcome};
use super::rule::{is_out_of_reach, round_patience, validity, Tally, Verdict};
use crate::error::{Error, Result};
use crate::lock::events;
use crate::lock::loss::{Kept, Lost, Notice};
use crate::lock::release::{release_later, First};
use crate::lock::terms::Terms;
use crate::moment::Moment;
use crate::net::caller::Caller;
use crate::net::command::{self, Claim};
use crate::outcome::{LostReason, Released};
use crate::runtime::{self, Task};
use crate::statistics::Counted;

/// A RedLock that is held. Dropped, it is given back in the background.
///
/// ```no_run
/// # async fn example(guard: redis_lock_client::RedGuard) {
/// for (server, token) in guard.tokens() {
///     println!("{server}: {token}");
/// }
/// eprintln!("stopped: {}", guard.lost().await);
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
    /// When the last round was opened that has won a majority.
    confirmed: watch::Sender<Moment>,
    notice: Arc<Notice>,
}

impl RedGuard {
    /// What an attempt has won in a round.
    pub(super) fn new(locks: &[Terms], claim: Claim, won: Outcome) -> RedGuard {
        let lease = locks.first().map_or(Duration::ZERO, |lock| lock.lease);
        let hold = Arc::new(Hold {
            locks: locks.to_vec(),
            claim,
            lease,
            margin: locks.first().map_or(Duration::ZERO, Terms::margin),
            tokens: Mutex::new(vec![None; locks.len()]),
            confirmed: watch::Sender::new(won.opened),
            notice: Notice::new(won.opened.steady),
        });
        hold.note(&won.answers);
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

    /// It was granted so long after the acquisition began.
    pub(super) fn tell_of_grant(&self, waited: Duration) {
        let tokens = self.hold.tokens().clone();
        for (lock, token) in self.hold.locks.iter().zip(tokens) {
            if let Some(token) = token {
                events::acquired(&lock.server, &self.hold.claim, token, waited);
            }
        }
    }

    /// The owner that holds the lock on every server: one of its own for each acquisition.
    pub fn owner(&self) -> &[u8] {
        &self.hold.claim.owner
    }

    /// The highest of the servers' tokens. It fences only as far as the servers' clocks agree, and while none of
    /// them starts again: a server that does counts on from an hour ahead of its clock. See
    /// [`tokens`](RedGuard::tokens) for what fences without either.
    pub fn token(&self) -> u64 {
        let tokens = self.hold.tokens();
        tokens.iter().flatten().copied().max().unwrap_or_default()
    }

    /// The fencing token on each server where the lock is held, by the server's name. Two
    /// majorities share a server, and there the later holder's is higher: a resource that keeps the highest
    /// of each server, and refuses a request that is below one of them, refuses every earlier holder.
    pub fn tokens(&self) -> Vec<(String, u64)> {
        let tokens = self.hold.tokens();
        let named = self.hold.locks.iter().zip(tokens.iter());
        named
            .filter_map(|(lock, token)| Some((lock.server.name().to_string(), (*token)?)))
            .collect()
    }

    /// A future that ends when no majority is certainly ours any more; see [`Guard::lost`](crate::Guard::lost).
    pub fn lost(&self) -> Lost {
        self.hold.notice.lost()
    }

    /// How long a majority is certainly still ours: the lease, less what clocks may run apart, less the time
    /// since before the last round that has won was opened, by the steady or the wall clock of this machine,
    /// whichever says more. Zero when the servers have said that the lock is lost.
    pub fn valid_for(&self) -> Duration {
        match self.hold.notice.reason() {
            None | Some(LostReason::Unconfirmed) => {
                let passed = self.hold.confirmed.borrow().elapsed();
                validity(self.hold.lease).saturating_sub(passed)
            }
            Some(_) => Duration::ZERO,
        }
    }

    /// Gives the lock back on all servers at the same time: [`Released::Yes`] when a majority says that it was still
    /// held. A server that does not answer (within a tenth of the lease, 1 s at most) is asked again in the background
    /// until the lease is over.
    ///
    /// # Errors
    /// The last, when so many servers did not answer, or refused, that it cannot be known.
    pub async fn release(self) -> Result<Released> {
        let words = self.release_each().await;
        let mut tally = Tally::of(words.len());
        let mut failure = None;
        for (_, word) in words {
            match word {
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

    /// The same, and what was found on each server, by its name.
    pub async fn release_each(mut self) -> Vec<(String, Result<Released>)> {
        self.renew_no_more();
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
            let word = match release {
                Ok(release) => release.await,
                Err(error) => Ok(Err(error)),
            };
            let word = word.unwrap_or_else(|_| Err(Error::no_answer(&server)));
            released.push((server, word));
        }
        released
    }

    fn renew_no_more(&self) {
        self.hold.notice.finish();
        self.renewal.end();
    }
}

/// One server's word at the first attempt, or the second where the connection had been closed; it is
/// asked on in the background.
async fn release(lock: Terms, claim: Claim, token: Option<u64>) -> Result<Released> {
    let mut caller = Caller::shared(&lock.server, &lock.key);
    let command = command::release(&claim, None);
    let mut word = Err(Error::no_answer(lock.server.name()));
    let mut may_be_served = false;
    let end = Instant::now() + round_patience(lock.lease);
    for _ in 0..2 {
        let left = end.saturating_duration_since(Instant::now());
        word = caller.call(&command, left).await;
        may_be_served |= caller.was_unanswered();
        if !matches!(word, Err(Error::Connection { .. })) {
            break;
        }
    }
    if word.is_ok() {
        events::released(&lock.server, &claim, token);
    }
    match word {
        Ok(Value::Nil) => {
            // A request without an answer may come to it yet.
            release_later(&lock.server, claim, First::Everything, lock.lease);
            Ok(match may_be_served {
                true => Released::Yes,
                false => Released::NotHeld,
            })
        }
        Ok(_) => Ok(Released::Yes),
        Err(error) => {
            release_later(&lock.server, claim, First::Hold, lock.lease);
            Err(error)
        }
    }
}

impl Drop for RedGuard {
    fn drop(&mut self) {
        self.renew_no_more();
        if !self.is_released {
            for lock in &self.hold.locks {
                let claim = self.hold.claim.clone();
                release_later(&lock.server, claim, First::Hold, lock.lease);
            }
        }
    }
}

impl fmt::Debug for RedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = f.debug_struct("RedGuard");
        told.field("tokens", &self.tokens()).finish_non_exhaustive()
    }
}

impl Hold {
    fn tokens(&self) -> MutexGuard<'_, Vec<Option<u64>>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of who is silent, what was known is kept.
    fn note(&self, answers: &[Answer]) {
        for (token, answer) in self.tokens().iter_mut().zip(answers) {
            match answer {
                Answer::Yes(new) => *token = Some(*new),
                Answer::No => *token = None,
                Answer::Silent => {}
            }
        }
    }

    fn tell_of_renewals(&self, answers: &[Answer]) {
        for (lock, answer) in self.locks.iter().zip(answers) {
            match answer {
                Answer::Yes(token) => events::renewed(&lock.server, &self.claim, *token),
                Answer::No | Answer::Silent => {
                    events::not_renewed(&lock.server, &self.claim, None, None);
                }
            }
        }
    }

    /// A round that was opened then has won.
    fn confirm(&self, opened: Moment) {
        self.confirmed.send_replace(opened);
        let span = validity(self.lease).saturating_sub(self.margin);
        self.notice.hold_until(opened.steady + span);
    }

    /// Opens a round of renewals.
    fn ask_all(&self, end: Instant) -> JoinSet<(usize, Result<Word>)> {
        let known = self.tokens().clone();
        let mut words = JoinSet::new();
        for (place, (lock, token)) in self.locks.iter().zip(known).enumerate() {
            let (lock, claim) = (lock.clone(), self.claim.clone());
            words.spawn(async move {
                let asker = Asker::new(&lock, &claim, end);
                (place, asker.renew(token).await)
            });
        }
        words
    }
}

/// Renews until the lock is lost.
async fn keep(hold: Arc<Hold>) {
    let kept = Kept(hold.notice.clone());
    let why = loop {
        let confirmed = hold.confirmed.borrow().steady;
        sleep_until(confirmed + validity(hold.lease) / 3).await;
        match timeout_at(hold.notice.end(), renew(&hold)).await {
            Ok(Some(opened)) => hold.confirm(opened),
            Ok(None) => break LostReason::Taken,
            Err(_) => break LostReason::Unconfirmed,
        }
    };
    if !kept.0.is_over() {
        let tokens = hold.tokens().clone();
        for (lock, token) in hold.locks.iter().zip(tokens) {
            events::lost(&lock.server, &hold.claim, token, &why);
        }
    }
    kept.0.lose(why);
}

/// When the round was opened in which a majority said yes, or None when so many say no that there is none.
/// Asks again while too many say nothing.
async fn renew(hold: &Hold) -> Option<Moment> {
    let servers = hold.locks.len();
    loop {
        let opened = Moment::now();
        let words = hold.ask_all(opened.steady + round_patience(hold.lease));
        let round = count(words, servers, opened, hold.lease).await;
        hold.note(&round.answers);
        hold.tell_of_renewals(&round.answers);
        if round.verdict == Verdict::Held {
            return Some(round.opened);
        }
        if is_out_of_reach(servers, round.refusals()) {
            return None;
        }
        sleep(round_patience(hold.lease) / 10).await;
    }
}
