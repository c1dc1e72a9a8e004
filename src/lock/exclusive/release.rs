//! `LOCK.RELEASE`, `LOCK.RENEW` and `LOCK.BREAK`.

use crate::lock::compatibility::{compatibility, Compatibility};
use crate::lock::effect::{Cx, Event, KeyWrite};
use crate::lock::grant::{free, HandedOff};
use crate::lock::locks::Locks;
use crate::lock::request::{Acquire, Answer, Break, Release, Released, Renew};
use crate::lock::session::bindings::BoundRef;
use crate::lock::state::View;
use crate::lock::{Hold, KeyState, LockError, Mode, Now, OwnerId, Token};

impl Locks {
    /// `LOCK.RELEASE`: Redisson's unlock script, with the hand-off.
    pub fn release(
        &mut self,
        view: &View<'_>,
        req: &Release<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Released, LockError> {
        self.check_layout(view, cx.now)?;
        if let KeyState::ReadWrite(lock) = &view.state {
            if let Some(released) = self.release_shared(view, lock, req, cx)? {
                return Ok(released);
            }
        }
        let hold = held_by(&view.state, req.owner, req.token, cx.now);
        let Some(hold) = of_kind(hold, &view.state, req.mode, cx.now)? else {
            self.stats.release_misses += 1;
            if req.token.is_none() {
                let withdrawn = match req.mode {
                    Some(mode) => self.shared.waiters.withdraw_mode(view.key, req.owner, mode),
                    None => self.shared.waiters.withdraw(view.key, req.owner),
                };
                self.shared.waiters.end_withdrawn(withdrawn, cx);
            }
            return Ok(Released::NotHeld);
        };
        self.shared.in_flight.claim(view.key, req.owner);
        if hold.count > 1 && !req.all {
            cx.write(KeyWrite::Adjust {
                owner: OwnerId::from_slice(req.owner),
                count: Some((hold.count, hold.count - 1)),
                token: None,
                deadline_ms: None,
            });
            return Ok(Released::StillHeld);
        }
        self.shared
            .sessions
            .unbind(BoundRef::lock(Mode::Exclusive, view.key, req.owner));
        let ended = self.end_tracked(view, hold.token, cx);
        self.stats.grants_released += self.count_hold(ended, cx.now);
        self.end_hold(view, Event::Release, cx);
        Ok(Released::Freed)
    }

    /// `LOCK.RENEW`: Redisson's watchdog script. True when the lease is renewed.
    pub fn renew(
        &mut self,
        view: &View<'_>,
        req: &Renew<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<bool, LockError> {
        self.check_view(view, cx.now)?;
        if let KeyState::ReadWrite(lock) = &view.state {
            if req.note.is_some() {
                return Err(LockError::HeldReadWrite);
            }
            if self.renew_shared(view, lock, req, cx)?.is_some() {
                return Ok(true);
            }
        }
        let hold = held_by(&view.state, req.owner, req.token, cx.now);
        let Some(hold) = of_kind(hold, &view.state, req.mode, cx.now)? else {
            self.stats.renewal_misses += 1;
            return Ok(false);
        };
        let token = match hold.token {
            Some(_) => None,
            None => Some(self.mint(view, cx)?),
        };
        self.shared.in_flight.claim(view.key, req.owner);
        let what = BoundRef::lock(Mode::Exclusive, view.key, req.owner);
        let (sessions, terms) = (&mut self.shared.sessions, (req.lease, req.names_lease));
        let deadline_ms = sessions.lease_end_after_use(what, hold.token, terms, cx.now);
        cx.write(KeyWrite::Adjust {
            owner: OwnerId::from_slice(req.owner),
            count: None,
            token,
            deadline_ms: Some(deadline_ms),
        });
        cx.note(req.owner, req.note);
        cx.publish_if_shorter(&view.state, deadline_ms);
        self.stats.renewals += 1;
        self.note_deadline(view, hold.token, deadline_ms);
        Ok(true)
    }

    /// `LOCK.BREAK`: Redisson's forceUnlock script. True when a hold was broken.
    pub fn break_lock(
        &mut self,
        view: &View<'_>,
        req: Break,
        cx: &mut Cx<'_>,
    ) -> Result<bool, LockError> {
        self.check_layout(view, cx.now)?;
        let hold = view
            .state
            .hold(cx.now)
            .filter(|hold| hold.is_under(req.token));
        let shared = match &view.state {
            KeyState::ReadWrite(lock) if Locks::breaks_shared(lock, req, cx.now) => Some(lock),
            _ => None,
        };
        if hold.is_none() && shared.is_none() && req.token.is_some() {
            return Ok(false);
        }
        let purges = req.purge && self.shared.waiters.waiting_on(view.key) > 0;
        if req.purge {
            self.shared
                .waiters
                .fail_all(view.key, &LockError::Broken, cx);
        }
        match view.state.may_break(cx.now) {
            // The waiters are purged, as of a lock that is not held.
            Err(_) if purges => return Ok(false),
            may_break => may_break?,
        }
        if let Some(lock) = shared {
            self.break_shared(view, lock, cx);
            return Ok(true);
        }
        let Some(hold) = hold else {
            return Ok(false);
        };
        self.end_broken(view, hold, cx);
        self.end_hold(view, Event::Break, cx);
        Ok(true)
    }

    fn end_broken(&mut self, view: &View<'_>, hold: &Hold, cx: &mut Cx<'_>) {
        self.shared
            .sessions
            .unbind(BoundRef::lock(Mode::Exclusive, view.key, &hold.owner));
        let ended = self.end_tracked(view, hold.token, cx);
        self.stats.grants_broken += u64::from(ended.is_some());
    }

    /// `LOCK.BREAK ... TO`: the hold of another owner is broken, if there is one, and the lock granted before all
    /// waiters. With a token only if the lock is held under it, or by this owner already: so it can be sent again.
    pub fn break_to(
        &mut self,
        view: &View<'_>,
        token: Option<u64>,
        req: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Answer, LockError> {
        self.check_view(view, cx.now)?;
        let broken = match compatibility(&view.state, req.mode, req.owner, cx.now)? {
            Compatibility::Mine(hold) => {
                let token = self.reenter(view, hold, req, cx)?;
                return Ok(Answer::Granted(token));
            }
            _ => view.state.hold(cx.now),
        };
        if token.is_some() && !broken.is_some_and(|hold| hold.is_under(token)) {
            return Ok(Answer::Refused);
        }
        view.state.may_break(cx.now)?;
        let delay_ms = self.shared.startup_delay.left(cx.now);
        if delay_ms > 0 {
            return Err(LockError::InStartupDelay(delay_ms));
        }
        // First: without a token the hold stays.
        let token = self.mint(view, cx)?;
        if let Some(hold) = broken {
            self.end_broken(view, hold, cx);
            cx.notify(Event::Break);
        }
        self.shared.waiters.schedule_settle_others(view.key);
        let granted = self.grant_alone(view, token, req, cx);
        cx.publish_if_shorter(&view.state, granted.deadline_ms);
        self.shared.granted_at_once(view.key, req, cx.now);
        let waiters = &mut self.shared.waiters;
        let own = waiters.withdraw(view.key, req.owner);
        waiters.end_withdrawn(own, cx);
        waiters.set_holder(view.key, req.owner.into(), granted.deadline_ms);
        Ok(Answer::Granted(granted.token))
    }

    pub(crate) fn end_hold(&mut self, view: &View<'_>, event: Event, cx: &mut Cx<'_>) {
        cx.notify(event);
        match self.hand_off(view, &KeyState::Absent, cx) {
            HandedOff::Granted | HandedOff::LeftFree => {}
            HandedOff::Reserved | HandedOff::NoWaiter | HandedOff::Blocked => {
                self.free(view, Mode::Exclusive, cx);
            }
        }
    }

    /// Frees the key at the end of a hold of this mode. A waiter that could not be granted now is settled again by the
    /// timer.
    pub(crate) fn free(&mut self, view: &View<'_>, ended: Mode, cx: &mut Cx<'_>) {
        self.shared.waiters.schedule_settle(view.key);
        self.shared.waiters.windows.was_free(view.key);
        free(view, ended, cx);
    }

    pub(crate) fn note_deadline(
        &mut self,
        view: &View<'_>,
        token: Option<Token>,
        deadline_ms: i64,
    ) {
        self.tracked.renewed(view.key, token, deadline_ms);
        self.shared.waiters.set_lease(view.key, Some(deadline_ms));
    }
}

pub(crate) fn held_by<'s>(
    state: &'s KeyState,
    owner: &[u8],
    token: Option<u64>,
    now: Now,
) -> Option<&'s Hold> {
    state
        .hold(now)
        .filter(|hold| hold.owner[..] == *owner && hold.is_under(token))
}

/// A mode in the request excludes an exclusive hold, and is an error while one is present.
fn of_kind<'s>(
    hold: Option<&'s Hold>,
    state: &KeyState,
    mode: Option<Mode>,
    now: Now,
) -> Result<Option<&'s Hold>, LockError> {
    match mode {
        None => Ok(hold),
        Some(_) if state.hold(now).is_some() => Err(LockError::HeldExclusively),
        Some(_) => Ok(None),
    }
}
