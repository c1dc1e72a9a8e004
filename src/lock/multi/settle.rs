//! The grant of a request on several keys that waits, at the end of a tick.

use std::rc::Rc;

use crate::lock::compatibility::{compatibility, Compatibility};
use crate::lock::effect::{Cx, Effects, Outcome};
use crate::lock::grant::in_flight::{GrantInFlight, Reentry};
use crate::lock::locks::Locks;
use crate::lock::multi::acquire::{tokens_of, Obstacle};
use crate::lock::request::Acquire;
use crate::lock::state::View;
use crate::lock::wait::hearing::Asked;
use crate::lock::wait::request::{Look, PlaceId, ReentryTerms, Waiter, WaiterId};
use crate::lock::{KeyId, KeyState, LockError, Mode, Now};

impl Locks {
    /// Whether a waiting request on several keys can be granted with the keys in these states; `None`: one of them
    /// excludes it. Returns the questions that the shell answers (`Waiters::learn`) before [`Locks::settle_many`]. The
    /// list is empty unless the owner holds every key: otherwise the shell has asked at the free key.
    pub fn may_grant_many(
        &self,
        request: WaiterId,
        states: &[KeyState],
        now: Now,
    ) -> Option<Vec<Asked>> {
        let waiters = &self.shared.waiters;
        let places = waiters.places_of(request);
        let mut holds_all = true;
        for ((key, place), state) in places.iter().zip(states) {
            let (owner, waiter) = waiters.at(*place)?;
            match compatibility(state, waiter.mode, owner, now) {
                _ if waiters.windows.is_open(key.as_ref(), now) => return None,
                Ok(Compatibility::Mine(_) | Compatibility::Within) => {}
                Ok(Compatibility::Free) => holds_all = false,
                Ok(Compatibility::Blocked) | Err(_) => return None,
            }
        }
        let asked = match holds_all {
            true => waiters.holder_to_ask(request),
            false => Vec::new(),
        };
        (places.len() == states.len()).then_some(asked)
    }

    /// Looks at some keys of a waiting request, from this index on. If none excludes it, the next are looked at later.
    pub fn look_at(&mut self, request: WaiterId, from: usize, states: &[KeyState], now: Now) {
        let waiters = &self.shared.waiters;
        let places = waiters.places_of(request);
        let mut looked = places.iter().skip(from).zip(states);
        let excludes = |((key, place), state): &(&(KeyId, PlaceId), &KeyState)| {
            let Some((owner, waiter)) = waiters.at(*place) else {
                return false;
            };
            match compatibility(state, waiter.mode, owner, now) {
                Ok(Compatibility::Blocked) => true,
                Ok(_) => waiters.windows.is_open(key.as_ref(), now),
                // The request fails when all keys are looked at together.
                Err(_) => false,
            }
        };
        match looked.position(|at| excludes(&at)) {
            None => {
                let found = from..from + states.len();
                self.shared.waiters.found_free(request, &found);
            }
            Some(at) => {
                let excluded = Look::Excluded(from + at);
                self.shared.waiters.set_look(request, excluded);
                if let (Some((key, _)), Some(state)) = (places.get(from + at), states.get(at)) {
                    self.note_holders(key.as_ref(), state, now);
                }
            }
        }
    }

    /// Grants all keys of a waiting request if every one is available, or records their holders. The views are in the
    /// order of `Waiters::keys_of`. False when the request is to be tried again.
    pub fn settle_many(
        &mut self,
        request: WaiterId,
        views: &[View<'_>],
        now: Now,
        fx: &mut [Effects],
    ) -> bool {
        let Some((owner, waiter)) = self.shared.waiters.request(request) else {
            return true;
        };
        let (owner, waiter) = (Rc::<[u8]>::from(owner), waiter.clone());
        let ReentryTerms { once, names_lease } = self.shared.waiters.reentry_terms(request);
        let req = Acquire {
            once,
            names_lease,
            ..Acquire::of_waiter(&owner, &waiter, None)
        };
        if !self.look_at_all(&waiter, views, &req, now, fx) {
            return true;
        }
        let obstacle = self.obstacle(views, &req, now);
        let is_delayed = matches!(obstacle, Ok(Some(Obstacle::StartupDelay(_))));
        if is_delayed || views.iter().any(|view| !view.may_grant()) {
            return false;
        }
        // An existing hold of the owner is bound or unbound only when the reply is written: see `Reentry`.
        let modest = Acquire {
            lease: self.shared.sessions.lease_of(req.session, req.lease),
            session: false,
            names_lease: false,
            ..req
        };
        let granted = obstacle
            .and_then(|_| self.may_enter_all(views, &req, now))
            .and_then(|()| self.enter_all(views, (&req, &modest), now, fx));
        let Some((_, last)) = views.iter().zip(fx.iter_mut()).next_back() else {
            return true;
        };
        let cx = &mut Cx::new(now, last);
        let entered = match granted {
            Ok(entered) => entered,
            Err(error) => {
                self.dismiss(request, &error, cx);
                return true;
            }
        };
        let places = self.shared.waiters.places_of(request);
        if let Some((_, place)) = places.first() {
            self.shared.waiters.take(*place);
        }
        let reentry = Reentry {
            counted: !req.once,
            binds: req.session.then_some(((req.client, req.user), now)),
            unbinds: req.names_lease,
        };
        let tokens = Outcome::GrantedAll(tokens_of(&entered).into());
        let grants = entered.iter().zip(places);
        let grants = grants.map(|((token, is_fresh), at)| GrantInFlight {
            reentry: (!is_fresh).then_some(reentry),
            ..GrantInFlight::of(at, (&owner, &waiter), *token)
        });
        self.shared.handed_off(&waiter, grants, tokens, cx);
        for view in views.iter().filter(|_| waiter.mode == Mode::Read) {
            // Readers behind this request may be compatible with it.
            self.shared.waiters.schedule_settle(view.key);
        }
        true
    }

    /// Looks at every key of a waiting request, and notes what it found. Returns whether the request can be granted at
    /// each: the owner holds the key, or the key is free and the request is first in its queue. Where the owner holds
    /// all keys, a ticket that is not heard waits for the end of a hold, and a request whose wait has run out waits for
    /// the timer that ends it. An error at a key ends waits there.
    fn look_at_all(
        &mut self,
        waiter: &Waiter,
        views: &[View<'_>],
        req: &Acquire<'_>,
        now: Now,
        fx: &mut [Effects],
    ) -> bool {
        let mut found = Vec::with_capacity(views.len());
        for (view, fx) in views.iter().zip(fx) {
            let cx = &mut Cx::new(now, fx);
            match self.look_at_key(waiter, view, req, cx) {
                Ok(one) => found.push(one),
                Err(error) => {
                    if view.state.check_is_lock().is_err() {
                        self.shared.waiters.fail_all(view.key, &error, cx);
                    } else {
                        // A lock of another kind than this request asks for; other requests may wait for that kind.
                        self.dismiss(waiter.id, &error, cx);
                    }
                    return false;
                }
            }
        }
        let excluded = found.iter().position(|one| *one == Found::Excluded);
        let look = excluded.map_or_else(Look::default, Look::Excluded);
        self.shared.waiters.set_look(waiter.id, look);
        let holds_all = found.iter().all(|one| *one == Found::Own);
        if holds_all && !self.shared.waiters.holder_may_be_granted(waiter.id, now) {
            // Without settling them: this is the request that each of them would be settled for.
            for view in views {
                self.record_holders(view.key, &view.state, now);
            }
            return false;
        }
        let is_granted = |one: &Found| matches!(one, Found::Own | Found::Next);
        found.iter().all(is_granted) && self.shared.waiters.is_waiting(waiter.id)
    }

    /// Looks at one key.
    ///
    /// # Errors
    /// When the key is not one that this request can take.
    fn look_at_key(
        &mut self,
        waiter: &Waiter,
        view: &View<'_>,
        req: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Found, LockError> {
        let now = cx.now;
        match compatibility(&view.state, req.mode, req.owner, now)? {
            Compatibility::Mine(_) | Compatibility::Within => Ok(Found::Own),
            Compatibility::Free if view.fence.is_none() => Ok(Found::Unasked),
            Compatibility::Free => {
                let waiters = &mut self.shared.waiters;
                let first = waiters.next_to_grant(view.key, cx);
                let first = first.and_then(|place| waiters.at(place));
                let is_next = first.is_some_and(|(_, first)| first.id == waiter.id);
                Ok(match is_next && !waiters.windows.is_open(view.key, now) {
                    true => Found::Next,
                    false => Found::Excluded,
                })
            }
            Compatibility::Blocked => {
                self.note_holders(view.key, &view.state, now);
                Ok(Found::Excluded)
            }
        }
    }
}

/// What a look at a key of a waiting request has found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// The request's owner holds it.
    Own,
    /// It is free, and the request is the next.
    Next,
    /// It is free, and no waiter was asked for, because another key excludes the grant.
    Unasked,
    /// It is held, or free for another request or one of Redisson's clients.
    Excluded,
}
