//! Locks on many keys at once: all of them, or none.
//!
//! Every rule about one key is that of a request for one key. Nothing is granted before it is known that
//! everything can be: what would be an error at one key is found first, and then all are entered in one
//! event.
//!
//! Who waits holds nothing. The request stands in the queue of each of its keys
//! ([`crate::lock::wait::multi_key`]). A key that becomes free while it stands first there stays free for it:
//! the hand-off *reserves* it, newcomers are refused or queue up behind, and the request is marked. At
//! the end of the turn the shell reads all keys of a marked request, and [`Locks::settle_many`] grants
//! them all or leaves everything as it is. At a key that its owner holds already the request need not
//! be first.

use std::borrow::Cow;
use std::rc::Rc;

use crate::lock::compatibility::{compatibility, Compatibility};
use crate::lock::effect::{Effect, Effects, Event, Outcome};
use crate::lock::exclusive::is_a_lock;
use crate::lock::grant::{GrantInFlight, Grantee, Reentry};
use crate::lock::locks::{Locks, View};
use crate::lock::read_write::upgrades;
use crate::lock::resource::Resource;
use crate::lock::state::MAX_HOLD_COUNT;
use crate::lock::wait::deadlock::{Caller, Want};
use crate::lock::wait::index::Holders;
use crate::lock::wait::multi_key::{Again, Former};
use crate::lock::wait::queue::Waiter;
use crate::lock::{
    Acquire, Answer, KeyRef, KeyState, LockError, Mode, Now, Release, Released, Renew, Token, Wait,
    WaiterId,
};

/// The most keys of one request.
pub const MAX_KEYS: usize = 1_024;

/// How a request for many keys went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManyAnswer {
    /// The owner holds them all, under these tokens.
    Granted(Vec<Token>),
    /// This key was the first that somebody else holds, or comes first at.
    Refused(usize),
    /// The request is parked; its answer comes as an [`Effect::Answer`].
    Parked(WaiterId),
}

/// What stands in the way of a request on many keys.
enum Obstacle {
    /// Somebody else holds this one.
    Held(usize),
    /// Others wait for one that is free.
    Queue,
    /// Nothing is granted yet.
    StartupDelay,
}

/// Whether `LOCK.MRELEASE` is understood at each of these keys.
///
/// # Errors
/// As [`Locks::release`], at any of the keys.
pub fn may_release_many<'a>(
    states: impl IntoIterator<Item = &'a KeyState>,
    req: &Release<'_>,
    now: Now,
) -> Result<(), LockError> {
    states.into_iter().try_for_each(|state| {
        is_a_lock(state)?;
        match state {
            KeyState::ReadWrite(lock) => lock.meant(req.owner, req.mode, req.token, now).map(drop),
            _ => Ok(()),
        }
    })
}

impl Locks {
    /// `LOCK.MACQUIRE`, for keys no two of which are the same. The effects go to the lists of their keys.
    ///
    /// # Errors
    /// As [`Locks::acquire`], at any of the keys; then nothing has happened.
    pub fn acquire_many(
        &mut self,
        views: &[View<'_>],
        req: &Acquire<'_>,
        now: Now,
        fx: &mut [Effects],
    ) -> Result<ManyAnswer, LockError> {
        let obstacle = self.obstacle(views, req, now)?;
        if req.session && !self.sessions.rule.open {
            self.stats.busy += 1;
            return Err(LockError::Busy);
        }
        match obstacle {
            Some(Obstacle::Held(at)) if req.wait == Wait::No => {
                self.stats.refusals += 1;
                return Ok(ManyAnswer::Refused(at));
            }
            Some(Obstacle::StartupDelay) if req.wait == Wait::No => {
                return Err(LockError::InStartupDelay(self.startup_delay.left(now)));
            }
            Some(Obstacle::Queue) if req.wait == Wait::No => {
                self.may_enter_all(views, req, now)?;
                if let Some(at) = self.first_with_queue(views, req, now, fx) {
                    self.stats.refusals += 1;
                    return Ok(ManyAnswer::Refused(at));
                }
            }
            Some(_) => return self.park_many(views, req, now, fx),
            None => self.may_enter_all(views, req, now)?,
        }
        let entered = self.enter_all(views, (req, req), now, fx)?;
        for ((view, (_, is_fresh)), fx) in views.iter().zip(&entered).zip(fx.iter_mut()) {
            self.claim(view.key, req.owner);
            let older = is_fresh.then(|| self.waiters.withdraw(view.key, req.owner));
            if let Some(older) = older.flatten() {
                // A reader that waited to upgrade, until just now.
                self.stats.waits_taken_over += 1;
                fx.push(Effect::Answer(older, Outcome::Nil));
            }
        }
        Ok(ManyAnswer::Granted(tokens_of(&entered)))
    }

    fn obstacle(
        &mut self,
        views: &[View<'_>],
        req: &Acquire<'_>,
        now: Now,
    ) -> Result<Option<Obstacle>, LockError> {
        let (mut held, mut is_free, mut queue) = (None, false, false);
        for (at, view) in views.iter().enumerate() {
            self.check_view(view, now)?;
            match compatibility(&view.state, req.mode, req.owner, now)? {
                Compatibility::Mine(_) => {}
                Compatibility::Within => is_free |= upgrades(&view.state, req, now),
                Compatibility::Blocked(_) => held = held.or(Some(Obstacle::Held(at))),
                Compatibility::Free => {
                    is_free = true;
                    queue |= self.waiters.live_on(view.key) > 0;
                }
            }
        }
        let delay = (is_free && self.startup_delay.is_on(now)).then_some(Obstacle::StartupDelay);
        Ok(held.or(delay).or(queue.then_some(Obstacle::Queue)))
    }

    /// The first key that is free but waited for: whoever waits comes first.
    fn first_with_queue(
        &mut self,
        views: &[View<'_>],
        req: &Acquire<'_>,
        now: Now,
        fx: &mut [Effects],
    ) -> Option<usize> {
        let mut first = None;
        for (at, (view, fx)) in views.iter().zip(fx).enumerate() {
            let compatibility = compatibility(&view.state, req.mode, req.owner, now);
            if compatibility == Ok(Compatibility::Free)
                && self.next_in_line(view.key, now, fx).is_some()
            {
                // It is theirs: that is seen to at the end of the turn.
                self.waiters.schedule_settle(view.key);
                first = first.or(Some(at));
            }
        }
        first
    }

    /// Whether each key can be entered: what would be an error at any of them is found here.
    fn may_enter_all(
        &mut self,
        views: &[View<'_>],
        req: &Acquire<'_>,
        now: Now,
    ) -> Result<(), LockError> {
        for view in views {
            let needs_token = match compatibility(&view.state, req.mode, req.owner, now)? {
                Compatibility::Mine(hold) if !req.once && hold.count >= MAX_HOLD_COUNT => {
                    return Err(LockError::HoldCountOverflow);
                }
                Compatibility::Mine(hold) => hold.token.is_none(),
                Compatibility::Within | Compatibility::Free | Compatibility::Blocked(_) => {
                    may_read_or_write_again(&view.state, req, now)?;
                    true
                }
            };
            if needs_token {
                self.can_mint(view, views.len(), now)?;
            }
        }
        Ok(())
    }

    fn can_mint(&mut self, view: &View<'_>, of: usize, now: Now) -> Result<(), LockError> {
        let fence = view.fence.ok_or(LockError::Internal)?;
        if !fence.may_grant {
            return Err(self.tokens.no_grant());
        }
        let seen = view.state.token().map_or(0, Token::get);
        let counter = fence.counter.unwrap_or(0);
        let now_us = now.wall_us();
        let made = self
            .tokens
            .can_mint(view.domain, seen, counter, now_us, of as u64);
        self.count_implausible(made)
    }

    /// Enters each key: anew, or once more (`again`) where the owner is in already. Answers the tokens, and
    /// whether each is of a hold of its own.
    fn enter_all(
        &mut self,
        views: &[View<'_>],
        (req, again): (&Acquire<'_>, &Acquire<'_>),
        now: Now,
        fx: &mut [Effects],
    ) -> Result<Vec<(Token, bool)>, LockError> {
        let mut all = Vec::with_capacity(views.len());
        for (view, fx) in views.iter().zip(fx) {
            all.push(
                match compatibility(&view.state, req.mode, req.owner, now)? {
                    Compatibility::Mine(hold) => match self.reenter(view, hold, again, now, fx)? {
                        Answer::Granted(token) => (token, false),
                        Answer::Refused | Answer::Parked(_) => return Err(LockError::Internal),
                    },
                    Compatibility::Blocked(_) => return Err(LockError::Internal),
                    Compatibility::Free if req.mode == Mode::Exclusive => {
                        let to = Grantee::of(req);
                        let granted =
                            self.grant_in(view, Cow::Borrowed(&view.state), &to, now, fx)?;
                        self.waiters.set_lease(view.key, Some(granted.deadline_ms));
                        self.waiters.set_holder(view.key, req.owner.into());
                        (granted.token, true)
                    }
                    Compatibility::Free | Compatibility::Within => {
                        self.begins_as(Resource::Lock, view.key);
                        let lock = view.state.held_for_reading_or_writing(now);
                        let is_again = lock
                            .is_some_and(|lock| lock.count_of(req.mode, req.owner, now).is_some());
                        let to = Grantee::of(if is_again { again } else { req });
                        let entered =
                            self.enter(view, Cow::Borrowed(&view.state), (&to, req.once), now, fx)?;
                        self.note_ends(view.key, &entered.lock, now);
                        (entered.token, entered.is_fresh)
                    }
                },
            );
        }
        Ok(all)
    }

    fn park_many(
        &mut self,
        views: &[View<'_>],
        req: &Acquire<'_>,
        now: Now,
        fx: &mut [Effects],
    ) -> Result<ManyAnswer, LockError> {
        let keys: Vec<KeyRef<'_>> = views.iter().map(|view| view.key).collect();
        let former = self.waiters.former(&keys, req.owner);
        if self.is_full(&keys, req.owner, &former) {
            self.stats.busy += 1;
            return Err(LockError::Busy);
        }
        let in_doubt = self.judge_many(views, req, &former, now)?;
        self.next_waiter += 1;
        let id = WaiterId(self.next_waiter);
        self.doubtful.extend(in_doubt.then_some(id));
        let waiter = Waiter {
            id,
            mode: req.mode,
            lease: req.lease,
            session: req.session,
            deadline_ms: req.wait.deadline(now),
            since_ms: now.mono_ms,
            client: req.client,
            limit: None,
        };
        let again = Again {
            once: req.once,
            names_lease: req.names_lease,
        };
        let owner = (req.owner, again);
        self.waiters.park_many(&keys, owner, &waiter, &former);
        self.sessions.waits(req.client, id);
        self.stats.waits_parked += 1;
        self.stats.waits_taken_over += former.requests.len() as u64;
        for (view, fx) in views.iter().zip(fx.iter_mut()) {
            self.see(view, req, now);
            fx.push(Effect::Notify(Event::Wait));
        }
        if let Some(fx) = fx.first_mut() {
            let nil = |older: &WaiterId| Effect::Answer(*older, Outcome::Nil);
            fx.extend(former.requests.iter().map(nil));
        }
        self.waiters.schedule_settle_request(id);
        Ok(ManyAnswer::Parked(id))
    }

    /// Whether a limit on waiters stands against this request, which takes a place at each key and gives up
    /// those of the requests that it takes over.
    fn is_full(&self, keys: &[KeyRef<'_>], owner: &[u8], former: &Former) -> bool {
        let limits = self.limits;
        let full_at = |key: &KeyRef<'_>| {
            self.waiters.live_on(*key) >= limits.max_waiters_per_key
                && self.waiters.parked(*key, owner).is_none()
        };
        let freed = former.requests.iter();
        let freed = freed.map(|older| self.waiters.places_of(*older).len());
        let more = keys.len().saturating_sub(freed.sum());
        let full = more > 0 && self.all_places() + more > limits.max_waiters;
        full || keys.iter().any(full_at)
    }

    fn judge_many(
        &mut self,
        views: &[View<'_>],
        req: &Acquire<'_>,
        former: &Former,
        now: Now,
    ) -> Result<bool, LockError> {
        if !self.detects_deadlocks {
            return Ok(false);
        }
        let places = former.places.iter().flatten().map(|seq| Some(*seq));
        let places = places.chain(std::iter::repeat(None));
        let wants: Vec<_> = views
            .iter()
            .zip(places)
            .map(|(view, place)| Want {
                key: view.key,
                place,
                holders: Holders::of(&view.state, now),
            })
            .collect();
        let caller = Caller {
            owner: req.owner,
            mode: req.mode,
            wants: &wants,
            replaces: &former.requests,
        };
        self.judge(&caller, now)
    }

    /// Notes what a key that is waited for holds now. One that is free is its next waiter's, which is
    /// seen to at the end of the turn.
    fn see(&mut self, view: &View<'_>, req: &Acquire<'_>, now: Now) {
        let lease_ms = match compatibility(&view.state, req.mode, req.owner, now) {
            Ok(Compatibility::Mine(_) | Compatibility::Within) => view.state.ends(now),
            Ok(Compatibility::Blocked(lease_ms)) => lease_ms,
            Ok(Compatibility::Free) | Err(_) => {
                if self.waiters.live_on(view.key) > 1 {
                    self.waiters.schedule_settle(view.key);
                }
                None
            }
        };
        self.waiters.set_lease(view.key, lease_ms);
        self.waiters.set_holders(view.key, &view.state, now);
    }

    /// Whether a parked request on many keys can be granted, its keys being as they were read: the
    /// shell then asks whether they may be written.
    pub fn may_grant_many(&self, request: WaiterId, states: &[KeyState], now: Now) -> bool {
        let places = self.waiters.places_of(request);
        places.len() == states.len()
            && places.iter().zip(states).all(|((key, seq), state)| {
                let at = self.waiters.at(key.as_ref(), *seq);
                let compatibility =
                    at.map(|(owner, waiter)| compatibility(state, waiter.mode, owner, now));
                !self.windows.is_open(key.as_ref(), now)
                    && matches!(
                        compatibility,
                        Some(Ok(Compatibility::Free
                            | Compatibility::Mine(_)
                            | Compatibility::Within))
                    )
            })
    }

    /// Grants all keys of a parked request, if every one of them is to be had; else notes what they
    /// hold. The views are in the order of [`crate::lock::Waiters::keys_of`]. False when it is to be tried again.
    pub fn settle_many(
        &mut self,
        request: WaiterId,
        views: &[View<'_>],
        now: Now,
        fx: &mut [Effects],
    ) -> bool {
        let places = self.waiters.places_of(request);
        let Some((owner, waiter)) = places.first().and_then(|(key, seq)| {
            let (owner, waiter) = self.waiters.at(key.as_ref(), *seq)?;
            Some((Rc::<[u8]>::from(owner), waiter.clone()))
        }) else {
            return true;
        };
        let again = self.waiters.again(request);
        // What was asked for, once more.
        let req = Acquire {
            owner: &owner,
            mode: waiter.mode,
            lease: waiter.lease,
            names_lease: again.names_lease,
            session: waiter.session,
            once: again.once,
            wait: Wait::ForEver,
            client: waiter.client,
        };
        if !self.all_are_free(request, views, &req, now, fx) {
            return true;
        }
        let is_delayed = match self.obstacle(views, &req, now) {
            Ok(Some(Obstacle::StartupDelay)) => true,
            Ok(_) | Err(_) => false,
        };
        if is_delayed || views.iter().any(|view| !view.may_grant()) {
            return false;
        }
        // A hold that the owner has already is bound or unbound when the reply is written: see `Reentry`.
        let modest = Acquire {
            lease: self.lease_of(req.session, req.lease),
            session: false,
            names_lease: false,
            ..req
        };
        let granted = self
            .may_enter_all(views, &req, now)
            .and_then(|()| self.enter_all(views, (&req, &modest), now, fx));
        let Some((_, last)) = views.iter().zip(fx.iter_mut()).next_back() else {
            return true;
        };
        match granted {
            Err(error) => {
                self.waiters.dismiss(request);
                self.fail(vec![request], &error, last);
            }
            Ok(entered) => {
                self.waiters.take_many(request);
                self.sessions.waits(waiter.client, request);
                self.count_wait(&waiter, now);
                let reentry = Reentry {
                    counted: !req.once,
                    binds: req.session.then_some((req.client, now)),
                    unbinds: req.names_lease,
                };
                for ((token, is_fresh), (key, seq)) in entered.iter().zip(&places) {
                    let in_flight = GrantInFlight {
                        key: key.clone(),
                        owner: owner.clone(),
                        mode: waiter.mode,
                        token: *token,
                        seq: *seq,
                        reentry: (!is_fresh).then_some(reentry),
                    };
                    if *is_fresh && waiter.mode == Mode::Exclusive {
                        self.windows.count(key.as_ref());
                    }
                    self.put_in_flight(request, in_flight);
                }
                let tokens = tokens_of(&entered).into();
                last.push(Effect::Answer(request, Outcome::GrantedAll(tokens)));
                for view in views.iter().filter(|_| waiter.mode == Mode::Read) {
                    // Readers behind it may enter with it.
                    self.waiters.schedule_settle(view.key);
                }
            }
        }
        true
    }

    /// Whether this request may enter at every key: the owner holds it, or it is free and the request
    /// is first in line.
    fn all_are_free(
        &mut self,
        request: WaiterId,
        views: &[View<'_>],
        req: &Acquire<'_>,
        now: Now,
        fx: &mut [Effects],
    ) -> bool {
        let mut all_free = true;
        for (view, fx) in views.iter().zip(fx) {
            match compatibility(&view.state, req.mode, req.owner, now) {
                Ok(Compatibility::Mine(_) | Compatibility::Within) => {}
                Ok(Compatibility::Free) => {
                    let first = self.next_in_line(view.key, now, fx);
                    let first = first.and_then(|seq| self.waiters.at(view.key, seq));
                    all_free &= first.is_some_and(|(_, waiter)| waiter.id == request)
                        && !self.windows.is_open(view.key, now);
                }
                Ok(Compatibility::Blocked(lease_ms)) => {
                    self.waiters.set_lease(view.key, lease_ms);
                    self.waiters.set_holders(view.key, &view.state, now);
                    all_free = false;
                }
                Err(error) => {
                    if matches!(view.state, KeyState::OtherType | KeyState::OtherHash) {
                        self.fail_all(view.key, &error, fx);
                    } else {
                        // A lock of another kind than this request asks for; others wait for that kind.
                        self.waiters.dismiss(request);
                        self.fail(vec![request], &error, fx);
                    }
                    return false;
                }
            }
        }
        all_free && self.waiters.is_parked(request)
    }

    /// `LOCK.MRELEASE`: at each key as `LOCK.RELEASE`. Answers on how many a hold was dropped.
    ///
    /// # Errors
    /// As [`Locks::release`], at any of the keys; then nothing has happened.
    pub fn release_many(
        &mut self,
        views: &[View<'_>],
        req: &Release<'_>,
        now: Now,
        fx: &mut [Effects],
    ) -> Result<usize, LockError> {
        may_release_many(views.iter().map(|view| &view.state), req, now)?;
        for view in views {
            self.check_view(view, now)?;
        }
        let mut dropped = 0;
        for (view, fx) in views.iter().zip(fx) {
            let released = self.release(view, req, now, fx)?;
            dropped += usize::from(released != Released::NotHeld);
        }
        Ok(dropped)
    }

    /// `LOCK.MRENEW`: at each key as `LOCK.RENEW`. Answers how many are renewed.
    ///
    /// # Errors
    /// As [`Locks::renew`], at any of the keys; then nothing has happened.
    pub fn renew_many(
        &mut self,
        views: &[View<'_>],
        req: &Renew<'_>,
        now: Now,
        fx: &mut [Effects],
    ) -> Result<usize, LockError> {
        for view in views {
            self.check_view(view, now)?;
            let needs_token = match &view.state {
                KeyState::ReadWrite(lock) => {
                    let meant = lock.meant(req.owner, req.mode, req.token, now)?;
                    meant.is_some() && lock.token(now).is_none()
                }
                state => state
                    .hold(now)
                    .is_some_and(|hold| hold.owner[..] == *req.owner && hold.token.is_none()),
            };
            if needs_token {
                self.can_mint(view, views.len(), now)?;
            }
        }
        let mut renewed = 0;
        for (view, fx) in views.iter().zip(fx) {
            renewed += usize::from(self.renew(view, req, now, fx)?);
        }
        Ok(renewed)
    }
}

fn tokens_of(entered: &[(Token, bool)]) -> Vec<Token> {
    entered.iter().map(|(token, _)| *token).collect()
}

/// Whether one more hold of a read-write lock can be counted.
fn may_read_or_write_again(state: &KeyState, req: &Acquire<'_>, now: Now) -> Result<(), LockError> {
    let Some(lock) = state.held_for_reading_or_writing(now) else {
        return Ok(());
    };
    match req.once {
        true => Ok(()),
        false => lock.may_count_one_more(req.mode, req.owner, now),
    }
}
