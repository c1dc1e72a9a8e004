//! The settling of a semaphore: undone and expired permits return, waiters are granted.
//!
//! And permits that are bound to connections: the release when the connection closes, and the renewals until then
//! (see `session`).

use std::collections::HashMap;
use std::num::NonZeroU32;

use crate::lock::effect::Cx;
use crate::lock::grant::in_flight::GrantInFlight;
use crate::lock::semaphore::state::{grants_at_once, PermitDraft, Permits, SemState, SemView};
use crate::lock::semaphore::Semaphores;
use crate::lock::session::bindings::BoundRef;
use crate::lock::shared::Shared;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyRef, LockError, Now};

impl Semaphores {
    /// Whether settling a semaphore in this state may write.
    pub fn may_change(shared: &Shared, view: &SemView<'_>, now: Now) -> bool {
        let is_there = is_there(view);
        match &view.state {
            SemState::OtherType | SemState::OtherString | SemState::OtherSet => false,
            SemState::Absent => shared.waiters.limit(view.key).is_some(),
            SemState::There(there) => {
                let waited = shared.waiters.waiting_on(view.key) > 0;
                let draft = PermitDraft::open(Some(there));
                (waited && Semaphores::is_grantable(&shared.waiters, view.key, &draft, now))
                    || draft.owes_many()
                    || shared
                        .in_flight
                        .undone(view.key)
                        .is_some_and(|undone| undone.iter().any(is_there))
            }
        }
    }

    /// Settles a semaphore: called when a permit has expired or a key was changed by other means. Without a cause it
    /// changes nothing.
    pub fn settle(&mut self, shared: &mut Shared, view: &SemView<'_>, cx: &mut Cx<'_>) {
        let there = match self.permits_there(shared, view) {
            Ok(there) => there,
            Err(error) => {
                shared.waiters.fail_all(view.key, &error, cx);
                None
            }
        };
        let mut draft = PermitDraft::open(there);
        if draft.owes_many() && view.may_grant == Some(true) {
            draft.reclaim_owed();
            if draft.owes() {
                // As many as were read are taken back; the next step reads others.
                shared.waiters.schedule_settle_id(view.key.to_id());
            }
        }
        let is_there = is_there(view);
        for grant in shared.in_flight.take_undone(view.key).unwrap_or_default() {
            if there.is_none() || !is_there(&grant) {
                continue;
            }
            draft.give_back(&grant.owner);
            let known = self.tracked.remove_of(view.key, &grant.owner);
            self.stats.grants_undone += u64::from(known.is_some());
            let place = (grant.seq, grant.since_ms);
            shared
                .waiters
                .restore(&grant.key, &grant.owner, place, cx.now);
        }
        if view.state == SemState::Absent {
            draft.make(shared.waiters.limit(view.key));
        }
        self.hand_off_permits(shared, view, &mut draft, cx);
        // While no permit may be granted, the timer postpones the key.
        if Semaphores::grants_now(shared, view, cx.now)
            && Semaphores::is_grantable(&shared.waiters, view.key, &draft, cx.now)
        {
            shared.waiters.schedule_settle(view.key);
        }
        self.write_down(shared, view, draft, cx);
    }

    /// The permits of the semaphore. If it does not exist, the recorded permits of this server are gone.
    pub(super) fn permits_there<'v>(
        &mut self,
        shared: &mut Shared,
        view: &'v SemView<'_>,
    ) -> Result<Option<&'v Permits>, LockError> {
        let there = view.permits();
        match there {
            // The permit that a window leaves free was taken.
            Ok(Some(permits)) if permits.free <= 0 => shared.waiters.windows.end_taken(view.key),
            Ok(Some(_)) => {}
            _ => self.lose(view.key),
        }
        there
    }
}

/// Whether the permit of a grant to undo still exists: with the end that the grant gave it.
fn is_there<'v>(view: &'v SemView<'_>) -> impl Fn(&GrantInFlight) -> bool + 'v {
    let undone = view.undone.iter();
    let ends: HashMap<&[u8], Option<i64>> = undone.map(|(id, end)| (&id[..], *end)).collect();
    move |grant| ends.get(&grant.owner[..]) == Some(&Some(grant.end_ms))
}

impl Waiters {
    /// The most permits that the next decision about this semaphore grants.
    pub fn permits_wanted(&self, key: KeyRef<'_>) -> usize {
        self.waiting_on(key).min(grants_at_once(key)) + 1
    }

    /// The number of permits with which the first waiter that names one creates the semaphore.
    fn limit(&self, key: KeyRef<'_>) -> Option<NonZeroU32> {
        let mut queue = self.queue(key)?.iter();
        queue.find_map(|(_, waiter)| waiter.limit)
    }
}

impl Semaphores {
    /// Releases a permit whose connection is closed.
    pub fn end_session(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        id: &[u8],
        cx: &mut Cx<'_>,
    ) {
        if view.held_until(cx.now).is_none() {
            return shared.sessions.lose(BoundRef::permit(view.key, id));
        }
        let there = view.permits().ok().flatten();
        let known = self.take_back(shared, view, there, id, cx);
        self.stats.grants_session_ended += self.count_hold(known, cx.now);
    }

    /// Renews the lease of a bound permit, and never shortens it.
    pub fn renew_session(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        id: &[u8],
        cx: &mut Cx<'_>,
    ) {
        let Some(end_ms) = view.held_until(cx.now) else {
            return shared.sessions.lose(BoundRef::permit(view.key, id));
        };
        let wanted = shared.sessions.lease().deadline(cx.now);
        let mut draft = PermitDraft::open(view.permits().ok().flatten());
        self.extend_permit(view.key, &mut draft, id, (end_ms, wanted));
        shared.sessions.stats.session_renewals += 1;
        let now = cx.now;
        shared.sessions.renewed(BoundRef::permit(view.key, id), now);
        self.finish(shared, view, draft, cx);
    }
}
