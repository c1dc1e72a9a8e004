//! Permits that are bound to connections: the release when the connection closes, and the renewals until then (see
//! `session`).

use crate::lock::effect::Cx;
use crate::lock::semaphore::semaphores::Semaphores;
use crate::lock::semaphore::state::{PermitChange, PermitDraft, SemView};
use crate::lock::session::bindings::{BoundRef, Sessions};
use crate::lock::shared::Shared;
use crate::lock::{KeyRef, Now};

impl Semaphores {
    /// Releases a permit whose connection is closed.
    pub fn end_session(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        id: &[u8],
        cx: &mut Cx<'_>,
    ) -> PermitChange {
        if view.held_until(cx.now).is_none() {
            shared.sessions.lose(BoundRef::permit(view.key, id));
            return PermitChange::default();
        }
        let there = view.permits().ok().flatten();
        let (known, change) = self.take_back(shared, view, there, id, cx);
        self.stats.grants_session_ended += self.count_hold(known, cx.now);
        change
    }

    /// Renews the lease of a bound permit, and never shortens it.
    pub fn renew_session(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        id: &[u8],
        cx: &mut Cx<'_>,
    ) -> PermitChange {
        let Some(end_ms) = view.held_until(cx.now) else {
            shared.sessions.lose(BoundRef::permit(view.key, id));
            return PermitChange::default();
        };
        let wanted = shared.sessions.lease().deadline(cx.now);
        let mut draft = PermitDraft::open(view.permits().ok().flatten());
        self.extend_permit(view.key, &mut draft, id, (end_ms, wanted));
        shared.sessions.stats.session_renewals += 1;
        let now = cx.now;
        shared.sessions.renewed(BoundRef::permit(view.key, id), now);
        self.finish(shared, view, draft, cx.now)
    }
}

/// The holder has used its permit without asking for a session: see [`Sessions::keep`].
pub(super) fn keep_binding(
    key: KeyRef<'_>,
    id: &[u8],
    names_lease: bool,
    now: Now,
    sessions: &mut Sessions,
) -> bool {
    let what = BoundRef::permit(key, id);
    let token = sessions.token_of(what);
    sessions.keep(what, token, names_lease, now)
}
