//! The latch commands, and the settling of a latch.

use crate::lock::effect::{Cx, Effect, Outcome};
use crate::lock::exclusive::request::Wait;
use crate::lock::latch::state::{Count, CountChange, Waited};
use crate::lock::locks::Locks;
use crate::lock::resource::Resource;
use crate::lock::semaphore::commands::SetIf;
use crate::lock::wait::request::{Waiter, WaiterId};
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
        self.is_no_semaphore(key)?;
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
        self.is_no_semaphore(key)?;
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
        now: Now,
    ) -> Result<Waited, LockError> {
        self.is_no_semaphore(key)?;
        if state.left(now)? == 0 {
            self.latches.stats.latch_open += 1;
            return Ok(Waited::Open);
        }
        if wait == Wait::No {
            self.latches.stats.latch_closed += 1;
            return Ok(Waited::Closed);
        }
        let waiters = &self.latches.waiters;
        if self.all_places() >= self.limits.max_waiters
            || waiters.live_on(key) >= self.limits.max_waiters_per_key
        {
            self.latches.stats.latch_busy += 1;
            return Err(LockError::Busy);
        }
        self.last_waiter_id += 1;
        let id = WaiterId(self.last_waiter_id);
        let waiter = Waiter {
            id,
            mode: Mode::Exclusive,
            lease: Lease::SHORTEST,
            deadline_ms: wait.deadline(now),
            since_ms: now.mono_ms,
            client,
            session: false,
            limit: None,
        };
        self.latches
            .waiters
            .park(key, &client.to_be_bytes(), waiter);
        self.latches.stats.latch_waits_parked += 1;
        self.note_end(key, state);
        Ok(Waited::Parked(id))
    }

    /// A semaphore is a string with a number too: while a request for a permit is parked at the key, it is not a latch.
    fn is_no_semaphore(&self, key: KeyRef<'_>) -> Result<(), LockError> {
        match self.sems.waiters.live_on(key) {
            0 => Ok(()),
            _ => Err(LockError::OtherCount),
        }
    }

    /// Settles a latch: called when its key has expired or was changed by other means.
    pub fn latch_settle(&mut self, key: KeyRef<'_>, state: Count, cx: &mut Cx<'_>) {
        match state.left(cx.now) {
            Ok(0) => self.grant_all(key, cx),
            Ok(_) => self.note_end(key, state),
            Err(error) => {
                let parked = self.latches.waiters.clear(key);
                self.fail_latches(parked, &error, cx);
            }
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
            self.latches.stats.latch_waits_opened += 1;
            cx.answer(waiter, Outcome::Open);
        }
    }

    pub(crate) fn fail_latches(
        &mut self,
        waiters: Vec<WaiterId>,
        error: &LockError,
        cx: &mut Cx<'_>,
    ) {
        self.latches.stats.latch_waits_failed += waiters.len() as u64;
        let answer = |waiter| Effect::Answer(waiter, Outcome::Failed(error.clone()));
        cx.effects.extend(waiters.into_iter().map(answer));
    }

    fn note_end(&mut self, key: KeyRef<'_>, state: Count) {
        let end_ms = match state {
            Count::Is(_, end_ms) => end_ms,
            _ => None,
        };
        self.latches.waiters.set_lease(key, end_ms);
    }
}
