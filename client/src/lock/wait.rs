//! A request that waits in the server until it is granted.
//!
//! It is sent once without waiting, on the connection that all share. If it is not granted then, it is parked in
//! the server, in slices (see [`Parked`]). The place in the queue is kept between them (`lock.queue-grace`), also
//! when a connection breaks: the request is sent again, by the same owner.

use std::future::Future;
use std::time::Duration;

use redis::Cmd;
use tokio::time::{timeout_at, Instant};

use crate::backoff::{left, part_of, Pause};
use crate::error::{Error, Result};
use crate::lock::events;
use crate::lock::slices::{Next, Parked};
use crate::lock::terms::OVERTIME;
use crate::moment::Moment;
use crate::net::caller::Caller;
use crate::net::command;
use crate::net::server::Server;
use crate::statistics::Counted;

/// How long a grant waits for the answer to the other slice, which is on its way.
const OTHER_SLICE: Duration = Duration::from_millis(100);

/// What is asked for, and how.
pub(crate) struct Request {
    pub key: Vec<u8>,
    /// Without `BLOCK`, which it takes at its end. Sent twice, it is granted once.
    pub command: Cmd,
    /// How long one slice may be parked.
    pub longest_slice: Duration,
    /// How long after it was sent a grant is of use.
    pub certain: Duration,
    /// Who asks; of a request that holds nothing, none.
    pub owner: Option<Vec<u8>>,
}

/// A request that is under way. Dropped, it closes the connections on which it is parked.
pub(crate) struct Wait {
    server: Server,
    request: Request,
    /// For a request that is answered at once.
    quick: Caller,
    parked: Parked,
    /// None before the first.
    slice: Option<Slice>,
    /// Until when a request that was given up may be under way.
    under_way_until: Option<Instant>,
    /// From the first slice on.
    waiting: Option<Counted>,
}

/// Tokens, and a moment before their request was sent.
pub(crate) type Grant = (Vec<u64>, Moment);

/// The last slice of a wait.
struct Slice {
    end: Instant,
    /// When the next one is to be sent.
    change: Instant,
}

impl Wait {
    pub(crate) fn new(server: &Server, request: Request) -> Wait {
        Wait {
            server: server.clone(),
            quick: Caller::shared(server, &request.key),
            request,
            parked: Parked::default(),
            slice: None,
            under_way_until: None,
            waiting: None,
        }
    }

    /// Asks until it is granted, or the end has come.
    pub(crate) async fn run(&mut self, end: Option<Instant>) -> Result<Option<Grant>> {
        let is_over = || left(end).is_zero();
        let mut pause = Pause::new();
        let mut failures = 0;
        let mut asked = self.ask_once().await;
        loop {
            match asked {
                (sent, Ok(Some(tokens))) if sent.elapsed() < self.request.certain => {
                    self.parked.finish(OTHER_SLICE).await;
                    return Ok(Some((tokens, sent)));
                }
                // It took longer than the lease to get here: it may be over. What is left of it is asked for
                // anew, or given back.
                (_, Ok(Some(_))) => {
                    self.under_way_until = Some(Instant::now() + self.server.patience());
                    if failures > 0 && is_over() {
                        return Ok(None);
                    }
                    failures += 1;
                }
                (_, Ok(None)) if is_over() => return Ok(None),
                // Sent away before its time, by another process that asks in the same owner's name: not at once again.
                (_, Ok(None)) if self.is_early() => {
                    pause.sleep(left(end)).await;
                }
                (_, Ok(None)) => pause = Pause::new(),
                (_, Err(error)) if !error.is_passing() => return Err(error),
                // A connection that breaks is worth a second attempt, however short the wait.
                (_, Err(error)) if failures > 0 && is_over() => return Err(error),
                (_, Err(_)) => {
                    failures += 1;
                    pause.sleep(left(end).max(Pause::FIRST)).await;
                }
            }
            asked = match is_over() {
                true => self.ask_once().await,
                false => self.wait(end).await,
            };
        }
    }

    async fn ask_once(&mut self) -> (Moment, Result<Option<Vec<u64>>>) {
        let server = &self.server;
        let sent = Moment::now();
        let patience = server.patience() / 2;
        let reply = self.quick.call(&self.request.command, patience).await;
        if self.quick.was_unanswered() {
            self.under_way_until = Some(Instant::now() + server.patience());
        }
        (
            sent,
            reply.and_then(|reply| command::granted(&reply, server.name())),
        )
    }

    /// Waits in the queue: to the end of a slice that no other follows, to a grant, or to a failure.
    async fn wait(&mut self, end: Option<Instant>) -> (Moment, Result<Option<Vec<u64>>>) {
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
            let server = self.server.name();
            let reply = answer.reply;
            match reply.and_then(|reply| command::granted(&reply, server)) {
                // Another slice has taken over, or goes on.
                Ok(None) if !is_over => {}
                Err(error) if error.is_passing() && !is_over => {}
                tokens => return (answer.sent, tokens),
            }
        }
    }

    /// Sends a slice of the wait.
    fn park(&mut self, end: Option<Instant>) {
        let slice = self.request.longest_slice.min(left(end));
        let slice = slice.max(Duration::from_millis(1));
        let command = command::parked(&self.request.command, slice);
        let key = &self.request.key;
        let owner = self.request.owner.as_deref();
        self.waiting
            .get_or_insert_with(|| events::parked(&self.server, key, owner));
        self.parked.send(&self.server, key, command, slice);
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

    /// Whether it was parked, so that a place in a queue may be kept for it.
    pub(crate) fn was_parked(&self) -> bool {
        self.slice.is_some()
    }

    /// Until when a request that was given up may be under way.
    pub(crate) fn under_way_until(&mut self) -> Option<Instant> {
        // Of a future that was dropped.
        if self.quick.was_unanswered() {
            self.under_way_until = Some(Instant::now() + self.server.patience());
        }
        let parked = self.parked.under_way_until(&self.server);
        self.under_way_until.max(parked)
    }

    /// Its connections, which the withdrawal of the wait closes.
    pub(crate) fn take_parked(&mut self) -> Parked {
        std::mem::take(&mut self.parked)
    }
}

/// The wait, given up so long after its end at the latest as an answer may be owed.
pub(crate) async fn bounded<T>(
    server: &Server,
    end: Option<Instant>,
    wait: impl Future<Output = Result<T>>,
) -> Result<T> {
    match end.and_then(|end| end.checked_add(OVERTIME)) {
        None => wait.await,
        Some(end) => {
            let ended = timeout_at(end, wait).await;
            ended.unwrap_or_else(|_| Err(Error::no_answer(server.name())))
        }
    }
}
