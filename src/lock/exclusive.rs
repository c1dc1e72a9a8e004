//! What each command decides, given what the key holds and who waits: the exclusive lock, and what it
//! has in common with the read-write lock (whose own rules are in `read_write`).
//!
//! The rules are Redisson's `RLock` (re-entry by owner, a count, a lease), with three differences:
//! re-entry never shortens the lease, nobody passes a waiter, and each grant has a token.

use std::borrow::Cow;

use crate::lock::compatibility::{compatibility, Compatibility};
use crate::lock::effect::{Effect, Effects, Event, KeyWrite, Outcome};
use crate::lock::grant::{free, Grantee, HandedOff};
use crate::lock::locks::{Locks, View};
use crate::lock::read_write::upgrades;
use crate::lock::session::bindings::BoundRef;
use crate::lock::state::MAX_HOLD_COUNT;
use crate::lock::wait::queue::Waiter;
use crate::lock::wait::Joined;
use crate::lock::{Hold, KeyState, Lease, LockError, Mode, Now, OwnerId, Token, WaiterId};

/// How long an acquire is ready to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Not at all, or in a context that cannot block.
    No,
    /// Until granted.
    ForEver,
    /// At most so many milliseconds.
    Ms(u64),
}

/// `LOCK.ACQUIRE`.
#[derive(Debug, Clone, Copy)]
pub struct Acquire<'a> {
    /// Who asks.
    pub owner: &'a [u8],
    /// The kind of hold.
    pub mode: Mode,
    /// The lease, from the moment of the grant.
    pub lease: Lease,
    /// Whether the request names it, by `EX` or `PX`: that ends a binding.
    pub names_lease: bool,
    /// Bind the hold to the connection; the lease is the session's then.
    pub session: bool,
    /// Do not count a re-entry: re-sending is safe.
    pub once: bool,
    /// How long to wait.
    pub wait: Wait,
    /// The server's id of the connection.
    pub client: u64,
}

/// How an acquire went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The owner holds the lock under this token.
    Granted(Token),
    /// Somebody else holds it, or comes first.
    Refused,
    /// The request is parked; its answer comes as an [`Effect::Answer`].
    Parked(WaiterId),
}

/// `LOCK.RELEASE`.
#[derive(Debug, Clone, Copy)]
pub struct Release<'a> {
    /// Who releases.
    pub owner: &'a [u8],
    /// Which hold: READ or WRITE; `None` for the only one.
    pub mode: Option<Mode>,
    /// Drop every hold, not one.
    pub all: bool,
    /// Only if the grant has this token.
    pub token: Option<u64>,
}

/// How a release went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// The owner holds no more: the lock is free or handed off.
    Freed,
    /// One hold less, still held.
    StillHeld,
    /// Not held by this owner, or not under that token.
    NotHeld,
}

/// `LOCK.RENEW`.
#[derive(Debug, Clone, Copy)]
pub struct Renew<'a> {
    /// Who renews.
    pub owner: &'a [u8],
    /// Which hold: READ or WRITE; `None` for the only one.
    pub mode: Option<Mode>,
    /// The new lease, from now.
    pub lease: Lease,
    /// Whether the request names it, by `EX` or `PX`: that ends a binding. A bound hold that is renewed
    /// without it gets the session's lease.
    pub names_lease: bool,
    /// Only if the grant has this token.
    pub token: Option<u64>,
}

/// `LOCK.BREAK`.
#[derive(Debug, Clone, Copy)]
pub struct Break {
    /// Only if the grant has this token.
    pub token: Option<u64>,
    /// Waiters are sent away instead of being granted.
    pub purge: bool,
}

/// Whether the key holds a lock, or nothing.
pub(crate) fn is_a_lock(state: &KeyState) -> Result<(), LockError> {
    match state {
        KeyState::OtherType => Err(LockError::WrongType),
        KeyState::OtherHash => Err(LockError::LockType),
        _ => Ok(()),
    }
}

impl Locks {
    /// `LOCK.ACQUIRE`: Redisson's tryLock script, and its wait.
    pub fn acquire(
        &mut self,
        view: &View<'_>,
        req: &Acquire<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<Answer, LockError> {
        self.check_view(view, now)?;
        if req.session && !self.sessions.rule.open {
            self.stats.busy += 1;
            return Err(LockError::Busy);
        }
        match compatibility(&view.state, req.mode, req.owner, now)? {
            Compatibility::Mine(hold) => return self.reenter(view, hold, req, now, fx),
            Compatibility::Within => return self.enter_again(view, req, now, fx),
            Compatibility::Blocked(lease_ms) => {
                return self.wait_or_refuse(view, lease_ms, req, now, fx)
            }
            Compatibility::Free => {}
        }
        // Free here; in the delay perhaps not where this server's data comes from.
        let delayed = self.startup_delay.is_on(now);
        if delayed && req.wait == Wait::No {
            return Err(LockError::InStartupDelay(self.startup_delay.left(now)));
        }
        // Free. Whoever waits comes first: the lock is theirs before the newcomer's request is
        // looked at, even if the event that freed it has not been dealt with yet.
        if req.wait == Wait::No {
            let others_first = !view.may_grant() && self.waiters.schedule_settle(view.key);
            if others_first
                || matches!(
                    self.hand_off(view, &view.state, now, fx),
                    HandedOff::Granted | HandedOff::Reserved | HandedOff::LeftFree
                )
                || (req.mode != Mode::Exclusive && self.waiters.live_on(view.key) > 0)
            {
                self.stats.refusals += 1;
                return Ok(Answer::Refused);
            }
        } else if delayed || self.waiters.live_on(view.key) > 0 {
            let answer = self.wait_or_refuse(view, None, req, now, fx)?;
            if self.hand_off(view, &view.state, now, fx) == HandedOff::Nobody {
                self.waiters.schedule_settle(view.key);
            }
            return Ok(answer);
        }
        let granted =
            self.grant_in(view, Cow::Borrowed(&view.state), &Grantee::of(req), now, fx)?;
        self.claim(view.key, req.owner);
        self.waiters.withdraw(view.key, req.owner);
        Ok(Answer::Granted(granted.token))
    }

    /// `LOCK.RELEASE`: Redisson's unlock script, and the hand-off.
    pub fn release(
        &mut self,
        view: &View<'_>,
        req: &Release<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<Released, LockError> {
        self.check_view(view, now)?;
        if let KeyState::ReadWrite(lock) = &view.state {
            if let Some(released) = self.release_shared(view, lock, req, now, fx)? {
                return Ok(released);
            }
        }
        let hold = held_by(&view.state, req.owner, req.token, now);
        let Some(hold) = of_kind(hold, &view.state, req.mode, now)? else {
            self.stats.release_misses += 1;
            if req.token.is_none() {
                let withdrawn = match req.mode {
                    Some(mode) => self.waiters.withdraw_mode(view.key, req.owner, mode),
                    None => self.waiters.withdraw(view.key, req.owner),
                };
                if let Some(waiter) = withdrawn {
                    self.stats.waits_withdrawn += 1;
                    fx.push(Effect::Answer(waiter, Outcome::Nil));
                }
            }
            return Ok(Released::NotHeld);
        };
        self.claim(view.key, req.owner);
        if hold.count > 1 && !req.all {
            fx.push(Effect::Write(KeyWrite::Adjust {
                owner: OwnerId::from_slice(req.owner),
                count: Some((hold.count, hold.count - 1)),
                token: None,
                deadline_ms: None,
            }));
            return Ok(Released::StillHeld);
        }
        self.sessions
            .unbind(BoundRef::lock(Mode::Exclusive, view.key, req.owner));
        self.stats.grants_released += u64::from(self.end_tracked(view, hold, now, fx));
        self.end_hold(view, Event::Release, now, fx);
        Ok(Released::Freed)
    }

    /// `LOCK.RENEW`: Redisson's watchdog script. True when the lease is renewed.
    pub fn renew(
        &mut self,
        view: &View<'_>,
        req: &Renew<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<bool, LockError> {
        self.check_view(view, now)?;
        if let KeyState::ReadWrite(lock) = &view.state {
            if self.renew_shared(view, lock, req, now, fx)?.is_some() {
                return Ok(true);
            }
        }
        let hold = held_by(&view.state, req.owner, req.token, now);
        let Some(hold) = of_kind(hold, &view.state, req.mode, now)? else {
            self.stats.renewal_misses += 1;
            return Ok(false);
        };
        let token = match hold.token {
            Some(_) => None,
            None => Some(self.mint(view, now, fx)?),
        };
        self.claim(view.key, req.owner);
        let what = BoundRef::lock(Mode::Exclusive, view.key, req.owner);
        let stays_bound = self.keep_binding(what, hold.token, req.names_lease, now);
        let deadline_ms = self.lease_of(stays_bound, req.lease).deadline(now);
        fx.push(Effect::Write(KeyWrite::Adjust {
            owner: OwnerId::from_slice(req.owner),
            count: None,
            token,
            deadline_ms: Some(deadline_ms),
        }));
        self.stats.renewals += 1;
        self.note_deadline(view, hold.token, deadline_ms);
        Ok(true)
    }

    /// `LOCK.BREAK`: Redisson's forceUnlock script. True when a hold was broken.
    pub fn break_lock(
        &mut self,
        view: &View<'_>,
        req: Break,
        now: Now,
        fx: &mut Effects,
    ) -> Result<bool, LockError> {
        self.check_view(view, now)?;
        let hold = view
            .state
            .hold(now)
            .filter(|hold| matches_token(hold, req.token));
        let shared = match &view.state {
            KeyState::ReadWrite(lock) if Locks::breaks_shared(lock, req, now) => Some(lock),
            _ => None,
        };
        if hold.is_none() && shared.is_none() && req.token.is_some() {
            return Ok(false);
        }
        if req.purge {
            self.fail_all(view.key, &LockError::Broken, fx);
        }
        if let Some(lock) = shared {
            self.break_shared(view, lock, now, fx);
            return Ok(true);
        }
        let Some(hold) = hold else {
            return Ok(false);
        };
        self.sessions
            .unbind(BoundRef::lock(Mode::Exclusive, view.key, &hold.owner));
        self.stats.grants_broken += u64::from(self.end_tracked(view, hold, now, fx));
        self.end_hold(view, Event::Break, now, fx);
        Ok(true)
    }

    /// Nothing is decided about foreign data. The token of a lock that came from elsewhere (RESTORE,
    /// COPY) counts as handed out here, since its key will not be there to tell when it is released.
    pub(crate) fn check_view(&mut self, view: &View<'_>, now: Now) -> Result<(), LockError> {
        is_a_lock(&view.state)?;
        if let Some(token) = view.state.token() {
            self.tokens.observe(view.domain, token, now.wall_us());
        }
        self.see_taken(view, now);
        Ok(())
    }

    pub(crate) fn reenter(
        &mut self,
        view: &View<'_>,
        hold: &Hold,
        req: &Acquire<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<Answer, LockError> {
        if !req.once && hold.count >= MAX_HOLD_COUNT {
            return Err(LockError::HoldCountOverflow);
        }
        let adopted = match hold.token {
            Some(_) => None,
            None => Some(self.mint(view, now, fx)?),
        };
        let token = hold.token.or(adopted).ok_or(LockError::TokensExhausted)?;
        let what = BoundRef::lock(req.mode, view.key, req.owner);
        let bound = if req.session {
            self.sessions.bind(what, req.client, token, now);
            true
        } else {
            self.keep_binding(what, hold.token, req.names_lease, now)
        };
        let wanted = self.lease_of(bound, req.lease).deadline(now);
        let deadline_ms = hold
            .deadline_ms
            .is_none_or(|end| end < wanted)
            .then_some(wanted);
        let count = (!req.once).then_some((hold.count, hold.count + 1));
        if count.is_some() || adopted.is_some() || deadline_ms.is_some() {
            fx.push(Effect::Write(KeyWrite::Adjust {
                owner: OwnerId::from_slice(req.owner),
                count,
                token: adopted,
                deadline_ms,
            }));
        }
        if let Some(deadline_ms) = deadline_ms {
            self.note_deadline(view, hold.token, deadline_ms);
        }
        self.claim(view.key, req.owner);
        self.stats.reentries += 1;
        Ok(Answer::Granted(token))
    }

    pub(crate) fn wait_or_refuse(
        &mut self,
        view: &View<'_>,
        lease_ms: Option<i64>,
        req: &Acquire<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<Answer, LockError> {
        let deadline_ms = match req.wait {
            Wait::No => {
                self.stats.refusals += 1;
                return Ok(Answer::Refused);
            }
            Wait::ForEver => None,
            Wait::Ms(ms) => Some(now.mono_ms.saturating_add(ms)),
        };
        let full = self.all_places() >= self.limits.max_waiters
            || self.waiters.live_on(view.key) >= self.limits.max_waiters_per_key;
        let former = self.waiters.parked(view.key, req.owner);
        if full && former.is_none() {
            self.stats.busy += 1;
            return Err(LockError::Busy);
        }
        let upgrades = upgrades(&view.state, req, now);
        if upgrades && self.another_upgrades(view, req, now) {
            self.stats.deadlocks += 1;
            return Err(LockError::Upgrade);
        }
        let in_doubt = self.judge_wait(view, req, former, now)?;
        self.next_waiter += 1;
        let id = WaiterId(self.next_waiter);
        self.doubtful.extend(in_doubt.then_some(id));
        let waiter = Waiter {
            id,
            mode: req.mode,
            lease: req.lease,
            session: req.session,
            deadline_ms,
            since_ms: now.mono_ms,
            client: req.client,
            limit: None,
        };
        let joined = match upgrades {
            true => self.waiters.park_first(view.key, req.owner, waiter),
            false => self.waiters.park(view.key, req.owner, waiter),
        };
        if let Joined::TookOver(older) = joined {
            self.stats.waits_taken_over += 1;
            fx.push(Effect::Answer(older, Outcome::Nil));
        }
        self.sessions.waits(req.client, id);
        self.stats.waits_parked += 1;
        match view.state.held_for_reading_or_writing(now) {
            Some(lock) if upgrades => self.note_ends(view.key, lock, now),
            Some(lock) => self.note_longer(view.key, lock, now),
            None => {
                self.waiters.set_lease(view.key, lease_ms);
                self.waiters.set_holders(view.key, &view.state, now);
            }
        }
        fx.push(Effect::Notify(Event::Wait));
        Ok(Answer::Parked(id))
    }

    pub(crate) fn end_hold(&mut self, view: &View<'_>, event: Event, now: Now, fx: &mut Effects) {
        fx.push(Effect::Notify(event));
        match self.hand_off(view, &KeyState::Absent, now, fx) {
            HandedOff::Granted | HandedOff::LeftFree => {}
            HandedOff::Reserved | HandedOff::Nobody | HandedOff::Blocked => {
                // Whoever still waits could not be granted just now: the alarm tries again.
                self.waiters.schedule_settle(view.key);
                self.windows.was_free(view.key);
                free(fx);
            }
        }
    }

    pub(crate) fn note_deadline(
        &mut self,
        view: &View<'_>,
        token: Option<Token>,
        deadline_ms: i64,
    ) {
        self.tracked.renewed(view.key, token, deadline_ms);
        self.waiters.set_lease(view.key, Some(deadline_ms));
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
        .filter(|hold| hold.owner[..] == *owner && matches_token(hold, token))
}

/// A word for a hold of a read-write lock means no exclusive one, and is out of place where somebody
/// holds one.
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

pub(crate) fn matches_token(hold: &Hold, token: Option<u64>) -> bool {
    token.is_none_or(|token| hold.token.map(Token::get) == Some(token))
}
