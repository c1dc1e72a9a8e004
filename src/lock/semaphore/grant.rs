//! Grants and returns permits, and lists the key changes of each decision.

use std::rc::Rc;

use crate::lock::effect::{Cx, Effect, Event, Outcome};
use crate::lock::locks::Locks;
use crate::lock::resource::Resource;
use crate::lock::semaphore::in_flight::PermitInFlight;
use crate::lock::semaphore::state::{
    Permit, PermitChange, PermitDraft, Permits, SemView, GRANTS_AT_ONCE, NO_END_MS,
};
use crate::lock::session::bindings::BoundRef;
use crate::lock::wait::request::{Seq, Waiter};
use crate::lock::{KeyRef, Lease, LockError, Now, Token};

/// The terms of a permit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub lease: Lease,
    pub session: bool,
    pub client: u64,
}

impl Locks {
    /// Returns a permit that is held and grants it to a waiter. Returns whether its grant was recorded.
    pub(crate) fn take_back(
        &mut self,
        view: &SemView<'_>,
        there: Option<&Permits>,
        id: &[u8],
        cx: &mut Cx<'_>,
    ) -> (bool, PermitChange) {
        self.sems.in_flight.claim(view.key, id);
        self.sessions.unbind(BoundRef::permit(view.key, id));
        let known = self.sems.remembered.remove(view.key, id);
        cx.notify(Event::SemRelease);
        let mut draft = PermitDraft::open(there);
        draft.give_back(id);
        self.hand_off_permits(view, &mut draft, cx);
        (known, self.finish(view, draft))
    }

    pub(crate) fn grants_now(&self, view: &SemView<'_>, now: Now) -> bool {
        view.may_grant == Some(true) && !self.startup_delay.is_on(now)
    }

    /// Grants permits to waiters in the order of the queue while permits are free.
    pub(crate) fn hand_off_permits(
        &mut self,
        view: &SemView<'_>,
        draft: &mut PermitDraft<'_>,
        cx: &mut Cx<'_>,
    ) {
        if !self.grants_now(view, cx.now) {
            return;
        }
        for _ in 0..GRANTS_AT_ONCE {
            if !draft.has_permit() {
                return;
            }
            let Some((id, waiter, seq)) = self.next_for_permit(view.key, cx) else {
                return;
            };
            let terms = Terms {
                lease: waiter.lease,
                session: waiter.session,
                client: waiter.client,
            };
            let granted = self.grant_permit(view, draft, &id, terms, cx);
            let (token, end_ms) = match granted {
                Ok(granted) => granted,
                Err(error) => {
                    // The next waiters would fail in the same way.
                    let mut parked = vec![waiter.id];
                    parked.extend(self.sems.waiters.clear(view.key));
                    return self.sems.waiters.fail(parked, &error, cx);
                }
            };
            self.sessions.waits(waiter.client, waiter.id);
            self.sems.waiters.count_wait(&waiter, cx.now);
            let permit_in_flight = PermitInFlight {
                waiter: waiter.id,
                seq,
                token,
                end_ms,
                is_lost: false,
            };
            self.sems
                .in_flight
                .insert(view.key.to_id(), id, permit_in_flight);
            cx.answer(waiter.id, Outcome::Granted(token));
        }
    }

    /// Takes the first request off the queue whose wait has not run out.
    fn next_for_permit(
        &mut self,
        key: KeyRef<'_>,
        cx: &mut Cx<'_>,
    ) -> Option<(Rc<[u8]>, Waiter, Seq)> {
        let waiters = &mut self.sems.waiters;
        let seq = waiters.next_to_grant(key, cx)?;
        let (id, waiter) = waiters.take(key, seq)?;
        Some((id, waiter, seq))
    }

    /// Grants a fresh permit: the one place where permits are granted.
    pub(crate) fn grant_permit(
        &mut self,
        view: &SemView<'_>,
        draft: &mut PermitDraft<'_>,
        id: &[u8],
        terms: Terms,
        cx: &mut Cx<'_>,
    ) -> Result<(Token, i64), LockError> {
        let token = self.mint_permit(view, cx)?;
        let end_ms = self.lease_of(terms.session, terms.lease).deadline(cx.now);
        let what = BoundRef::permit(view.key, id);
        match terms.session {
            true => self.sessions.bind(what, terms.client, token, cx.now),
            false => drop(self.sessions.unbind(what)),
        }
        draft.take(id, end_ms);
        // A recorded permit of this id ended unnoticed.
        let known = self.sems.remembered.remove(view.key, id);
        self.sems.stats.grants_lost += u64::from(known);
        self.sems.stats.grants += 1;
        self.remember(view.key, id, Permit { token, end_ms });
        cx.notify(Event::SemAcquire);
        Ok((token, end_ms))
    }

    pub(crate) fn mint_permit(
        &mut self,
        view: &SemView<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Token, LockError> {
        if !view.may_grant.ok_or(LockError::Internal)? {
            return Err(self.tokens.no_grant());
        }
        let minted = self.tokens.mint(view.domain, 0, 0, cx.now.wall_us())?;
        let horizon = minted.horizon;
        cx.effects
            .extend(horizon.map(|horizon| Effect::Horizon(view.domain, horizon)));
        Ok(minted.token)
    }

    pub(crate) fn remember(&mut self, key: KeyRef<'_>, id: &[u8], permit: Permit) {
        let max = self.limits.max_tracked;
        self.sems.stats.grants_unwatched += self.sems.remembered.insert(key, id, permit, max);
    }

    /// Ends a command's decision. Waiters that could not be granted now, because writes are refused or many wait, are
    /// settled by the timer.
    pub(crate) fn finish(&mut self, view: &SemView<'_>, draft: PermitDraft<'_>) -> PermitChange {
        if draft.has_permit() {
            self.sems.waiters.schedule_settle(view.key);
        } else if draft.owes_many() {
            self.sems.waiters.schedule_settle_id(view.key.to_id());
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
        self.sems.waiters.set_lease(view.key, finite);
        if draft.counts {
            for id in &draft.reclaimed {
                let known = self.sems.remembered.remove(view.key, id);
                self.sems.stats.grants_expired += u64::from(known);
            }
        }
        let change = draft.into_change();
        if change.clear {
            self.begins_as(Resource::Semaphore, view.key);
        } else if change.free.is_some() {
            // A latch of this name has another count now.
            self.latches.waiters.schedule_settle(view.key);
        }
        change
    }
}
