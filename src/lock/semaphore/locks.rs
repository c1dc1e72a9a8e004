//! The semaphore in the server: each decision with what all kinds share. The module's own writes cause no event of the
//! server, so the waiters of other kinds at a changed key are scheduled here.

use crate::lock::effect::Cx;
use crate::lock::locks::Locks;
use crate::lock::request::{Answer, SetIf};
use crate::lock::resource::Resource;
use crate::lock::semaphore::commands::SemAcquire;
use crate::lock::semaphore::session::drop_binding;
use crate::lock::semaphore::state::{PermitChange, SemView};
use crate::lock::{KeyRef, Lease, LockError};

impl Locks {
    /// `SEM.SET`. Returns the number of permits, or `None` when the condition excludes it.
    ///
    /// # Errors
    /// Those of the key's state, [`LockError::OtherCount`], [`LockError::TooManyPermits`].
    pub fn sem_set(
        &mut self,
        view: &SemView<'_>,
        permits: u32,
        set_if: SetIf,
        cx: &mut Cx<'_>,
    ) -> Result<(Option<u32>, PermitChange), LockError> {
        let (sems, mut kind_cx) = self.semaphore_decision(view.key, cx);
        let set = sems.set(view, permits, set_if, &mut kind_cx)?;
        self.note_change(view.key, &set.1);
        Ok(set)
    }

    /// `SEM.ACQUIRE`. The change is to be made even if the request is refused.
    pub fn sem_acquire(
        &mut self,
        view: &SemView<'_>,
        req: &SemAcquire<'_>,
        cx: &mut Cx<'_>,
    ) -> (Result<Answer, LockError>, PermitChange) {
        let used = self.used_by(req.user);
        let (sems, mut kind_cx) = self.semaphore_decision(view.key, cx);
        kind_cx.used = used;
        let acquired = sems.acquire(view, req, &mut kind_cx);
        self.note_change(view.key, &acquired.1);
        acquired
    }

    /// `SEM.RELEASE`. True when the id held a permit.
    ///
    /// # Errors
    /// Those of the key's state.
    pub fn sem_release(
        &mut self,
        view: &SemView<'_>,
        id: &[u8],
        cx: &mut Cx<'_>,
    ) -> Result<(bool, PermitChange), LockError> {
        let (sems, mut kind_cx) = self.semaphore_decision(view.key, cx);
        let released = sems.release(view, id, &mut kind_cx)?;
        self.note_change(view.key, &released.1);
        Ok(released)
    }

    /// `SEM.RENEW`. True when the permit is renewed.
    ///
    /// # Errors
    /// Those of the key's state.
    pub fn sem_renew(
        &mut self,
        view: &SemView<'_>,
        id: &[u8],
        lease: (Lease, bool),
        cx: &mut Cx<'_>,
    ) -> Result<(bool, PermitChange), LockError> {
        let (sems, mut kind_cx) = self.semaphore_decision(view.key, cx);
        let renewed = sems.renew(view, id, lease, &mut kind_cx)?;
        self.note_change(view.key, &renewed.1);
        Ok(renewed)
    }

    /// Settles a semaphore: called when a permit has expired or a key was changed by other means. Without a cause it
    /// changes nothing.
    pub fn sem_settle(&mut self, view: &SemView<'_>, cx: &mut Cx<'_>) -> PermitChange {
        let (sems, mut kind_cx) = self.semaphore_decision(view.key, cx);
        let change = sems.settle(view, &mut kind_cx);
        self.note_change(view.key, &change);
        change
    }

    /// Releases a permit whose connection is closed.
    pub fn end_permit_session(
        &mut self,
        view: &SemView<'_>,
        id: &[u8],
        cx: &mut Cx<'_>,
    ) -> PermitChange {
        let (sems, mut kind_cx) = self.semaphore_decision(view.key, cx);
        let change = sems.end_session(view, id, &mut kind_cx);
        self.note_change(view.key, &change);
        change
    }

    /// Renews the lease of a bound permit, and never shortens it.
    pub fn renew_permit_session(
        &mut self,
        view: &SemView<'_>,
        id: &[u8],
        cx: &mut Cx<'_>,
    ) -> PermitChange {
        let (sems, mut kind_cx) = self.semaphore_decision(view.key, cx);
        let change = sems.renew_session(view, id, &mut kind_cx);
        self.note_change(view.key, &change);
        change
    }

    /// The bound permit ended unnoticed.
    pub fn drop_permit_binding(&mut self, key: KeyRef<'_>, id: &[u8]) {
        drop_binding(key, id, &mut self.sessions);
    }

    /// Schedules the waiters of other kinds that a change of the semaphore's key concerns.
    fn note_change(&mut self, key: KeyRef<'_>, change: &PermitChange) {
        if change.clear {
            self.begins_as(Resource::Semaphore, key);
        } else if change.free.is_some() {
            // Another kind at this key has another number now.
            self.schedule_settle_others(Resource::Semaphore, key);
        }
    }
}
