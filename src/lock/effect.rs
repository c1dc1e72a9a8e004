//! The effects of a decision: data that the shell carries out, in order.

use std::rc::Rc;

use smallvec::SmallVec;

use crate::lock::{
    CountChange, Domain, KeyState, LockError, Mode, Now, OwnerId, PermitChange, RwWrite, Ticket,
    Token, WaiterId,
};

/// The effects of one decision, in order. Nearly every decision fits in without an allocation (which costs 200
/// instructions in the server's allocator).
pub type Effects = SmallVec<[Effect; 5]>;

/// What every decision has: its moment, and the list that takes its effects.
#[derive(Debug)]
pub struct Cx<'a> {
    /// The moment of the decision.
    pub now: Now,
    /// The effects so far.
    pub effects: &'a mut Effects,
}

impl<'a> Cx<'a> {
    /// The context of a decision at this moment.
    pub fn new(now: Now, effects: &'a mut Effects) -> Cx<'a> {
        Cx { now, effects }
    }

    /// Changes the key, or a key beside it.
    pub(crate) fn write(&mut self, change: KeyWrite) {
        self.effects.push(Effect::Write(change));
    }

    /// Writes the note of a request beside the hold of this owner, if it has one.
    pub(crate) fn note(&mut self, owner: &[u8], note: Option<&[u8]>) {
        if let Some(note) = note {
            self.write(KeyWrite::Note(OwnerId::from_slice(owner), note.into()));
        }
    }

    /// The key, whose state before was this one, now ends at this moment: by a renewal, or as the hold of another.
    pub(crate) fn publish_if_shorter(&mut self, before: &KeyState, end_ms: i64) {
        let (mode, former_ms) = match before {
            KeyState::ReadWrite(lock) if lock.is_held(self.now) => (
                lock.writer.as_ref().map_or(Mode::Read, |_| Mode::Write),
                lock.deadline_ms,
            ),
            state => match state.hold(self.now) {
                Some(hold) => (Mode::Exclusive, hold.deadline_ms),
                None => return,
            },
        };
        if former_ms.is_none_or(|former_ms| end_ms < former_ms) {
            self.effects.push(Effect::Redisson(Message::Shorter(mode)));
        }
    }

    /// Sends a keyspace event.
    pub(crate) fn notify(&mut self, event: Event) {
        self.effects.push(Effect::Notify(event));
    }
}

/// One effect on the key of the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Store the horizon of a domain (see [`crate::lock::token`]).
    Horizon(Domain, u64),
    /// Write the token to Redisson's counter key, which exists.
    Counter(Token),
    /// Change the key, or a key beside it.
    Write(KeyWrite),
    /// Publish this to Redisson's waiters.
    Redisson(Message),
    /// Send a keyspace event, of class `d` except the server's own.
    Notify(Event),
    /// Answer a parked request, which has left its queue.
    Answer(WaiterId, Outcome),
    /// Publish the outcome of a ticket, which has left its queue.
    Tell(Ticket, Outcome),
}

impl Effect {
    /// Whether the effect writes a key, so that the change is replicated.
    pub fn is_write(&self) -> bool {
        matches!(
            self,
            Effect::Horizon(..) | Effect::Counter(_) | Effect::Write(_)
        )
    }

    /// Whether the effect has consequences after all writes: an answer, a message, an event.
    pub fn is_news(&self) -> bool {
        match self {
            Effect::Horizon(..) | Effect::Counter(_) => false,
            Effect::Write(change) => matches!(
                change,
                KeyWrite::Delete | KeyWrite::Count(CountChange::Delete)
            ),
            _ => true,
        }
    }
}

/// What Redisson's waiters are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// The lock is free, after a hold of this mode.
    Free(Mode),
    /// The same although the lock is held: it ends sooner than the hold of this mode that they have read, and whose end
    /// they sleep for.
    Shorter(Mode),
    /// So many permits are free. `None`: no permit is free, but one now ends before the earliest end that they have
    /// read (they sleep until then): one waiter of each client is to read again.
    Permits(Option<i64>),
    /// The latch is open, or closed by a new count.
    Latch {
        /// Which of the two.
        is_open: bool,
    },
}

/// A change of a key, or of the keys beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyWrite {
    /// Delete the key.
    Delete,
    /// A fresh hold with count 1; `clear` first deletes the remains of a former holder.
    Take {
        /// Whether the key exists and is deleted first.
        clear: bool,
        /// The new holder.
        owner: OwnerId,
        /// The token of the grant.
        token: Token,
        /// The end of the lease in Unix milliseconds.
        deadline_ms: i64,
    },
    /// Changes of the present hold; a `None` stays as it is.
    Adjust {
        /// The present holder.
        owner: OwnerId,
        /// The hold count before, and the new one.
        count: Option<(u32, u32)>,
        /// A token for a hold without one.
        token: Option<Token>,
        /// A new end of the lease in Unix milliseconds.
        deadline_ms: Option<i64>,
    },
    /// A text beside the present hold, of this owner.
    Note(OwnerId, Box<[u8]>),
    /// A change of a read-write lock.
    ReadWrite(RwWrite),
    /// All changes of a semaphore by one decision.
    Permits(PermitChange),
    /// A change of a latch.
    Count(CountChange),
}

/// The keyspace events of the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A fresh grant, immediate or by hand-off.
    Acquire,
    /// The owner released its last hold.
    Release,
    /// An operator broke the hold.
    Break,
    /// A request waits: the holder may yield the lock.
    Wait,
    /// The lease of a tracked grant ran out.
    Expire,
    /// The key of a tracked grant was deleted or overwritten.
    Lost,
    /// The server's own event, for an expired key that the module deletes before the server would report it.
    KeyExpired,
    /// A permit of a semaphore was granted.
    SemAcquire,
    /// A permit was returned by its holder.
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

/// The outcome of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The lock or the permit is granted under this token.
    Granted(Token),
    /// The latch is open.
    Open,
    /// All locks are granted, under these tokens in the order of the keys.
    GrantedAll(Rc<[Token]>),
    /// The wait ended without a grant.
    Nil,
    /// The request failed.
    Failed(LockError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_comes_after_what_is_written() {
        let take = Effect::Write(KeyWrite::Adjust {
            owner: OwnerId::new(),
            count: None,
            token: None,
            deadline_ms: None,
        });
        for write in [Effect::Horizon(0, 1), take] {
            assert!(!write.is_news(), "{write:?}");
        }
        // The deletion of a key wakes others.
        let delete = Effect::Write(KeyWrite::Delete);
        let free = Effect::Redisson(Message::Free(Mode::Exclusive));
        for news in [delete, free, Effect::Notify(Event::Release)] {
            assert!(news.is_news(), "{news:?}");
        }
    }
}
