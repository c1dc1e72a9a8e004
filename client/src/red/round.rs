//! One owner's attempt at a majority: its turn in the line, its round, and its undo.
//!
//! Every attempt has an owner of its own. What it may have left on a server that did not answer is asked
//! back in the background, for as long as a lease could last, and that must never hit a later attempt
//! which has succeeded meanwhile.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{timeout_at, Instant};

use super::node::{Asker, Word};
use super::rule::{round_patience, validity, Tally, Verdict};
use crate::error::{Error, Result};
use crate::lock::events;
use crate::lock::release::{release_later, First, Release};
use crate::lock::terms::Terms;
use crate::moment::Moment;
use crate::net::command::Claim;

/// How long an undo waits for the servers that answer. It never waits for the others.
const UNDO_PATIENCE: Duration = Duration::from_millis(200);
/// How long stragglers get at least, once there is a majority.
const STRAGGLERS: Duration = Duration::from_millis(5);

/// What a server has said in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing that counts.
    Silent,
    /// The lock is another owner's there.
    No,
    /// The lock is this owner's there, under that token.
    Yes(u64),
}

/// What a round came to.
pub(crate) struct Outcome {
    pub verdict: Verdict,
    /// Before its first request was sent.
    pub opened: Moment,
    pub answers: Vec<Answer>,
    /// Why a server is silent; the gravest reason, if there are several.
    pub error: Option<Error>,
}

impl Outcome {
    /// The first server that said no.
    pub(crate) fn refused_by(&self) -> Option<usize> {
        self.answers.iter().position(|answer| *answer == Answer::No)
    }

    pub(crate) fn refusals(&self) -> usize {
        let no = self.answers.iter().filter(|answer| **answer == Answer::No);
        no.count()
    }

    fn note(&mut self, error: Error) {
        if !self.error.as_ref().is_some_and(is_hopeless) {
            self.error = Some(error);
        }
    }
}

/// An owner that asks for a majority. Dropped before it is over, it gives everything back.
pub(crate) struct Attempt<'a> {
    locks: &'a [Terms],
    pub(crate) claim: Claim,
    traces: Vec<Arc<Trace>>,
    is_over: bool,
}

/// What an attempt may have left on a server.
#[derive(Default)]
struct Trace {
    asked: AtomicBool,
    /// Whether the server has answered since.
    heard: AtomicBool,
}

impl Trace {
    fn ask(&self) {
        self.heard.store(false, Ordering::Relaxed);
        self.asked.store(true, Ordering::Relaxed);
    }

    fn hear<T>(&self, answer: Result<T>) -> Result<T> {
        self.heard.store(answer.is_ok(), Ordering::Relaxed);
        answer
    }
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(locks: &'a [Terms], claim: Claim) -> Attempt<'a> {
        Attempt {
            locks,
            claim,
            traces: locks.iter().map(|_| Arc::default()).collect(),
            is_over: false,
        }
    }

    /// Waits for its turn at the first server, from this place on, that answers. False: the wait is over.
    pub(crate) async fn stand_in_line(&self, first: usize, end: Instant) -> Result<bool> {
        let mut last = Error::config("a RedLock of no servers");
        for step in 0..self.locks.len() {
            let place = (first + step) % self.locks.len();
            let (Some(lock), Some(trace)) = (self.locks.get(place), self.traces.get(place)) else {
                continue;
            };
            let asker = Asker::new(lock, &self.claim, end);
            match trace.hear(asker.stand_in_line(|| trace.ask()).await) {
                Ok(token) => return Ok(token.is_some()),
                Err(error) if is_hopeless(&error) => return Err(error),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Asks all the servers at once; those that have granted it already say so again.
    ///
    /// # Errors
    /// Where a server says what has to be mended, whatever the others say.
    pub(crate) async fn ask_all(&self, parks: bool) -> Result<Outcome> {
        let Some(lease) = self.locks.first().map(|lock| lock.lease) else {
            return Err(Error::config("a RedLock of no servers"));
        };
        let opened = Moment::now();
        // Who is parked comes back in time to be counted.
        let end = opened.steady + round_patience(lease) * 3 / 4;
        let mut words = JoinSet::new();
        for (place, (lock, trace)) in self.locks.iter().zip(&self.traces).enumerate() {
            let (lock, claim, trace) = (lock.clone(), self.claim.clone(), trace.clone());
            words.spawn(async move {
                let asker = Asker::new(&lock, &claim, end);
                let answer = asker.acquire(parks, || trace.ask()).await;
                (place, trace.hear(answer))
            });
        }
        let outcome = count(words, self.locks.len(), opened, lease).await;
        match outcome.error {
            Some(error) if is_hopeless(&error) => Err(error),
            _ => Ok(outcome),
        }
    }

    /// It has its majority: the receiver of the claim gives it back.
    pub(crate) fn succeed(mut self) -> Claim {
        self.is_over = true;
        self.claim.clone()
    }

    /// Gives everything back: waits a moment for the servers that answer, and leaves the others to the
    /// background.
    pub(crate) async fn undo(mut self) {
        self.is_over = true;
        let mut undone = Vec::new();
        for (lock, was_heard) in self.left_behind() {
            if !was_heard {
                release_later(
                    &lock.server,
                    self.claim.clone(),
                    First::Everything,
                    lock.lease,
                );
                continue;
            }
            let (lock, claim) = (lock.clone(), self.claim.clone());
            let running = lock.server.background().begin();
            // It goes on though the caller does not wait for it.
            undone.push(tokio::spawn(async move {
                let end = Instant::now() + lock.lease;
                let release = Release::until(&lock.server, &claim, None, end).await;
                if let Err(error) = release.outcome {
                    events::left_behind(&lock.server, &claim, None, &error);
                    running.fail(&claim, error);
                }
            }));
        }
        let end = Instant::now() + UNDO_PATIENCE;
        for release in undone {
            let _ = timeout_at(end, release).await;
        }
    }

    /// The servers that may hold something for this owner, and whether they have answered him.
    fn left_behind(&self) -> impl Iterator<Item = (&'a Terms, bool)> + '_ {
        let asked = self.locks.iter().zip(&self.traces);
        let asked = asked.filter(|(_, trace)| trace.asked.load(Ordering::Relaxed));
        asked.map(|(lock, trace)| (lock, trace.heard.load(Ordering::Relaxed)))
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            for (lock, _) in self.left_behind() {
                release_later(
                    &lock.server,
                    self.claim.clone(),
                    First::Everything,
                    lock.lease,
                );
            }
        }
    }
}

/// Counts what the servers answer, until it is decided or the round is over.
pub(crate) async fn count(
    mut words: JoinSet<(usize, Result<Word>)>,
    servers: usize,
    opened: Moment,
    lease: Duration,
) -> Outcome {
    let mut tally = Tally::of(servers);
    let mut outcome = Outcome {
        verdict: Verdict::Open,
        opened,
        answers: vec![Answer::Silent; servers],
        error: None,
    };
    let mut processes = HashSet::new();
    let mut end = opened.steady + round_patience(lease);
    while let Ok(Some(joined)) = timeout_at(end, words.join_next()).await {
        let Ok((place, word)) = joined else { continue };
        let answer = match word {
            Ok(word) if !processes.insert(word.run_id.clone()) => {
                let why = "two addresses of the RedLock lead to one server";
                outcome.note(Error::config(why));
                Answer::Silent
            }
            Ok(word) => word.token.map_or(Answer::No, Answer::Yes),
            Err(error) => {
                outcome.note(error);
                Answer::Silent
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

/// Whether something has to be mended before it makes sense to ask again. A server that is full, or
/// may not write, is as good as away.
pub(crate) fn is_hopeless(error: &Error) -> bool {
    match error {
        Error::Refused { code, .. } => {
            !error.is_passing()
                && !matches!(
                    code.as_str(),
                    "OOM" | "MISCONF" | "NOREPLICAS" | "LOCKBUSY" | "LOCKBROKEN" | "LOCKDELAY"
                )
        }
        Error::NotLoaded { .. } | Error::Untrusted { .. } | Error::Config { .. } => true,
        Error::Connection { .. } | Error::Unheard { .. } => false,
    }
}
