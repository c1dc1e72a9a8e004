//! The requests for READ and WRITE that the next decision about a key may grant: each needs sibling keys, and only the
//! shell can read whether these are free.

use std::borrow::Cow;

use crate::lock::effect::Cx;
use crate::lock::exclusive::release::{held_by, matches_token};
use crate::lock::locks::Locks;
use crate::lock::read_write::settle::may_enter;
use crate::lock::read_write::state::ReadWrite;
use crate::lock::session::bindings::Bound;
use crate::lock::{Break, KeyRef, KeyState, LockError, Mode, Now, OwnerId, Release, WaiterId};

/// A parked request for READ or WRITE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRequest {
    /// The request.
    pub request: WaiterId,
    /// READ or WRITE.
    pub mode: Mode,
    /// The owner.
    pub owner: OwnerId,
}

/// The holds that the next decision about a key ends before it grants.
#[derive(Debug)]
pub enum Ending<'a> {
    /// None.
    Nothing,
    /// The holds that this request releases.
    Release(&'a Release<'a>),
    /// The holds that this request breaks.
    Break(Break),
    /// The hold that is bound to a closed connection.
    Session(&'a Bound),
    /// Grants whose replies were not delivered.
    Undone,
}

impl Locks {
    /// The content of the key after these holds have ended.
    pub fn rest<'s>(
        &self,
        key: KeyRef<'_>,
        state: &'s KeyState,
        ending: &Ending<'_>,
        now: Now,
    ) -> Cow<'s, KeyState> {
        let rest = match (ending, state) {
            (Ending::Nothing, _) => None,
            (Ending::Release(req), KeyState::ReadWrite(lock)) => {
                let meant = lock.meant(req.owner, req.mode, req.token, now);
                let ends = |mode: &Mode| req.all || lock.count_of(*mode, req.owner, now) == Some(1);
                let mode = meant.ok().flatten().filter(ends);
                mode.map(|mode| lock.without((mode, req.owner)))
            }
            (Ending::Release(req), _) => held_by(state, req.owner, req.token, now)
                .filter(|hold| req.mode.is_none() && (req.all || hold.count == 1))
                .map(|_| KeyState::Absent),
            (Ending::Break(req), KeyState::ReadWrite(lock)) => {
                Locks::breaks_shared(lock, *req, now).then_some(KeyState::Absent)
            }
            (Ending::Break(req), _) => state
                .hold(now)
                .filter(|hold| matches_token(hold, req.token))
                .map(|_| KeyState::Absent),
            (Ending::Session(bound), KeyState::ReadWrite(_)) => self
                .bound_shared(bound.as_ref(), state, now)
                .map(|(mode, lock)| lock.without((mode, &bound.owner))),
            (Ending::Session(bound), _) => self
                .bound_hold(bound.as_ref(), state, now)
                .map(|_| KeyState::Absent),
            (Ending::Undone, _) => self.rest_of_undone(key, state, now),
        };
        rest.map_or(Cow::Borrowed(state), Cow::Owned)
    }

    fn rest_of_undone(&self, key: KeyRef<'_>, state: &KeyState, now: Now) -> Option<KeyState> {
        let undone = self.undelivered.get(&key)?.iter();
        let mut whole = undone.filter(|undone| undone.reentry.is_none());
        let KeyState::ReadWrite(lock) = state else {
            let hold = state.hold(now)?;
            return whole
                .any(|undone| undone.is(hold))
                .then_some(KeyState::Absent);
        };
        let mut rest = (**lock).clone();
        for undone in whole.filter(|undone| undone.is_in(lock, now)) {
            rest.end((undone.mode, &undone.owner));
        }
        Some(KeyState::ReadWrite(Box::new(rest)))
    }

    /// The requests at the head of the queue that may be granted together, if they ask for READ or WRITE: one request
    /// for WRITE, or the readers before the first one. Empty while `rest`, the state after those holds have ended,
    /// excludes all of them.
    pub fn next_for_shared(
        &self,
        key: KeyRef<'_>,
        rest: &KeyState,
        now: Now,
    ) -> Vec<PendingRequest> {
        let queue = self
            .waiters
            .queue(key)
            .into_iter()
            .flat_map(|queue| queue.iter());
        let mut living = queue
            .filter(|(_, waiter)| waiter.deadline_ms.is_none_or(|end| end > now.mono_ms))
            .peekable();
        let mode = match living.peek() {
            Some((first, waiter)) if may_enter(rest, waiter.mode, first, now) => waiter.mode,
            _ => return Vec::new(),
        };
        let most = match mode {
            Mode::Exclusive => 0,
            Mode::Write => 1,
            Mode::Read => usize::MAX,
        };
        living
            .take_while(|(_, waiter)| waiter.mode == mode)
            .take(most)
            .map(|(owner, waiter)| PendingRequest {
                request: waiter.id,
                mode,
                owner: owner.into(),
            })
            .collect()
    }

    /// The hold that a parked request on several keys asks for at each of them.
    pub fn pending_request(&self, request: WaiterId) -> Option<PendingRequest> {
        let (key, seq) = self.waiters.places_of(request).into_iter().next()?;
        let (owner, waiter) = self.waiters.at(key.as_ref(), seq)?;
        Some(PendingRequest {
            request,
            mode: waiter.mode,
            owner: owner.into(),
        })
    }

    /// Removes a request that cannot be granted from its queues, and answers it this error.
    pub fn dismiss(&mut self, request: WaiterId, error: &LockError, cx: &mut Cx<'_>) {
        if self.waiters.dismiss(request) {
            self.waiters.fail(vec![request], error, cx);
        }
    }
}

impl ReadWrite {
    /// The lock without the holds of this owner in this mode.
    fn without(&self, whose: (Mode, &[u8])) -> KeyState {
        let mut rest = self.clone();
        rest.end(whose);
        KeyState::ReadWrite(Box::new(rest))
    }

    fn end(&mut self, (mode, owner): (Mode, &[u8])) {
        match mode {
            Mode::Read => drop(self.readers.remove(owner)),
            _ => self.writer = None,
        }
    }
}
