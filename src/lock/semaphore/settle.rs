//! The settling of a semaphore: undone and expired permits return, waiters are granted.
//!
//! And permits that are bound to connections: the release when the connection closes, and the renewals until then
//! (see `session`).

use std::collections::HashMap;
use std::num::NonZeroU32;

use crate::lock::effect::Cx;
use crate::lock::grant::in_flight::GrantInFlight;
use crate::lock::semaphore::state::{grants_at_once, PermitDraft, SemState, SemView};
use crate::lock::semaphore::Semaphores;
use crate::lock::session::bindings::BoundRef;
use crate::lock::shared::Shared;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyRef, Now};

impl Semaphores {
    /// Whether settling a semaphore in this state may write.
    pub fn may_change(shared: &Shared, view: &SemView<'_>, now: Now) -> bool {
        let is_there = is_there(view);
        match &view.state {
            SemState::OtherType | SemState::OtherString | SemState::OtherSet => false,
            SemState::Absent => shared.waiters.limit(view.key).is_some(),
            SemState::There(there) => {
                let waited = shared.waiters.waiting_on(view.key) > 0;
                let left_free = i64::from(shared.waiters.windows.is_open(view.key, now));
                let draft = PermitDraft::open(Some(there));
                (waited && draft.has_more_than(left_free))
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
        let key = view.key;
        let undone = shared.in_flight.take_undone(key).unwrap_or_default();
        let mut decision = match self.decide(shared, view, cx) {
            Ok(decision) => decision,
            Err(error) => {
                shared.waiters.fail_all(key, &error, cx);
                return shared.waiters.set_lease(key, None);
            }
        };
        if decision.draft.owes_many() && view.may_grant == Some(true) {
            decision.draft.reclaim_owed();
            if decision.draft.owes() {
                // As many as were read are taken back; the next step reads others.
                let waiters = &mut decision.shared.waiters;
                waiters.schedule_settle_id(key.to_id());
            }
        }
        let is_there = is_there(view);
        for grant in undone.iter().filter(|grant| is_there(grant)) {
            if decision.there.is_none() {
                break;
            }
            decision.draft.give_back(&grant.owner);
            let known = decision.sems.tracked.remove_of(key, &grant.owner);
            decision.sems.stats.grants_undone += u64::from(known.is_some());
            let now = decision.cx.now;
            decision.shared.waiters.restore(grant, now);
        }
        if view.state == SemState::Absent {
            let limit = decision.shared.waiters.limit(key);
            decision.draft.make(limit);
        }
        decision.hand_off();
        // While no permit may be granted, the timer postpones the key.
        if decision.grants_now() && decision.is_grantable() {
            decision.shared.waiters.schedule_settle(key);
        }
        decision.write_down();
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
        self.waiters_at(key).find_map(|(_, waiter)| waiter.limit)
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
        let now = cx.now;
        if view.held_until(now).is_none() {
            return shared.sessions.lose(BoundRef::permit(view.key, id));
        }
        if let Ok(decision) = self.decide(shared, view, cx) {
            let known = decision.take_back(id);
            self.stats.grants_session_ended += self.count_hold(known, now);
        }
    }

    /// Renews the lease of a bound permit, and never shortens it.
    pub fn renew_session(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        id: &[u8],
        cx: &mut Cx<'_>,
    ) {
        let (what, now) = (BoundRef::permit(view.key, id), cx.now);
        let Some(end_ms) = view.held_until(now) else {
            return shared.sessions.lose(what);
        };
        let wanted = shared.sessions.lease().deadline(now);
        shared.sessions.stats.session_renewals += 1;
        shared.sessions.renewed(what, now);
        if let Ok(mut decision) = self.decide(shared, view, cx) {
            decision.extend(id, (end_ms, wanted));
            decision.finish();
        }
    }
}
