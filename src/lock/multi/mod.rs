//! Locks on several keys at once, all or none.
//!
//! The rules at each key are those of a request for one key. Every possible error is found before the first grant;
//! then all keys are granted in one event.
//!
//! A waiter holds nothing. The request has a place in the queue of each of its keys
//! ([`crate::lock::wait::multi_key`]). A key that becomes free while the request is first in its queue stays free for
//! it: the hand-off *reserves* the key, new requests are refused or join the queue, and the request is scheduled. At
//! the end of the tick the shell reads all keys of a scheduled request, and [`crate::lock::Locks::settle_many`]
//! grants them all or changes nothing. At a key that its owner holds already the request need not be first.
//!
//! `LOCK.MRELEASE` and `LOCK.MRENEW`: the rules of one key at each key.

use crate::lock::effect::{Cx, Effects};
use crate::lock::exclusive::acquire::is_a_lock;
use crate::lock::locks::Locks;
use crate::lock::request::{Release, Released, Renew};
use crate::lock::state::View;
use crate::lock::{KeyState, LockError, Now};

pub(crate) mod acquire;
pub(crate) mod settle;

/// Checks that `LOCK.MRELEASE` is valid at each of these keys.
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
    /// `LOCK.MRELEASE`: at each key as `LOCK.RELEASE`. Returns at how many keys a hold was dropped.
    ///
    /// # Errors
    /// As [`Locks::release`], at any of the keys; then nothing is changed.
    pub fn release_many(
        &mut self,
        views: &[View<'_>],
        req: &Release<'_>,
        now: Now,
        fx: &mut [Effects],
    ) -> Result<usize, LockError> {
        may_release_many(views.iter().map(|view| &view.state), req, now)?;
        for view in views {
            self.check_layout(view, now)?;
        }
        let mut dropped = 0;
        for (view, fx) in views.iter().zip(fx) {
            let released = self.release(view, req, &mut Cx::new(now, fx))?;
            dropped += usize::from(released != Released::NotHeld);
        }
        Ok(dropped)
    }

    /// `LOCK.MRENEW`: at each key as `LOCK.RENEW`. Returns how many are renewed.
    ///
    /// # Errors
    /// As [`Locks::renew`], at any of the keys; then nothing is changed.
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
            renewed += usize::from(self.renew(view, req, &mut Cx::new(now, fx))?);
        }
        Ok(renewed)
    }
}
