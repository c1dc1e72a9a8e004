//! LS

use crate::lock::stats::LatchStats;
use crate::lock::wait::request::WaiterId;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{LockError, Now};

/// What a latch's key holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// No key.
    Absent,
    /// A number, and when the key ends (Unix milliseconds).
    Is(i64, Option<i64>),
    /// A string that is no number.
    OtherString,
    /// Another type.
    OtherType,
}

impl Count {
    /// What is left to be counted down; 0: the latch is open.
    pub(super) fn left(self, now: Now) -> Result<i64, LockError> {
        match self {
            Count::Absent => Ok(0),
            Count::Is(_, Some(end)) if end <= now.wall_ms => Ok(0),
            Count::Is(count, _) => Ok(count.max(0)),
            Count::OtherString => Err(LockError::NotCount),
            Count::OtherType => Err(LockError::WrongType),
        }
    }
}

/// What one decision does to a latch's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountChange {
    /// Nothing.
    None,
    /// Another count, the key's TTL stays.
    Set(i64),
    /// The same, of a latch that is new: those who listen are told.
    Make(i64),
    /// The latch is open: the key goes, and those who listen are told.
    Open,
}

/// How a wait went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The latch is open.
    Open,
    /// It is not.
    Closed,
    /// The request is parked.
    Parked(WaiterId),
}

/// The latches of one server, as far as memory goes.
#[derive(Debug, Default)]
pub struct Latches {
    /// Who waits.
    pub waiters: Waiters,
    /// What has happened so far.
    pub stats: LatchStats,
}
