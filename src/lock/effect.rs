//! What the core wants done. It does none of it: the shell carries the list out, in order.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::lock::{Domain, LockError, Mode, OwnerId, RwWrite, Token, WaiterId};

/// What one decision wants done, in order. Nearly every decision fits in without an allocation
/// (of 200 instructions, by the server's allocator).
pub type Effects = SmallVec<[Effect; 5]>;

/// One thing to do, all of them about the key of the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Store the horizon of a domain (see [`crate::lock::token`]).
    Horizon(Domain, u64),
    /// Write the token back to Redisson's counter key, which exists.
    Counter(Token),
    /// Change the lock hash.
    Write(KeyWrite),
    /// Tell Redisson's waiters that the key is free.
    Publish,
    /// Tell those of Redisson's read-write lock, after a hold of this mode.
    PublishReadWrite(Mode),
    /// A keyspace event, of class `d` but for the server's own.
    Notify(Event),
    /// Answer a parked request; it has left the queue.
    Answer(WaiterId, Outcome),
}

impl Effect {
    /// Whether anything follows from it once all is written: an answer, a message, an event.
    pub fn is_news(&self) -> bool {
        match self {
            Effect::Horizon(..) | Effect::Counter(_) => false,
            Effect::Write(change) => matches!(change, KeyWrite::Delete),
            _ => true,
        }
    }
}

/// A change of the lock hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyWrite {
    /// Delete the key.
    Delete,
    /// A fresh hold of count 1; `clear` first deletes what a former holder left.
    Take {
        /// Whether the key exists and is to be deleted first.
        clear: bool,
        /// The new holder.
        owner: OwnerId,
        /// The token of the grant.
        token: Token,
        /// The end of the lease, Unix milliseconds.
        deadline_ms: i64,
    },
    /// Changes of the present hold; what is `None` stays as it is.
    Adjust {
        /// The present holder.
        owner: OwnerId,
        /// The hold count before, and a new one.
        count: Option<(u32, u32)>,
        /// A token for a hold that had none.
        token: Option<Token>,
        /// A new end of the lease, Unix milliseconds.
        deadline_ms: Option<i64>,
    },
    /// A change of a read-write lock.
    ReadWrite(RwWrite),
}

/// The keyspace events that the module makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A fresh grant, at once or by hand-off.
    Acquire,
    /// The last hold was dropped by its owner.
    Release,
    /// The hold was broken by an operator.
    Break,
    /// Somebody waits now: a holder that can yield may want to.
    Wait,
    /// A watched lease ran out.
    Expire,
    /// The key went away under a watched holder.
    Lost,
    /// The server's own event: a key that is swept away has run out, and the server would have told of it
    /// a moment later.
    KeyExpired,
    /// A permit of a semaphore was granted.
    SemAcquire,
    /// A permit was given back by its holder.
    SemRelease,
}

impl Event {
    /// Its name in notifications.
    pub fn name(self) -> &'static std::ffi::CStr {
        match self {
            Event::Acquire => c"lock.acquire",
            Event::Release => c"lock.release",
            Event::Break => c"lock.break",
            Event::Wait => c"lock.wait",
            Event::Expire => c"lock.expire",
            Event::Lost => c"lock.lost",
            Event::KeyExpired => c"expired",
            Event::SemAcquire => c"sem.acquire",
            Event::SemRelease => c"sem.release",
        }
    }
}

/// What a parked request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The lock, or the permit, is its own.
    Granted(Token),
    /// The latch is open.
    Open,
    /// The locks are its own, under these tokens in the order of its keys.
    GrantedAll(Rc<[Token]>),
    /// It did not happen.
    Nil,
    /// The request cannot be served any more.
    Failed(LockError),
}
