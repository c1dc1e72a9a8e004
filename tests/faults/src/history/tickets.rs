//! The records of tickets: requests with `NOTIFY`, messages, subscriptions, and the counters of a server.
//!
//! A request and its message are recorded apart, as they travel on two connections; `check` joins them by the tag.
//! Each request has a tag of its own, also when its owner asks again, so a message names the request that it ends.

use serde::{Deserialize, Serialize};

use super::{Call, Kind, Nanos, Tie};

/// A request with `NOTIFY` and its reply. It is sent with `ONCE`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ask {
    /// The process that sent it.
    pub client: u32,
    pub owner: u64,
    /// One key, or those of `LOCK.MACQUIRE`.
    pub keys: Vec<u32>,
    pub kind: Kind,
    /// In milliseconds.
    pub lease: u32,
    /// `BLOCK`, in milliseconds; 0: no limit.
    pub block: u32,
    /// The port of the server.
    pub port: u16,
    pub channel: String,
    pub tag: u64,
    /// Before it was written.
    pub sent: Nanos,
    /// After the reply was read, or the loss noticed.
    pub done: Nanos,
    pub answer: Answer,
}

impl Ask {
    /// The same request without `NOTIFY`.
    pub fn call(&self) -> Call {
        Call::Acquire {
            kind: self.kind,
            tie: match self.keys.len() {
                1 => Tie::None,
                _ => Tie::Many,
            },
            lease: self.lease,
            block: Some(self.block),
            once: true,
        }
    }
}

/// The reply to a request with `NOTIFY`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    Queued,
    /// Granted at once, or held by the owner already: a token for each key.
    Granted(Vec<i64>),
    /// The first word of an error; `nil` for a reply that is none of these.
    Error(Box<str>),
    /// The connection was lost before the reply.
    Lost,
}

/// A message, as the subscriber read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The process that read it.
    pub client: u32,
    /// The server that it came from. In a cluster a process may be subscribed at a primary and its replica.
    pub port: u16,
    pub channel: String,
    pub tag: u64,
    pub word: Word,
    /// After it was read.
    pub at: Nanos,
}

/// The words of a message before its tag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Word {
    /// A token for each key.
    Granted(Vec<i64>),
    Timeout,
    Failed(Box<str>),
    /// Another text.
    Unknown(Box<str>),
}

/// A subscription of a process to its channel. The channel surely has this subscriber from `from` to `alive`, and may
/// have it from `sent` to `to`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Subscription {
    pub client: u32,
    pub port: u16,
    pub channel: String,
    /// Before the request was written.
    pub sent: Nanos,
    /// After its confirmation was read.
    pub from: Nanos,
    /// When the last `PING` that was answered was sent; `from` if none was.
    pub alive: Nanos,
    /// When its end was noticed.
    pub to: Nanos,
    /// Whether the server ended it. If the process did, the server may have noticed that later.
    pub is_ended_by_server: bool,
}

/// The counters `lock_tickets_*` of `INFO lock` when no command is running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketCounters {
    pub queued: u64,
    pub granted: u64,
    pub timed_out: u64,
    pub withdrawn: u64,
    pub taken_over: u64,
    pub failed: u64,
    pub unheard: u64,
    /// `lock_tickets`: those that still wait.
    pub waiting: u64,
}
