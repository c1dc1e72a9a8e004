//! How a lock is granted: to a newcomer, or handed off to who waits; and how the books of grants are
//! closed.
//!
//! A grant to a parked client is *on its way* until its reply is written. Who shows meanwhile that it knows
//! of its grant, by asking or releasing through another connection, has claimed it.

use std::rc::Rc;

use super::effect::{Effect, Effects, Event, KeyWrite, Outcome};
use super::holds::Tracked;
use super::locks::{Locks, View};
use super::name::{OwnerAt, OwnerAtRef};
use super::queue::Seq;
use super::sessions::BoundRef;
use super::standing::{standing, Standing};
use super::{Hold, KeyId, KeyRef, KeyState, Lease, LockError, Mode, Now, OwnerId, Token, WaiterId};

/// A grant on its way to a parked client.
#[derive(Debug)]
pub(super) struct Handed {
    pub key: KeyId,
    pub owner: Rc<[u8]>,
    pub mode: Mode,
    pub token: Token,
    pub seq: Seq,
}

impl Handed {
    /// Whose it is, and where.
    pub fn at(&self) -> OwnerAt {
        OwnerAt {
            key: self.key.clone(),
            owner: self.owner.clone(),
        }
    }

    /// Whether this is the grant of the present hold.
    pub fn is(&self, hold: &Hold) -> bool {
        hold.token == Some(self.token) && hold.owner[..] == self.owner[..]
    }

    /// The hold, as sessions name it.
    pub fn bound(&self) -> BoundRef<'_> {
        BoundRef::lock(self.mode, self.key.as_ref(), &self.owner)
    }
}

/// How a hand-off went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HandedOff {
    /// Somebody who waited has the lock.
    Granted,
    /// Nobody waits who could be granted now; nothing was written.
    Nobody,
}

/// Whom a grant is for, and on what terms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grantee<'a> {
    pub owner: &'a [u8],
    pub mode: Mode,
    /// Not looked at for a session: that has its own.
    pub lease: Lease,
    pub session: bool,
    pub client: u64,
}

impl Locks {
    /// Grants the key to its next waiter, if what remains there (`rest`) lets it in. Requests whose
    /// wait ran out meanwhile are answered on the way.
    pub(super) fn hand_off(
        &mut self,
        view: &View<'_>,
        rest: &KeyState,
        now: Now,
        fx: &mut Effects,
    ) -> HandedOff {
        if !view.may_grant() || self.delay.is_on(now) {
            return HandedOff::Nobody;
        }
        let Some(seq) = self.next_in_line(view.key, now, fx) else {
            return HandedOff::Nobody;
        };
        let next = self.waiters.at(view.key, seq);
        let is_free = next.is_some_and(|(owner, waiter)| {
            standing(rest, waiter.mode, owner, now) == Ok(Standing::Free)
        });
        match is_free && self.hand_to(view, seq, now, fx) {
            true => HandedOff::Granted,
            false => HandedOff::Nobody,
        }
    }

    /// The first place in the line whose wait is not over.
    fn next_in_line(&mut self, key: KeyRef<'_>, now: Now, fx: &mut Effects) -> Option<Seq> {
        let mut timed_out = 0;
        let next = self.waiters.next_in_line(key, now, |waiter| {
            timed_out += 1;
            fx.push(Effect::Answer(waiter, Outcome::Nil));
        });
        self.stats.waits_timed_out += timed_out;
        next
    }

    /// Grants the key to the waiter at this place. False when the grant is refused; then everybody who
    /// waits has been told so.
    fn hand_to(&mut self, view: &View<'_>, seq: Seq, now: Now, fx: &mut Effects) -> bool {
        let Some((owner, waiter)) = self.waiters.take(view.key, seq) else {
            return false;
        };
        self.announce_untracked(view, now, fx);
        let grantee = Grantee {
            owner: &owner,
            mode: waiter.mode,
            lease: waiter.lease,
            session: waiter.session,
            client: waiter.client,
        };
        let (token, deadline_ms) = match self.grant(view, &grantee, now, fx) {
            Ok(granted) => granted,
            Err(error) => {
                self.stats.waits_failed += 1;
                fx.push(Effect::Answer(waiter.id, Outcome::Failed(error.clone())));
                // The next ones would fare no better, and nobody would wake them again.
                self.fail_all(view.key, &error, fx);
                return false;
            }
        };
        self.sessions.waits(waiter.client, waiter.id);
        let waited = now.mono_ms.saturating_sub(waiter.since_ms);
        self.stats.waits_granted += 1;
        self.stats.wait_ms_sum += waited;
        self.stats.wait_ms_max = self.stats.wait_ms_max.max(waited);
        let key = view.key.to_id();
        self.waiters.set_lease(view.key, Some(deadline_ms));
        let handed = Handed {
            key,
            owner,
            mode: waiter.mode,
            token,
            seq,
        };
        self.handed_on.insert(handed.at(), waiter.id);
        self.handed.insert(waiter.id, handed);
        fx.push(Effect::Answer(waiter.id, Outcome::Granted(token)));
        true
    }

    /// Writes a fresh hold: the one place where locks are granted.
    pub(super) fn grant(
        &mut self,
        view: &View<'_>,
        to: &Grantee<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<(Token, i64), LockError> {
        if to.mode != Mode::Exclusive {
            // As `standing` says: nobody can ask for it yet.
            return Err(LockError::LockType);
        }
        let token = self.mint(view, now, fx)?;
        let lease = self.lease_of(to.session, to.lease);
        let deadline_ms = lease.deadline(now);
        self.close_unseen(view, now, fx);
        fx.push(Effect::Write(KeyWrite::Take {
            clear: view.state != KeyState::Absent,
            owner: OwnerId::from_slice(to.owner),
            token,
            deadline_ms,
        }));
        fx.push(Effect::Notify(Event::Acquire));
        let what = BoundRef::lock(to.mode, view.key, to.owner);
        match to.session {
            true => self.sessions.bind(what, to.client, token, now),
            false => drop(self.sessions.unbind(what)),
        }
        self.stats.grants += 1;
        let tracked = Tracked {
            token,
            since_ms: now.mono_ms,
            client: to.client,
            deadline_ms,
        };
        self.stats.grants_unwatched +=
            self.holds
                .insert(view.key, tracked, self.limits.max_tracked);
        Ok((token, deadline_ms))
    }

    /// The lease that is meant: a session has its own.
    pub(super) fn lease_of(&self, session: bool, asked: Lease) -> Lease {
        match session {
            true => self.sessions.rule.lease,
            false => asked,
        }
    }

    pub(super) fn mint(
        &mut self,
        view: &View<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<Token, LockError> {
        // Without it a token might repeat one: that would be a bug, and is refused as one.
        let fence = view.fence.ok_or(LockError::Internal)?;
        if !fence.may_grant {
            return Err(LockError::TryAgain);
        }
        let seen = view.state.token().map_or(0, Token::get);
        let counter = fence.counter.unwrap_or(0);
        let minted = self
            .tokens
            .mint(view.domain, seen, counter, now.wall_us())?;
        fx.extend(
            minted
                .horizon
                .map(|horizon| Effect::Horizon(view.domain, horizon)),
        );
        fx.extend(fence.counter.map(|_| Effect::Counter(minted.token)));
        Ok(minted.token)
    }

    /// The reply of a grant is written: from here on only its lease or its owner ends it.
    pub fn delivered(&mut self, waiter: WaiterId) {
        if self.take_handed(waiter).is_none() {
            self.sems.on_the_way.delivered(waiter);
        }
    }

    /// The owner showed that it lives and knows of its grant: an undo that was planned for it
    /// would take a lock from under a client that got it by asking again. Nor may one be planned
    /// later, when the end of the connection that was first answered is noticed.
    pub(super) fn claim(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if let Some(undone) = self.to_undo.get_mut(&key) {
            undone.retain(|undone| undone.owner[..] != *owner);
            if undone.is_empty() {
                self.to_undo.swap_remove(&key);
            }
        }
        if self.handed_on.is_empty() {
            return;
        }
        if let Some(&waiter) = self.handed_on.get(&OwnerAtRef { key, owner }) {
            self.take_handed(waiter);
        }
    }

    /// Forgets a grant that was on its way.
    pub(super) fn take_handed(&mut self, waiter: WaiterId) -> Option<Handed> {
        let handed = self.handed.remove(&waiter)?;
        let at = handed.at();
        if self.handed_on.get(&at) == Some(&waiter) {
            self.handed_on.swap_remove(&at);
        }
        Some(handed)
    }

    /// The present hold ends now, by its owner or an operator. True when it was the tracked one.
    pub(super) fn end_tracked(
        &mut self,
        view: &View<'_>,
        hold: &Hold,
        now: Now,
        fx: &mut Effects,
    ) -> bool {
        if self.tracked(view.key, hold).is_none() {
            self.close_unseen(view, now, fx);
            return false;
        }
        self.holds.remove(view.key).is_some()
    }

    /// The tracked grant before this one ended without our seeing it.
    pub(super) fn close_unseen(&mut self, view: &View<'_>, now: Now, fx: &mut Effects) {
        let Some(former) = self.holds.remove(view.key) else {
            return;
        };
        // While the key is there, it knows best: a script may have cut the lease.
        let deadline_ms = match &view.state {
            KeyState::Held(hold) if hold.token == Some(former.token) => hold.deadline_ms,
            _ => Some(former.deadline_ms),
        };
        if deadline_ms.is_some_and(|end| end <= now.wall_ms) {
            self.stats.grants_expired += 1;
            fx.push(Effect::Notify(Event::Expire));
        } else {
            self.stats.grants_lost += 1;
            fx.push(Effect::Notify(Event::Lost));
        }
    }

    /// A hold that is waited for but was never tracked has ended: what the key still shows is told.
    /// (Where the key itself went away, the server's news of that has been passed on already.)
    pub(super) fn announce_untracked(&self, view: &View<'_>, now: Now, fx: &mut Effects) {
        let event = match &view.state {
            _ if self.holds.contains(view.key) => return,
            KeyState::Held(hold) if hold.is_over(now) => Event::Expire,
            KeyState::Bare(_) | KeyState::OtherHash | KeyState::OtherType => Event::Lost,
            KeyState::Held(_) | KeyState::Absent => return,
        };
        fx.push(Effect::Notify(event));
    }
}

/// The key is free now: tell those who wait outside.
pub(super) fn free(fx: &mut Effects) {
    fx.push(Effect::Write(KeyWrite::Delete));
    fx.push(Effect::Publish);
}
