//! The state of a latch, and the changes of its key.

use crate::lock::request::{UserId, Wait};
use crate::lock::resource::{Kind, Resource};
use crate::lock::stats::counters;
use crate::lock::wait::request::WaiterId;
use crate::lock::wait::ticket::Notify;
use crate::lock::wait::waiters::{Grace, Waiters};
use crate::lock::{LockError, Now};

/// The content of a latch's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// No key.
    Absent,
    /// A number, and the end of the key in Unix milliseconds.
    Is(i64, Option<i64>),
    /// A string that is not a number.
    OtherString,
    /// Another type.
    OtherType,
}

impl Count {
    /// The remaining count; 0: the latch is open.
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

/// The change of a latch's key by one decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountChange {
    /// No change.
    None,
    /// Set the count; the TTL of the key stays.
    Set(i64),
    /// Set the count of a new latch, and publish to subscribers.
    Make(i64),
    /// The latch is open: delete the key, and publish to subscribers.
    Open,
}

/// `LATCH.WAIT`.
#[derive(Debug, Clone, Copy)]
pub struct LatchWait<'a> {
    /// How long to wait.
    pub wait: Wait,
    /// Where the opening is published; `None`: the client is parked.
    pub notify: Option<Notify<'a>>,
    /// The server's id of the connection.
    pub client: u64,
    /// The user, of a request that may wait.
    pub user: UserId,
}

impl LatchWait<'_> {
    /// The name of the request in the queue, which has no owners: its connection, or the channel and the tag.
    pub(super) fn name(&self) -> Vec<u8> {
        let Some(Notify { channel, tag }) = self.notify else {
            return self.client.to_be_bytes().to_vec();
        };
        // Longer than the name of a connection, and different for every channel and tag.
        let length = (channel.len() as u64).to_be_bytes();
        [b"#", &length[..], channel, tag].concat()
    }
}

/// The result of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The latch is open.
    Open,
    /// The latch is closed, and the request may not wait.
    Closed,
    /// The request waits, parked or as a ticket.
    Parked(WaiterId),
}

counters! {
    /// The counters of latches, beside those of their waits.
    LatchStats
    /// Waits answered at once that the latch is open.
    open,
}

/// The latches of one server: the part in memory.
#[derive(Debug, Default)]
pub struct Latches {
    /// The waiters.
    pub waiters: Waiters,
    /// The statistics.
    pub stats: LatchStats,
}

impl Kind for Latches {
    fn resource(&self) -> Resource {
        Resource::Latch
    }

    fn prefix(&self) -> &'static str {
        "latch_"
    }

    fn fields(&self) -> Vec<(&'static str, u64)> {
        let gauges = [
            ("waiters", self.waiters.parked_requests() as u64),
            ("keys_waited", self.waiters.keys_waited() as u64),
        ];
        // All waiters of a latch are answered at once. They have no owner: no parked one replaces
        // another or withdraws.
        let waits = self
            .waiters
            .stats
            .fields()
            .filter_map(|(name, value)| match name {
                "refusals" => Some(("closed", value)),
                "waits_granted" => Some(("waits_opened", value)),
                "waits_taken_over" | "waits_withdrawn" | "wait_ms_max" => None,
                name => Some((name, value)),
            });
        let gauges = gauges.into_iter().chain(self.stats.fields());
        gauges.chain(waits).collect()
    }

    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn waiters_mut(&mut self) -> &mut Waiters {
        &mut self.waiters
    }

    fn set_grace(&mut self, _grace: Grace) {
        // All waiters are answered at once, so a place has no value.
    }
}
