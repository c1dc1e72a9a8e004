//! An acquisition that is under way.
//!
//! It asks once without waiting, on the connection that all share. If the lock is not free it is parked in
//! the server, in slices (see [`Parked`]). The place in the queue is kept between them (`lock.queue-grace`), also
//! when a connection breaks: the request is sent again, with `ONCE`, by the same owner. What is given up is
//! undone.

use std::time::Duration;

use redis::Value;
use tokio::time::{sleep, Instant};

use crate::backoff::part_of;
use crate::call::Caller;
use crate::clock::Moment;
use crate::command::{self, Claim};
use crate::error::Result;
use crate::guard::{Guard, Leftovers};
use crate::parked::{Next, Parked};
use crate::release::{First, Undo};
use crate::terms::Terms;
use crate::turn::Turn;

/// Between two attempts to reach a server: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long a grant waits for the answer to the other slice, which is on its way.
const OTHER_SLICE: Duration = Duration::from_millis(100);

/// A request for a lock. Dropped before the grant, it withdraws the wait, and gives back what may have
/// been granted to it meanwhile.
pub(crate) struct Attempt<'a> {
    terms: &'a Terms,
    claim: Claim,
    /// For a request that is answered at once.
    quick: Caller,
    parked: Parked,
    /// None before the first.
    slice: Option<Slice>,
    /// Until when a request that was given up may be under way.
    under_way_until: Option<Instant>,
    turn: Turn,
    is_granted: bool,
}

/// The last slice of a wait.
struct Slice {
    end: Instant,
    /// When the next one is to be sent.
    change: Instant,
}

impl Attempt<'_> {
    pub(crate) fn new(terms: &Terms, turn: Turn) -> Attempt<'_> {
        let claim = terms.claim();
        Attempt {
            quick: Caller::shared(&terms.server, &claim.key),
            parked: Parked::default(),
            slice: None,
            claim,
            terms,
            under_way_until: None,
            turn,
            is_granted: false,
        }
    }

    /// Asks until the lock is granted, or the end has come.
    pub(crate) async fn run(mut self, end: Option<Instant>) -> Result<Option<Guard>> {
        let is_over = || left(end).is_zero();
        let mut pause = FIRST_PAUSE;
        let mut failures = 0;
        let mut asked = self.ask_once().await;
        loop {
            match asked {
                (sent, Ok(Some(token))) if sent.elapsed() < self.terms.told_after() => {
                    self.parked.finish(OTHER_SLICE).await;
                    return Ok(Some(self.granted(token, sent)));
                }
                // It took longer than the lease to get here: it may be over. What is left of it is asked for
                // anew, or given back.
                (_, Ok(Some(_))) => {
                    self.under_way_until = Some(Instant::now() + self.terms.server.patience());
                    if failures > 0 && is_over() {
                        return Ok(None);
                    }
                    failures += 1;
                }
                (_, Ok(None)) if is_over() => return Ok(None),
                // Sent away before its time, by another process that asks in the same owner's name: not at once again.
                (_, Ok(None)) if self.is_early() => {
                    sleep(pause.min(left(end))).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                (_, Ok(None)) => pause = FIRST_PAUSE,
                (_, Err(error)) if !error.is_passing() => return Err(error),
                // A connection that breaks is worth a second attempt, however short the wait.
                (_, Err(error)) if failures > 0 && is_over() => return Err(error),
                (_, Err(_)) => {
                    failures += 1;
                    sleep(pause.min(left(end).max(FIRST_PAUSE))).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
            asked = match is_over() {
                true => self.ask_once().await,
                false => self.wait(end).await,
            };
        }
    }

    async fn ask_once(&mut self) -> (Moment, Result<Option<u64>>) {
        let server = &self.terms.server;
        let command = command::acquire(&self.claim, self.terms.lease, Duration::ZERO);
        let sent = Moment::now();
        let reply = self.quick.call(&command, server.patience() / 2).await;
        if self.quick.was_unanswered() {
            self.under_way_until = Some(Instant::now() + server.patience());
        }
        (
            sent,
            reply.and_then(|reply| command::granted(&reply, server.name())),
        )
    }

    /// Waits in the queue: to the end of a slice that no other follows, to a grant, or to a failure.
    async fn wait(&mut self, end: Option<Instant>) -> (Moment, Result<Option<u64>>) {
        if self.parked.is_empty() {
            self.park(end);
        }
        loop {
            let last = end.zip(self.slice.as_ref());
            let is_last = last.is_some_and(|(end, slice)| end <= slice.end);
            let change = self.slice.as_ref().filter(|_| !is_last);
            let change = change.map(|slice| slice.change);
            let answer = match self.parked.next(change).await {
                Next::Change => {
                    self.park(end);
                    continue;
                }
                Next::Answer(answer) => answer,
            };
            let is_over = self.parked.is_empty() || is_last && answer.is_newest;
            match answer.reply {
                // Another slice has taken over, or goes on.
                Ok(Value::Nil) if !is_over => {}
                Err(error) if error.is_passing() && !is_over => {}
                reply => {
                    let server = self.terms.server.name();
                    let token = reply.and_then(|reply| command::granted(&reply, server));
                    return (answer.sent, token);
                }
            }
        }
    }

    /// Sends a slice of the wait.
    fn park(&mut self, end: Option<Instant>) {
        let slice = self.terms.longest_slice().min(left(end));
        let slice = slice.max(Duration::from_millis(1));
        let command = command::acquire(&self.claim, self.terms.lease, slice);
        let server = &self.terms.server;
        self.parked.send(server, &self.claim.key, command, slice);
        let now = Instant::now();
        self.slice = Some(Slice {
            end: now + slice,
            // Not at one moment for all that have begun to wait together.
            change: now + slice / 2 + part_of(slice / 4),
        });
    }

    /// Whether the last slice would go on.
    fn is_early(&self) -> bool {
        let slice = self.slice.as_ref();
        slice.is_some_and(|slice| Instant::now() < slice.change)
    }

    fn under_way_until(&self) -> Option<Instant> {
        let parked = self.parked.under_way_until(&self.terms.server);
        self.under_way_until.max(parked)
    }

    fn granted(mut self, token: u64, sent: Moment) -> Guard {
        self.is_granted = true;
        let leftovers = Leftovers {
            acquires_until: self.under_way_until(),
            releases_until: None,
            turn: std::mem::take(&mut self.turn),
        };
        Guard::new(self.terms, self.claim.clone(), token, sent, leftovers)
    }
}

fn left(end: Option<Instant>) -> Duration {
    end.map_or(Duration::MAX, |end| {
        end.saturating_duration_since(Instant::now())
    })
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.is_granted {
            return;
        }
        let server = &self.terms.server;
        let now = Instant::now();
        if self.quick.was_unanswered() {
            self.under_way_until = Some(now + server.patience());
        }
        let under_way_until = self.under_way_until().filter(|until| now < *until);
        // A wait that has ended keeps its place for a while, for the owner to ask again. An owner of this acquisition
        // alone will not. One whom others know may have been granted the lock meanwhile.
        let keeps_place = self.slice.is_some() && !self.turn.is_known();
        let has_left = keeps_place || under_way_until.is_some();
        let undo = Undo {
            server: server.clone(),
            claim: self.claim.clone(),
            lease: self.terms.lease,
            first: if has_left {
                First::Everything
            } else {
                First::Nothing
            },
            acquires_until: under_way_until,
            releases_until: None,
            turn: std::mem::take(&mut self.turn),
            parked: std::mem::take(&mut self.parked),
        };
        undo.start();
    }
}
