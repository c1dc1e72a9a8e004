//! The history of a run: the clients' requests and their outcomes, the readings of the watcher, and the faults of the
//! servers. Requests with `NOTIFY`, their messages and the subscriptions are in `tickets`, requests about latches in
//! `latches`.
//!
//! Times are nanoseconds of CLOCK_MONOTONIC since the program began. `sent` is read before the request is written,
//! `done` after its reply was read, so the server acts between the two. An owner belongs to one client and one key, and
//! is never used again after it has given up: it identifies a series of requests.

use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

use serde::{Deserialize, Serialize};

mod latches;
mod tickets;

pub use latches::{LatchCall, LatchOp, Only};
pub use tickets::{Answer, Ask, Message, Subscription, TicketCounters, Word};

/// Nanoseconds of the monotonic clock since the program first read it.
pub type Nanos = u64;

/// A millisecond.
pub const MS: Nanos = 1_000_000;

/// Now.
pub fn now() -> Nanos {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as Nanos
}

/// A request and how it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// The client that sent it: one connection at a time.
    pub client: u32,
    /// The owner for which it was sent.
    pub owner: u64,
    /// The number of the key.
    pub key: u32,
    /// The request.
    pub call: Call,
    /// Before it was written.
    pub sent: Nanos,
    /// After the reply was read, or the loss noticed.
    pub done: Nanos,
    /// How it ended.
    pub outcome: Outcome,
}

/// A request; times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Call {
    /// `LOCK.ACQUIRE`, `SEM.ACQUIRE`. `block`: `None` does not wait, 0 waits without limit.
    Acquire {
        #[serde(default)]
        kind: Kind,
        #[serde(default)]
        tie: Tie,
        lease: u32,
        block: Option<u32>,
        once: bool,
    },
    /// `LOCK.RENEW`, `SEM.RENEW`, with `TOKEN` if it is known.
    Renew {
        #[serde(default)]
        kind: Kind,
        lease: u32,
        token: Option<i64>,
    },
    /// `LOCK.RELEASE`, `SEM.RELEASE`.
    Release {
        #[serde(default)]
        kind: Kind,
        all: bool,
        token: Option<i64>,
    },
    /// The client closed the connection that the owner's hold of the key may be bound to: `Nil`. The connection had
    /// been closed already: `Lost`. It may follow the owner's last request long after, when the client has continued
    /// with other owners.
    Close,
}

impl Call {
    /// `LOCK.ACQUIRE` of an exclusive lock.
    pub fn acquire(lease: u32, block: Option<u32>, once: bool) -> Call {
        Call::Acquire {
            kind: Kind::Exclusive,
            tie: Tie::None,
            lease,
            block,
            once,
        }
    }

    /// `LOCK.RENEW` of an exclusive lock.
    pub fn renew(lease: u32, token: Option<i64>) -> Call {
        let kind = Kind::Exclusive;
        Call::Renew { kind, lease, token }
    }

    /// `LOCK.RELEASE` of an exclusive lock.
    pub fn release(all: bool, token: Option<i64>) -> Call {
        let kind = Kind::Exclusive;
        Call::Release { kind, all, token }
    }

    /// The kind of hold that is acquired, renewed or released.
    pub fn kind(&self) -> Kind {
        match self {
            Call::Acquire { kind, .. } | Call::Renew { kind, .. } | Call::Release { kind, .. } => {
                *kind
            }
            Call::Close => Kind::Exclusive,
        }
    }
}

/// The kinds of hold. A key is used for exclusive locks, for `READ` and `WRITE`, or as a semaphore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    #[default]
    Exclusive,
    Read,
    Write,
    /// One of this number of permits.
    Permit(u32),
}

impl Kind {
    /// Whether another owner's hold of that kind is incompatible. (Permits are counted instead.)
    pub fn excludes(self, other: Kind) -> bool {
        !matches!(
            (self, other),
            (Kind::Read, Kind::Read) | (Kind::Permit(_), Kind::Permit(_))
        )
    }
}

/// The bond of a hold beside its lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tie {
    #[default]
    None,
    /// `SESSION`: the connection; `lease` is `lock.session-lease`.
    Session,
    /// One request for several keys: one `Op` for each, all of the same owner and time.
    Many,
    /// Taken by a script, as Redisson does, and then made known to the module: one `Op` for both.
    Outside,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// An acquire was granted, under this token.
    Granted(i64),
    /// A release's or renewal's number.
    Number(i64),
    /// Nil.
    Nil,
    /// An error reply, its first word.
    Error(Box<str>),
    /// The connection was lost, or closed by the client: the outcome is unknown.
    Lost,
    /// No reply although the run was over and all faults were healed.
    Silent,
}

/// The watcher saw this owner in the key's queue, in a reply that it had read by then.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    pub key: u32,
    pub owner: u64,
    pub at: Nanos,
}

/// The watcher read atomically, between two times, the holders of these keys: a transaction of `LOCK.INFO`s.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Look {
    pub from: Nanos,
    pub to: Nanos,
    /// Key and owner.
    pub holders: Vec<(u32, u64)>,
}

/// A fault of the servers, from before it began until after it was over.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    pub fault: Fault,
    /// The key, if it concerns only one.
    pub key: Option<u32>,
    pub from: Nanos,
    pub to: Nanos,
}

/// The kinds of faults, as far as the guarantees differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Fault {
    /// The process was killed; every reply was preceded by an fsync.
    Crash,
    /// The process was killed and may have lost its last writes.
    LossyCrash,
    /// Another server took over, with all writes of the former one (`FAILOVER`, a slot moved).
    Handover,
    /// A slot moved key by key: `MIGRATE` passes on the remaining time, and its own duration extends the lease.
    Migration,
    /// Another server took over that may lack the last writes (asynchronous replication).
    Failover,
    /// A lock was taken away (`FLUSHALL`, `DEL`, `LOCK.BREAK`).
    Taken,
    /// The wall clock was set forward.
    ClockForward,
    /// The wall clock was set back.
    ClockBack,
    /// Settings of queues were changed for a while: waits fail, places are lost.
    Settings,
    /// Requests were not answered, or not accepted, for a while; no other effect.
    Trouble,
}

impl Fault {
    /// Whether two may hold a lock after it, as documented.
    pub fn breaks_exclusion(self) -> bool {
        self.excuse().is_some()
    }

    /// The reason why two may hold a lock after it, for the report.
    pub fn excuse(self) -> Option<&'static str> {
        match self {
            Fault::LossyCrash => Some("writes not yet on disk"),
            Fault::Failover => Some("asynchronous replication"),
            Fault::Taken => Some("locks taken away"),
            Fault::ClockForward => Some("clock set forward"),
            _ => None,
        }
    }

    /// Whether queues are lost, as documented.
    pub fn breaks_order(self) -> bool {
        use Fault::*;
        matches!(
            self,
            Crash | LossyCrash | Handover | Migration | Failover | Settings
        )
    }

    /// Whether an earlier state of the data may return.
    pub fn restores(self) -> bool {
        matches!(self, Fault::LossyCrash | Fault::Failover)
    }

    /// Whether a primary and a replica change places, so that a request may meet the replica.
    pub fn changes_primary(self) -> bool {
        matches!(self, Fault::Handover | Fault::Failover)
    }

    /// Whether a lease may end later than its client can know.
    pub fn lengthens_leases(self) -> bool {
        use Fault::*;
        matches!(self, LossyCrash | Migration | Failover | ClockBack)
    }
}

/// Everything, in no particular order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct History {
    pub ops: Vec<Op>,
    pub seen: Vec<Seen>,
    pub looks: Vec<Look>,
    pub marks: Vec<Mark>,
    pub asks: Vec<Ask>,
    pub messages: Vec<Message>,
    pub subscriptions: Vec<Subscription>,
    /// The counters of a server that was not restarted.
    pub counters: Vec<TicketCounters>,
    pub latches: Vec<LatchOp>,
}

/// One line of a history's file.
#[derive(Serialize, Deserialize)]
enum Line {
    Op(Op),
    Seen(Seen),
    Look(Look),
    Mark(Mark),
    Ask(Ask),
    Message(Message),
    Subscription(Subscription),
    Counters(TicketCounters),
    Latch(LatchOp),
}

impl From<Vec<Op>> for History {
    fn from(ops: Vec<Op>) -> History {
        History {
            ops,
            ..History::default()
        }
    }
}

impl History {
    /// Adds the records of another participant of the same run.
    pub fn add(&mut self, part: History) {
        self.ops.extend(part.ops);
        self.seen.extend(part.seen);
        self.looks.extend(part.looks);
        self.marks.extend(part.marks);
        self.asks.extend(part.asks);
        self.messages.extend(part.messages);
        self.subscriptions.extend(part.subscriptions);
        self.counters.extend(part.counters);
        self.latches.extend(part.latches);
    }

    /// Writes the history, one JSON object a line.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        let ops = self.ops.iter().cloned().map(Line::Op);
        let seen = self.seen.iter().copied().map(Line::Seen);
        let looks = self.looks.iter().cloned().map(Line::Look);
        let marks = self.marks.iter().copied().map(Line::Mark);
        let asks = self.asks.iter().cloned().map(Line::Ask);
        let messages = self.messages.iter().cloned().map(Line::Message);
        let subscriptions = self.subscriptions.iter().cloned().map(Line::Subscription);
        let counters = self.counters.iter().copied().map(Line::Counters);
        let latches = self.latches.iter().cloned().map(Line::Latch);
        let tickets = asks.chain(messages).chain(subscriptions).chain(counters);
        let rest = tickets.chain(latches);
        for line in marks.chain(seen).chain(looks).chain(ops).chain(rest) {
            serde_json::to_writer(&mut file, &line)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    }

    /// Reads what [`History::write`] has written.
    pub fn read(path: &Path) -> std::io::Result<History> {
        let mut history = History::default();
        for line in std::io::BufReader::new(std::fs::File::open(path)?).lines() {
            match serde_json::from_str(&line?)? {
                Line::Op(op) => history.ops.push(op),
                Line::Seen(seen) => history.seen.push(seen),
                Line::Look(look) => history.looks.push(look),
                Line::Mark(mark) => history.marks.push(mark),
                Line::Ask(ask) => history.asks.push(ask),
                Line::Message(message) => history.messages.push(message),
                Line::Subscription(subscription) => history.subscriptions.push(subscription),
                Line::Counters(counters) => history.counters.push(counters),
                Line::Latch(op) => history.latches.push(op),
            }
        }
        Ok(history)
    }
}

/// The marks of a run, written by the code that causes the faults.
#[derive(Default)]
pub struct Journal(Mutex<Vec<Mark>>);

impl Journal {
    /// Causes a fault, marked from before to after.
    pub fn during<T>(&self, fault: Fault, act: impl FnOnce() -> T) -> T {
        let from = now();
        let result = act();
        self.mark(fault, None, from);
        result
    }

    /// Marks a fault that began then and is over now.
    pub fn mark(&self, fault: Fault, key: Option<u32>, from: Nanos) {
        let to = now();
        let mark = Mark {
            fault,
            key,
            from,
            to,
        };
        self.0.lock().expect("no panic under the lock").push(mark);
    }

    /// The marks so far.
    pub fn marks(&self) -> Vec<Mark> {
        self.0.lock().expect("no panic under the lock").clone()
    }
}
