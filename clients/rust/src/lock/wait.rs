//! A request that waits in the server until it is granted: the acquisition of a lock or a permit, the wait for a latch.
//!
//! It is asked as often as necessary, because sent twice it is granted once (`ONCE`). Where it waits, it does so as a
//! ticket (see [`tickets`](crate::net::tickets)). A message proves nothing, and its age is unknown: the wait asks once
//! more, and the lease counts from before that request. After a break it subscribes and asks again; the server has kept
//! its place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{sleep, timeout_at, Instant};

use crate::backoff::{left, part_of, sooner, Pause};
use crate::error::{Error, Result};
use crate::lock::events::{self, Unreached};
use crate::moment::{now, Moment};
use crate::net::caller::Caller;
use crate::net::command;
use crate::net::server::Server;
use crate::net::tickets::{Event, Ticket};
use crate::statistics::Counted;

/// How long after the end of a wait the message about its end may come.
const LATE_MESSAGE: Duration = Duration::from_millis(100);

/// The longest time for which the server keeps a ticket. It is asked for again before, so this bounds how long the
/// ticket of a process that has died stays.
const LONGEST_TICKET: Duration = Duration::from_secs(30);

/// The pause of a wait for which the server has no place (`LOCKBUSY`), and a random part of it.
const NO_PLACE: Duration = Duration::from_secs(1);

/// Subscriptions in a row after which the server still finds no subscriber.
const MAX_SUBSCRIPTIONS: u32 = 3;

/// The request and its limits.
pub(crate) struct Request {
    pub server: Server,
    pub key: Vec<u8>,
    /// The command without `BLOCK`, which is appended.
    pub command: Cmd,
    /// How long after its request was sent a grant is usable.
    pub certain: Duration,
    /// The time for the reply to one request.
    pub patience: Duration,
    /// How many requests of others may wait already.
    pub queue: Option<u32>,
    /// The owner; none for a request that grants nothing (a latch).
    pub owner: Option<Vec<u8>>,
    /// Whether the wait goes on while its server cannot be reached. If not, there are other servers to ask.
    pub goes_on: bool,
    /// Whether it is for several keys.
    pub is_several: bool,
    /// Whether the hold is bound to the connection of the request.
    pub is_bound: bool,
    /// Whether it is for a permit, and creates no semaphore.
    pub needs_semaphore: bool,
}

impl Request {
    /// A request for one key that any connection may carry, and whose wait goes on.
    pub(crate) fn new(server: &Server, key: &[u8], owner: Option<&[u8]>, command: Cmd) -> Request {
        Request {
            server: server.clone(),
            key: key.to_vec(),
            command,
            certain: Duration::MAX,
            patience: server.patience() / 2,
            queue: None,
            owner: owner.map(<[u8]>::to_vec),
            goes_on: true,
            is_several: false,
            is_bound: false,
            needs_semaphore: false,
        }
    }
}

/// What an acquisition knows of a server, through all its rounds if it asks in rounds.
#[derive(Default)]
pub(crate) struct Known {
    /// Whether the acquisition has a limit.
    is_bounded: bool,
    /// Whether the server has answered in any round.
    is_answered: AtomicBool,
}

impl Known {
    /// Nothing yet, for an acquisition with this end.
    pub(crate) fn of(end: Option<Instant>) -> Arc<Known> {
        Arc::new(Known {
            is_bounded: end.is_some(),
            is_answered: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_answered(&self) -> bool {
        self.is_answered.load(Ordering::Relaxed)
    }

    fn answers(&self, is_answer: bool) {
        self.is_answered.fetch_or(is_answer, Ordering::Relaxed);
    }
}

/// What the attempts of one acquisition have in common.
#[derive(Default)]
pub(crate) struct Reach {
    known: Arc<Known>,
    /// Whether the server has ever answered. Before that, a request that cannot be sent is an error.
    is_answered: bool,
    /// Whether the semaphore was looked for.
    is_sought: bool,
    failures: u32,
    /// The last failure, unless the server has queued the request since.
    last: Option<Error>,
    pause: Pause,
    unreached: Option<Unreached>,
}

/// A waiting request. Dropped, it asks no more; what the server has of it is its caller's to give up.
pub(crate) struct Wait {
    pub(crate) request: Request,
    pub(crate) caller: Caller,
    ticket: Option<Ticket>,
    /// The state of the subscription when the last request was sent.
    epoch: u64,
    subscriptions: u32,
    /// Whether the server may have granted the request, or may do so late: a request without an answer.
    pub(crate) may_hold: bool,
    /// Whether the server has it in a queue, as far as known.
    pub(crate) is_queued: bool,
    /// A message says that it is granted.
    is_announced: bool,
    waiting: Option<Counted>,
    /// The first request, where the caller has sent it.
    first: Option<Asked>,
    /// How far a test had moved the time of a double when the wait began.
    begun: Option<Duration>,
}

/// A request that has been sent.
struct Asked {
    /// A moment before that.
    sent: Moment,
    /// Whether no time was left for another.
    is_last: bool,
    reply: Result<Reply>,
}

/// The end of a wait.
pub(crate) enum Outcome {
    /// The tokens, and a moment before their request was sent.
    Granted(Vec<u64>, Moment),
    /// Not granted in time.
    Over,
    /// The attempt is to be given up and repeated by a fresh owner.
    Again,
}

enum Reply {
    Tokens(Vec<u64>),
    /// Held by others, and not queued.
    No,
    /// Not queued, because the server sees no subscriber, or is in its startup delay: then a request waits as a ticket
    /// alone.
    Unheard,
    Queued,
}

impl Wait {
    pub(crate) fn new(request: Request) -> Wait {
        let caller = match request.is_bound {
            true => Caller::alone(&request.server, &request.key),
            false => Caller::shared(&request.server, &request.key),
        };
        Wait {
            begun: request.server.moved(),
            request,
            caller,
            ticket: None,
            epoch: u64::MAX,
            subscriptions: 0,
            may_hold: false,
            is_queued: false,
            is_announced: false,
            waiting: None,
            first: None,
        }
    }

    /// Sends the first request. [`Outcome::Again`]: [`run`](Wait::run) goes on from its answer.
    pub(crate) async fn ask_first(&mut self, end: Option<Instant>, known: &Known) -> Outcome {
        let asked = self.ask_once(end).await;
        match asked.reply {
            Ok(Reply::Tokens(tokens)) if asked.sent.elapsed() < self.request.certain => {
                known.answers(true);
                Outcome::Granted(tokens, asked.sent)
            }
            Ok(Reply::No) if asked.is_last && !self.request.needs_semaphore => {
                known.answers(true);
                Outcome::Over
            }
            _ => {
                // If the wait is dropped before it runs, this is given up.
                self.is_queued = matches!(asked.reply, Ok(Reply::Queued));
                self.may_hold |= matches!(asked.reply, Ok(Reply::Tokens(_)));
                // The failure of the runtime's connection says nothing about that of the thread.
                let is_of_other = self.request.server.near().is_some()
                    && asked.reply.as_ref().is_err_and(Error::is_passing);
                self.first = Some(asked).filter(|_| !is_of_other);
                Outcome::Again
            }
        }
    }

    async fn ask_once(&mut self, end: Option<Instant>) -> Asked {
        Asked {
            is_last: left(end).is_zero(),
            sent: Moment::now(),
            reply: self.ask(end).await,
        }
    }

    /// Asks until the request is granted or `end` has come.
    ///
    /// # Errors
    /// When the server refuses, was never reached, or could not be reached at the end.
    pub(crate) async fn run(&mut self, end: Option<Instant>, reach: &mut Reach) -> Result<Outcome> {
        let bound = end;
        loop {
            let end = sooner(bound, self.begun, self.request.server.moved());
            let first = self.first.take();
            let turn = match &self.ticket {
                Some(ticket) if !self.is_announced && first.is_none() => ticket.turn().await,
                _ => None,
            };
            let is_announced = self.is_announced;
            let asked = match first {
                Some(first) => first,
                None => self.ask_once(end).await,
            };
            let Asked {
                sent,
                is_last,
                reply: asked,
            } = asked;
            reach.answers(asked.is_ok());
            self.is_announced &= match asked {
                // In a startup delay a ticket waits; but a request for several keys that may hold some is to hold none.
                Ok(Reply::Unheard) => self.request.is_several,
                Ok(_) => false,
                Err(_) => true,
            };
            // After a failure it is kept for the pause.
            let turn = turn.filter(|_| asked.is_err());
            if matches!(asked, Ok(Reply::No | Reply::Queued)) && !reach.is_sought {
                reach.is_sought = true;
                self.is_queued |= matches!(asked, Ok(Reply::Queued));
                self.must_exist().await?;
            }
            let failed = match asked {
                Ok(Reply::Tokens(tokens)) if sent.elapsed() < self.request.certain => {
                    return Ok(Outcome::Granted(tokens, sent));
                }
                // The reply took longer than the usable part of the lease: the hold may be over. Of several keys some
                // may be held still, and a request that waits is to hold none.
                Ok(Reply::Tokens(_)) => {
                    self.may_hold = true;
                    match self.request.is_several {
                        true => return Ok(Outcome::Again),
                        false if is_last => return Ok(Outcome::Over),
                        false => None,
                    }
                }
                Ok(Reply::No) if is_last => return Ok(Outcome::Over),
                // The message was false or old, or the hold is lost already: of several keys perhaps one of them. The
                // server has kept the place.
                Ok(Reply::No) if is_announced => match self.request.is_several {
                    true => return Ok(Outcome::Again),
                    false => None,
                },
                Ok(Reply::No | Reply::Unheard) => self.subscribe().await.err(),
                Ok(Reply::Queued) => match self.queued(end, reach).await {
                    Ok(Some(over)) => return Ok(over),
                    queued => queued.err(),
                },
                Err(error) if error.has_code("LOCKBUSY") && !is_last => {
                    drop(turn);
                    reach.answers(true);
                    reach.failed(&self.request, &error);
                    sleep((NO_PLACE + part_of(NO_PLACE)).min(left(end))).await;
                    None
                }
                Err(error) => Some(error),
            };
            let Some(error) = failed else { continue };
            self.failed(error, end, reach).await?;
            if self.request.is_bound && !self.caller.is_open() && (self.may_hold || self.is_queued)
            {
                // Served late, the request would bind the hold of its owner to the connection that has ended.
                return Ok(Outcome::Again);
            }
        }
    }

    /// The server lets requests wait for a semaphore that does not exist. The key is looked for once, because a wait
    /// goes on while a semaphore is deleted and created again. (The wait of a user without `+exists` goes on, too.)
    async fn must_exist(&self) -> Result<()> {
        let Request { server, key, .. } = &self.request;
        if !self.request.needs_semaphore {
            return Ok(());
        }
        let mut caller = Caller::shared(server, key);
        let exists = redis::cmd("EXISTS").arg(key).take();
        match caller.call(&exists, self.request.patience).await {
            Ok(Value::Int(0)) => Err(Error::NoSemaphore {
                server: server.name().into(),
                key: key.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Pauses after a failure, or returns the error if it ends the wait.
    async fn failed(
        &mut self,
        error: Error,
        end: Option<Instant>,
        reach: &mut Reach,
    ) -> Result<()> {
        if !error.is_passing() {
            return Err(error);
        }
        // A refusal passes while the wait goes on. A replica may be on its way to be the primary; but where no other
        // node can be asked, and the wait has no limit, it would hide that the address is wrong.
        let is_wrong = error.has_code("READONLY")
            && self.request.server.is_single()
            && !reach.known.is_bounded;
        reach.answers(matches!(error, Error::Refused { .. }) && !is_wrong);
        // The connection may have broken since its last use, or may lead to another server by now: once more.
        let was_sent = self.caller.unanswered || self.caller.answered_by.is_some();
        let is_over = !reach.is_answered || !self.request.goes_on || left(end).is_zero();
        if is_over && (reach.failures > 0 || !(reach.is_answered || was_sent)) {
            return Err(error);
        }
        reach.failed(&self.request, &error);
        reach.pause.sleep(left(end).max(Pause::FIRST)).await;
        Ok(())
    }

    /// Sends the request once: as a ticket, where its messages are received.
    async fn ask(&mut self, end: Option<Instant>) -> Result<Reply> {
        let left = left(end);
        if self.ticket.is_none()
            && !left.is_zero()
            && self.request.server.inner.tickets.is_live(&self.request.key)
        {
            self.ticket = Some(self.request.server.inner.tickets.open(&self.request.key));
        }
        // After the message of a grant the server need not be asked who hears the next one.
        let is_plain = left.is_zero() || self.is_announced;
        let command = match &mut self.ticket {
            Some(ticket) if !is_plain => {
                ticket.forget_events();
                // One millisecond more than is left, so that the server does not end the wait before its end.
                let block = left.saturating_add(Duration::from_millis(1));
                let block = match self.request.server.moved() {
                    None => block.min(LONGEST_TICKET),
                    // Its time may pass at once.
                    Some(_) => block,
                };
                let mut command = ticket.command(&self.request.command, block);
                if let Some(queue) = self.request.queue {
                    command.arg("QUEUE").arg(queue);
                }
                command
            }
            _ => self.request.command.clone(),
        };
        self.epoch = self.ticket.as_ref().map_or(u64::MAX, Ticket::epoch);
        // Until the reply: this future may be dropped.
        let may_hold = std::mem::replace(&mut self.may_hold, true);
        let reply = self.caller.call(&command, self.request.patience).await;
        self.may_hold = may_hold || self.caller.unanswered;
        let reply = match reply {
            Err(error) if error.has_code("NOSUBSCRIBER") => return Ok(Reply::Unheard),
            Err(error) if error.has_code("LOCKDELAY") && !left.is_zero() => {
                return Ok(Reply::Unheard);
            }
            reply => reply?,
        };
        let reply = match reply {
            Value::SimpleString(word) if word == "QUEUED" => Reply::Queued,
            reply => match command::granted(&reply, self.request.server.name())? {
                Some(tokens) => Reply::Tokens(tokens),
                None => Reply::No,
            },
        };
        let is_ticket = self.ticket.is_some() && !is_plain;
        if let (Reply::No, true, Some(node)) = (&reply, is_ticket, &self.caller.answered_by) {
            // A replica ignores `NOTIFY`. The next request looks for the primary.
            self.request.server.leave(node);
        }
        Ok(reply)
    }

    /// Subscribes at the node that has answered.
    async fn subscribe(&mut self) -> Result<()> {
        let Some(node) = self.caller.answered_by.clone() else {
            return Err(Error::no_answer(self.request.server.name()));
        };
        self.subscriptions += 1;
        if self.subscriptions > MAX_SUBSCRIPTIONS {
            self.subscriptions = 0;
            let what =
                "the server finds no subscriber of the channel of this wait: is a proxy between?";
            return Err(Error::connection(self.request.server.name(), what));
        }
        let open = || self.request.server.inner.tickets.open(&self.request.key);
        let ticket = self.ticket.get_or_insert_with(open);
        ticket
            .subscribe(&self.request.server, &node, self.epoch)
            .await
    }

    /// Waits in the queue for a reason to ask again; or returns the end of the wait.
    async fn queued(&mut self, end: Option<Instant>, reach: &mut Reach) -> Result<Option<Outcome>> {
        self.is_queued = true;
        let (key, owner) = (&self.request.key, self.request.owner.as_deref());
        self.waiting
            .get_or_insert_with(|| events::parked(&self.request.server, key, owner));
        let is_heard = match (&self.ticket, &self.caller.answered_by) {
            (Some(ticket), Some(node)) => ticket.is_live_at(node),
            _ => false,
        };
        if !is_heard {
            // The server has failed over, or the subscription has just ended.
            return self.subscribe().await.map(|()| None);
        }
        self.subscriptions = 0;
        reach.queued();
        // Spread, because many waits may have started at the same moment.
        let due = now() + LONGEST_TICKET / 2 + part_of(LONGEST_TICKET / 4);
        let is_last = end.is_some_and(|end| end < due);
        let until = end
            .filter(|_| is_last)
            .map_or(due, |end| end + LATE_MESSAGE);
        let Some(ticket) = &mut self.ticket else {
            return Ok(None);
        };
        let event = tokio::select! {
            event = timeout_at(until, ticket.event()) => event,
            () = self.caller.closed(), if self.request.is_bound => Ok(Event::Broken),
        };
        match event {
            Ok(Event::Granted) if self.request.owner.is_none() => {
                self.is_queued = false;
                return Ok(Some(Outcome::Granted(vec![1], Moment::now())));
            }
            Ok(Event::Granted) => self.is_announced = true,
            Ok(Event::TimedOut) if left(end).is_zero() => {
                self.is_queued = false;
                return Ok(Some(Outcome::Over));
            }
            Ok(Event::TimedOut | Event::Broken) => {}
            Ok(Event::Failed(code)) => {
                let refused =
                    Error::refused(self.request.server.name(), &code, "the wait has failed");
                let passing = ["UNBLOCKED", "MOVED", "CLUSTERDOWN"];
                if !passing.contains(&code.as_str()) {
                    self.is_queued = false;
                    return Err(refused);
                }
                reach.pause.sleep(left(end)).await;
            }
            // At the end the server says so. Where it does not, it is asked: "not granted" would mean that another
            // owner holds the lock.
            Err(_) => {}
        }
        Ok(None)
    }
}

impl Reach {
    pub(crate) fn new(known: Arc<Known>) -> Reach {
        Reach {
            known,
            ..Reach::default()
        }
    }

    fn answers(&mut self, is_answer: bool) {
        self.is_answered |= is_answer;
        self.known.answers(is_answer);
    }

    /// The error of a wait at whose end a request had no answer: the last refusal says more.
    pub(crate) fn explain(&mut self, error: Error) -> Error {
        match self.last.take() {
            Some(last @ Error::Refused { .. }) if error.is_silence() => last,
            _ => error,
        }
    }

    fn queued(&mut self) {
        *self = Reach {
            is_answered: true,
            known: self.known.clone(),
            is_sought: self.is_sought,
            ..Reach::default()
        };
    }

    fn failed(&mut self, request: &Request, error: &Error) {
        self.last = Some(error.clone());
        self.failures += 1;
        let begin = || Unreached::new(&request.server, &request.key, request.owner.as_deref());
        self.unreached.get_or_insert_with(begin).failed(error);
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        // A latch has no owner whose release would withdraw the ticket: the same request with the shortest limit takes
        // it over.
        if let (None, true, Some(ticket)) = (
            &self.request.owner,
            self.is_queued || self.may_hold,
            &self.ticket,
        ) {
            let command = ticket.command(&self.request.command, Duration::ZERO);
            let mut caller = Caller::shared(&self.request.server, &self.request.key);
            let patience = self.request.server.patience() / 2;
            crate::runtime::spawn(async move {
                let _ = caller.call(&command, patience).await;
            });
        }
    }
}
