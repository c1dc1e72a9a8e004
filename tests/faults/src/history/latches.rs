//! The records of latches.
//!
//! A latch of a history is one generation of a key: closed by one client, counted down by all, and then open for good.
//! A key gets another generation only when it is surely open and no request on it is outstanding; so each begins as an
//! open latch. (The request that says so is in the history of both.) These rules of the participants (`crate::latches`)
//! keep a generation simple enough for an exact check:
//!
//! - `SET` with a count above 0 is sent by one client, one after the other; since the first `WAIT` only with `XX`;
//!   since the first `DOWN` only when no other request is outstanding.
//! - After a `SET` without `XX` whose outcome is unknown only that client sends requests.

use serde::{Deserialize, Serialize};

use super::{Nanos, Outcome};

/// A request about a latch and how it ended: a number, nil, an error, or unknown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LatchOp {
    /// The participant that sent it.
    pub client: u32,
    /// The generation. Its numbers are above those of the keys of locks.
    pub latch: u32,
    pub call: LatchCall,
    /// With `NOTIFY`: the outcome of the wait came as a message.
    #[serde(default)]
    pub ticket: bool,
    /// Before it was written.
    pub sent: Nanos,
    /// After the reply was read, or the loss noticed.
    pub done: Nanos,
    pub outcome: Outcome,
}

/// A request about a latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LatchCall {
    /// `LATCH.SET`; 0 opens.
    Set { count: i64, only: Only },
    /// `DEL`: opens.
    Delete,
    /// `LATCH.DOWN`.
    Down { by: i64 },
    /// `LATCH.WAIT`. `block` in milliseconds: `None` does not wait, 0 waits without limit.
    Wait { block: Option<u32> },
}

/// The condition of `LATCH.SET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Only {
    Always,
    /// `NX`.
    IfOpen,
    /// `XX`.
    IfClosed,
}

impl LatchOp {
    /// Whether it is not known what happened.
    pub fn is_unknown(&self) -> bool {
        matches!(self.outcome, Outcome::Lost | Outcome::Silent)
    }

    /// Whether the latch is open after it, and may have been before.
    pub fn says_open(&self) -> bool {
        match (self.call, &self.outcome) {
            (LatchCall::Wait { .. }, Outcome::Number(number)) => *number == 1,
            (LatchCall::Down { .. }, Outcome::Number(left)) => *left == 0,
            (LatchCall::Delete, Outcome::Number(existed)) => *existed == 0,
            (LatchCall::Set { only, .. }, Outcome::Nil) => only == Only::IfClosed,
            (LatchCall::Set { .. }, Outcome::Number(count)) => *count == 0,
            _ => false,
        }
    }
}

impl LatchCall {
    /// Whether the latch is open after it: `DEL`, and `SET` with 0 without a condition.
    pub fn opens(self) -> bool {
        match self {
            LatchCall::Set { count, only } => count == 0 && only == Only::Always,
            LatchCall::Delete => true,
            _ => false,
        }
    }

    /// Whether it closes an open latch.
    pub fn closes(self) -> bool {
        matches!(self, LatchCall::Set { count, only } if count > 0 && only != Only::IfClosed)
    }
}
