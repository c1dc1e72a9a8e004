//! Latches: a number that is counted down, and requests that wait until it reaches zero.
//!
//! The layout is that of Redisson's `RCountDownLatch`: a string with the count. A missing key, or a count of zero or
//! less, is an open latch. A waiter is identified by its connection, has no owner and keeps no place after a
//! disconnect. All waiters are answered at once.

use crate::lock::effect::{Cx, Effect, KeyWrite, Message};
use crate::lock::name::Resource;
use crate::lock::request::{Acquire, Answer, SetIf, Wait};
use crate::lock::shared::Shared;
use crate::lock::stats::counters;
use crate::lock::wait::ticket::Notify;
use crate::lock::{KeyRef, LockError, Now, Outcome};

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
    /// Whether the latch is open, so that its waiters are to be answered.
    pub fn is_open(self, now: Now) -> bool {
        self.left(now) == Ok(0)
    }

    /// The remaining count; 0: the latch is open.
    fn left(self, now: Now) -> Result<i64, LockError> {
        match self {
            Count::Absent => Ok(0),
            Count::Is(_, Some(end)) if end <= now.wall_ms => Ok(0),
            Count::Is(count, _) => Ok(count.max(0)),
            Count::OtherString => Err(LockError::NotCount),
            Count::OtherType => Err(LockError::WrongType),
        }
    }
}

/// A change of a latch's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountChange {
    /// Set the count; the TTL of the key stays.
    Set(i64),
    /// Set the count of a new latch.
    Make(i64),
    /// Delete the key.
    Delete,
}

/// The name of a request in the queue, which has no owners: its connection, or the channel and the tag.
fn name_of(req: &Acquire<'_>) -> Vec<u8> {
    let Some(Notify { channel, tag }) = req.notify else {
        return req.client.to_be_bytes().to_vec();
    };
    // Longer than the name of a connection, and different for every channel and tag.
    let length = (channel.len() as u64).to_be_bytes();
    [b"#", &length[..], channel, tag].concat()
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
    /// The statistics.
    pub(super) stats: LatchStats,
}

impl Latches {
    /// `LATCH.SET`. Returns the count, or `None` when the condition excludes it.
    ///
    /// # Errors
    /// Those of [`Count`], [`LockError::OtherCount`].
    pub fn set(
        shared: &mut Shared,
        key: KeyRef<'_>,
        state: Count,
        (count, set_if): (i64, SetIf),
        cx: &mut Cx<'_>,
    ) -> Result<Option<i64>, LockError> {
        shared.waiters.check_is_not_other(key)?;
        let left = state.left(cx.now)?;
        if !set_if.allows(left > 0) {
            return Ok(None);
        }
        match (left, count) {
            (_, 0) => Latches::open_latch(shared, key, state, cx),
            (0, _) => {
                shared.waiters.schedule_settle_others(key);
                cx.write(KeyWrite::Count(CountChange::Make(count)));
                cx.effects
                    .push(Effect::Redisson(Message::Latch { is_open: false }));
            }
            _ => cx.write(KeyWrite::Count(CountChange::Set(count))),
        }
        Ok(Some(count))
    }

    /// `LATCH.DOWN`. Returns the remaining count.
    ///
    /// # Errors
    /// As [`Latches::set`].
    pub fn down(
        shared: &mut Shared,
        key: KeyRef<'_>,
        state: Count,
        by: i64,
        cx: &mut Cx<'_>,
    ) -> Result<i64, LockError> {
        shared.waiters.check_is_not_other(key)?;
        let left = state.left(cx.now)?.saturating_sub(by).max(0);
        match left {
            0 => Latches::open_latch(shared, key, state, cx),
            left => cx.write(KeyWrite::Count(CountChange::Set(left))),
        }
        Ok(left)
    }

    /// `LATCH.WAIT`: granted if the latch is open. Of the request the owner and the terms of a hold do not matter.
    ///
    /// # Errors
    /// As [`Latches::set`], and [`LockError::Busy`].
    pub fn wait(
        &mut self,
        shared: &mut Shared,
        key: KeyRef<'_>,
        state: Count,
        req: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Answer<()>, LockError> {
        shared.waiters.check_is_not_other(key)?;
        if state.left(cx.now)? == 0 {
            self.stats.open += 1;
            return Ok(Answer::Granted(()));
        }
        if req.wait == Wait::No {
            shared.waiters.stats[Resource::Latch].refusals += 1;
            return Ok(Answer::Refused);
        }
        let named = Acquire {
            owner: &name_of(req),
            ..*req
        };
        let id = shared.park(key, &named, cx)?;
        Latches::note_end(shared, key, state);
        Ok(Answer::Waits(id))
    }

    /// Settles a latch: called when its key has expired or was changed by other means.
    pub fn settle(shared: &mut Shared, key: KeyRef<'_>, state: Count, cx: &mut Cx<'_>) {
        match state.left(cx.now) {
            Ok(0) => shared.waiters.end_all(key, Outcome::Open, cx),
            Ok(_) => Latches::note_end(shared, key, state),
            Err(error) => shared.waiters.fail_all(key, &error, cx),
        }
    }

    fn open_latch(shared: &mut Shared, key: KeyRef<'_>, state: Count, cx: &mut Cx<'_>) {
        if state != Count::Absent {
            cx.write(KeyWrite::Count(CountChange::Delete));
            cx.effects
                .push(Effect::Redisson(Message::Latch { is_open: true }));
        }
        shared.waiters.end_all(key, Outcome::Open, cx);
    }

    fn note_end(shared: &mut Shared, key: KeyRef<'_>, state: Count) {
        let end_ms = match state {
            Count::Is(_, end_ms) => end_ms,
            _ => None,
        };
        shared.waiters.set_lease(key, end_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latch_is_open_without_a_key_at_zero_and_after_its_end() {
        let now = Now::at_mono(0);
        let over = Some(now.wall_ms);
        let later = Some(now.wall_ms + 1);
        for open in [
            Count::Absent,
            Count::Is(0, None),
            Count::Is(-1, None),
            Count::Is(1, over),
        ] {
            assert!(open.is_open(now), "{open:?}");
        }
        for closed in [
            Count::Is(1, None),
            Count::Is(1, later),
            Count::OtherString,
            Count::OtherType,
        ] {
            assert!(!closed.is_open(now), "{closed:?}");
        }
    }
}
