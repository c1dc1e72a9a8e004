//! One owner's attempt at a majority: its wait in a queue, its round, and its undoing.
//!
//! Every attempt has an owner of its own. A hold that it may have left on a server without a reply is released in the
//! background, for as long as a lease could last, and that must never affect a later attempt that has succeeded
//! meanwhile.

use std::collections::HashSet;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{timeout_at, Instant};

use super::node::{NodeRequests, Vote};
use super::rule::{round_patience, validity, Tally, Verdict};
use crate::error::{Error, Result};
use crate::lock::release::{give_up, Until};
use crate::lock::terms::Terms;
use crate::moment::Moment;
use crate::net::command::{Claim, Ending};

/// How long an undo waits for the servers that have answered. It never waits for the others.
const UNDO_PATIENCE: Duration = Duration::from_millis(200);
/// The shortest time left to the other servers once there is a majority.
const STRAGGLERS: Duration = Duration::from_millis(5);

/// The answer of a server in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// No answer, or none that counts.
    Unanswered,
    /// Another owner holds the lock there.
    No,
    /// This owner holds the lock there, under this token.
    Yes(u64),
}

/// The result of a round.
pub(crate) struct Outcome {
    pub verdict: Verdict,
    /// A moment before the first request was sent.
    pub opened: Moment,
    pub answers: Vec<Answer>,
    /// Why a server did not answer; a permanent error takes precedence.
    pub error: Option<Error>,
}

impl Outcome {
    /// The first server that refused.
    pub(crate) fn refused_by(&self) -> Option<usize> {
        self.answers.iter().position(|answer| *answer == Answer::No)
    }

    pub(crate) fn refusals(&self) -> usize {
        let no = self.answers.iter().filter(|answer| **answer == Answer::No);
        no.count()
    }

    fn note(&mut self, error: Error) {
        if !self.error.as_ref().is_some_and(is_permanent) {
            self.error = Some(error);
        }
    }
}

/// An owner's attempt at a majority. Dropped before it is over, it releases everything.
pub(crate) struct Attempt<'a> {
    locks: &'a [Terms],
    pub(crate) claim: Claim,
    contacts: Vec<Arc<Contact>>,
    is_over: bool,
}

/// Whether an attempt may have left a hold on a server.
#[derive(Default)]
struct Contact {
    asked: AtomicBool,
    /// Whether the server has answered the last request.
    answered: AtomicBool,
}

impl Contact {
    fn record_request(&self) {
        self.answered.store(false, Ordering::Relaxed);
        self.asked.store(true, Ordering::Relaxed);
    }

    fn record<T>(&self, answer: Result<T>) -> Result<T> {
        self.answered.store(answer.is_ok(), Ordering::Relaxed);
        answer
    }
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(locks: &'a [Terms], claim: Claim) -> Attempt<'a> {
        Attempt {
            locks,
            claim,
            contacts: locks.iter().map(|_| Arc::default()).collect(),
            is_over: false,
        }
    }

    /// Waits in the queue of the first server that answers, starting with number `first`. False when the wait is over.
    pub(crate) async fn wait_in_queue(&self, first: usize, end: Instant) -> Result<bool> {
        let mut last = Error::config("a RedLock of no servers");
        for step in 0..self.locks.len() {
            let place = (first + step) % self.locks.len();
            let (Some(lock), Some(contact)) = (self.locks.get(place), self.contacts.get(place))
            else {
                continue;
            };
            let requests = NodeRequests::new(lock, &self.claim, end);
            match contact.record(requests.wait_in_queue(|| contact.record_request()).await) {
                Ok(token) => return Ok(token.is_some()),
                Err(error) if is_permanent(&error) => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Asks all servers at once; one that has granted the lock already confirms it.
    ///
    /// # Errors
    /// When a server reports a permanent fault, whatever the others answer.
    pub(crate) async fn ask_all(&self, waits: bool) -> Result<Outcome> {
        let Some(lease) = self.locks.first().map(|lock| lock.lease) else {
            return Err(Error::config("a RedLock of no servers"));
        };
        let opened = Moment::now();
        // Requests that wait return in time to be counted.
        let end = opened.steady + round_patience(lease) * 3 / 4;
        let mut votes = JoinSet::new();
        for (place, (lock, contact)) in self.locks.iter().zip(&self.contacts).enumerate() {
            let (lock, claim, contact) = (lock.clone(), self.claim.clone(), contact.clone());
            votes.spawn(async move {
                let requests = NodeRequests::new(&lock, &claim, end);
                let answer = requests.acquire(waits, || contact.record_request()).await;
                (place, contact.record(answer))
            });
        }
        let outcome = count(votes, self.locks.len(), opened, lease).await;
        match outcome.error {
            Some(error) if is_permanent(&error) => Err(error),
            _ => Ok(outcome),
        }
    }

    /// Whether a server that was asked for the lock does not answer any more.
    pub(crate) fn has_lost_a_server(&self) -> bool {
        self.contacted().any(|(_, has_answered)| !has_answered)
    }

    /// Ends the attempt with a majority: the receiver of the claim has to release it.
    pub(crate) fn succeed(mut self) -> Claim {
        self.is_over = true;
        self.claim.clone()
    }

    /// Releases everything: waits briefly for the servers that have answered, and leaves the others to the background.
    pub(crate) async fn undo(mut self) {
        self.is_over = true;
        let end = Instant::now() + UNDO_PATIENCE;
        for (undone, has_answered) in self.give_up() {
            if has_answered {
                let _ = timeout_at(end, undone).await;
            }
        }
    }

    /// Gives the attempt up at all servers that may hold the lock for this owner; and whether they have answered.
    fn give_up(&self) -> Vec<(impl Future<Output = ()>, bool)> {
        let contacted = self.contacted().map(|(lock, has_answered)| {
            let until = Until {
                at: Instant::now() + lock.server.patience() + lock.lease,
                is_bound: false,
            };
            let claim = self.claim.clone();
            (
                give_up(&lock.server, claim, None, Ending::Final, until),
                has_answered,
            )
        });
        contacted.collect()
    }

    /// The servers that may hold the lock for this owner, and whether they have answered.
    fn contacted(&self) -> impl Iterator<Item = (&'a Terms, bool)> + '_ {
        let asked = self.locks.iter().zip(&self.contacts);
        let asked = asked.filter(|(_, contact)| contact.asked.load(Ordering::Relaxed));
        asked.map(|(lock, contact)| (lock, contact.answered.load(Ordering::Relaxed)))
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            drop(self.give_up());
        }
    }
}

/// Counts the answers of the servers until the verdict is certain or the round is over.
pub(crate) async fn count(
    mut votes: JoinSet<(usize, Result<Vote>)>,
    servers: usize,
    opened: Moment,
    lease: Duration,
) -> Outcome {
    let mut tally = Tally::of(servers);
    let mut outcome = Outcome {
        verdict: Verdict::Open,
        opened,
        answers: vec![Answer::Unanswered; servers],
        error: None,
    };
    let mut processes = HashSet::new();
    let mut end = opened.steady + round_patience(lease);
    while let Ok(Some(joined)) = timeout_at(end, votes.join_next()).await {
        let Ok((place, vote)) = joined else { continue };
        let answer = match vote {
            Ok(vote) if !processes.insert(vote.run_id.clone()) => {
                let why = "two addresses of the RedLock lead to one server";
                outcome.note(Error::config(why));
                Answer::Unanswered
            }
            Ok(vote) => vote.token.map_or(Answer::No, Answer::Yes),
            Err(error) => {
                outcome.note(error);
                Answer::Unanswered
            }
        };
        if let Some(place) = outcome.answers.get_mut(place) {
            *place = answer;
        }
        tally.count(matches!(answer, Answer::Yes(_)));
        match tally.verdict() {
            Verdict::Open => {}
            Verdict::Refused => break,
            Verdict::Held => end = end.min(Instant::now() + opened.elapsed().max(STRAGGLERS)),
        }
    }
    outcome.verdict = match tally.verdict() {
        Verdict::Held if opened.elapsed() >= validity(lease) => Verdict::Open,
        verdict => verdict,
    };
    outcome
}

/// Whether a fault has to be corrected before another attempt makes sense. A server that is full or cannot write counts
/// as unreachable.
pub(crate) fn is_permanent(error: &Error) -> bool {
    match error {
        Error::Refused { code, .. } => {
            !error.is_passing()
                && !matches!(
                    code.as_str(),
                    "OOM" | "MISCONF" | "NOREPLICAS" | "LOCKBUSY" | "LOCKBROKEN" | "LOCKDELAY"
                )
        }
        Error::NotLoaded { .. } | Error::Untrusted { .. } | Error::Config { .. } => true,
        Error::Connection { .. } | Error::Unheard { .. } | Error::Lost(_) => false,
    }
}
