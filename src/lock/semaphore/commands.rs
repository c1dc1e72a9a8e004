//! The semaphore commands, and the grants and returns of permits, with the key changes of each decision.

use crate::lock::effect::{Cx, Effect, Event};
use crate::lock::grant::in_flight::GrantInFlight;
use crate::lock::grant::tracked::TrackedGrant;
use crate::lock::grant::Grantee;
use crate::lock::name::Resource;
use crate::lock::request::{Acquire, Answer, SetIf, Wait};
use crate::lock::semaphore::state::{
    grants_at_once, PermitDraft, Permits, SemView, MAX_PERMITS, NO_END_MS,
};
use crate::lock::semaphore::Semaphores;
use crate::lock::session::bindings::BoundRef;
use crate::lock::shared::Shared;
use crate::lock::wait::waiters::Waiters;
use crate::lock::window::Window;
use crate::lock::{KeyRef, Lease, LockError, Now, Token};

impl Semaphores {
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
        let there = self.permits_there(shared, view)?;
        if permits > MAX_PERMITS {
            return Err(LockError::TooManyPermits);
        }
        if !set_if.allows(there.is_some()) {
            return Ok(None);
        }
        let mut draft = PermitDraft::open(there);
        // Permits that are held stay held; an excess makes the free number negative.
        let taken = there.map_or(0, |there| there.taken as i64);
        draft.set_free(i64::from(permits) - taken);
        self.hand_off_permits(shared, view, &mut draft, cx);
        self.finish(shared, view, draft, cx);
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
        let there = self.permits_there(shared, view)?;
        shared.waiters.check_is_not_other(view.key)?;
        if req.session {
            let asked = BoundRef::permit(view.key, req.owner);
            shared.may_bind(Resource::Semaphore, req.user, [asked])?;
        }
        let mut draft = PermitDraft::open(there);
        let answer = match view.held_until(cx.now) {
            Some(end_ms) => self.ask_again(shared, view, &mut draft, end_ms, req, cx),
            None => self.ask(shared, view, &mut draft, req, cx),
        };
        self.finish(shared, view, draft, cx);
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
        let there = self.permits_there(shared, view)?;
        if view.held_until(cx.now).is_none() {
            self.stats.release_misses += 1;
            let withdrawn = shared.waiters.withdraw(view.key, id);
            shared.waiters.end_withdrawn(withdrawn, cx);
            return Ok(false);
        }
        let known = self.take_back(shared, view, there, id, cx);
        self.stats.grants_released += self.count_hold(known, cx.now);
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
        let there = self.permits_there(shared, view)?;
        if view.held_until(cx.now).is_none() {
            self.stats.renewal_misses += 1;
            return Ok(false);
        }
        shared.in_flight.claim(view.key, id);
        self.stats.renewals += 1;
        let what = BoundRef::permit(view.key, id);
        let bound = shared.sessions.token_of(what);
        let end_ms = shared
            .sessions
            .lease_end_after_use(what, bound, terms, cx.now);
        let mut draft = PermitDraft::open(there);
        draft.set_end(id, end_ms);
        self.tracked.renewed_of(view.key, id, end_ms);
        self.finish(shared, view, draft, cx);
        Ok(true)
    }

    /// An acquire of an id with a permit: it gets its token again, and its lease is extended, never shortened.
    fn ask_again(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        draft: &mut PermitDraft<'_>,
        end_ms: i64,
        req: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Answer, LockError> {
        let token = match self.tracked.of(view.key, req.owner) {
            Some(permit) => permit.token,
            None => {
                let token = Semaphores::mint(shared, view, cx)?;
                self.stats.adoptions += 1;
                self.track(shared, view.key, &Grantee::of(req), (token, end_ms), cx.now);
                token
            }
        };
        let what = BoundRef::permit(view.key, req.owner);
        let tokens = (shared.sessions.token_of(what), token);
        let sessions = &mut shared.sessions;
        let wanted = sessions.lease_end_after_reentry(what, req, tokens, cx.now);
        self.extend_permit(view.key, draft, req.owner, (end_ms, wanted));
        shared.in_flight.claim(view.key, req.owner);
        self.stats.reentries += 1;
        Ok(Answer::Granted(token))
    }

    /// Extends the permit of this id from its end to the wanted one, if that is later.
    pub(crate) fn extend_permit(
        &mut self,
        key: KeyRef<'_>,
        draft: &mut PermitDraft<'_>,
        id: &[u8],
        (end_ms, wanted): (i64, i64),
    ) {
        if end_ms < wanted {
            draft.set_end(id, wanted);
        }
        // Another client may have renewed it: then the end that was read is recorded.
        self.tracked.renewed_of(key, id, end_ms.max(wanted));
    }

    /// An acquire of an id without a permit.
    fn ask(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        draft: &mut PermitDraft<'_>,
        req: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Answer, LockError> {
        draft.make(req.limit);
        let was_over = own_end(view).is_some();
        if was_over {
            // The former permit of this id has expired; the set holds an id once only.
            draft.put_back(req.owner);
        }
        let delay_ms = shared.startup_delay.left(cx.now);
        let waits = req.wait != Wait::No;
        if delay_ms > 0 && !waits && draft.has_permit() {
            return Err(LockError::InStartupDelay(delay_ms));
        }
        // Waiters come first. An id that returns to its kept place is granted in the order of that place.
        if waits && (delay_ms > 0 || shared.waiters.waiting_on(view.key) > 0 || !draft.has_permit())
        {
            let id = shared.park(view.key, req, cx)?;
            draft.counts |= was_over;
            self.forget_over(shared, view.key, req.owner, was_over);
            self.hand_off_permits(shared, view, draft, cx);
            return Ok(Answer::Waits(id));
        }
        self.hand_off_permits(shared, view, draft, cx);
        // Where a waiting request of this id got a permit, a second one is not granted here.
        if draft.gives(req.owner) || shared.waiters.waiting_on(view.key) > 0 || !draft.has_permit()
        {
            shared.waiters.stats[Resource::Semaphore].refusals += 1;
            return Ok(Answer::Refused);
        }
        self.forget_over(shared, view.key, req.owner, was_over);
        let (token, _) = self.grant_permit(shared, view, draft, &Grantee::of(req), cx)?;
        shared.granted_at_once(view.key, req, cx.now);
        shared.waiters.withdraw(view.key, req.owner);
        Ok(Answer::Granted(token))
    }

    /// Ends the records of the expired permit of an id that acquires again.
    fn forget_over(&mut self, shared: &mut Shared, key: KeyRef<'_>, id: &[u8], was_over: bool) {
        if was_over {
            shared.in_flight.claim(key, id);
            shared.sessions.lose(BoundRef::permit(key, id));
            let known = self.tracked.remove_of(key, id);
            self.stats.grants_expired += u64::from(known.is_some());
        }
    }
}

fn own_end(view: &SemView<'_>) -> Option<i64> {
    let there: &Permits = view.permits().ok()??;
    there.own_end_ms
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
    ) -> Option<TrackedGrant> {
        shared.in_flight.claim(view.key, id);
        shared.sessions.unbind(BoundRef::permit(view.key, id));
        let known = self.tracked.remove_of(view.key, id);
        cx.notify(Event::SemRelease);
        let mut draft = PermitDraft::open(there);
        draft.give_back(id);
        self.hand_off_permits(shared, view, &mut draft, cx);
        self.finish(shared, view, draft, cx);
        known
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
            let at = (view.key, shared.waiters.user_of(view.key));
            let windows = &mut shared.waiters.windows;
            if windows.leave_free(at, clients, cx.now) == Some(Window::Begun) {
                draft.free_one();
                continue;
            }
            let Some((id, waiter)) = shared.waiters.take(place) else {
                return;
            };
            let grantee = Grantee::of_waiter(&id, &waiter, None);
            let granted = self.grant_permit(shared, view, draft, &grantee, cx);
            let (token, end_ms) = match granted {
                Ok(granted) => granted,
                Err(error) => {
                    // The next waiters would fail in the same way.
                    shared.waiters.fail(Some(waiter), &error, cx);
                    return shared.waiters.fail_all(view.key, &error, cx);
                }
            };
            let at = (view.key.to_id(), place);
            let in_flight = GrantInFlight {
                end_ms,
                ..GrantInFlight::of(at, (&id, &waiter), token)
            };
            shared.handed_off(&waiter, in_flight, cx);
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
        grantee: &Grantee<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<(Token, i64), LockError> {
        let token = Semaphores::mint(shared, view, cx)?;
        let end_ms = shared
            .sessions
            .lease_of(grantee.session, grantee.lease)
            .deadline(cx.now);
        let what = BoundRef::permit(view.key, grantee.owner);
        shared.sessions.granted(what, grantee, token, cx.now);
        draft.take(grantee.owner, end_ms);
        if !draft.has_permit() {
            shared.waiters.windows.end_unused(view.key);
        }
        // A recorded permit of this id ended unnoticed.
        let known = self.tracked.remove_of(view.key, grantee.owner);
        self.stats.grants_lost += u64::from(known.is_some());
        self.stats.grants += 1;
        self.track(shared, view.key, grantee, (token, end_ms), cx.now);
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

    fn track(
        &mut self,
        shared: &Shared,
        key: KeyRef<'_>,
        to: &Grantee<'_>,
        grant: (Token, i64),
        now: Now,
    ) {
        let how = (shared.waiters.limits.max_tracked, now);
        self.stats.grants_unwatched += self.tracked.track(key, to, grant, how);
    }

    /// Ends a command's decision. Waiters that could not be granted now, because writes are refused or many wait, are
    /// settled by the timer.
    pub(crate) fn finish(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        draft: PermitDraft<'_>,
        cx: &mut Cx<'_>,
    ) {
        if Semaphores::is_grantable(&shared.waiters, view.key, &draft, cx.now) {
            shared.waiters.schedule_settle(view.key);
        } else if draft.owes_many() {
            shared.waiters.schedule_settle_id(view.key.to_id());
        }
        self.write_down(shared, view, draft, cx);
    }

    /// Adds the changes to the effects, and records the next end of a permit for the remaining waiters.
    pub(crate) fn write_down(
        &mut self,
        shared: &mut Shared,
        view: &SemView<'_>,
        draft: PermitDraft<'_>,
        cx: &mut Cx<'_>,
    ) {
        let next_end_ms = draft.next_end_ms;
        let finite = next_end_ms.filter(|end| *end < NO_END_MS);
        shared.waiters.set_lease(view.key, finite);
        if draft.counts {
            for id in &draft.reclaimed {
                let known = self.tracked.remove_of(view.key, id);
                self.stats.grants_expired += u64::from(known.is_some());
            }
        }
        if draft.write(cx) {
            // Another kind of resource at this key has another number now.
            shared.waiters.schedule_settle_others(view.key);
        }
    }
}
