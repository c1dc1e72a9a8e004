//! Grants and returns permits, and lists the key changes of each decision.

use crate::lock::effect::{Effect, Event, Outcome};
use crate::lock::resource::KindCx;
use crate::lock::semaphore::in_flight::PermitInFlight;
use crate::lock::semaphore::semaphores::Semaphores;
use crate::lock::semaphore::state::{
    Permit, PermitChange, PermitDraft, Permits, SemView, GRANTS_AT_ONCE, NO_END_MS,
};
use crate::lock::session::bindings::BoundRef;
use crate::lock::window::state::Window;
use crate::lock::{KeyRef, Lease, LockError, Now, Token, UserId};

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
        view: &SemView<'_>,
        there: Option<&Permits>,
        id: &[u8],
        cx: &mut KindCx<'_>,
    ) -> (Option<Permit>, PermitChange) {
        self.in_flight.claim(view.key, id);
        cx.sessions.unbind(BoundRef::permit(view.key, id));
        let known = self.remembered.remove(view.key, id);
        cx.notify(Event::SemRelease);
        let mut draft = PermitDraft::open(there);
        draft.give_back(id);
        self.hand_off_permits(view, &mut draft, cx);
        (known, self.finish(view, draft, cx.now))
    }

    pub(crate) fn grants_now(view: &SemView<'_>, cx: &KindCx<'_>) -> bool {
        view.may_grant == Some(true) && !cx.startup_delay.is_on(cx.now)
    }

    /// Grants permits to waiters in the order of the queue while permits are free.
    pub(crate) fn hand_off_permits(
        &mut self,
        view: &SemView<'_>,
        draft: &mut PermitDraft<'_>,
        cx: &mut KindCx<'_>,
    ) {
        if !Semaphores::grants_now(view, cx) {
            return;
        }
        for _ in 0..GRANTS_AT_ONCE {
            if !self.is_grantable(view.key, draft, cx.now) {
                return;
            }
            let Some(place) = self.waiters.next_to_grant(view.key, cx) else {
                return;
            };
            let clients = (view.has_subscriber, false);
            let windows = &mut self.waiters.windows;
            if windows.leave_free(view.key, clients, cx.now) == Some(Window::Begun) {
                draft.free_one();
                continue;
            }
            let Some((id, waiter)) = self.waiters.take(place, cx.now) else {
                return;
            };
            let terms = Terms {
                lease: waiter.lease,
                session: waiter.session,
                client: waiter.client,
                user: waiter.user,
            };
            let granted = self.grant_permit(view, draft, &id, terms, cx);
            let (token, end_ms) = match granted {
                Ok(granted) => granted,
                Err(error) => {
                    // The next waiters would fail in the same way.
                    self.waiters.fail(Some(waiter), &error, cx);
                    return self.waiters.fail_all(view.key, &error, cx);
                }
            };
            self.waiters.windows.count_hand_off(view.key);
            cx.sessions.waits(&waiter);
            self.waiters.count_wait(&waiter, cx.now);
            self.waiters.count_top_hand_off(view.key);
            let permit_in_flight = PermitInFlight {
                waiter: waiter.id,
                seq: place.seq,
                since_ms: waiter.since_ms,
                token,
                end_ms,
                is_lost: false,
            };
            self.in_flight
                .insert(view.key.to_id(), id, permit_in_flight);
            cx.answer(&waiter, Outcome::Granted(token));
            if waiter.ticket.is_some() {
                // Its message is delivered in this event.
                self.in_flight.delivered(waiter.id);
            }
        }
    }

    /// Whether a permit can be granted to a waiter: during a Redisson window one stays free.
    pub(crate) fn is_grantable(&self, key: KeyRef<'_>, draft: &PermitDraft<'_>, now: Now) -> bool {
        let is_open = self.waiters.windows.is_open(key, now);
        draft.has_more_than(i64::from(is_open))
    }

    /// Grants a fresh permit: the one place where permits are granted.
    pub(crate) fn grant_permit(
        &mut self,
        view: &SemView<'_>,
        draft: &mut PermitDraft<'_>,
        id: &[u8],
        terms: Terms,
        cx: &mut KindCx<'_>,
    ) -> Result<(Token, i64), LockError> {
        let token = Semaphores::mint(view, cx)?;
        let end_ms = cx
            .sessions
            .lease_of(terms.session, terms.lease)
            .deadline(cx.now);
        let what = BoundRef::permit(view.key, id);
        match terms.session {
            true => cx
                .sessions
                .bind(what, (terms.client, terms.user), token, cx.now),
            false => drop(cx.sessions.unbind(what)),
        }
        draft.take(id, end_ms);
        if !draft.has_permit() {
            self.waiters.windows.end_unused(view.key);
        }
        // A recorded permit of this id ended unnoticed.
        let known = self.remembered.remove(view.key, id);
        self.stats.grants_lost += u64::from(known.is_some());
        self.stats.grants += 1;
        let permit = Permit {
            token,
            end_ms,
            since_ms: cx.now.mono_ms,
        };
        self.remember((view.key, id), permit, cx);
        cx.notify(Event::SemAcquire);
        Ok((token, end_ms))
    }

    pub(crate) fn mint(view: &SemView<'_>, cx: &mut KindCx<'_>) -> Result<Token, LockError> {
        if !view.may_grant.ok_or(LockError::Internal)? {
            return Err(cx.tokens.no_grant());
        }
        let minted = cx.tokens.mint(view.domain, 0, 0, cx.now.wall_us());
        let minted = minted.map_err(|why| why.at(view.key))?;
        let horizon = minted.horizon;
        cx.effects
            .extend(horizon.map(|horizon| Effect::Horizon(view.domain, horizon)));
        Ok(minted.token)
    }

    pub(crate) fn remember(
        &mut self,
        (key, id): (KeyRef<'_>, &[u8]),
        permit: Permit,
        cx: &KindCx<'_>,
    ) {
        let max = cx.limits.max_tracked;
        self.stats.grants_unwatched += self.remembered.insert(key, id, permit, max);
    }

    /// Ends a command's decision. Waiters that could not be granted now, because writes are refused or many wait, are
    /// settled by the timer.
    pub(crate) fn finish(
        &mut self,
        view: &SemView<'_>,
        draft: PermitDraft<'_>,
        now: Now,
    ) -> PermitChange {
        if self.is_grantable(view.key, &draft, now) {
            self.waiters.schedule_settle(view.key);
        } else if draft.owes_many() {
            self.waiters.schedule_settle_id(view.key.to_id());
        }
        self.write_down(view, draft)
    }

    /// The changes to write. Also records the next end of a permit for the remaining waiters.
    pub(crate) fn write_down(
        &mut self,
        view: &SemView<'_>,
        draft: PermitDraft<'_>,
    ) -> PermitChange {
        let next_end_ms = draft.next_end_ms;
        let finite = next_end_ms.filter(|end| *end < NO_END_MS);
        self.waiters.set_lease(view.key, finite);
        if draft.counts {
            for id in &draft.reclaimed {
                let known = self.remembered.remove(view.key, id);
                self.stats.grants_expired += u64::from(known.is_some());
            }
        }
        draft.into_change()
    }
}
