//! The desk of a server: files tickets and sends their requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::{Cmd, ConnectionInfo, Value};
use tokio::sync::{oneshot, OnceCell, Semaphore};
use tokio::time::{sleep_until, Instant};
use uuid::Uuid;

use crate::backoff::left;
use crate::error::{Error, Result};
use crate::moment::Moment;
use crate::net::address::name_of;
use crate::net::caller::Caller;
use crate::net::command;
use crate::net::connection::Connection;
use crate::net::exhaustion::IdleConnections;
use crate::net::server::Server;
use crate::net::slot::{name_in_slot, slot_of};
use crate::net::tickets::message::Message;
use crate::net::tickets::subscription::{Refusal, Subscriptions};
use crate::net::tickets::table::Table;
use crate::net::tickets::ticket::{Answer, Ask, Line, Outcome, Step};
use crate::runtime;

/// Upper bound of requests of one server that have no reply yet, besides one for each line.
const MAX_IN_FLIGHT: usize = 100;
/// How all names of channels begin.
const PREFIX: &str = "lock:tickets:";

/// The request of a ticket.
#[derive(Clone)]
pub(crate) struct Request {
    pub server: Server,
    pub key: Vec<u8>,
    /// Without `BLOCK`, which is appended. Sent twice, it is granted once.
    pub command: Cmd,
    /// The longest time for which the server keeps the ticket.
    pub longest: Duration,
    /// The end of the wait.
    pub end: Option<Instant>,
}

/// The tickets of a server, which its clones share.
pub(crate) struct Desk {
    table: Mutex<Table<Request, Evidence>>,
    subscriptions: Subscriptions,
    in_flight: Semaphore,
    is_sharded: bool,
}

/// The shared connection through which a node has refused tickets. Void when that is another one.
pub(super) struct Evidence {
    node: ConnectionInfo,
    connection: Weak<OnceCell<Connection>>,
}

/// A filed ticket. Dropping it ends the wait here; the server is not asked.
pub(crate) struct TicketHandle {
    desk: Arc<Desk>,
    id: u64,
    server: Server,
    line: Line,
    outcome: oneshot::Receiver<Outcome>,
}

impl Desk {
    pub(crate) fn new(is_sharded: bool) -> Arc<Desk> {
        Arc::new(Desk {
            table: Mutex::default(),
            subscriptions: Subscriptions::default(),
            in_flight: Semaphore::new(MAX_IN_FLIGHT),
            is_sharded,
        })
    }

    /// Files a ticket. None where tickets have been refused.
    pub(crate) fn file(self: &Arc<Desk>, request: Request) -> Option<TicketHandle> {
        let line = self.is_sharded.then(|| slot_of(&request.key));
        let server = request.server.clone();
        let now = Instant::now();
        let mut table = self.table();
        if let Some(evidence) = table.parking(line, now) {
            if server.is_current(&evidence.node, &evidence.connection) {
                return None;
            }
            table.end_parking(line);
        }
        let (id, outcome) = table.file(line, request, || channel_name(line), now);
        drop(table);
        self.work_on(line);
        Some(TicketHandle {
            desk: self.clone(),
            id,
            server,
            line,
            outcome,
        })
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table<Request, Evidence>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    pub(super) fn is_sharded(&self) -> bool {
        self.is_sharded
    }

    pub(super) fn message(self: &Arc<Desk>, id: u64, message: Message) {
        let line = self.table().message(id, message, Instant::now());
        line.into_iter().for_each(|line| self.work_on(line));
    }

    /// Starts the worker of a line, if a request is due and none runs.
    pub(super) fn work_on(self: &Arc<Desk>, line: Line) {
        let first = self.table().begin_work(line);
        if let Some(request) = first {
            runtime::spawn(self.clone().work(request.server, line));
        }
    }

    /// Sends the requests of a line until none is due.
    async fn work(self: Arc<Desk>, server: Server, line: Line) {
        loop {
            // A line whose node fails has one request under way, and takes no permit from the others.
            let is_alone = self.table().is_alone(line);
            let permit = match is_alone {
                true => None,
                false => self.in_flight.acquire().await.ok(),
            };
            let step = self.table().next(line, Instant::now());
            match (step, permit) {
                (Step::Done, _) => return,
                (Step::Pause(until), permit) => {
                    drop(permit);
                    sleep_until(until).await;
                }
                (Step::Ask(ask), Some(permit)) if !ask.is_alone => {
                    permit.forget();
                    let (desk, server) = (self.clone(), server.clone());
                    runtime::spawn(async move {
                        desk.ask(&server, ask).await;
                        desk.in_flight.add_permits(1);
                    });
                }
                (Step::Ask(ask), _) => self.ask(&server, ask).await,
            }
        }
    }

    /// Sends a request, handles the reply, and subscribes if the line needs it.
    async fn ask(self: &Arc<Desk>, server: &Server, ask: Ask<Request>) {
        let request = &ask.request;
        let mut caller = Caller::shared(server, &request.key);
        // One millisecond more than is left, so that the server does not end the wait before its end.
        let block = left(request.end).saturating_add(Duration::from_millis(1));
        let block = block.min(request.longest);
        let command = command::notified(&request.command, block, &ask.channel, ask.id);
        let sent = Moment::now();
        let reply = caller.call(&command, server.patience() / 2).await;
        let unanswered = caller.was_unanswered();
        let unanswered_until = unanswered.then(|| Instant::now() + server.patience());
        let node = caller.answered_by();
        if let (Ok(Value::Nil | Value::Int(0)), Some((node, place))) = (&reply, node) {
            // A replica ignores `NOTIFY`. The next request looks for the primary.
            server.forget_replica(node, place);
        }
        let reply = reply.and_then(|reply| command::ticket(&reply, server.name()));
        let answer = answer(reply, sent, node.map(|(node, _)| node), unanswered_until);
        let is_unsupported = matches!(answer, Answer::Unsupported);
        let now = Instant::now();
        let wants_subscription = self.table().answered(&ask, answer, now);
        if let Some((node, connection)) = node {
            let evidence = || Evidence {
                node: node.clone(),
                connection: connection.clone(),
            };
            if is_unsupported {
                self.table().park(ask.line, evidence(), false, now);
            } else if wants_subscription {
                self.subscribe_or_park(server, &ask, node, evidence).await;
            }
        }
        self.work_on(ask.line);
    }

    async fn subscribe_or_park(
        self: &Arc<Desk>,
        server: &Server,
        ask: &Ask<Request>,
        node: &ConnectionInfo,
        evidence: impl Fn() -> Evidence,
    ) {
        let may_subscribe = self.table().may_subscribe(ask.line);
        if !may_subscribe {
            self.table()
                .park(ask.line, evidence(), true, Instant::now());
            return;
        }
        match self.subscribe(server, ask.line, &ask.channel, node).await {
            Ok(()) => {}
            Err(Refusal::Passing { was_reached }) => {
                let now = Instant::now();
                self.table().not_subscribed(ask.line, was_reached, now);
            }
            Err(Refusal::Final) => {
                self.table()
                    .park(ask.line, evidence(), false, Instant::now());
            }
        }
    }
}

impl IdleConnections for Desk {
    fn close_all(&self) {
        let dropped = {
            let table = self.table();
            self.subscriptions
                .drop_unused(|number| table.is_used(number))
        };
        for number in dropped {
            // No ticket is there, so nothing is due.
            self.table().closed(number);
        }
    }
}

impl TicketHandle {
    /// Waits for the outcome. May be dropped and called again.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        match (&mut self.outcome).await {
            Ok(Outcome::Refused(code)) => Outcome::Failed(Error::Refused {
                server: self.server.name().to_string(),
                code,
                text: "the wait has failed".into(),
            }),
            Ok(outcome) => outcome,
            // The sender goes with the ticket, which this value keeps.
            Err(_) => Outcome::Failed(Error::no_answer(self.server.name())),
        }
    }

    /// Asks again: before the server ends the ticket, or after an outcome that did not end the wait.
    pub(crate) fn ask_again(&mut self) {
        let renewed = self.desk.table().ask_again(self.id);
        if let Some(outcome) = renewed {
            self.outcome = outcome;
        }
        self.desk.work_on(self.line);
    }

    /// Whether the server has queued the ticket.
    pub(crate) fn is_queued(&self) -> bool {
        self.desk.table().is_queued(self.id)
    }

    /// Ends the wait here. Whether the server may have the ticket in a queue, or may have granted it; and the time
    /// until which a request without a reply may still be served. (In one step: a worker may be about to send the
    /// request.)
    pub(crate) fn end(self) -> (bool, Option<Instant>) {
        let now = Instant::now();
        let mut table = self.desk.table();
        let may_be_there = table.may_be_there(self.id);
        let under_way_until = table.under_way_until(self.id, now + self.server.patience());
        table.remove(self.id, now);
        (may_be_there, under_way_until)
    }

    /// Withdraws a ticket without an owner: the same request with the shortest limit takes it over. Sent once.
    pub(crate) fn expire(self) {
        let ask = self.desk.table().open(self.id);
        let Some((request, channel)) = ask else {
            return;
        };
        let command = command::notified(&request.command, Duration::ZERO, &channel, self.id);
        runtime::spawn(async move {
            let mut caller = Caller::shared(&request.server, &request.key);
            let _ = caller.call(&command, request.server.patience() / 2).await;
        });
    }

    /// The time until which a request without a reply may still be served.
    pub(crate) fn under_way_until(&self) -> Option<Instant> {
        let unread_until = Instant::now() + self.server.patience();
        self.desk.table().under_way_until(self.id, unread_until)
    }
}

impl Drop for TicketHandle {
    fn drop(&mut self) {
        self.desk.table().remove(self.id, Instant::now());
    }
}

/// A name that no other process knows; of a line in a cluster, in its slot.
fn channel_name(line: Line) -> Vec<u8> {
    let name = format!("{PREFIX}{}", Uuid::new_v4());
    match line {
        None => name.into_bytes(),
        Some(slot) => name_in_slot(&name, slot),
    }
}

/// The meaning of a reply to a ticket's request.
fn answer(
    reply: Result<Option<Vec<u64>>>,
    sent: Moment,
    node: Option<&ConnectionInfo>,
    unanswered_until: Option<Instant>,
) -> Answer {
    match reply {
        Ok(Some(tokens)) => Answer::Granted(tokens, sent),
        Ok(None) => Answer::Queued(node.map(name_of).unwrap_or_default()),
        Err(Error::Refused { code, .. }) if code == "NOSUBSCRIBER" => Answer::NoSubscriber,
        Err(Error::Refused { code, .. }) if code == "LOCKBUSY" => Answer::Busy,
        Err(error) if error.is_passing() => Answer::Later { unanswered_until },
        // A syntax error, `NOTIFY is turned off`, a short `lock.max-wait`, no permission to publish; a cluster behind
        // the URL of one server. If the request itself is refused, the parked one is refused too.
        Err(Error::Refused { code, .. }) if ["ERR", "NOPERM", "CROSSSLOT"].contains(&&code[..]) => {
            Answer::Unsupported
        }
        Err(error) => Answer::Failed(error),
    }
}
