//! A ticket, and what passes between the table and the desk.

use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::error::Error;
use crate::moment::Moment;
use crate::net::tickets::message::Message;

/// What shares a channel: the tickets of a slot, in a cluster; else all of a server.
pub(crate) type Line = Option<u16>;

/// What a wait learns of its ticket.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The reply to the request: the tokens, and a moment before it was sent.
    Granted(Vec<u64>, Moment),
    /// A message says so.
    Announced,
    /// The time of `BLOCK` is over.
    TimedOut,
    Failed(Error),
    /// A message with this code says so.
    Refused(String),
    /// No tickets here, or no place for this one: wait with a connection.
    Park,
}

/// What the server replied to a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted(Vec<u64>, Moment),
    /// By this node.
    Queued(String),
    NoSubscriber,
    /// `LOCKBUSY`.
    Busy,
    /// No reply, or an error that passes. `is_unanswered`: the request may be served until then.
    Later {
        unanswered_until: Option<Instant>,
    },
    /// The server takes no tickets.
    Unsupported,
    Failed(Error),
}

/// What a worker of a line does next.
pub(crate) enum Step<R> {
    /// Nothing is due.
    Done,
    Pause(Instant),
    Ask(Ask<R>),
}

/// A request to send.
#[derive(Debug, Clone)]
pub(crate) struct Ask<R> {
    pub id: u64,
    pub line: Line,
    pub request: R,
    pub channel: Vec<u8>,
    /// No other request of the line is sent before the reply.
    pub is_alone: bool,
    pub epoch: u64,
}

/// What the keeper of a subscription does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Beat {
    /// No line has had a ticket for [`MAX_IDLE`](super::table::MAX_IDLE).
    Close,
    /// No ticket, for now.
    Rest,
    /// Subscribe to the first channel again; the others have been idle.
    Probe(Vec<u8>, Vec<Vec<u8>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Due,
    Asking,
    Queued,
    Over,
}

pub(super) struct Ticket<R> {
    pub line: Line,
    pub request: R,
    pub state: State,
    /// A message that came before the reply.
    pub early: Option<Message>,
    /// Requests without a reply yet.
    pub in_flight: u32,
    /// Whether the server may have it in a queue, or may have granted it.
    pub is_there: bool,
    pub unanswered_until: Option<Instant>,
    pub outcome: Option<oneshot::Sender<Outcome>>,
}

impl<R> Ticket<R> {
    pub(super) fn new(line: Line, request: R) -> (Ticket<R>, oneshot::Receiver<Outcome>) {
        let (sender, receiver) = oneshot::channel();
        let ticket = Ticket {
            line,
            request,
            state: State::Due,
            early: None,
            in_flight: 0,
            is_there: false,
            unanswered_until: None,
            outcome: Some(sender),
        };
        (ticket, receiver)
    }
}
