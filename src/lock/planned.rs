//! Decisions that are about to be made: what the shell reads for each beside the content of the key.
//!
//! A token depends on two more keys, the horizon and Redisson's counter; READ and WRITE depend on sibling keys. To read
//! them for every command would cost more than the command. So the core states, from the content of the key and before
//! it changes anything, what the decision needs ([`Locks::need`]) and which holds it leaves ([`Locks::rest`]). The
//! models run every decision with what was stated, and no more.

use std::borrow::Cow;

use crate::lock::compatibility::is_blocked;
use crate::lock::exclusive::release::held_by;
use crate::lock::locks::Locks;
use crate::lock::session::bindings::Bound;
use crate::lock::token::{is_far_ahead, ONLY_DOMAIN};
use crate::lock::{
    Acquire, Break, KeyRef, KeyState, Mode, Now, OwnerId, ReadDepth, ReadWrite, Release, Token,
};

/// A decision about a key.
#[derive(Debug)]
pub enum Planned<'a> {
    /// One that grants nothing and ends no hold.
    Nothing,
    /// `LOCK.ACQUIRE`
    Acquire(&'a Acquire<'a>),
    /// One that may grant, and ends no hold.
    Grant,
    /// `LOCK.RENEW`
    Renew,
    /// `LOCK.RELEASE`
    Release(&'a Release<'a>),
    /// `LOCK.BREAK`
    Break(Break),
    /// The hold that is bound to a closed connection is released.
    EndSession(&'a Bound),
    /// Grants whose replies were not delivered are undone, and waiters are granted.
    Settle,
}

/// What a decision needs beside the content of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// The horizon: the lock's token is so far ahead of the clock that only a horizon explains it.
    Horizon,
    /// The keys on which a token depends ([`crate::lock::Fence`]), and the sibling keys of the next waiters.
    Token,
}

impl Planned<'_> {
    /// The decision of `LOCK.MACQUIRE` about each of its keys. If one of them blocks the request, nothing is granted.
    pub fn of_many(states: &[KeyState], req: &Acquire<'_>, now: Now) -> Planned<'static> {
        let mut states = states.iter();
        match states.any(|state| is_blocked(state, req.mode, req.owner, now)) {
            true => Planned::Nothing,
            false => Planned::Grant,
        }
    }
}

impl Locks {
    /// What this decision about a key in this state may need.
    #[inline]
    pub fn need(&self, key: KeyRef<'_>, state: &KeyState, planned: &Planned<'_>, now: Now) -> Need {
        let mints = match planned {
            Planned::Nothing => false,
            Planned::Grant | Planned::Settle => true,
            Planned::Acquire(req) => self.acquire_may_mint(key, state, req, now),
            Planned::Renew => match (state.hold(now), state) {
                (Some(hold), _) => hold.token.is_none(),
                (None, KeyState::ReadWrite(lock)) => lock.token(now).is_none(),
                (None, _) => false,
            },
            // Every waiter gets the error of the purge, so the lock is not handed off.
            Planned::Break(req) if req.purge => false,
            Planned::Release(_) | Planned::Break(_) | Planned::EndSession(_) => {
                self.shared.waiters.live() > 0
                    && self.shared.waiters.waiting_on(key) > 0
                    && matches!(self.rest(key, state, planned, now), Cow::Owned(_))
            }
        };
        let is_far_ahead = |token: Token| is_far_ahead(token.get(), now.wall_us());
        match mints {
            true => Need::Token,
            false if state.token().is_some_and(is_far_ahead) => Need::Horizon,
            false => Need::Nothing,
        }
    }

    fn acquire_may_mint(
        &self,
        key: KeyRef<'_>,
        state: &KeyState,
        req: &Acquire<'_>,
        now: Now,
    ) -> bool {
        match (state.hold(now), state) {
            (Some(hold), _) => hold.token.is_none() && hold.owner[..] == *req.owner,
            (None, KeyState::ReadWrite(lock)) => {
                !self.shares_token(key, lock, req.mode, now)
                    && !is_blocked(state, req.mode, req.owner, now)
            }
            (None, _) => true,
        }
    }

    /// Whether a grant of this mode gets the token of the present readers. In a cluster the slot may have been on
    /// another node meanwhile, and only its horizon shows that.
    fn shares_token(&self, key: KeyRef<'_>, lock: &ReadWrite, mode: Mode, now: Now) -> bool {
        let token = lock.token(now);
        mode == Mode::Read
            && !self.in_cluster
            && lock.is_held(now)
            && self.shared.waiters.waiting_on(key) == 0
            && token.is_some_and(|token| !self.shared.tokens.is_inherited(ONLY_DOMAIN, token))
    }

    /// The depth to which an acquire reads the lock.
    pub fn depth_to_acquire(&self, key: KeyRef<'_>, mode: Mode) -> ReadDepth {
        match mode {
            Mode::Read if self.shared.waiters.waiting_on(key) == 0 => ReadDepth::Own,
            _ => ReadDepth::Two,
        }
    }

    /// The reader that waits to upgrade: an acquire of WRITE reads by name whether it still reads.
    pub fn upgrader(&self, key: KeyRef<'_>, mode: Mode) -> Option<OwnerId> {
        let upgrader = self.shared.waiters.upgrader(key);
        upgrader
            .filter(|_| mode == Mode::Write)
            .map(OwnerId::from_slice)
    }

    /// The owners whose fields a settling reads by name: those of undelivered grants, and the first waiter, if it asks
    /// for WRITE, because it may be a reader.
    pub fn owners_to_settle(&self, key: KeyRef<'_>) -> Vec<OwnerId> {
        let mut owners = self.shared.in_flight.undone_owners(key);
        let writer = self.shared.waiters.first_writer(key);
        owners.extend(writer.map(OwnerId::from_slice));
        owners
    }

    /// The content of the key after the decision, if it grants nothing.
    pub fn rest<'s>(
        &self,
        key: KeyRef<'_>,
        state: &'s KeyState,
        planned: &Planned<'_>,
        now: Now,
    ) -> Cow<'s, KeyState> {
        let rest = match (planned, state) {
            (Planned::Nothing | Planned::Acquire(_) | Planned::Grant | Planned::Renew, _) => None,
            (Planned::Release(req), KeyState::ReadWrite(lock)) => {
                let meant = lock.meant(req.owner, req.mode, req.token, now);
                let ends = |mode: &Mode| req.all || lock.count_of(*mode, req.owner, now) == Some(1);
                let mode = meant.ok().flatten().filter(ends);
                mode.map(|mode| lock.without((mode, req.owner)))
            }
            (Planned::Release(req), _) => held_by(state, req.owner, req.token, now)
                .filter(|hold| req.mode.is_none() && (req.all || hold.count == 1))
                .map(|_| KeyState::Absent),
            (Planned::Break(req), KeyState::ReadWrite(lock)) => {
                Locks::breaks_shared(lock, *req, now).then_some(KeyState::Absent)
            }
            (Planned::Break(req), _) => state
                .hold(now)
                .filter(|hold| hold.is_under(req.token) && state.may_break(now).is_ok())
                .map(|_| KeyState::Absent),
            (Planned::EndSession(bound), KeyState::ReadWrite(_)) => self
                .bound_shared(bound.as_ref(), state, now)
                .map(|(mode, lock)| lock.without((mode, &bound.owner))),
            (Planned::EndSession(bound), _) => self
                .bound_hold(bound.as_ref(), state, now)
                .map(|_| KeyState::Absent),
            (Planned::Settle, _) => self.rest_of_undone(key, state, now),
        };
        rest.map_or(Cow::Borrowed(state), Cow::Owned)
    }

    fn rest_of_undone(&self, key: KeyRef<'_>, state: &KeyState, now: Now) -> Option<KeyState> {
        let undone = self.shared.in_flight.undone(key)?.iter();
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
}
