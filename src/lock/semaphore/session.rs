//! Permits that are bound to connections: the release when the connection closes, and the renewals until then (see
//! `session`).

use crate::lock::resource::KindCx;
use crate::lock::semaphore::semaphores::Semaphores;
use crate::lock::semaphore::state::{PermitChange, PermitDraft, SemView};
use crate::lock::session::bindings::{BoundRef, Sessions};
use crate::lock::KeyRef;

impl Semaphores {
    /// Releases a permit whose connection is closed.
    pub(super) fn end_session(
        &mut self,
        view: &SemView<'_>,
        id: &[u8],
        cx: &mut KindCx<'_>,
    ) -> PermitChange {
        if view.held_until(cx.now).is_none() {
            drop_binding(view.key, id, cx.sessions);
            return PermitChange::default();
        }
        let there = view.permits().ok().flatten();
        let (known, change) = self.take_back(view, there, id, cx);
        self.stats.grants_session_ended += self.count_hold(known, cx.now);
        change
    }

    /// Renews the lease of a bound permit, and never shortens it.
    pub(super) fn renew_session(
        &mut self,
        view: &SemView<'_>,
        id: &[u8],
        cx: &mut KindCx<'_>,
    ) -> PermitChange {
        let Some(end_ms) = view.held_until(cx.now) else {
            drop_binding(view.key, id, cx.sessions);
            return PermitChange::default();
        };
        let wanted = cx.sessions.lease().deadline(cx.now);
        let mut draft = PermitDraft::open(view.permits().ok().flatten());
        self.extend_permit(view.key, &mut draft, id, (end_ms, wanted));
        cx.sessions.stats.session_renewals += 1;
        let now = cx.now;
        cx.sessions.renewed(BoundRef::permit(view.key, id), now);
        self.finish(view, draft, cx.now)
    }
}

/// The bound permit ended unnoticed.
pub(super) fn drop_binding(key: KeyRef<'_>, id: &[u8], sessions: &mut Sessions) {
    let ended = sessions.unbind(BoundRef::permit(key, id));
    sessions.stats.session_losses += u64::from(ended.is_some());
}

/// The holder has used its permit without asking for a session: see [`Sessions::keep`].
pub(super) fn keep_binding(
    key: KeyRef<'_>,
    id: &[u8],
    names_lease: bool,
    cx: &mut KindCx<'_>,
) -> bool {
    let (what, now) = (BoundRef::permit(key, id), cx.now);
    let token = cx.sessions.token_of(what);
    cx.sessions.keep(what, token, names_lease, now)
}
