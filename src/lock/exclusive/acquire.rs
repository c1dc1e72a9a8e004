//! `LOCK.ACQUIRE`: grant, re-entry, wait or refusal.

use std::borrow::Cow;
use std::slice;

use smallvec::SmallVec;

use crate::lock::compatibility::{compatibility, Compatibility};
use crate::lock::effect::{Cx, Effect, Effects, Event, KeyWrite};
use crate::lock::grant::HandedOff;
use crate::lock::locks::Locks;
use crate::lock::read_write::upgrades;
use crate::lock::request::{Acquire, Answer, Wait};
use crate::lock::session::bindings::BoundRef;
use crate::lock::state::View;
use crate::lock::state::MAX_HOLD_COUNT;
use crate::lock::token::NoToken;
use crate::lock::wait::request::{ReentryTerms, Seq};
use crate::lock::{
    Hold, KeyRef, KeyState, LockError, Mode, Now, OwnerId, Resource, Token, WaiterId,
};

/// Whether the key holds a lock or does not exist, and the hold of the command's owner is known.
pub(crate) fn is_a_lock(state: &KeyState) -> Result<(), LockError> {
    match state {
        KeyState::ReadWrite(lock) if lock.is_in_doubt => Err(LockError::ManyHolds),
        state => state.check_is_lock(),
    }
}

impl Locks {
    /// `LOCK.ACQUIRE`: Redisson's tryLock script, with its wait.
    pub fn acquire(
        &mut self,
        view: &View<'_>,
        req: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Answer, LockError> {
        self.check_view(view, cx.now)?;
        self.shared.may_bind([view.key], req)?;
        match compatibility(&view.state, req.mode, req.owner, cx.now)? {
            Compatibility::Mine(hold) => {
                let token = self.reenter(view, hold, req, cx)?;
                return Ok(Answer::Granted(token));
            }
            Compatibility::Within => return self.enter_again(view, req, cx),
            Compatibility::Blocked => {
                let answer = self.wait_or_refuse(view, req, cx)?;
                self.prune_seen(view, cx);
                return Ok(answer);
            }
            Compatibility::Free => {}
        }
        // During the startup delay a key that is free here may be held on the server that this data comes from.
        let delay_ms = self.shared.startup_delay.left(cx.now);
        if delay_ms > 0 && req.wait == Wait::No {
            return Err(LockError::InStartupDelay(delay_ms));
        }
        // The lock is free. Waiters come first: the lock is granted to the first of them before this request is
        // decided, even if the event that freed it has not been handled yet.
        if req.wait == Wait::No {
            if self.waiters_come_first(view, req, cx) {
                self.shared.waiters.stats[Resource::Lock].refusals += 1;
                return Ok(Answer::Refused);
            }
        } else if delay_ms > 0 || self.shared.waiters.waiting_on(view.key) > 0 {
            let answer = self.wait_or_refuse(view, req, cx)?;
            if self.hand_off(view, &view.state, cx) == HandedOff::NoWaiter {
                self.shared.waiters.schedule_settle(view.key);
            }
            return Ok(answer);
        }
        let granted = self.grant_in(view, Cow::Borrowed(&view.state), req, cx)?;
        self.shared.granted_at_once(view.key, req, cx.now);
        self.shared.waiters.withdraw(view.key, req.owner);
        Ok(Answer::Granted(granted.token))
    }

    /// Grants a free lock to its first waiter, before a request that does not wait. Whether that request is refused:
    /// the lock is granted, or stays free for others, or cannot be granted now to a waiter that comes first.
    fn waiters_come_first(&mut self, view: &View<'_>, req: &Acquire<'_>, cx: &mut Cx<'_>) -> bool {
        if !view.may_grant() && self.shared.waiters.schedule_settle(view.key) {
            return true;
        }
        match self.hand_off(view, &view.state, cx) {
            HandedOff::Granted | HandedOff::Reserved | HandedOff::LeftFree => true,
            // Of the tickets in the queue it is not known yet which are heard.
            HandedOff::NoWaiter => self.shared.waiters.waiting_on(view.key) > 0,
            HandedOff::Blocked => {
                req.mode != Mode::Exclusive && self.shared.waiters.waiting_on(view.key) > 0
            }
        }
    }

    /// Refuses foreign data, and a lock whose token is not plausible.
    pub(crate) fn check_view(&mut self, view: &View<'_>, now: Now) -> Result<(), LockError> {
        match self.check_layout(view, now)? {
            true => Ok(()),
            false => Err(self.refuse_token(view.key, NoToken::TokenAhead)),
        }
    }

    /// Refuses foreign data. The token of a lock that was brought by RESTORE or COPY is recorded as handed out here,
    /// because the key will not exist any more when the lock has been released. Returns whether it is plausible.
    pub(crate) fn check_layout(&mut self, view: &View<'_>, now: Now) -> Result<bool, LockError> {
        is_a_lock(&view.state)?;
        let is_plausible = view.state.token().is_none_or(|token| {
            self.shared
                .tokens
                .observe(view.domain, token, now.wall_us())
        });
        self.note_window_taken(view, now);
        Ok(is_plausible)
    }

    pub(crate) fn reenter(
        &mut self,
        view: &View<'_>,
        hold: &Hold,
        req: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Token, LockError> {
        if !req.once && hold.count >= MAX_HOLD_COUNT {
            return Err(LockError::HoldCountOverflow);
        }
        let adopted = match hold.token {
            Some(_) => None,
            None => Some(self.mint(view, cx)?),
        };
        let token = hold.token.or(adopted).ok_or(LockError::TokensExhausted)?;
        let what = BoundRef::lock(req.mode, view.key, req.owner);
        let sessions = &mut self.shared.sessions;
        let wanted = sessions.lease_end_after_reentry(what, req, (hold.token, token), cx.now);
        let deadline_ms = hold
            .deadline_ms
            .is_none_or(|end| end < wanted)
            .then_some(wanted);
        let count = (!req.once).then_some((hold.count, hold.count + 1));
        if count.is_some() || adopted.is_some() || deadline_ms.is_some() {
            cx.write(KeyWrite::Adjust {
                owner: OwnerId::from_slice(req.owner),
                count,
                token: adopted,
                deadline_ms,
            });
        }
        cx.note(req.owner, req.note);
        if let Some(deadline_ms) = deadline_ms {
            self.note_deadline(view, hold.token, deadline_ms);
        }
        self.shared.in_flight.claim(view.key, req.owner);
        self.stats.reentries += 1;
        Ok(token)
    }

    /// A request for one key waits, or is refused if it may not.
    pub(crate) fn wait_or_refuse(
        &mut self,
        view: &View<'_>,
        req: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Answer, LockError> {
        if req.wait == Wait::No {
            self.shared.waiters.stats[Resource::Lock].refusals += 1;
            return Ok(Answer::Refused);
        }
        let (views, fx) = (slice::from_ref(view), slice::from_mut(cx.effects));
        let id = self.wait_at(views, req, None, cx.now, fx)?;
        Ok(Answer::Waits(id))
    }

    /// The request waits for these keys, unless it would wait for itself. `terms`: of a request on several keys.
    pub(crate) fn wait_at(
        &mut self,
        views: &[View<'_>],
        req: &Acquire<'_>,
        terms: Option<ReentryTerms>,
        now: Now,
        fx: &mut [Effects],
    ) -> Result<WaiterId, LockError> {
        let keys: SmallVec<[KeyRef<'_>; 1]> = views.iter().map(|view| view.key).collect();
        let former = self.shared.waiters.former(&keys, req.owner);
        let id = self.shared.waiters.admit(&keys, req, &former)?;
        // A reader that asks for WRITE of one lock waits at the head of the queue: the others wait for it, too.
        let is_upgrade = |view: &&View<'_>| terms.is_none() && upgrades(&view.state, req, now);
        let upgrader = views.first().filter(is_upgrade);
        if upgrader.is_some_and(|view| self.another_upgrades(view, req, now)) {
            self.stats.deadlocks += 1;
            return Err(LockError::Upgrade);
        }
        let place = |at| match upgrader {
            Some(_) => Some(Seq::MIN),
            None => former.place(at).map(|place| place.seq),
        };
        let wants = views.iter().enumerate();
        let wants: SmallVec<[_; 1]> = wants.map(|(at, view)| (view, place(at))).collect();
        if self.check_deadlock(&wants, req, &former.requests, now)? {
            self.verify_later(id, req.user);
        }
        let waiter = self.shared.waiter(id, req, now);
        let waiters = &mut self.shared.waiters;
        if let Some(fx) = fx.first_mut() {
            let cx = &mut Cx::new(now, fx);
            match upgrader {
                Some(view) => waiters.enqueue_first(view.key, req.owner, waiter, cx),
                None => waiters.enqueue(&keys, (req.owner, terms), &waiter, &former, cx),
            }
        }
        if let Some(note) = req.note {
            waiters.places.set_note(id, note);
        }
        for (view, fx) in views.iter().zip(fx) {
            match view.state.held_for_reading_or_writing(now) {
                Some(lock) if upgrader.is_some() => self.note_ends(view.key, lock, now),
                _ => self.note_holders(view.key, &view.state, now),
            }
            fx.push(Effect::Notify(Event::Wait));
        }
        Ok(id)
    }

    /// As [`Locks::note_holders`], without settling the key for its only reader.
    pub(crate) fn record_holders(&mut self, key: KeyRef<'_>, state: &KeyState, now: Now) {
        match state.held_for_reading_or_writing(now) {
            Some(lock) => drop(self.record_ends(key, lock, now)),
            None => self.note_holders(key, state, now),
        }
    }

    /// Records the present holders of a key with waiters, and when their leases end.
    pub(crate) fn note_holders(&mut self, key: KeyRef<'_>, state: &KeyState, now: Now) {
        if let Some(lock) = state.held_for_reading_or_writing(now) {
            return self.note_longer(key, lock, now);
        }
        let lease_ms = state.hold(now).and_then(|hold| hold.deadline_ms);
        self.shared.waiters.set_lease(key, lease_ms);
        self.shared.waiters.set_holders(key, state, now);
    }
}
