//! `LOCK.MACQUIRE`: every key is checked, then every key is granted, or the request waits.

use std::borrow::Cow;

use crate::lock::compatibility::{compatibility, Compatibility};
use crate::lock::effect::{Cx, Effects};
use crate::lock::locks::Locks;
use crate::lock::read_write::upgrades;
use crate::lock::request::{Acquire, Answer, Wait};
use crate::lock::state::MAX_HOLD_COUNT;
use crate::lock::state::{is_held, View};
use crate::lock::wait::request::ReentryTerms;
use crate::lock::{LockError, Now, Resource, Token};

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
        self.shared
            .may_bind(views.iter().map(|view| view.key), req)?;
        match obstacle {
            Some(Obstacle::Held) if req.wait == Wait::No => {
                for (view, fx) in views.iter().zip(fx) {
                    self.prune_seen(view, &mut Cx::new(now, fx));
                }
                self.shared.waiters.stats[Resource::Lock].refusals += 1;
                return Ok(Answer::Refused);
            }
            Some(Obstacle::StartupDelay(left_ms)) if req.wait == Wait::No => {
                return Err(LockError::InStartupDelay(left_ms));
            }
            Some(Obstacle::Queue) if req.wait == Wait::No => {
                self.may_enter_all(views, req, now)?;
                if self.have_queue(views, req, now, fx) {
                    self.shared.waiters.stats[Resource::Lock].refusals += 1;
                    return Ok(Answer::Refused);
                }
            }
            Some(_) => {
                let terms = ReentryTerms {
                    once: req.once,
                    names_lease: req.names_lease,
                };
                let id = self.wait_at(views, req, Some(terms), now, fx)?;
                let waiters = &mut self.shared.waiters;
                for view in views {
                    // A free key belongs to its first waiter, which is granted it at the end of the tick.
                    if !is_held(&view.state, None, now) && waiters.waiting_on(view.key) > 1 {
                        waiters.schedule_settle(view.key);
                    }
                }
                waiters.schedule_settle_request(id, None);
                return Ok(Answer::Waits(id));
            }
            None => self.may_enter_all(views, req, now)?,
        }
        let entered = self.enter_all(views, (req, req), now, fx)?;
        for ((view, (_, is_fresh)), fx) in views.iter().zip(&entered).zip(fx.iter_mut()) {
            self.shared.granted_at_once(view.key, req, now);
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
                Compatibility::Blocked => held = true,
                Compatibility::Free => {
                    is_free = true;
                    queue |= self.shared.waiters.waiting_on(view.key) > 0;
                }
            }
        }
        let held = held.then_some(Obstacle::Held);
        let delay_ms = self.shared.startup_delay.left(now);
        let delay = (is_free && delay_ms > 0).then_some(Obstacle::StartupDelay(delay_ms));
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
                Compatibility::Within | Compatibility::Free | Compatibility::Blocked => {
                    let lock = view.state.held_for_reading_or_writing(now);
                    if let Some(lock) = lock.filter(|_| !req.once) {
                        let whose = (req.mode, view.key.name, req.owner);
                        lock.may_count_one_more(whose, now)?;
                    }
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
        let (seen, counter) = self.token_floor(view)?;
        let (counter, now_us) = (counter.unwrap_or(0), now.wall_us());
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
                    Compatibility::Mine(hold) => (self.reenter(view, hold, again, cx)?, false),
                    Compatibility::Blocked => return Err(LockError::Internal),
                    Compatibility::Free | Compatibility::Within => {
                        let lock = view.state.held_for_reading_or_writing(now);
                        let is_again = lock
                            .is_some_and(|lock| lock.count_of(req.mode, req.owner, now).is_some());
                        let to = if is_again { again } else { req };
                        let granted = self.grant_in(view, Cow::Borrowed(&view.state), to, cx)?;
                        if let Some(lock) = &granted.lock {
                            self.note_ends(view.key, lock, now);
                        } else {
                            let (owner, end_ms) = (req.owner.into(), granted.deadline_ms);
                            self.shared.waiters.set_holder(view.key, owner, end_ms);
                        }
                        (granted.token, granted.is_fresh)
                    }
                },
            );
        }
        Ok(all)
    }
}

/// A reason against granting a request on several keys now.
pub(super) enum Obstacle {
    /// A key is held by another owner.
    Held,
    /// A free key has other waiters.
    Queue,
    /// The startup delay, which lasts so many more milliseconds.
    StartupDelay(u64),
}

pub(super) fn tokens_of(entered: &[(Token, bool)]) -> Vec<Token> {
    entered.iter().map(|(token, _)| *token).collect()
}
