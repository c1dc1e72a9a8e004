//! Grants and returns permits, and lists the key changes of each decision.

use crate::lock::effect::{Cx, Effect, Event, Outcome};
use crate::lock::grant::in_flight::GrantInFlight;
use crate::lock::grant::tracked::TrackedGrant;
use crate::lock::name::OwnerAt;
use crate::lock::semaphore::semaphores::Semaphores;
use crate::lock::semaphore::state::{
    grants_at_once, PermitChange, PermitDraft, Permits, SemView, NO_END_MS,
};
use crate::lock::session::bindings::BoundRef;
use crate::lock::shared::Shared;
use crate::lock::wait::waiters::Waiters;
use crate::lock::window::state::Window;
use crate::lock::{KeyRef, Lease, LockError, Mode, Now, Token, UserId};

/// The terms of a permit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub lease: Lease,
    pub session: bool,
    pub client: u64,
    pub user: UserId,
}

impl Semaphores {
    /// Returns a permit that is held and grants it to a waiter. Returns its recorded grant.
    pub(crate) fn take_back(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        there: Option<&Permits>,
        id: &[u8],
        cx: &mut Cx<'_>,
    ) -> (Option<TrackedGrant>, PermitChange) {
        shared.in_flight.claim(view.key, id);
        shared.sessions.unbind(BoundRef::permit(view.key, id));
        let known = self.tracked.remove_of(view.key, id);
        cx.notify(Event::SemRelease);
        let mut draft = PermitDraft::open(there);
        draft.give_back(id);
        self.hand_off_permits(shared, view, &mut draft, cx);
        (known, self.finish(shared, view, draft, cx.now))
    }

    pub(crate) fn grants_now(shared: &Shared, view: &SemView<'_>, now: Now) -> bool {
        view.may_grant == Some(true) && !shared.startup_delay.is_on(now)
    }

    /// Grants permits to waiters in the order of the queue while permits are free.
    pub(crate) fn hand_off_permits(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        draft: &mut PermitDraft<'_>,
        cx: &mut Cx<'_>,
    ) {
        if !Semaphores::grants_now(shared, view, cx.now) {
            return;
        }
        for _ in 0..grants_at_once(view.key) {
            if !Semaphores::is_grantable(&shared.waiters, view.key, draft, cx.now) {
                return;
            }
            let Some(place) = shared.waiters.next_to_grant(view.key, cx) else {
                return;
            };
            let clients = (view.has_subscriber, false);
            let windows = &mut shared.waiters.windows;
            if windows.leave_free(view.key, clients, cx.now) == Some(Window::Begun) {
                draft.free_one();
                continue;
            }
            let Some((id, waiter)) = shared.waiters.take(place, cx.now) else {
                return;
            };
            let terms = Terms {
                lease: waiter.lease,
                session: waiter.session,
                client: waiter.client,
                user: waiter.user,
            };
            let granted = self.grant_permit(shared, view, draft, &id, terms, cx);
            let (token, end_ms) = match granted {
                Ok(granted) => granted,
                Err(error) => {
                    // The next waiters would fail in the same way.
                    shared.waiters.fail(Some(waiter), &error, cx);
                    return shared.waiters.fail_all(view.key, &error, cx);
                }
            };
            shared.waiters.windows.count_hand_off(view.key);
            shared.sessions.waits(&waiter);
            shared.waiters.count_wait(&waiter, cx.now);
            shared.waiters.count_top_hand_off(view.key);
            let in_flight = GrantInFlight {
                key: view.key.to_id(),
                owner: id,
                mode: Mode::Exclusive,
                token,
                seq: place.seq,
                since_ms: waiter.since_ms,
                reentry: None,
                end_ms,
            };
            shared.in_flight.put(waiter.id, in_flight);
            cx.answer(&waiter, Outcome::Granted(token));
            if waiter.ticket.is_some() {
                // Its message is delivered in this event.
                shared.in_flight.take(waiter.id);
            }
        }
    }

    /// Whether a permit can be granted to a waiter: during a Redisson window one stays free.
    pub(crate) fn is_grantable(
        waiters: &Waiters,
        key: KeyRef<'_>,
        draft: &PermitDraft<'_>,
        now: Now,
    ) -> bool {
        let is_open = waiters.windows.is_open(key, now);
        draft.has_more_than(i64::from(is_open))
    }

    /// Grants a fresh permit: the one place where permits are granted.
    pub(crate) fn grant_permit(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        draft: &mut PermitDraft<'_>,
        id: &[u8],
        terms: Terms,
        cx: &mut Cx<'_>,
    ) -> Result<(Token, i64), LockError> {
        let token = Semaphores::mint(shared, view, cx)?;
        let end_ms = shared
            .sessions
            .lease_of(terms.session, terms.lease)
            .deadline(cx.now);
        let what = BoundRef::permit(view.key, id);
        match terms.session {
            true => shared
                .sessions
                .bind(what, (terms.client, terms.user), token, cx.now),
            false => drop(shared.sessions.unbind(what)),
        }
        draft.take(id, end_ms);
        if !draft.has_permit() {
            shared.waiters.windows.end_unused(view.key);
        }
        // A recorded permit of this id ended unnoticed.
        let known = self.tracked.remove_of(view.key, id);
        self.stats.grants_lost += u64::from(known.is_some());
        self.stats.grants += 1;
        let granted = (token, end_ms);
        self.track(shared, (view.key, id), granted, &terms, cx.now);
        cx.notify(Event::SemAcquire);
        Ok((token, end_ms))
    }

    pub(crate) fn mint(
        shared: &mut Shared,
        view: &SemView<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Token, LockError> {
        if !view.may_grant.ok_or(LockError::Internal)? {
            return Err(shared.tokens.no_grant());
        }
        let minted = shared.tokens.mint(view.domain, 0, 0, cx.now.wall_us());
        let minted = minted.map_err(|why| why.at(view.key))?;
        let horizon = minted.horizon;
        cx.effects
            .extend(horizon.map(|horizon| Effect::Horizon(view.domain, horizon)));
        Ok(minted.token)
    }

    pub(crate) fn track(
        &mut self,
        shared: &Shared,
        (key, id): (KeyRef<'_>, &[u8]),
        (token, end_ms): (Token, i64),
        terms: &Terms,
        now: Now,
    ) {
        let tracked = TrackedGrant {
            token,
            since_ms: now.mono_ms,
            client: terms.client,
            deadline_ms: end_ms,
            may_share: false,
            session: terms.session,
        };
        let at = OwnerAt {
            key: key.to_id(),
            owner: id.into(),
        };
        let max = shared.waiters.limits.max_tracked;
        self.stats.grants_unwatched += self.tracked.insert_of(at, tracked, max);
    }

    /// Ends a command's decision. Waiters that could not be granted now, because writes are refused or many wait, are
    /// settled by the timer.
    pub(crate) fn finish(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        draft: PermitDraft<'_>,
        now: Now,
    ) -> PermitChange {
        if Semaphores::is_grantable(&shared.waiters, view.key, &draft, now) {
            shared.waiters.schedule_settle(view.key);
        } else if draft.owes_many() {
            shared.waiters.schedule_settle_id(view.key.to_id());
        }
        self.write_down(shared, view, draft)
    }

    /// The changes to write. Also records the next end of a permit for the remaining waiters.
    pub(crate) fn write_down(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        draft: PermitDraft<'_>,
    ) -> PermitChange {
        let next_end_ms = draft.next_end_ms;
        let finite = next_end_ms.filter(|end| *end < NO_END_MS);
        shared.waiters.set_lease(view.key, finite);
        if draft.counts {
            for id in &draft.reclaimed {
                let known = self.tracked.remove_of(view.key, id);
                self.stats.grants_expired += u64::from(known.is_some());
            }
        }
        let change = draft.into_change();
        if change.clear || change.free.is_some() {
            // Another kind of resource at this key has another number now.
            shared.waiters.schedule_settle_others(view.key);
        }
        change
    }
}
