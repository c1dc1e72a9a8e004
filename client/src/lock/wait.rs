//! A request that waits in the server until it is granted: the wait of a lock, a semaphore or a latch.
//!
//! It is sent once without waiting, on the shared connection. If it is not granted then, it waits as a ticket, which
//! needs no connection (see [`tickets`]). Where the server takes no tickets it is parked, in
//! slices (see [`ParkedSlices`]). The server keeps the place in the queue (`lock.queue-grace`) between two slices and
//! when a connection breaks: the same owner sends the request again.

use std::future::Future;
use std::time::Duration;

use redis::Cmd;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout_at, Instant};

use crate::backoff::{left, part_of, Pause};
use crate::error::{Error, Result};
use crate::lock::events;
use crate::lock::release::Release;
use crate::lock::slices::{Next, ParkedSlices};
use crate::moment::Moment;
use crate::net::caller::Caller;
use crate::net::command::{self, Claim};
use crate::net::server::Server;
use crate::net::tickets::{self, Outcome, TicketHandle};
use crate::statistics::Counted;

/// How long a grant waits for the reply to the other slice.
const OTHER_SLICE: Duration = Duration::from_millis(100);

/// How long after the end of a wait the message about its end may come.
const LATE_MESSAGE: Duration = Duration::from_millis(100);

/// The longest time for which the server keeps a ticket. It is asked for again before, so this bounds how long the
/// ticket of a process that has died stays.
const LONGEST_TICKET: Duration = Duration::from_secs(30);

/// The request and its limits.
pub(crate) struct Request {
    pub key: Vec<u8>,
    /// The command without `BLOCK`, which is appended. Sent twice, it is granted once.
    pub command: Cmd,
    /// The longest time for which one slice is parked.
    pub longest_slice: Duration,
    /// How long after its request was sent a grant is usable.
    pub certain: Duration,
    /// The owner; none for a request that grants nothing (a latch).
    pub owner: Option<Vec<u8>>,
    /// Whether other processes may use the owner's name.
    pub is_named: bool,
    /// Of a request for several keys the claim of each; otherwise empty.
    pub of_several: Vec<Claim>,
}

/// A waiting request. Dropped, it closes the connections on which it is parked; a ticket with an owner is the caller's
/// to withdraw.
pub(crate) struct Wait {
    server: Server,
    request: Request,
    /// For the requests that do not wait.
    quick: Caller,
    ticket: Option<TicketHandle>,
    parked: ParkedSlices,
    /// The last slice; none before the first.
    slice: Option<Slice>,
    /// The time until which an abandoned request may still be served.
    under_way_until: Option<Instant>,
    /// Whether a grant of several keys may have ended at some of them, so that the others are still held.
    may_hold_some: bool,
    /// The time until which a release of such keys may still be served.
    releases_until: Option<Instant>,
    /// Counts the wait in the statistics, from the first slice on.
    waiting: Option<Counted>,
}

/// The tokens, and a moment before their request was sent.
pub(crate) type Grant = (Vec<u64>, Moment);

/// The reply to a request, and a moment before it was sent.
type Asked = (Moment, Result<Option<Vec<u64>>>);

/// The last slice of a wait.
struct Slice {
    end: Instant,
    /// When the next one is due.
    next_at: Instant,
}

impl Wait {
    pub(crate) fn new(server: &Server, request: Request) -> Wait {
        Wait {
            server: server.clone(),
            quick: Caller::shared(server, &request.key),
            request,
            ticket: None,
            parked: ParkedSlices::default(),
            slice: None,
            under_way_until: None,
            may_hold_some: false,
            releases_until: None,
            waiting: None,
        }
    }

    /// Sends the request until it is granted or `end` has come.
    pub(crate) async fn run(&mut self, end: Option<Instant>) -> Result<Option<Grant>> {
        let is_over = || left(end).is_zero();
        let mut pause = Pause::new();
        let mut failures = 0;
        let mut asked = self.try_once().await;
        loop {
            match asked {
                (sent, Ok(Some(tokens))) if sent.elapsed() < self.request.certain => {
                    self.parked.finish(OTHER_SLICE).await;
                    return Ok(Some((tokens, sent)));
                }
                // The reply took longer than the usable part of the lease, so the grant may be over. The request is
                // repeated, or the caller withdraws it.
                (_, Ok(Some(_))) => {
                    self.may_hold_some = self.is_for_several();
                    self.under_way_until = Some(Instant::now() + self.server.patience());
                    if failures > 0 && is_over() {
                        return Ok(None);
                    }
                    failures += 1;
                }
                (_, Ok(None)) if is_over() => return Ok(None),
                (_, Ok(None)) if self.may_hold_some => self.give_back().await,
                // Ended early, because another process waits under the same owner name: pause before the next request.
                (_, Ok(None)) if self.is_early() => {
                    pause.sleep(left(end)).await;
                }
                (_, Ok(None)) => pause = Pause::new(),
                (_, Err(error)) if !error.is_passing() => return Err(error),
                // After a broken connection there is a second attempt, however short the wait.
                (_, Err(error)) if failures > 0 && is_over() => return Err(error),
                (_, Err(_)) => {
                    failures += 1;
                    pause.sleep(left(end).max(Pause::FIRST)).await;
                }
            }
            asked = match is_over() || self.may_hold_some {
                true => self.try_once().await,
                false => self.wait(end).await,
            };
        }
    }

    async fn try_once(&mut self) -> Asked {
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

    /// Waits in the queue until a grant, a failure, or the end of the wait.
    async fn wait(&mut self, end: Option<Instant>) -> Asked {
        if self.parked.is_empty() && self.file(end) {
            if let Some(asked) = self.wait_for_ticket(end).await {
                return asked;
            }
        }
        self.wait_parked(end).await
    }

    /// Files a ticket, or asks again for the one that is filed. False where the server takes none.
    fn file(&mut self, end: Option<Instant>) -> bool {
        if let Some(ticket) = &mut self.ticket {
            ticket.ask_again();
            return true;
        }
        let Some(desk) = self.server.tickets() else {
            return false;
        };
        self.ticket = desk.file(tickets::Request {
            server: self.server.clone(),
            key: self.request.key.clone(),
            command: self.request.command.clone(),
            longest: self.request.longest_ticket(),
            end,
        });
        if self.ticket.is_some() {
            self.count();
        }
        self.ticket.is_some()
    }

    /// Waits for the outcome of the ticket. None: the wait is to be parked.
    async fn wait_for_ticket(&mut self, end: Option<Instant>) -> Option<Asked> {
        let outcome = self.outcome(end).await;
        let asked = Moment::now();
        let is_hold = self.request.owner.is_some();
        if let (false, Some(Outcome::Granted(..) | Outcome::Announced)) = (is_hold, &outcome) {
            // The latch is open: the server has no ticket any more.
            self.ticket = None;
        }
        match outcome {
            Some(Outcome::Granted(tokens, sent)) => Some((sent, Ok(Some(tokens)))),
            Some(Outcome::Announced) if !is_hold => Some((asked, Ok(Some(vec![1])))),
            // A message proves nothing, and may be old: the lease counts from a request. The same after a missing one.
            Some(Outcome::Announced) | None => {
                self.may_hold_some = self.is_for_several();
                Some(self.try_once().await)
            }
            Some(Outcome::TimedOut) => Some((asked, Ok(None))),
            Some(Outcome::Failed(error)) => Some((asked, Err(error))),
            Some(Outcome::Refused(_) | Outcome::Park) => {
                self.end_ticket();
                None
            }
        }
    }

    fn is_for_several(&self) -> bool {
        !self.request.of_several.is_empty()
    }

    /// Releases what the owner has of several keys. One of them was lost right after their grant, and a request that
    /// waits is to hold none. Without an answer they stay held until their lease ends, or the wait is undone.
    async fn give_back(&mut self) {
        self.may_hold_some = false;
        let patience = self.server.patience();
        let end = Instant::now() + patience;
        self.releases_until = Some(end + patience);
        let mut releases = JoinSet::new();
        for claim in &self.request.of_several {
            let (server, claim) = (self.server.clone(), claim.clone());
            releases.spawn(async move { Release::until(&server, &claim, None, end).await });
        }
        let mut until = None;
        while let Some(release) = releases.join_next().await {
            until = until.max(release.ok().and_then(|release| release.under_way_until));
        }
        self.releases_until = until;
        if let Some(until) = until {
            // Served later, it would end the next grant.
            sleep_until(until).await;
        }
    }

    /// None at the end of the wait.
    async fn outcome(&mut self, end: Option<Instant>) -> Option<Outcome> {
        let longest = self.request.longest_ticket();
        let ticket = self.ticket.as_mut()?;
        loop {
            // Spread, because many waits may have started at the same moment.
            let due = Instant::now() + longest / 2 + part_of(longest / 4);
            let is_last = end.is_some_and(|end| end < due);
            let until = end.filter(|_| is_last).unwrap_or(due);
            match timeout_at(until, ticket.outcome()).await {
                Ok(outcome) => return Some(outcome),
                Err(_) if !is_last => ticket.ask_again(),
                Err(_) if ticket.is_queued() => {
                    let late = timeout_at(until + LATE_MESSAGE, ticket.outcome()).await;
                    return late.ok();
                }
                Err(_) => return None,
            }
        }
    }

    /// Waits with a connection until a grant, a failure, or the end of the last slice.
    async fn wait_parked(&mut self, end: Option<Instant>) -> Asked {
        if self.parked.is_empty() {
            self.park(end);
        }
        loop {
            let last = end.zip(self.slice.as_ref());
            let is_last = last.is_some_and(|(end, slice)| end <= slice.end);
            let next_at = self.slice.as_ref().filter(|_| !is_last);
            let next_at = next_at.map(|slice| slice.next_at);
            let answer = match self.parked.next(next_at).await {
                Next::SliceDue => {
                    self.park(end);
                    continue;
                }
                Next::Answer(answer) => answer,
            };
            let is_over = self.parked.is_empty() || is_last && answer.is_newest;
            let server = self.server.name();
            let reply = answer.reply;
            match reply.and_then(|reply| command::granted(&reply, server)) {
                // Another slice has taken over the place, or is still parked.
                Ok(None) if !is_over => {}
                Err(error) if error.is_passing() && !is_over => {}
                tokens => return (answer.sent, tokens),
            }
        }
    }

    /// Sends the next slice.
    fn park(&mut self, end: Option<Instant>) {
        let slice = self.request.longest_slice.min(left(end));
        let slice = slice.max(Duration::from_millis(1));
        let command = command::parked(&self.request.command, slice);
        self.count();
        self.parked
            .send(&self.server, &self.request.key, command, slice);
        let now = Instant::now();
        self.slice = Some(Slice {
            end: now + slice,
            // Spread, because many waiters may have started at the same moment.
            next_at: now + slice / 2 + part_of(slice / 4),
        });
    }

    fn count(&mut self) {
        let (key, owner) = (&self.request.key, self.request.owner.as_deref());
        self.waiting
            .get_or_insert_with(|| events::parked(&self.server, key, owner));
    }

    /// Whether the last slice ended before its successor was due.
    fn is_early(&self) -> bool {
        let slice = self.slice.as_ref();
        slice.is_some_and(|slice| Instant::now() < slice.next_at)
    }

    /// Whether the request was queued, so that the server may keep a place in the queue for it.
    pub(crate) fn was_queued(&self) -> bool {
        self.waiting.is_some()
    }

    /// Ends the ticket here, so that it is not asked for again after its withdrawal. True if the server may have it, or
    /// may have granted it.
    pub(crate) fn end_ticket(&mut self) -> bool {
        let Some(ticket) = self.ticket.take() else {
            return false;
        };
        let (may_be_there, under_way_until) = ticket.end();
        self.under_way_until = self.under_way_until.max(under_way_until);
        may_be_there
    }

    /// The time until which an abandoned request may still be served.
    pub(crate) fn under_way_until(&mut self) -> Option<Instant> {
        // The future of the last request was dropped.
        if self.quick.was_unanswered() {
            self.under_way_until = Some(Instant::now() + self.server.patience());
        }
        let parked = self.parked.under_way_until(&self.server);
        let ticket = self.ticket.as_ref();
        let ticket = ticket.and_then(TicketHandle::under_way_until);
        self.under_way_until.max(parked).max(ticket)
    }

    /// The time until which an abandoned release of some of several keys may still be served.
    pub(crate) fn releases_until(&self) -> Option<Instant> {
        self.releases_until
    }

    /// Takes the parked connections, which the withdrawal of the wait closes.
    pub(crate) fn take_parked(&mut self) -> ParkedSlices {
        std::mem::take(&mut self.parked)
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // With an owner, its release withdraws the ticket.
        if let (None, Some(ticket)) = (&self.request.owner, self.ticket.take()) {
            ticket.expire();
        }
    }
}

impl Request {
    fn longest_ticket(&self) -> Duration {
        match self.is_named {
            // A process that uses the name too takes the ticket over without a message.
            true => self.longest_slice,
            false => LONGEST_TICKET,
        }
    }
}

/// Runs a wait and gives it up [`Server::overtime`] after its end.
pub(crate) async fn bounded<T>(
    server: &Server,
    end: Option<Instant>,
    wait: impl Future<Output = Result<T>>,
) -> Result<T> {
    match end.and_then(|end| end.checked_add(server.overtime())) {
        None => wait.await,
        Some(end) => {
            let ended = timeout_at(end, wait).await;
            ended.unwrap_or_else(|_| Err(Error::no_answer(server.name())))
        }
    }
}
