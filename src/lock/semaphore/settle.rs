//! The settling of a semaphore: undone and expired permits return, waiters are granted.
//!
//! And permits that are bound to connections: the release when the connection closes, and the renewals until then
//! (see `session`).

use std::collections::HashMap;
use std::num::NonZeroU32;

use crate::lock::effect::Cx;
use crate::lock::grant::in_flight::GrantInFlight;
use crate::lock::semaphore::state::{
    grants_at_once, Held, PermitDraft, SemState, SemView, MOST_AT_ONCE,
};
use crate::lock::semaphore::Semaphores;
use crate::lock::session::bindings::BoundRef;
use crate::lock::shared::Shared;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{KeyRef, Now};

impl Semaphores {
    /// Whether settling a semaphore in this state may write.
    pub fn may_change(shared: &Shared, view: &SemView<'_>, now: Now) -> bool {
        let still_there = still_there(view);
        match &view.state {
            SemState::OtherType | SemState::OtherString | SemState::OtherSet => false,
            SemState::Absent => shared.waiters.limit(view.key).is_some(),
            SemState::There(there) => {
                let waiters = &shared.waiters;
                let waited = waiters.waiting_on(view.key) > 0;
                let draft = PermitDraft::open(Some(there));
                (waited && draft.has(waiters.needed(view.key, now)))
                    || draft.owes_many()
                    || shared.in_flight.undone(view.key).is_some_and(|undone| {
                        undone.iter().any(|grant| still_there(grant).is_some())
                    })
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
        let still_there = still_there(view);
        for grant in &undone {
            if decision.there.is_none() {
                break;
            }
            let Some(Held { permits, .. }) = still_there(grant) else {
                continue;
            };
            decision.draft.give_back(&grant.owner, permits);
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

/// The permits of a grant to undo, if they still exist: with the end that the grant gave them.
fn still_there<'v>(view: &'v SemView<'_>) -> impl Fn(&GrantInFlight) -> Option<Held> + 'v {
    let undone = view.undone.iter();
    let held: HashMap<&[u8], Option<Held>> = undone.map(|(id, held)| (&id[..], *held)).collect();
    move |grant| {
        let held = held.get(&grant.owner[..]).copied().flatten();
        held.filter(|held| held.end_ms == grant.end_ms)
    }
}

impl Waiters {
    /// The most permits that the next decision about this semaphore grants, for a request for so many.
    pub fn permits_wanted(&self, key: KeyRef<'_>, asked: u8) -> usize {
        let most = usize::from(MOST_AT_ONCE);
        let of_waiters = self.waiting_on(key).saturating_mul(most);
        // One more stays free during a Redisson window.
        of_waiters.min(grants_at_once(key) + most) + usize::from(asked) + 1
    }

    /// How many permits the first waiter asks for; 1 if there is none.
    pub(super) fn first_count(&self, key: KeyRef<'_>) -> u8 {
        self.first(key).map_or(1, |(_, first)| first.count())
    }

    /// How many permits have to be grantable for a grant to the first waiter: during a Redisson window one stays free.
    pub(super) fn needed(&self, key: KeyRef<'_>, now: Now) -> i64 {
        i64::from(self.first_count(key)) + i64::from(self.windows.is_open(key, now))
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
        let Some(held) = view.held(now) else {
            return shared.sessions.lose(BoundRef::permit(view.key, id));
        };
        if let Ok(decision) = self.decide(shared, view, cx) {
            let known = decision.take_back(id, held);
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
        let Some(held) = view.held(now) else {
            return shared.sessions.lose(what);
        };
        let wanted = shared.sessions.lease().deadline(now);
        shared.sessions.stats.session_renewals += 1;
        shared.sessions.renewed(what, now);
        if let Ok(mut decision) = self.decide(shared, view, cx) {
            decision.extend(id, held, wanted);
            decision.finish();
        }
    }
}
