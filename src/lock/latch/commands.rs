//! The latch commands, and the settling of a latch.

use crate::lock::effect::{Cx, Outcome};
use crate::lock::exclusive::request::Wait;
use crate::lock::latch::state::{Count, CountChange, Waited};
use crate::lock::locks::Locks;
use crate::lock::resource::Resource;
use crate::lock::semaphore::commands::SetIf;
use crate::lock::wait::request::Waiter;
use crate::lock::{KeyRef, Lease, LockError, Mode, Now};

impl Locks {
    /// `LATCH.SET`. Returns the count, or `None` when the condition excludes it.
    pub fn latch_set(
        &mut self,
        key: KeyRef<'_>,
        state: Count,
        count: i64,
        set_if: SetIf,
        cx: &mut Cx<'_>,
    ) -> Result<(Option<i64>, CountChange), LockError> {
        self.check_is_not_other(Resource::Latch, key)?;
        let left = state.left(cx.now)?;
        if !set_if.allows(left > 0) {
            return Ok((None, CountChange::None));
        }
        let change = match (left, count) {
            (_, 0) => self.open_latch(key, state, cx),
            (0, _) => {
                self.begins_as(Resource::Latch, key);
                CountChange::Make(count)
            }
            _ => CountChange::Set(count),
        };
        Ok((Some(count), change))
    }

    /// `LATCH.DOWN`. Returns the remaining count.
    pub fn latch_down(
        &mut self,
        key: KeyRef<'_>,
        state: Count,
        by: i64,
        cx: &mut Cx<'_>,
    ) -> Result<(i64, CountChange), LockError> {
        self.check_is_not_other(Resource::Latch, key)?;
        let left = state.left(cx.now)?.saturating_sub(by).max(0);
        let change = match left {
            0 => self.open_latch(key, state, cx),
            left => CountChange::Set(left),
        };
        Ok((left, change))
    }

    /// `LATCH.WAIT`.
    pub fn latch_wait(
        &mut self,
        key: KeyRef<'_>,
        state: Count,
        client: u64,
        wait: Wait,
        cx: &mut Cx<'_>,
    ) -> Result<Waited, LockError> {
        self.check_is_not_other(Resource::Latch, key)?;
        if state.left(cx.now)? == 0 {
            self.latches.stats.open += 1;
            return Ok(Waited::Open);
        }
        if wait == Wait::No {
            self.latches.waiters.stats.refusals += 1;
            return Ok(Waited::Closed);
        }
        let name = client.to_be_bytes();
        if self.is_full(Resource::Latch, key, &name) {
            self.latches.waiters.stats.busy += 1;
            return Err(LockError::Busy);
        }
        let id = self.next_waiter_id();
        let waiter = Waiter {
            id,
            mode: Mode::Exclusive,
            lease: Lease::SHORTEST,
            deadline_ms: wait.deadline(cx.now),
            since_ms: cx.now.mono_ms,
            client,
            session: false,
            limit: None,
        };
        self.latches.waiters.park(key, &name, waiter, cx);
        self.note_end(key, state);
        Ok(Waited::Parked(id))
    }

    /// Settles a latch: called when its key has expired or was changed by other means.
    pub fn latch_settle(&mut self, key: KeyRef<'_>, state: Count, cx: &mut Cx<'_>) {
        match state.left(cx.now) {
            Ok(0) => self.grant_all(key, cx),
            Ok(_) => self.note_end(key, state),
            Err(error) => self.latches.waiters.fail_all(key, &error, cx),
        }
    }

    /// Whether a latch in this state is open, so that its waiters are to be answered.
    pub fn is_latch_open(state: Count, now: Now) -> bool {
        state.left(now) == Ok(0)
    }

    fn open_latch(&mut self, key: KeyRef<'_>, state: Count, cx: &mut Cx<'_>) -> CountChange {
        self.grant_all(key, cx);
        match state {
            Count::Absent => CountChange::None,
            _ => CountChange::Open,
        }
    }

    fn grant_all(&mut self, key: KeyRef<'_>, cx: &mut Cx<'_>) {
        for waiter in self.latches.waiters.clear(key) {
            self.latches.waiters.stats.waits_granted += 1;
            cx.answer(waiter, Outcome::Open);
        }
    }

    fn note_end(&mut self, key: KeyRef<'_>, state: Count) {
        let end_ms = match state {
            Count::Is(_, end_ms) => end_ms,
            _ => None,
        };
        self.latches.waiters.set_lease(key, end_ms);
    }
}
