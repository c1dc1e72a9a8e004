//! Grants and ends of holds: the one place where a lock is granted, the hand-off (a lock that becomes free is granted
//! to its first waiter in the same event), and the ends of tracked grants, counted and reported once, however the
//! hold ended.
//!
//! [`in_flight`] follows a grant until its reply is written, [`tracked`] is the table of grants.
//!
//! A request of the owner through another connection shows that the owner knows of a grant in flight: it *claims* the
//! grant, which is not undone then.

use std::borrow::Cow;

use crate::lock::effect::{Cx, Effect, Event, KeyWrite, Message, Outcome};
use crate::lock::grant::in_flight::{GrantInFlight, Reentry};
use crate::lock::grant::tracked::TrackedGrant;
use crate::lock::locks::Locks;
use crate::lock::read_write::may_enter;
use crate::lock::request::Acquire;
use crate::lock::session::bindings::BoundRef;
use crate::lock::state::View;
use crate::lock::token::NoToken;
use crate::lock::wait::request::PlaceId;
use crate::lock::{KeyRef, KeyState, LockError, Mode, Now, OwnerId, ReadWrite, RwWrite, Token};

pub(crate) mod in_flight;
pub(crate) mod tracked;

/// A grant that was made.
#[derive(Debug)]
pub(crate) struct Granted {
    pub token: Token,
    pub deadline_ms: i64,
    /// Whether this is the first hold of its owner, not a re-entry.
    pub is_fresh: bool,
    /// The read-write lock after the grant: other waiters may still be compatible with it.
    pub lock: Option<Box<ReadWrite>>,
}

impl Locks {
    /// Grants a hold that is compatible with the present holders (`rest`).
    pub(crate) fn grant_in(
        &mut self,
        view: &View<'_>,
        rest: Cow<'_, KeyState>,
        to: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Granted, LockError> {
        self.shared.waiters.schedule_settle_others(view.key);
        if to.mode != Mode::Exclusive {
            let granted = self.enter(view, rest, to, cx)?;
            self.shared.waiters.windows.end_unused(view.key);
            return Ok(granted);
        }
        let token = self.mint(view, cx)?;
        Ok(self.grant_alone(view, token, to, cx))
    }

    /// Grants an exclusive hold under this token. The key has no holder any more.
    #[inline]
    pub(crate) fn grant_alone(
        &mut self,
        view: &View<'_>,
        token: Token,
        to: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Granted {
        self.shared.waiters.windows.end_unused(view.key);
        let deadline_ms = self.shared.sessions.lease_end(to, cx.now);
        self.sweep(view, cx);
        cx.write(KeyWrite::Take {
            clear: view.state != KeyState::Absent,
            owner: OwnerId::from_slice(to.owner),
            token,
            deadline_ms,
        });
        cx.note(to.owner, to.note);
        if self.may_have_token_record(&view.state) {
            cx.write(KeyWrite::ReadWrite(RwWrite::DropTokenRecord));
        }
        self.track(view.key, to, (token, deadline_ms), cx);
        Granted {
            token,
            deadline_ms,
            is_fresh: true,
            lock: None,
        }
    }

    /// Records a first hold: its event, its binding, its tracked grant.
    pub(crate) fn track(
        &mut self,
        key: KeyRef<'_>,
        to: &Acquire<'_>,
        (token, deadline_ms): (Token, i64),
        cx: &mut Cx<'_>,
    ) {
        self.had_shared |= to.mode != Mode::Exclusive;
        cx.notify(Event::Acquire);
        let what = BoundRef::lock(to.mode, key, to.owner);
        self.shared.sessions.granted(what, to, token, cx.now);
        self.stats.grants += 1;
        let how = (self.shared.waiters.limits.max_tracked, cx.now);
        self.stats.grants_unwatched += self.tracked.track(key, to, (token, deadline_ms), how);
    }

    /// Whether a key without a holder may have a token record. A read-write lock that was deleted by other means may
    /// have left one.
    fn may_have_token_record(&self, state: &KeyState) -> bool {
        match state {
            KeyState::ReadWrite(former) => former.token_record.is_some(),
            _ => self.had_shared,
        }
    }

    /// Ends what is recorded of a lock without a holder, before the key is written or deleted, and reports its end.
    pub(crate) fn sweep(&mut self, view: &View<'_>, cx: &mut Cx<'_>) {
        if view.state.is_over(cx.now) {
            cx.notify(Event::KeyExpired);
        }
        self.untrack_stale(view, cx);
    }

    pub(crate) fn mint(&mut self, view: &View<'_>, cx: &mut Cx<'_>) -> Result<Token, LockError> {
        let (seen, counter) = self.token_floor(view)?;
        let floor = (seen, counter.unwrap_or(0));
        let minted = self.shared.mint(view.domain, floor, cx);
        let token = minted.map_err(|why| self.refuse_token(view.key, why))?;
        cx.effects.extend(counter.map(|_| Effect::Counter(token)));
        Ok(token)
    }

    /// The numbers that a new token of this key exceeds: the token that is stored there, and Redisson's counter.
    pub(crate) fn token_floor(&self, view: &View<'_>) -> Result<(u64, Option<u64>), LockError> {
        // Without a fence a token could repeat an earlier one: a bug, refused as an internal error.
        let fence = view.fence.ok_or(LockError::Internal)?;
        match fence.may_grant {
            true => Ok((view.state.token().map_or(0, Token::get), fence.counter)),
            false => Err(self.shared.tokens.no_grant()),
        }
    }

    /// The error of a request for which no token can be minted. An implausible number is counted.
    #[cold]
    pub(crate) fn refuse_token(&mut self, key: KeyRef<'_>, why: NoToken) -> LockError {
        self.stats.tokens_implausible += u64::from(why != NoToken::Exhausted);
        why.at(key)
    }
}

/// The result of a hand-off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandedOff {
    /// One waiter or several were granted.
    Granted,
    /// Nothing was written. Either the first request in the queue waits for other keys too, and this key stays free for
    /// it until that request is settled at the end of the tick; or a Redisson window is open.
    Reserved,
    /// A Redisson window has begun: the key is free for a time, and the message is published.
    LeftFree,
    /// No waiter can be granted now; nothing was written.
    NoWaiter,
    /// The first waiter is excluded by the present holders; nothing was written.
    Blocked,
}

impl Locks {
    /// Grants the key to its first waiter, if it is compatible with what remains of the lock (`rest`), and then to
    /// those behind it that are compatible with that grant. Requests whose wait has run out are answered.
    pub(crate) fn hand_off(
        &mut self,
        view: &View<'_>,
        rest: &KeyState,
        cx: &mut Cx<'_>,
    ) -> HandedOff {
        let handed_off = self.hand_to_next(view, rest, cx);
        if handed_off != HandedOff::Granted {
            self.shared.waiters.set_holders(view.key, rest, cx.now);
            self.shared.waiters.schedule_settle_holders(view.key);
        }
        handed_off
    }

    /// Grants a key in the state `rest` to its next waiter, and to the readers behind a reader.
    fn hand_to_next(&mut self, view: &View<'_>, rest: &KeyState, cx: &mut Cx<'_>) -> HandedOff {
        if !view.may_grant() || self.shared.startup_delay.is_on(cx.now) {
            return HandedOff::NoWaiter;
        }
        // The state after a grant of READ, which the next reader may enter.
        let mut after = None;
        let mut result = HandedOff::NoWaiter;
        let mut left = view.readers;
        while let Some(place) = self.shared.waiters.next_to_grant(view.key, cx) {
            if after.is_none() {
                if let Some(left_free) = self.leave_free(view, rest, place, cx) {
                    return left_free;
                }
            }
            if left == 0 {
                self.shared.waiters.schedule_settle(view.key);
                break;
            }
            left -= 1;
            let state = after.as_ref().unwrap_or(rest);
            let next = self.shared.waiters.at(place);
            let is_free =
                next.is_some_and(|(owner, waiter)| may_enter(state, waiter.mode, owner, cx.now));
            let request = next.map(|(_, waiter)| waiter.id);
            if let Some(request) =
                request.filter(|id| is_free && self.shared.waiters.is_multi_key(*id))
            {
                self.shared
                    .waiters
                    .schedule_settle_request(request, Some(view.key));
                if after.is_none() {
                    self.record_holders(view.key, rest, cx.now);
                    result = HandedOff::Reserved;
                }
                break;
            }
            if !is_free {
                if after.is_none() {
                    result = HandedOff::Blocked;
                }
                break;
            }
            let state = after.take().map_or(Cow::Borrowed(rest), Cow::Owned);
            let Some(granted) = self.hand_to(view, state, place, cx) else {
                break;
            };
            result = HandedOff::Granted;
            let Some(lock) = granted.lock else {
                cx.publish_if_shorter(&view.state, granted.deadline_ms);
                return result;
            };
            after = Some(KeyState::ReadWrite(lock));
        }
        if let Some(KeyState::ReadWrite(lock)) = &after {
            if let Some(end_ms) = lock.deadline_ms {
                cx.publish_if_shorter(&view.state, end_ms);
            }
            self.note_ends(view.key, lock, cx.now);
        }
        result
    }

    /// Grants the key to the waiter at this place. `None` when the grant is refused; then every waiter of the key has
    /// been answered the error.
    fn hand_to(
        &mut self,
        view: &View<'_>,
        rest: Cow<'_, KeyState>,
        place: PlaceId,
        cx: &mut Cx<'_>,
    ) -> Option<Granted> {
        let waiters = &mut self.shared.waiters;
        let (_, waiter) = waiters.at(place)?;
        let note: Option<Box<[u8]>> = waiters.note_of(waiter.id).map(Box::from);
        let key = waiters.id_of(view.key);
        let (owner, waiter) = waiters.take(place)?;
        self.announce_untracked(view, cx);
        let to = Acquire::of_waiter(&owner, &waiter, note.as_deref());
        let granted = match self.grant_in(view, rest, &to, cx) {
            Ok(granted) => granted,
            Err(error) => {
                self.shared.waiters.fail(Some(waiter), &error, cx);
                // The next waiters would fail in the same way, and no event would wake them again.
                self.shared.waiters.fail_all(view.key, &error, cx);
                return None;
            }
        };
        if granted.lock.is_none() {
            let (owner, end_ms) = (owner.clone(), granted.deadline_ms);
            self.shared.waiters.set_holder(view.key, owner, end_ms);
        }
        // The grant is a re-entry where a script has granted the lock to this owner meanwhile.
        let reentry = (!granted.is_fresh).then_some(Reentry {
            counted: true,
            ..Reentry::default()
        });
        let in_flight = GrantInFlight {
            reentry,
            ..GrantInFlight::of((key, place), (&owner, &waiter), granted.token)
        };
        let outcome = Outcome::Granted(granted.token);
        self.shared.handed_off(&waiter, [in_flight], outcome, cx);
        Some(granted)
    }
}

impl Locks {
    /// The exclusive or WRITE hold with this token ends now, by its owner or an operator. Returns its grant if that was
    /// tracked.
    pub(crate) fn end_tracked(
        &mut self,
        view: &View<'_>,
        token: Option<Token>,
        cx: &mut Cx<'_>,
    ) -> Option<TrackedGrant> {
        if self.tracked(view.key, token).is_none() {
            match &view.state {
                // Its readers may hold it.
                KeyState::ReadWrite(_) => self.untrack_stale_single(view, cx),
                _ => self.untrack_stale(view, cx),
            }
            return None;
        }
        self.tracked.remove(view.key)
    }

    /// Counts the time of a hold that its owner or the end of its connection has ended. Returns 1 if its grant was
    /// tracked.
    pub(crate) fn count_hold(&mut self, ended: Option<TrackedGrant>, now: Now) -> u64 {
        let Some(grant) = ended else {
            return 0;
        };
        let held = now.mono_ms.saturating_sub(grant.since_ms);
        self.holds.record(held);
        if grant.session {
            self.session_holds.record(held);
        }
        1
    }

    /// Ends every tracked grant of the key whose hold ended unnoticed; many readers at the end of the next ticks.
    pub(crate) fn untrack_stale(&mut self, view: &View<'_>, cx: &mut Cx<'_>) {
        self.untrack_stale_single(view, cx);
        self.untrack_readers(view.key, (usize::MAX, |_| true), cx);
    }

    /// Ends the tracked READ grants whose holds are gone: those of one step below this index. Later steps are rechecks.
    pub(crate) fn untrack_readers(
        &mut self,
        key: KeyRef<'_>,
        (below, is_gone): (usize, impl Fn(&[u8]) -> bool),
        cx: &mut Cx<'_>,
    ) {
        let (rest, owners) = self.tracked.owners_below(key, below);
        for owner in owners.iter().filter(|owner| is_gone(owner)) {
            self.untrack_stale_reader(key, owner, cx);
        }
        self.recheck_below(key, rest);
    }

    /// Ends the tracking of a key, of many readers in steps. Returns how many grants were tracked in this one.
    pub(crate) fn untrack_key(&mut self, key: KeyRef<'_>) -> u64 {
        let (tracked, rest) = self.tracked.remove_some(key);
        self.recheck_below(key, rest);
        tracked
    }

    /// Ends the tracked READ grant of this owner, whose hold ended unnoticed, if there is one.
    pub(crate) fn untrack_stale_reader(&mut self, key: KeyRef<'_>, owner: &[u8], cx: &mut Cx<'_>) {
        if let Some(former) = self.tracked.remove_of(key, owner) {
            self.count_end(former.deadline_ms <= cx.now.wall_ms, cx);
        }
    }

    /// Ends the tracked exclusive or WRITE grant, whose hold ended unnoticed.
    pub(crate) fn untrack_stale_single(&mut self, view: &View<'_>, cx: &mut Cx<'_>) {
        let Some(former) = self.tracked.remove(view.key) else {
            return;
        };
        // The deadline of a present key is the true one: a script may have shortened the lease.
        let deadline_ms = match &view.state {
            KeyState::Held(hold) if hold.token == Some(former.token) => hold.deadline_ms,
            _ => Some(former.deadline_ms),
        };
        self.count_end(deadline_ms.is_some_and(|end| end <= cx.now.wall_ms), cx);
    }

    fn count_end(&mut self, has_expired: bool, cx: &mut Cx<'_>) {
        if has_expired {
            self.stats.grants_expired += 1;
            cx.notify(Event::Expire);
        } else {
            self.stats.grants_lost += 1;
            cx.notify(Event::Lost);
        }
    }

    /// Reports the end of a hold that has waiters but was never tracked, as far as the key shows it. (If the key itself
    /// was deleted, the server's own event has been reported already.)
    pub(crate) fn announce_untracked(&mut self, view: &View<'_>, cx: &mut Cx<'_>) {
        let was_reported = self.shared.waiters.set_lost(view.key, false);
        let event = match &view.state {
            _ if self.tracked.contains(view.key) => return,
            KeyState::Held(_) | KeyState::Text(_) if view.state.is_over(cx.now) => Event::Expire,
            KeyState::ReadWrite(lock) if !lock.is_held(cx.now) => Event::Expire,
            KeyState::Bare(_) | KeyState::OtherHash | KeyState::OtherType if was_reported => return,
            KeyState::Bare(_) | KeyState::OtherHash | KeyState::OtherType => Event::Lost,
            KeyState::Held(_) | KeyState::Text(_) | KeyState::ReadWrite(_) | KeyState::Absent => {
                return
            }
        };
        cx.notify(event);
    }
}

/// Deletes the key, and informs Redisson's waiters that a hold of this mode has ended.
#[inline]
pub(crate) fn free(view: &View<'_>, ended: Mode, cx: &mut Cx<'_>) {
    if view.state != KeyState::Absent {
        cx.write(KeyWrite::Delete);
    }
    if matches!(&view.state, KeyState::ReadWrite(lock) if lock.token_record.is_some()) {
        cx.write(KeyWrite::ReadWrite(RwWrite::DropTokenRecord));
    }
    cx.effects.push(Effect::Redisson(Message::Free(ended)));
}
