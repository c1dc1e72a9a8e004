//! The latch commands, and the settling of a latch.

use crate::lock::latch::state::Latches;
use crate::lock::latch::state::{Count, CountChange, LatchWait, Waited};
use crate::lock::request::{SetIf, Wait};
use crate::lock::resource::KindCx;
use crate::lock::wait::request::{EndsWith, Waiter};
use crate::lock::{KeyRef, LockError};

impl Latches {
    /// `LATCH.SET`. Returns the count, or `None` when the condition excludes it.
    pub(super) fn set(
        &mut self,
        key: KeyRef<'_>,
        state: Count,
        (count, set_if): (i64, SetIf),
        cx: &mut KindCx<'_>,
    ) -> Result<(Option<i64>, CountChange), LockError> {
        cx.check_is_not_other()?;
        let left = state.left(cx.now)?;
        if !set_if.allows(left > 0) {
            return Ok((None, CountChange::None));
        }
        let change = match (left, count) {
            (_, 0) => self.open_latch(key, state, cx),
            (0, _) => CountChange::Make(count),
            _ => CountChange::Set(count),
        };
        Ok((Some(count), change))
    }

    /// `LATCH.DOWN`. Returns the remaining count.
    pub(super) fn down(
        &mut self,
        key: KeyRef<'_>,
        state: Count,
        by: i64,
        cx: &mut KindCx<'_>,
    ) -> Result<(i64, CountChange), LockError> {
        cx.check_is_not_other()?;
        let left = state.left(cx.now)?.saturating_sub(by).max(0);
        let change = match left {
            0 => self.open_latch(key, state, cx),
            left => CountChange::Set(left),
        };
        Ok((left, change))
    }

    /// `LATCH.WAIT`.
    pub(super) fn wait(
        &mut self,
        key: KeyRef<'_>,
        state: Count,
        req: &LatchWait<'_>,
        cx: &mut KindCx<'_>,
    ) -> Result<Waited, LockError> {
        cx.check_is_not_other()?;
        if state.left(cx.now)? == 0 {
            self.stats.open += 1;
            return Ok(Waited::Open);
        }
        if req.wait == Wait::No {
            self.waiters.stats.refusals += 1;
            return Ok(Waited::Closed);
        }
        let name = req.name();
        let id = cx.admit(&mut self.waiters, key, &name, req.notify)?;
        let waiter = Waiter {
            user: req.user,
            ticket: req.notify.map(|notify| cx.channels.ticket(notify)),
            ..Waiter::new(id, req.client, req.wait.deadline(cx.now), cx.now)
        };
        self.waiters.park(key, &name, waiter, cx);
        self.note_end(key, state);
        Ok(Waited::Parked(id))
    }

    /// Settles a latch: called when its key has expired or was changed by other means.
    pub(super) fn settle(&mut self, key: KeyRef<'_>, state: Count, cx: &mut KindCx<'_>) {
        match state.left(cx.now) {
            Ok(0) => self.grant_all(key, cx),
            Ok(_) => self.note_end(key, state),
            Err(error) => self.waiters.fail_all(key, &error, cx),
        }
    }

    fn open_latch(&mut self, key: KeyRef<'_>, state: Count, cx: &mut KindCx<'_>) -> CountChange {
        self.grant_all(key, cx);
        match state {
            Count::Absent => CountChange::None,
            _ => CountChange::Open,
        }
    }

    fn grant_all(&mut self, key: KeyRef<'_>, cx: &mut KindCx<'_>) {
        self.waiters.end_all(key, EndsWith::Open, cx);
    }

    fn note_end(&mut self, key: KeyRef<'_>, state: Count) {
        let end_ms = match state {
            Count::Is(_, end_ms) => end_ms,
            _ => None,
        };
        self.waiters.set_lease(key, end_ms);
    }
}
