//! Permits that are bound to connections: the release when the connection closes, and the renewals until then (see
//! `session`).

use crate::lock::effect::Cx;
use crate::lock::locks::Locks;
use crate::lock::semaphore::state::{PermitChange, PermitDraft, SemView};
use crate::lock::session::bindings::BoundRef;
use crate::lock::{KeyRef, Now};

impl Locks {
    /// Releases a permit whose connection is closed.
    pub fn end_permit_session(
        &mut self,
        view: &SemView<'_>,
        id: &[u8],
        cx: &mut Cx<'_>,
    ) -> PermitChange {
        if view.held_until(cx.now).is_none() {
            self.drop_permit_binding(view.key, id);
            return PermitChange::default();
        }
        let there = view.permits().ok().flatten();
        let (known, change) = self.take_back(view, there, id, cx);
        self.sems.stats.grants_session_ended += u64::from(known);
        change
    }

    /// Renews the lease of a bound permit, and never shortens it.
    pub fn renew_permit_session(
        &mut self,
        view: &SemView<'_>,
        id: &[u8],
        now: Now,
    ) -> PermitChange {
        let Some(end_ms) = view.held_until(now) else {
            self.drop_permit_binding(view.key, id);
            return PermitChange::default();
        };
        let wanted = self.sessions.rule.lease.deadline(now);
        let mut draft = PermitDraft::open(view.permits().ok().flatten());
        self.extend_permit(view.key, &mut draft, id, (end_ms, wanted));
        self.stats.session_renewals += 1;
        self.sessions.renewed(BoundRef::permit(view.key, id), now);
        self.finish(view, draft)
    }

    /// The bound permit ended unnoticed.
    pub fn drop_permit_binding(&mut self, key: KeyRef<'_>, id: &[u8]) {
        if self.sessions.unbind(BoundRef::permit(key, id)).is_some() {
            self.stats.session_losses += 1;
        }
    }

    /// The holder has used its permit without asking for a session: see [`Locks::keep_binding`].
    pub(crate) fn keep_permit_binding(
        &mut self,
        key: KeyRef<'_>,
        id: &[u8],
        names_lease: bool,
        now: Now,
    ) -> bool {
        let what = BoundRef::permit(key, id);
        let token = self.sessions.token_of(what);
        self.keep_binding(what, token, names_lease, now)
    }
}
