//! The open tickets and their lines: what follows from a reply, a message, and the end of a subscription.
//!
//! No connections here: the desk carries out what the table answers. A ticket is *due* (its request is to be sent),
//! *asking* (sent, no reply yet), *queued* (the server has it), or *over* (its outcome was delivered). A message that
//! comes before the reply ends the ticket if it is a grant; any other one is kept until the reply is read.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::net::tickets::channel::{Channel, Live};
use crate::net::tickets::message::Message;
use crate::net::tickets::ticket::{Answer, Ask, Beat, Line, Outcome, State, Step, Ticket};

/// Subscriptions in a row after which the node still asks for one.
const MAX_SUBSCRIPTIONS: u32 = 3;
/// How long waits park after that.
const PARKING_SPAN: Duration = Duration::from_secs(30);
/// Time without a ticket after which a line ends its subscription.
pub(super) const MAX_IDLE: Duration = Duration::from_secs(30);

/// The tickets of a server. `R` is the request of a ticket, `P` the evidence that a node takes no tickets.
pub(crate) struct Table<R, P> {
    last_id: u64,
    tickets: HashMap<u64, Ticket<R>>,
    channels: HashMap<Line, Channel<P>>,
}

impl<R, P> Default for Table<R, P> {
    fn default() -> Table<R, P> {
        Table {
            last_id: 0,
            tickets: HashMap::new(),
            channels: HashMap::new(),
        }
    }
}

impl<R: Clone, P> Table<R, P> {
    /// Files a ticket, which is due. `name` makes the name of a new channel.
    pub(crate) fn file(
        &mut self,
        line: Line,
        request: R,
        name: impl FnOnce() -> Vec<u8>,
        now: Instant,
    ) -> (u64, oneshot::Receiver<Outcome>) {
        self.last_id += 1;
        let id = self.last_id;
        let (ticket, receiver) = Ticket::new(line, request);
        let new = || Channel::new(name(), now);
        let channel = self.channels.entry(line).or_insert_with(new);
        channel.tickets.insert(id);
        channel.due.insert(id);
        self.tickets.insert(id, ticket);
        (id, receiver)
    }

    /// Asks again for a queued ticket, or for one that is over: it keeps its number and so its turn.
    pub(crate) fn ask_again(&mut self, id: u64) -> Option<oneshot::Receiver<Outcome>> {
        let ticket = self.tickets.get_mut(&id)?;
        let was_over = ticket.state == State::Over;
        if was_over || ticket.state == State::Queued {
            self.make_due(id);
        }
        let ticket = self.tickets.get_mut(&id).filter(|_| was_over)?;
        let (sender, receiver) = oneshot::channel();
        ticket.outcome = Some(sender);
        Some(receiver)
    }

    /// Removes a ticket whose wait is over.
    pub(crate) fn remove(&mut self, id: u64, now: Instant) {
        let Some(ticket) = self.tickets.remove(&id) else {
            return;
        };
        if let Some(channel) = self.channels.get_mut(&ticket.line) {
            channel.tickets.remove(&id);
            channel.due.remove(&id);
            channel.used = now;
            self.drop_unused(ticket.line);
        }
    }

    /// Whether the server has queued the ticket.
    pub(crate) fn is_queued(&self, id: u64) -> bool {
        let ticket = self.tickets.get(&id);
        ticket.is_some_and(|ticket| ticket.state == State::Queued)
    }

    /// Whether the server may have the ticket in a queue, or may have granted it.
    pub(crate) fn may_be_there(&self, id: u64) -> bool {
        let ticket = self.tickets.get(&id);
        ticket.is_some_and(|ticket| ticket.is_there)
    }

    /// The request and the channel of a ticket that the server may have, or may get.
    pub(crate) fn open(&self, id: u64) -> Option<(R, Vec<u8>)> {
        let ticket = self.tickets.get(&id)?;
        let channel = self.channels.get(&ticket.line)?;
        let is_open = ticket.is_there || ticket.in_flight > 0;
        is_open.then(|| (ticket.request.clone(), channel.name.clone()))
    }

    /// The time until which a request without a reply may still be served; `unread_until` for one under way.
    pub(crate) fn under_way_until(&self, id: u64, unread_until: Instant) -> Option<Instant> {
        let ticket = self.tickets.get(&id)?;
        let unread = (ticket.in_flight > 0).then_some(unread_until);
        unread.max(ticket.unanswered_until)
    }

    /// The evidence for parking at this line, unless it is over.
    pub(crate) fn parking(&mut self, line: Line, now: Instant) -> Option<&P> {
        let channel = self.channels.get_mut(&line)?;
        if let Some((_, Some(end))) = channel.parking {
            channel.parking.take_if(|_| now >= end);
        }
        channel.parking.as_ref().map(|(evidence, _)| evidence)
    }

    pub(crate) fn end_parking(&mut self, line: Line) {
        if let Some(channel) = self.channels.get_mut(&line) {
            channel.parking = None;
            channel.subscriptions = 0;
        }
        self.drop_unused(line);
    }

    /// A request of the line, if one is due and has no worker: then the caller starts it.
    pub(crate) fn begin_work(&mut self, line: Line) -> Option<R> {
        let channel = self.channels.get_mut(&line)?;
        let first = self.tickets.get(channel.due.first()?)?;
        let has_worker = std::mem::replace(&mut channel.has_worker, true);
        (!has_worker).then(|| first.request.clone())
    }

    /// Whether a request of the line is to be the only one until its reply.
    pub(crate) fn is_alone(&self, line: Line) -> bool {
        self.channels.get(&line).is_none_or(Channel::is_alone)
    }

    /// The next step of the line's worker.
    pub(crate) fn next(&mut self, line: Line, now: Instant) -> Step<R> {
        let Some(channel) = self.channels.get_mut(&line) else {
            return Step::Done;
        };
        let Some(id) = channel.due.first().copied() else {
            channel.has_worker = false;
            self.drop_unused(line);
            return Step::Done;
        };
        if let Some(moment) = channel.not_before.filter(|moment| now < *moment) {
            return Step::Pause(moment);
        }
        channel.due.remove(&id);
        let Some(ticket) = self.tickets.get_mut(&id) else {
            return Step::Pause(now);
        };
        ticket.state = State::Asking;
        ticket.in_flight += 1;
        Step::Ask(Ask {
            id,
            line,
            request: ticket.request.clone(),
            channel: channel.name.clone(),
            is_alone: channel.is_alone(),
            epoch: channel.epoch,
        })
    }

    /// Handles the reply to a request. True: the line needs a subscription at the node that replied.
    pub(crate) fn answered(&mut self, ask: &Ask<R>, answer: Answer, now: Instant) -> bool {
        let Some(channel) = self.channels.get_mut(&ask.line) else {
            return false;
        };
        let was_draining = channel.is_draining;
        channel.answered(&answer, ask.epoch, now);
        let mut wants_subscription = false;
        if channel.epoch == ask.epoch && matches!(answer, Answer::NoSubscriber) {
            wants_subscription = channel.live.is_none();
            if !wants_subscription {
                self.unsubscribed(ask.line);
            }
        }
        let Some(ticket) = self.tickets.get_mut(&ask.id) else {
            return wants_subscription;
        };
        ticket.in_flight = ticket.in_flight.saturating_sub(1);
        let is_grant = matches!(answer, Answer::Granted(..));
        if ticket.state == State::Over || ticket.state != State::Asking && !is_grant {
            // Over by a message; or asked again since, and the newer reply decides.
            return wants_subscription;
        }
        let early = ticket.early.take();
        match answer {
            Answer::Granted(tokens, sent) => self.end(ask.id, Outcome::Granted(tokens, sent)),
            Answer::Failed(error) => self.end(ask.id, Outcome::Failed(error)),
            Answer::Unsupported => self.end(ask.id, Outcome::Park),
            Answer::Busy if !was_draining => self.end(ask.id, Outcome::Park),
            Answer::Queued(node) => {
                ticket.is_there = true;
                wants_subscription = self.queued(ask, &node);
            }
            Answer::Later { unanswered_until } => {
                ticket.unanswered_until = ticket.unanswered_until.max(unanswered_until);
                ticket.is_there |= unanswered_until.is_some();
                self.make_due(ask.id);
            }
            Answer::NoSubscriber | Answer::Busy => self.make_due(ask.id),
        }
        if let Some(message) = early {
            self.message(ask.id, message, now);
        }
        wants_subscription
    }

    /// The ticket is queued, if its message will be received. True: the line needs a subscription first.
    fn queued(&mut self, ask: &Ask<R>, node: &str) -> bool {
        let Some(channel) = self.channels.get_mut(&ask.line) else {
            return false;
        };
        let is_there = channel.live.as_ref().map(|live| live.node == node);
        if channel.epoch == ask.epoch && is_there == Some(true) {
            if let Some(ticket) = self.tickets.get_mut(&ask.id) {
                ticket.state = State::Queued;
            }
            return false;
        }
        // The subscription is another one by now; or the server does not check for subscribers (`PUBSUB` renamed).
        let wants_subscription = channel.epoch == ask.epoch;
        self.make_due(ask.id);
        wants_subscription
    }

    /// Whether another subscription may help. If not, the waits of the line park.
    pub(crate) fn may_subscribe(&self, line: Line) -> bool {
        let channel = self.channels.get(&line);
        channel.is_some_and(|channel| channel.subscriptions < MAX_SUBSCRIPTIONS)
    }

    /// The channel is subscribed at this node through this connection.
    pub(crate) fn subscribed(&mut self, line: Line, node: &str, number: u64) {
        let Some(channel) = self.channels.get_mut(&line) else {
            return;
        };
        channel.live = Some(Live {
            node: node.to_string(),
            number,
        });
        channel.epoch += 1;
        channel.subscriptions += 1;
        // What another node has queued would send its messages there.
        self.queued_are_due(line);
    }

    /// The node has not confirmed the subscription, or could not be reached for it.
    pub(crate) fn not_subscribed(&mut self, line: Line, was_reached: bool, now: Instant) {
        if let Some(channel) = self.channels.get_mut(&line) {
            channel.subscriptions += u32::from(was_reached);
            channel.fail(now);
        }
    }

    /// The node takes no tickets: the waits of the line park, for a while or until the evidence is void.
    pub(crate) fn park(&mut self, line: Line, evidence: P, is_for_a_while: bool, now: Instant) {
        let Some(channel) = self.channels.get_mut(&line) else {
            return;
        };
        let end = is_for_a_while.then(|| now + PARKING_SPAN);
        channel.parking = Some((evidence, end));
        channel.subscriptions = 0;
        for id in std::mem::take(&mut channel.due) {
            self.end(id, Outcome::Park);
        }
    }

    /// A connection has ended: the lines that are due.
    pub(crate) fn closed(&mut self, number: u64) -> Vec<Line> {
        let lines = self.channels.iter();
        let lines = lines.filter(|(_, channel)| channel.is_on(number));
        let lines: Vec<_> = lines.map(|(line, _)| *line).collect();
        for line in &lines {
            self.unsubscribed(*line);
        }
        lines
    }

    /// The server has ended the subscription of this channel.
    pub(crate) fn channel_ended(&mut self, number: u64, name: &[u8]) -> Option<Line> {
        let mut channels = self.channels.iter();
        let (line, _) =
            channels.find(|(_, channel)| channel.name == name && channel.is_on(number))?;
        let line = *line;
        self.unsubscribed(line);
        Some(line)
    }

    fn unsubscribed(&mut self, line: Line) {
        if let Some(channel) = self.channels.get_mut(&line) {
            channel.live = None;
            channel.epoch += 1;
        }
        self.queued_are_due(line);
        self.drop_unused(line);
    }

    /// Handles a message and returns its line, which may be due.
    pub(crate) fn message(&mut self, id: u64, message: Message, now: Instant) -> Option<Line> {
        let ticket = self.tickets.get_mut(&id)?;
        let line = ticket.line;
        match (ticket.state, message) {
            (State::Over, _) => {}
            (_, Message::Granted) => self.end(id, Outcome::Announced),
            // It may be about the request before this one.
            (State::Asking, message) => ticket.early = Some(message),
            (_, Message::TimedOut) => {
                ticket.is_there = false;
                self.end(id, Outcome::TimedOut);
            }
            (_, Message::Failed(code)) => {
                ticket.is_there = false;
                match is_passing(&code) {
                    true => {
                        let channel = self.channels.get_mut(&line)?;
                        channel.is_draining |= code == "DRAINED";
                        channel.fail(now);
                        self.make_due(id);
                    }
                    false => self.end(id, Outcome::Refused(code)),
                }
            }
        }
        Some(line)
    }

    /// What the keeper of this connection does next.
    pub(crate) fn beat(&mut self, number: u64, now: Instant) -> Beat {
        let mut used = None;
        let mut unused = Vec::new();
        let mut is_resting = false;
        for (line, channel) in &self.channels {
            if !channel.is_on(number) {
                continue;
            }
            if !channel.tickets.is_empty() {
                used = Some(channel.name.clone());
            } else if now.duration_since(channel.used) >= MAX_IDLE {
                unused.push((*line, channel.name.clone()));
            } else {
                is_resting = true;
            }
        }
        match used {
            Some(used) => {
                for (line, _) in &unused {
                    self.unsubscribed(*line);
                }
                let names = unused.into_iter().map(|(_, name)| name);
                Beat::Probe(used, names.collect())
            }
            None if is_resting => Beat::Rest,
            None => Beat::Close,
        }
    }

    /// Whether a line with tickets uses this connection.
    pub(crate) fn is_used(&self, number: u64) -> bool {
        let mut channels = self.channels.values();
        channels.any(|channel| channel.is_on(number) && !channel.tickets.is_empty())
    }

    fn queued_are_due(&mut self, line: Line) {
        let Some(channel) = self.channels.get_mut(&line) else {
            return;
        };
        for id in &channel.tickets {
            if let Some(ticket) = self.tickets.get_mut(id) {
                if ticket.state == State::Queued {
                    ticket.state = State::Due;
                    channel.due.insert(*id);
                }
            }
        }
    }

    fn make_due(&mut self, id: u64) {
        let Some(ticket) = self.tickets.get_mut(&id) else {
            return;
        };
        if let Some(channel) = self.channels.get_mut(&ticket.line) {
            ticket.state = State::Due;
            channel.due.insert(id);
        }
    }

    fn end(&mut self, id: u64, outcome: Outcome) {
        let Some(ticket) = self.tickets.get_mut(&id) else {
            return;
        };
        ticket.state = State::Over;
        ticket.is_there |= matches!(outcome, Outcome::Granted(..) | Outcome::Announced);
        if let Some(channel) = self.channels.get_mut(&ticket.line) {
            channel.due.remove(&id);
        }
        if let Some(sender) = ticket.outcome.take() {
            // The wait may have been dropped.
            let _ = sender.send(outcome);
        }
    }

    /// Forgets a line that has neither tickets nor a subscription, and no evidence to remember.
    fn drop_unused(&mut self, line: Line) {
        let is_used = self.channels.get(&line).is_some_and(|channel| {
            !channel.tickets.is_empty()
                || channel.has_worker
                || channel.live.is_some()
                || channel.parking.is_some()
        });
        if !is_used {
            self.channels.remove(&line);
        }
    }
}

/// Whether the same request may be served later, or by another node.
fn is_passing(code: &str) -> bool {
    matches!(code, "UNBLOCKED" | "DRAINED" | "MOVED" | "CLUSTERDOWN")
}
