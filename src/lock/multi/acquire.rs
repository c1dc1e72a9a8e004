//! `LOCK.MACQUIRE`: every key is checked, then every key is granted, or the request waits.

use std::borrow::Cow;

use crate::lock::compatibility::{compatibility, Compatibility};
use crate::lock::effect::{Cx, Effect, Effects, Event};
use crate::lock::grant::Grantee;
use crate::lock::locks::Locks;
use crate::lock::read_write::upgrades;
use crate::lock::request::{Acquire, Answer, Wait};
use crate::lock::session::bindings::BoundRef;
use crate::lock::state::View;
use crate::lock::state::MAX_HOLD_COUNT;
use crate::lock::wait::request::ReentryTerms;
use crate::lock::{KeyRef, KeyState, LockError, Now, Resource, Token};

/// The most keys of one request.
pub const MAX_KEYS: usize = 1_024;

impl Locks {
    /// `LOCK.MACQUIRE`, for keys that differ from each other. The effects of each key go to its own list.
    ///
    /// # Errors
    /// As [`Locks::acquire`], at any of the keys; then nothing is changed.
    pub fn acquire_many(
        &mut self,
        views: &[View<'_>],
        req: &Acquire<'_>,
        now: Now,
        fx: &mut [Effects],
    ) -> Result<Answer<Vec<Token>>, LockError> {
        let obstacle = self.obstacle(views, req, now)?;
        if req.session {
            let keys = views.iter().map(|view| view.key);
            let asked = keys.map(|key| BoundRef::lock(req.mode, key, req.owner));
            self.shared.may_bind(Resource::Lock, req.user, asked)?;
        }
        match obstacle {
            Some(Obstacle::Held) if req.wait == Wait::No => {
                for (view, fx) in views.iter().zip(fx) {
                    self.prune_seen(view, &mut Cx::new(now, fx));
                }
                self.shared.waiters.stats[Resource::Lock].refusals += 1;
                return Ok(Answer::Refused);
            }
            Some(Obstacle::StartupDelay) if req.wait == Wait::No => {
                return Err(LockError::InStartupDelay(
                    self.shared.startup_delay.left(now),
                ));
            }
            Some(Obstacle::Queue) if req.wait == Wait::No => {
                self.may_enter_all(views, req, now)?;
                if self.have_queue(views, req, now, fx) {
                    self.shared.waiters.stats[Resource::Lock].refusals += 1;
                    return Ok(Answer::Refused);
                }
            }
            Some(_) => return self.enqueue_many(views, req, now, fx),
            None => self.may_enter_all(views, req, now)?,
        }
        let entered = self.enter_all(views, (req, req), now, fx)?;
        for ((view, (_, is_fresh)), fx) in views.iter().zip(&entered).zip(fx.iter_mut()) {
            self.shared.in_flight.claim(view.key, req.owner);
            self.shared
                .waiters
                .granted_at_once(view.key, req.owner, req.mode, now);
            // A reader may have waited to upgrade.
            let older = is_fresh.then(|| self.shared.waiters.withdraw(view.key, req.owner));
            let cx = &mut Cx::new(now, fx);
            self.shared
                .waiters
                .take_over(older.flatten().as_slice(), cx);
        }
        Ok(Answer::Granted(tokens_of(&entered)))
    }

    pub(super) fn obstacle(
        &mut self,
        views: &[View<'_>],
        req: &Acquire<'_>,
        now: Now,
    ) -> Result<Option<Obstacle>, LockError> {
        let (mut held, mut is_free, mut queue) = (false, false, false);
        for view in views {
            self.check_view(view, now)?;
            match compatibility(&view.state, req.mode, req.owner, now)? {
                Compatibility::Mine(_) => {}
                Compatibility::Within => is_free |= upgrades(&view.state, req, now),
                Compatibility::Blocked(_) => held = true,
                Compatibility::Free => {
                    is_free = true;
                    queue |= self.shared.waiters.waiting_on(view.key) > 0;
                }
            }
        }
        let is_delayed = is_free && self.shared.startup_delay.is_on(now);
        let held = held.then_some(Obstacle::Held);
        let delay = is_delayed.then_some(Obstacle::StartupDelay);
        Ok(held.or(delay).or(queue.then_some(Obstacle::Queue)))
    }

    /// Whether a key that is free has waiters, which come first.
    fn have_queue(
        &mut self,
        views: &[View<'_>],
        req: &Acquire<'_>,
        now: Now,
        fx: &mut [Effects],
    ) -> bool {
        let mut have_queue = false;
        for (view, fx) in views.iter().zip(fx) {
            let compatibility = compatibility(&view.state, req.mode, req.owner, now);
            if compatibility != Ok(Compatibility::Free) {
                continue;
            }
            // Ends the waits that are over. Of the tickets that stay it may not be known whether they are heard.
            self.shared
                .waiters
                .next_to_grant(view.key, &mut Cx::new(now, fx));
            if self.shared.waiters.waiting_on(view.key) > 0 {
                // The waiter is granted the key at the end of the tick.
                self.shared.waiters.schedule_settle(view.key);
                have_queue = true;
            }
        }
        have_queue
    }

    /// Whether each key can be granted: finds what would be an error at any of them.
    pub(super) fn may_enter_all(
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
                    may_read_or_write_again(view, req, now)?;
                    true
                }
            };
            if needs_token {
                self.can_mint(view, views.len(), now)?;
            }
        }
        Ok(())
    }

    pub(super) fn can_mint(
        &mut self,
        view: &View<'_>,
        of: usize,
        now: Now,
    ) -> Result<(), LockError> {
        let fence = view.fence.ok_or(LockError::Internal)?;
        if !fence.may_grant {
            return Err(self.shared.tokens.no_grant());
        }
        let seen = view.state.token().map_or(0, Token::get);
        let counter = fence.counter.unwrap_or(0);
        let now_us = now.wall_us();
        let made = self
            .shared
            .tokens
            .can_mint(view.domain, seen, counter, now_us, of as u64);
        made.map_err(|why| self.refuse_token(view.key, why))
    }

    /// Grants each key: a fresh hold, or a re-entry (`again`) where the owner has one. Returns the tokens, and whether
    /// each hold is fresh.
    pub(super) fn enter_all(
        &mut self,
        views: &[View<'_>],
        (req, again): (&Acquire<'_>, &Acquire<'_>),
        now: Now,
        fx: &mut [Effects],
    ) -> Result<Vec<(Token, bool)>, LockError> {
        let mut all = Vec::with_capacity(views.len());
        for (view, fx) in views.iter().zip(fx) {
            let cx = &mut Cx::new(now, fx);
            all.push(
                match compatibility(&view.state, req.mode, req.owner, now)? {
                    Compatibility::Mine(hold) => match self.reenter(view, hold, again, cx)? {
                        Answer::Granted(token) => (token, false),
                        Answer::Refused | Answer::Waits(_) => return Err(LockError::Internal),
                    },
                    Compatibility::Blocked(_) => return Err(LockError::Internal),
                    Compatibility::Free => {
                        let to = Grantee::of(req);
                        let granted = self.grant_in(view, Cow::Borrowed(&view.state), &to, cx)?;
                        if let Some(KeyState::ReadWrite(lock)) = &granted.after {
                            self.note_ends(view.key, lock, now);
                        } else {
                            self.shared
                                .waiters
                                .set_lease(view.key, Some(granted.deadline_ms));
                            self.shared.waiters.set_holder(view.key, req.owner.into());
                        }
                        (granted.token, granted.is_fresh)
                    }
                    Compatibility::Within => {
                        let lock = view.state.held_for_reading_or_writing(now);
                        let is_again = lock
                            .is_some_and(|lock| lock.count_of(req.mode, req.owner, now).is_some());
                        let to = Grantee::of(if is_again { again } else { req });
                        let entered =
                            self.enter(view, Cow::Borrowed(&view.state), (&to, req.once), cx)?;
                        self.note_ends(view.key, &entered.lock, now);
                        (entered.token, entered.is_fresh)
                    }
                },
            );
        }
        Ok(all)
    }

    fn enqueue_many(
        &mut self,
        views: &[View<'_>],
        req: &Acquire<'_>,
        now: Now,
        fx: &mut [Effects],
    ) -> Result<Answer<Vec<Token>>, LockError> {
        let keys: Vec<KeyRef<'_>> = views.iter().map(|view| view.key).collect();
        let former = self.shared.waiters.former(&keys, req.owner);
        let (at, how) = ((&keys[..], req.owner), (req.notify, 0, req.user));
        let id = self.shared.waiters.admit(at, &former.requests, how)?;
        let places = former.places.iter().flatten().map(|place| Some(place.seq));
        let places = places.chain(std::iter::repeat(None));
        let wants: Vec<_> = views.iter().zip(places).collect();
        if self.check_deadlock(&wants, req, &former.requests, now)? {
            self.verify_later(id, req.user);
        }
        let waiter = self.shared.waiter(id, req, now);
        let again = ReentryTerms {
            once: req.once,
            names_lease: req.names_lease,
        };
        let owner = (req.owner, again);
        let replaced = self
            .shared
            .waiters
            .enqueue_many(&keys, owner, &waiter, &former);
        for (view, fx) in views.iter().zip(fx.iter_mut()) {
            self.note_state(view, req, now);
            fx.push(Effect::Notify(Event::Wait));
        }
        if let (Some(key), Some(fx)) = (keys.first(), fx.first_mut()) {
            let cx = &mut Cx::new(now, fx);
            self.shared
                .waiters
                .count_waiter((*key, waiter.ticket.is_some()), &replaced, cx);
        }
        self.shared.waiters.schedule_settle_request(id, None);
        Ok(Answer::Waits(id))
    }

    /// Records the present holders of a key with waiters. A free key belongs to its first waiter, which is granted it
    /// at the end of the tick.
    pub(super) fn note_state(&mut self, view: &View<'_>, req: &Acquire<'_>, now: Now) {
        if let Some(lock) = view.state.held_for_reading_or_writing(now) {
            return self.note_longer(view.key, lock, now);
        }
        let lease_ms = match compatibility(&view.state, req.mode, req.owner, now) {
            Ok(Compatibility::Mine(_) | Compatibility::Within) => view.state.ends(now),
            Ok(Compatibility::Blocked(lease_ms)) => lease_ms,
            Ok(Compatibility::Free) | Err(_) => {
                if self.shared.waiters.waiting_on(view.key) > 1 {
                    self.shared.waiters.schedule_settle(view.key);
                }
                None
            }
        };
        self.shared.waiters.set_lease(view.key, lease_ms);
        self.shared.waiters.set_holders(view.key, &view.state, now);
    }
}

/// A reason against granting a request on several keys now.
pub(super) enum Obstacle {
    /// A key is held by another owner.
    Held,
    /// A free key has other waiters.
    Queue,
    /// The startup delay.
    StartupDelay,
}

pub(super) fn tokens_of(entered: &[(Token, bool)]) -> Vec<Token> {
    entered.iter().map(|(token, _)| *token).collect()
}

/// Whether one more hold of a read-write lock can be counted.
fn may_read_or_write_again(view: &View<'_>, req: &Acquire<'_>, now: Now) -> Result<(), LockError> {
    let Some(lock) = view.state.held_for_reading_or_writing(now) else {
        return Ok(());
    };
    match req.once {
        true => Ok(()),
        false => lock.may_count_one_more((req.mode, view.key.name, req.owner), now),
    }
}
