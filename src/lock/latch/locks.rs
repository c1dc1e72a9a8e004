//! The latch in the server: each decision with what all kinds share.

use crate::lock::effect::Cx;
use crate::lock::latch::state::{Count, CountChange, LatchWait, Waited};
use crate::lock::locks::Locks;
use crate::lock::request::SetIf;
use crate::lock::resource::Resource;
use crate::lock::{KeyRef, LockError, Now};

impl Locks {
    /// `LATCH.SET`. Returns the count, or `None` when the condition excludes it.
    ///
    /// # Errors
    /// Those of [`Count`], [`LockError::OtherCount`].
    pub fn latch_set(
        &mut self,
        key: KeyRef<'_>,
        state: Count,
        count: i64,
        set_if: SetIf,
        cx: &mut Cx<'_>,
    ) -> Result<(Option<i64>, CountChange), LockError> {
        let (latches, mut kind_cx) = self.latch_decision(key, cx);
        let set = latches.set(key, state, (count, set_if), &mut kind_cx)?;
        if matches!(set.1, CountChange::Make(_)) {
            self.begins_as(Resource::Latch, key);
        }
        Ok(set)
    }

    /// `LATCH.DOWN`. Returns the remaining count.
    ///
    /// # Errors
    /// As [`Locks::latch_set`].
    pub fn latch_down(
        &mut self,
        key: KeyRef<'_>,
        state: Count,
        by: i64,
        cx: &mut Cx<'_>,
    ) -> Result<(i64, CountChange), LockError> {
        let (latches, mut kind_cx) = self.latch_decision(key, cx);
        latches.down(key, state, by, &mut kind_cx)
    }

    /// `LATCH.WAIT`.
    ///
    /// # Errors
    /// As [`Locks::latch_set`], and [`LockError::Busy`].
    pub fn latch_wait(
        &mut self,
        key: KeyRef<'_>,
        state: Count,
        req: &LatchWait<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Waited, LockError> {
        let used = self.used_by(req.user);
        let (latches, mut kind_cx) = self.latch_decision(key, cx);
        kind_cx.used = used;
        latches.wait(key, state, req, &mut kind_cx)
    }

    /// Settles a latch: called when its key has expired or was changed by other means.
    pub fn latch_settle(&mut self, key: KeyRef<'_>, state: Count, cx: &mut Cx<'_>) {
        let (latches, mut kind_cx) = self.latch_decision(key, cx);
        latches.settle(key, state, &mut kind_cx);
    }

    /// Whether a latch in this state is open, so that its waiters are to be answered.
    pub fn is_latch_open(state: Count, now: Now) -> bool {
        state.left(now) == Ok(0)
    }
}
