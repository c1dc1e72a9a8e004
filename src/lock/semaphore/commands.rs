//! The semaphore commands, and the grants and returns of permits, with the key changes of each decision.

use crate::lock::effect::{Cx, Event, Outcome};
use crate::lock::grant::in_flight::GrantInFlight;
use crate::lock::grant::tracked::TrackedGrant;
use crate::lock::grant::HandedOff;
use crate::lock::name::Resource;
use crate::lock::request::{Acquire, Answer, SetIf, Wait};
use crate::lock::semaphore::state::{
    grants_at_once, nth_permit, Held, PermitDraft, Permits, SemView, MAX_PERMITS, NO_END_MS,
};
use crate::lock::semaphore::Semaphores;
use crate::lock::session::bindings::BoundRef;
use crate::lock::shared::Shared;
use crate::lock::{Lease, LockError, Token};

/// One decision about a semaphore: what was read of it, the changes so far, and what they change in memory.
pub(super) struct Decision<'a, 'c> {
    pub sems: &'a mut Semaphores,
    pub shared: &'a mut Shared,
    pub view: &'a SemView<'a>,
    /// The permits that were read; `None`: the semaphore does not exist.
    pub there: Option<&'a Permits>,
    pub draft: PermitDraft<'a>,
    pub cx: &'a mut Cx<'c>,
}

impl Semaphores {
    /// Begins a decision. If the semaphore does not exist, the recorded permits of this server are gone.
    ///
    /// # Errors
    /// Those of the key's state.
    pub(super) fn decide<'a, 'c>(
        &'a mut self,
        shared: &'a mut Shared,
        view: &'a SemView<'_>,
        cx: &'a mut Cx<'c>,
    ) -> Result<Decision<'a, 'c>, LockError> {
        let there = view.permits();
        match there {
            // The permits that a window leaves free for the first waiter were taken.
            Ok(Some(permits)) => {
                let waiters = &mut shared.waiters;
                let is_any_open = waiters.windows.open() > 0;
                if is_any_open && permits.free < waiters.first_count(view.key).into() {
                    waiters.windows.end_taken(view.key);
                }
            }
            _ => self.lose(view.key),
        }
        let there = there?;
        Ok(Decision {
            sems: self,
            shared,
            view,
            there,
            draft: PermitDraft::open(there),
            cx,
        })
    }

    /// `SEM.SET`. Returns the number of permits, or `None` when the condition excludes it.
    ///
    /// # Errors
    /// Those of the key's state, [`LockError::OtherCount`], [`LockError::TooManyPermits`].
    pub fn set(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        permits: u32,
        set_if: SetIf,
        cx: &mut Cx<'_>,
    ) -> Result<Option<u32>, LockError> {
        shared.waiters.check_is_not_other(view.key)?;
        let mut decision = self.decide(shared, view, cx)?;
        if permits > MAX_PERMITS {
            return Err(LockError::TooManyPermits);
        }
        if !set_if.allows(decision.there.is_some()) {
            return Ok(None);
        }
        // Permits that are held stay held; an excess makes the free number negative.
        let taken = decision.there.map_or(0, |there| there.taken as i64);
        decision.draft.set_free(i64::from(permits) - taken);
        decision.hand_off();
        decision.finish();
        Ok(Some(permits))
    }

    /// `SEM.ACQUIRE`. The effects are to be carried out even if the request is refused.
    ///
    /// # Errors
    /// Those of the key's state, of a wait, of a binding, and of a token.
    pub fn acquire(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        req: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Answer, LockError> {
        let mut decision = self.decide(shared, view, cx)?;
        decision.shared.waiters.check_is_not_other(view.key)?;
        decision.shared.may_bind([view.key], req)?;
        let answer = match view.held(decision.cx.now) {
            Some(held) => decision.ask_again(held, req),
            None => decision.ask(req),
        };
        decision.finish();
        answer
    }

    /// `SEM.RELEASE`. True when the id held a permit.
    ///
    /// # Errors
    /// Those of the key's state.
    pub fn release(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        id: &[u8],
        cx: &mut Cx<'_>,
    ) -> Result<bool, LockError> {
        let now = cx.now;
        let decision = self.decide(shared, view, cx)?;
        let Some(held) = view.held(now) else {
            decision.sems.stats.release_misses += 1;
            let waiters = &mut decision.shared.waiters;
            let withdrawn = waiters.withdraw(view.key, id);
            waiters.end_withdrawn(withdrawn, decision.cx);
            return Ok(false);
        };
        let known = decision.take_back(id, held);
        self.stats.grants_released += self.count_hold(known, now);
        Ok(true)
    }

    /// `SEM.RENEW`. True when the permit is renewed.
    ///
    /// # Errors
    /// Those of the key's state.
    pub fn renew(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        id: &[u8],
        terms: (Lease, bool),
        cx: &mut Cx<'_>,
    ) -> Result<bool, LockError> {
        let now = cx.now;
        let mut decision = self.decide(shared, view, cx)?;
        let Some(held) = view.held(now) else {
            decision.sems.stats.renewal_misses += 1;
            return Ok(false);
        };
        decision.shared.in_flight.claim(view.key, id);
        decision.sems.stats.renewals += 1;
        let (what, sessions) = (
            BoundRef::permit(view.key, id),
            &mut decision.shared.sessions,
        );
        let bound = sessions.token_of(what);
        let end_ms = sessions.lease_end_after_use(what, bound, terms, now);
        decision.draft.set_end(id, Held { end_ms, ..held });
        decision.sems.tracked.renewed_of(view.key, id, end_ms);
        decision.finish();
        Ok(true)
    }
}

impl Decision<'_, '_> {
    /// An acquire of an id with permits: it gets its token again, and its lease is extended, never shortened.
    fn ask_again(&mut self, held: Held, req: &Acquire<'_>) -> Result<Answer, LockError> {
        let (key, now) = (self.view.key, self.cx.now);
        let token = match self.sems.tracked.of(key, req.owner) {
            Some(permit) => permit.token,
            None => {
                let token = self.mint()?;
                self.sems.stats.adoptions += 1;
                self.track(req, (token, held.end_ms));
                token
            }
        };
        let (what, sessions) = (BoundRef::permit(key, req.owner), &mut self.shared.sessions);
        let tokens = (sessions.token_of(what), token);
        let wanted = sessions.lease_end_after_reentry(what, req, tokens, now);
        self.extend(req.owner, held, wanted);
        self.shared.in_flight.claim(key, req.owner);
        self.sems.stats.reentries += 1;
        Ok(Answer::Granted(token))
    }

    /// Extends the permits of this id to the wanted end, if that is later than theirs.
    pub fn extend(&mut self, id: &[u8], held: Held, wanted: i64) {
        let end_ms = held.end_ms.max(wanted);
        if held.end_ms < end_ms {
            self.draft.set_end(id, Held { end_ms, ..held });
        }
        // Another client may have renewed it: then the end that was read is recorded.
        self.sems.tracked.renewed_of(self.view.key, id, end_ms);
    }

    /// An acquire of an id without a permit.
    fn ask(&mut self, req: &Acquire<'_>) -> Result<Answer, LockError> {
        let (key, now) = (self.view.key, self.cx.now);
        self.draft.make(req.limit);
        let own = self.there.map_or(&[][..], |there| &there.own);
        let was_over = !own.is_empty();
        for (number, _) in own {
            // The former permits of this id have expired; the set holds an entry once only.
            self.draft.put_back(nth_permit(req.owner, *number));
        }
        let delay_ms = self.shared.startup_delay.left(now);
        let waits = req.wait != Wait::No;
        if delay_ms > 0 && !waits && self.draft.has(req.count.into()) {
            return Err(LockError::InStartupDelay(delay_ms));
        }
        let mut no_place = None;
        // Waiters come first. An id that returns to its kept place is granted in the order of that place.
        if waits && (delay_ms > 0 || self.must_wait(req)) {
            match self.shared.park(key, req, self.cx) {
                Ok(id) => {
                    self.draft.counts |= was_over;
                    self.forget_over(req.owner, was_over);
                    self.hand_off();
                    let waiters = &mut self.shared.waiters;
                    let is_first = waiters.first(key).is_some_and(|(_, first)| first.id == id);
                    if self.there.is_none() && is_first {
                        // Returned to the first place, it is perhaps served by the limit of one behind it.
                        waiters.schedule_settle(key);
                    }
                    return Ok(Answer::Waits(id));
                }
                // Those that have the places may be granted permits of the semaphore that this request creates.
                Err(error @ (LockError::QueueFull | LockError::Busy)) if delay_ms == 0 => {
                    no_place = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        self.hand_off();
        // Where a waiting request of this id got a permit, a second one is not granted here.
        let gives = self.draft.gives(req.owner);
        if gives || self.must_wait(req) {
            // The former permits leave the set with what was granted to waiters.
            self.forget_over(req.owner, was_over && self.draft.counts && !gives);
            if let Some(error) = no_place {
                return Err(error);
            }
            self.shared.waiters.stats[Resource::Semaphore].refusals += 1;
            return Ok(Answer::Refused);
        }
        self.forget_over(req.owner, was_over);
        // It needs no place, and is not counted as one without.
        self.shared.waiters.stats[Resource::Semaphore].busy -= u64::from(no_place.is_some());
        let (token, _) = self.grant(req)?;
        self.shared.granted_at_once(key, req, now);
        self.shared.waiters.withdraw(key, req.owner);
        Ok(Answer::Granted(token))
    }

    /// Whether waiters come first, or too few permits can be granted.
    fn must_wait(&self, req: &Acquire<'_>) -> bool {
        self.shared.waiters.waiting_on(self.view.key) > 0 || !self.draft.has(req.count.into())
    }

    /// Ends the records of the expired permits of an id that acquires again.
    fn forget_over(&mut self, id: &[u8], was_over: bool) {
        if was_over {
            let key = self.view.key;
            self.shared.in_flight.claim(key, id);
            self.shared.sessions.lose(BoundRef::permit(key, id));
            let known = self.sems.tracked.remove_of(key, id);
            self.sems.stats.grants_expired += u64::from(known.is_some());
        }
    }

    /// Returns permits that are held and grants them to waiters. Returns their recorded grant.
    pub fn take_back(mut self, id: &[u8], held: Held) -> Option<TrackedGrant> {
        let key = self.view.key;
        self.shared.in_flight.claim(key, id);
        self.shared.sessions.unbind(BoundRef::permit(key, id));
        let known = self.sems.tracked.remove_of(key, id);
        self.cx.notify(Event::SemRelease);
        self.draft.give_back(id, held.permits);
        self.hand_off();
        self.finish();
        known
    }

    pub fn grants_now(&self) -> bool {
        self.view.may_grant == Some(true) && !self.shared.startup_delay.is_on(self.cx.now)
    }

    /// Grants permits to waiters in the order of the queue while there are enough for the first one.
    pub fn hand_off(&mut self) {
        if !self.grants_now() {
            return;
        }
        let key = self.view.key;
        let mut granted = 0;
        while granted < grants_at_once(key) {
            if !self.is_grantable() {
                return;
            }
            let Some(place) = self.shared.waiters.next_to_grant(key, self.cx) else {
                return;
            };
            // The waits before this one may have ended just now.
            if !self.is_grantable() {
                return;
            }
            let waiters = &mut self.shared.waiters;
            let clients = (self.view.has_subscriber, false);
            let at = (key, waiters.user_of(key));
            if waiters.windows.leave_free(at, clients, self.cx.now) == Some(HandedOff::LeftFree) {
                self.draft.free(waiters.first_count(key));
                granted += 1;
                continue;
            }
            let Some((id, waiter)) = waiters.take(place) else {
                return;
            };
            granted += usize::from(waiter.count());
            let (token, end_ms) = match self.grant(&Acquire::of_waiter(&id, &waiter, None)) {
                Ok(granted) => granted,
                Err(error) => {
                    // The next waiters would fail in the same way.
                    let waiters = &mut self.shared.waiters;
                    waiters.fail(Some(waiter), &error, self.cx);
                    return waiters.fail_all(key, &error, self.cx);
                }
            };
            let in_flight = GrantInFlight {
                end_ms,
                ..GrantInFlight::of((key.to_id(), place), (&id, &waiter), token)
            };
            let granted = Outcome::Granted(token);
            self.shared
                .handed_off(&waiter, [in_flight], granted, self.cx);
        }
    }

    /// Whether the first waiter can be granted its permits, or one permit if there is no waiter.
    pub fn is_grantable(&self) -> bool {
        let waiters = &self.shared.waiters;
        self.draft.has(waiters.needed(self.view.key, self.cx.now))
    }

    /// Grants fresh permits: the one place where permits are granted.
    fn grant(&mut self, to: &Acquire<'_>) -> Result<(Token, i64), LockError> {
        let token = self.mint()?;
        let (key, now) = (self.view.key, self.cx.now);
        let sessions = &mut self.shared.sessions;
        let end_ms = sessions.lease_end(to, now);
        sessions.granted(BoundRef::permit(key, to.owner), to, token, now);
        let permits = to.count;
        self.draft.take(to.owner, Held { end_ms, permits });
        if !self.draft.has(1) {
            self.shared.waiters.windows.end_unused(key);
        }
        // A recorded permit of this id ended unnoticed.
        let known = self.sems.tracked.remove_of(key, to.owner);
        self.sems.stats.grants_lost += u64::from(known.is_some());
        self.sems.stats.grants += 1;
        self.track(to, (token, end_ms));
        self.cx.notify(Event::SemAcquire);
        Ok((token, end_ms))
    }

    fn mint(&mut self) -> Result<Token, LockError> {
        if !self.view.may_grant.ok_or(LockError::Internal)? {
            return Err(self.shared.tokens.no_grant());
        }
        let minted = self.shared.mint(self.view.domain, (0, 0), self.cx);
        minted.map_err(|why| why.at(self.view.key))
    }

    fn track(&mut self, to: &Acquire<'_>, grant: (Token, i64)) {
        let how = (self.shared.waiters.limits.max_tracked, self.cx.now);
        let pushed_out = self.sems.tracked.track(self.view.key, to, grant, how);
        self.sems.stats.grants_unwatched += pushed_out;
    }

    /// Ends a command's decision. Waiters that could not be granted now, because writes are refused or many wait, are
    /// settled by the timer.
    pub fn finish(self) {
        if self.draft.owes_many() {
            let id = self.view.key.to_id();
            self.shared.waiters.schedule_settle_id(id);
        } else if self.is_grantable() {
            self.shared.waiters.schedule_settle(self.view.key);
        }
        self.write_down();
    }

    /// Adds the changes to the effects, and records the next end of a permit for the remaining waiters.
    pub fn write_down(self) {
        let (key, waiters) = (self.view.key, &mut self.shared.waiters);
        let finite = self.draft.next_end_ms.filter(|end| *end < NO_END_MS);
        waiters.set_lease(key, finite);
        if self.draft.counts {
            for id in &self.draft.reclaimed {
                let known = self.sems.tracked.remove_of(key, id);
                self.sems.stats.grants_expired += u64::from(known.is_some());
            }
        }
        if self.draft.write(self.cx) {
            // Another kind of resource at this key has another number now.
            waiters.schedule_settle_others(key);
        }
    }
}
