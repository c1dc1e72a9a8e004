//! How a lock is granted: to a newcomer, or handed off to who waits; and how the books of grants are
//! closed.
//!
//! A grant to a parked client is *on its way* until its reply is written. Who shows meanwhile that it knows
//! of its grant, by asking or releasing through another connection, has claimed it.

pub(crate) mod tracked;

use std::borrow::Cow;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::lock::effect::{Effect, Effects, Event, KeyWrite, Outcome};
use crate::lock::grant::tracked::TrackedGrant;
use crate::lock::locks::{Locks, View};
use crate::lock::name::{OwnerAt, OwnerAtRef};
use crate::lock::read_write::may_enter;
use crate::lock::resource::Resource;
use crate::lock::session::bindings::BoundRef;
use crate::lock::table::give_back;
use crate::lock::wait::queue::{Seq, Waiter};
use crate::lock::{
    Acquire, Hold, KeyId, KeyRef, KeyState, Lease, LockError, Mode, Now, OwnerId, RwWrite, Token,
    WaiterId,
};

/// A grant on its way to a parked client.
#[derive(Debug)]
pub(crate) struct GrantInFlight {
    pub key: KeyId,
    pub owner: Rc<[u8]>,
    pub mode: Mode,
    pub token: Token,
    pub seq: Seq,
    /// Set where the owner held already: then only this one hold is undone.
    pub reentry: Option<Reentry>,
}

/// What a re-entry on its way to a parked client means for the hold that its owner had before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reentry {
    /// It was counted.
    pub counted: bool,
    /// The hold is bound to this connection when the reply is written, and not before: if the reply is never
    /// written, the end of that connection must not end the hold.
    pub binds: Option<(u64, Now)>,
    /// The former binding is ended when the reply is written.
    pub unbinds: bool,
}

impl GrantInFlight {
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
pub(crate) enum HandedOff {
    /// Somebody who waited has the lock, or several have.
    Granted,
    /// The next in line waits for other keys, too: this one stays free for it until that request is
    /// looked at, at the end of the turn. Or it has been left free, and still is. Nothing was written.
    Reserved,
    /// It is the turn of those who wait outside: the key is free for a while, and they have been told.
    LeftFree,
    /// Nobody waits who could be granted now; nothing was written.
    Nobody,
    /// Somebody waits, and has to go on waiting for those who hold; nothing was written.
    Blocked,
}

/// Whom a grant is for, and on what terms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grantee<'a> {
    pub owner: &'a [u8],
    pub mode: Mode,
    /// Not looked at for a session: that has its own.
    pub lease: Lease,
    pub session: bool,
    /// Whether the request names its lease: a re-entry that does ends a binding.
    pub names_lease: bool,
    pub client: u64,
}

impl<'a> Grantee<'a> {
    /// Who asks.
    pub fn of(req: &Acquire<'a>) -> Grantee<'a> {
        Grantee {
            owner: req.owner,
            mode: req.mode,
            lease: req.lease,
            session: req.session,
            names_lease: req.names_lease,
            client: req.client,
        }
    }
}

/// A grant that was made.
#[derive(Debug)]
pub(crate) struct Granted {
    pub token: Token,
    pub deadline_ms: i64,
    /// Whether it is a hold of its own, not one more of its owner's.
    pub is_fresh: bool,
    /// What the key holds now, where others may still be let in.
    pub after: Option<KeyState>,
}

impl Locks {
    /// Grants the key to its next waiter, if what remains there (`rest`) lets it in, and then to those
    /// behind it that may enter with it. Requests whose wait ran out meanwhile are answered on the way.
    pub(crate) fn hand_off(
        &mut self,
        view: &View<'_>,
        rest: &KeyState,
        now: Now,
        fx: &mut Effects,
    ) -> HandedOff {
        let handed_off = self.hand_to_next(view, rest, now, fx);
        if handed_off != HandedOff::Granted {
            self.waiters.set_holders(view.key, rest, now);
            self.waiters.schedule_settle_holders(view.key);
        }
        handed_off
    }

    fn hand_to_next(
        &mut self,
        view: &View<'_>,
        rest: &KeyState,
        now: Now,
        fx: &mut Effects,
    ) -> HandedOff {
        if !view.may_grant() || self.startup_delay.is_on(now) {
            return HandedOff::Nobody;
        }
        let mut after = None;
        let mut result = HandedOff::Nobody;
        while let Some(seq) = self.next_in_line(view.key, now, fx) {
            if after.is_none() {
                if let Some(left_free) = self.leave_free(view, seq, now, fx) {
                    return left_free;
                }
            }
            let state = after.as_ref().unwrap_or(rest);
            let next = self.waiters.at(view.key, seq);
            let is_free =
                next.is_some_and(|(owner, waiter)| may_enter(state, waiter.mode, owner, now));
            let request = next.map(|(_, waiter)| waiter.id);
            if let Some(request) = request.filter(|id| is_free && self.waiters.is_many(*id)) {
                self.waiters.schedule_settle_request(request);
                if after.is_none() {
                    self.waiters.set_lease(view.key, rest.ends(now));
                }
                result = match after {
                    Some(_) => HandedOff::Granted,
                    None => HandedOff::Reserved,
                };
                break;
            }
            if !is_free || !is_whole(state) {
                if is_free {
                    // Read anew, and whole, by the alarm.
                    self.waiters.schedule_settle(view.key);
                }
                result = if after.is_some() {
                    HandedOff::Granted
                } else {
                    HandedOff::Blocked
                };
                break;
            }
            let state = after.take().map_or(Cow::Borrowed(rest), Cow::Owned);
            let Some(granted) = self.hand_to(view, state, seq, now, fx) else {
                break;
            };
            result = HandedOff::Granted;
            after = granted.after;
            if after.is_none() {
                self.waiters.set_lease(view.key, Some(granted.deadline_ms));
                return result;
            }
        }
        if let Some(KeyState::ReadWrite(lock)) = &after {
            self.note_ends(view.key, lock, now);
        }
        result
    }

    /// The first place in the line whose wait is not over.
    pub(crate) fn next_in_line(
        &mut self,
        key: KeyRef<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Option<Seq> {
        let mut timed_out = 0;
        let next = self.waiters.next_in_line(key, now, |waiter| {
            timed_out += 1;
            fx.push(Effect::Answer(waiter, Outcome::Nil));
        });
        self.stats.waits_timed_out += timed_out;
        next
    }

    /// Grants the key to the waiter at this place. `None` when the grant is refused; then everybody who
    /// waits has been told so.
    fn hand_to(
        &mut self,
        view: &View<'_>,
        rest: Cow<'_, KeyState>,
        seq: Seq,
        now: Now,
        fx: &mut Effects,
    ) -> Option<Granted> {
        let (owner, waiter) = self.waiters.take(view.key, seq)?;
        self.announce_untracked(view, now, fx);
        let grantee = Grantee {
            owner: &owner,
            mode: waiter.mode,
            lease: waiter.lease,
            session: waiter.session,
            names_lease: false,
            client: waiter.client,
        };
        let granted = match self.grant_in(view, rest, &grantee, now, fx) {
            Ok(granted) => granted,
            Err(error) => {
                self.stats.waits_failed += 1;
                fx.push(Effect::Answer(waiter.id, Outcome::Failed(error.clone())));
                // The next ones would fare no better, and nobody would wake them again.
                self.fail_all(view.key, &error, fx);
                return None;
            }
        };
        self.sessions.waits(waiter.client, waiter.id);
        self.count_wait(&waiter, now);
        if granted.after.is_none() {
            self.waiters.set_holder(view.key, owner.clone());
            self.windows.count(view.key);
        }
        // The grant is a re-entry where a script has granted the lock to this owner meanwhile.
        let reentry = (!granted.is_fresh).then_some(Reentry {
            counted: true,
            ..Reentry::default()
        });
        let in_flight = GrantInFlight {
            key: view.key.to_id(),
            owner,
            mode: waiter.mode,
            token: granted.token,
            seq,
            reentry,
        };
        self.put_in_flight(waiter.id, in_flight);
        fx.push(Effect::Answer(waiter.id, Outcome::Granted(granted.token)));
        Some(granted)
    }

    /// A parked request has been granted.
    pub(crate) fn count_wait(&mut self, waiter: &Waiter, now: Now) {
        let waited = now.mono_ms.saturating_sub(waiter.since_ms);
        self.stats.waits_granted += 1;
        self.stats.wait_ms_sum += waited;
        self.stats.wait_ms_max = self.stats.wait_ms_max.max(waited);
    }

    /// This grant is on its way to a parked client.
    pub(crate) fn put_in_flight(&mut self, request: WaiterId, in_flight: GrantInFlight) {
        self.in_flight_of_owner.insert(in_flight.at(), request);
        self.in_flight.entry(request).or_default().push(in_flight);
    }

    /// Writes a hold of somebody whom the key, as it stands (`rest`), has room for: the one place where
    /// locks are granted.
    pub(crate) fn grant_in(
        &mut self,
        view: &View<'_>,
        rest: Cow<'_, KeyState>,
        to: &Grantee<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<Granted, LockError> {
        self.begins_as(Resource::Lock, view.key);
        if to.mode != Mode::Exclusive {
            let entered = self.enter(view, rest, (to, false), now, fx)?;
            self.end_window(view.key);
            return Ok(Granted {
                token: entered.token,
                deadline_ms: entered.end_ms,
                is_fresh: entered.is_fresh,
                after: Some(KeyState::ReadWrite(Box::new(entered.lock))),
            });
        }
        let token = self.mint(view, now, fx)?;
        self.end_window(view.key);
        let lease = self.lease_of(to.session, to.lease);
        let deadline_ms = lease.deadline(now);
        self.sweep(view, now, fx);
        fx.push(Effect::Write(KeyWrite::Take {
            clear: view.state != KeyState::Absent,
            owner: OwnerId::from_slice(to.owner),
            token,
            deadline_ms,
        }));
        let has_token_record = match &view.state {
            KeyState::ReadWrite(former) => former.token_record.is_some(),
            // If others deleted a read-write lock here, its token stayed.
            _ => self.had_shared,
        };
        if has_token_record {
            fx.push(Effect::Write(KeyWrite::ReadWrite(RwWrite::DropTokenRecord)));
        }
        fx.push(Effect::Notify(Event::Acquire));
        let what = BoundRef::lock(to.mode, view.key, to.owner);
        match to.session {
            true => self.sessions.bind(what, to.client, token, now),
            false => drop(self.sessions.unbind(what)),
        }
        self.stats.grants += 1;
        let tracked = TrackedGrant {
            token,
            since_ms: now.mono_ms,
            client: to.client,
            deadline_ms,
            may_share: false,
        };
        self.stats.grants_unwatched +=
            self.tracked
                .insert(view.key, tracked, self.limits.max_tracked);
        Ok(Granted {
            token,
            deadline_ms,
            is_fresh: true,
            after: None,
        })
    }

    /// Nobody holds the lock, and what is left at the key makes way for a fresh hold, or for nobody: the end of that
    /// is told.
    pub(crate) fn sweep(&mut self, view: &View<'_>, now: Now, fx: &mut Effects) {
        if view.state.is_over(now) {
            fx.push(Effect::Notify(Event::KeyExpired));
        }
        self.close_unseen(view, now, fx);
    }

    /// The lease that is meant: a session has its own.
    pub(crate) fn lease_of(&self, session: bool, asked: Lease) -> Lease {
        match session {
            true => self.sessions.rule.lease,
            false => asked,
        }
    }

    pub(crate) fn mint(
        &mut self,
        view: &View<'_>,
        now: Now,
        fx: &mut Effects,
    ) -> Result<Token, LockError> {
        // Without it a token might repeat one: that would be a bug, and is refused as one.
        let fence = view.fence.ok_or(LockError::Internal)?;
        if !fence.may_grant {
            return Err(self.tokens.no_grant());
        }
        let seen = view.state.token().map_or(0, Token::get);
        let counter = fence.counter.unwrap_or(0);
        let minted = self.tokens.mint(view.domain, seen, counter, now.wall_us());
        let minted = self.count_implausible(minted)?;
        fx.extend(
            minted
                .horizon
                .map(|horizon| Effect::Horizon(view.domain, horizon)),
        );
        fx.extend(fence.counter.map(|_| Effect::Counter(minted.token)));
        Ok(minted.token)
    }

    /// Counts a refusal because of what is stored with the lock.
    pub(crate) fn count_implausible<T>(
        &mut self,
        made: Result<T, LockError>,
    ) -> Result<T, LockError> {
        let refused = matches!(made, Err(LockError::TokenAhead | LockError::CounterAhead));
        self.stats.tokens_implausible += u64::from(refused);
        made
    }

    /// The reply of a grant is written: from here on only its lease or its owner ends it.
    pub fn delivered(&mut self, waiter: WaiterId) {
        let delivered = self.take_in_flight(waiter);
        if delivered.is_empty() {
            self.sems.in_flight.delivered(waiter);
        }
        for in_flight in delivered {
            match in_flight.reentry {
                Some(Reentry {
                    binds: Some((client, at)),
                    ..
                }) => self
                    .sessions
                    .bind(in_flight.bound(), client, in_flight.token, at),
                Some(Reentry { unbinds: true, .. }) => {
                    self.sessions
                        .unbind_grant(in_flight.bound(), in_flight.token);
                }
                _ => {}
            }
        }
    }

    /// The owner showed that it lives and knows of its grant: an undo that was planned for it
    /// would take a lock from under a client that got it by asking again. Nor may one be planned
    /// later, when the end of the connection that was first answered is noticed.
    pub(crate) fn claim(&mut self, key: KeyRef<'_>, owner: &[u8]) {
        if let Some(undone) = self.undelivered.get_mut(&key) {
            undone.retain(|undone| undone.owner[..] != *owner);
            if undone.is_empty() {
                self.take_undone(key);
            }
        }
        if self.in_flight_of_owner.is_empty() {
            return;
        }
        let Some(waiter) = self
            .in_flight_of_owner
            .swap_remove(&OwnerAtRef { key, owner })
        else {
            return;
        };
        if let Some(in_flight) = self.in_flight.get_mut(&waiter) {
            in_flight.retain(|in_flight| in_flight.key.as_ref() != key);
            if in_flight.is_empty() {
                self.in_flight.remove(&waiter);
            }
        }
        give_back(&mut self.in_flight);
        give_back(&mut self.in_flight_of_owner);
    }

    /// What is to be undone at this key.
    pub(crate) fn take_undone(&mut self, key: KeyRef<'_>) -> Option<Vec<GrantInFlight>> {
        let undone = self.undelivered.swap_remove(&key);
        give_back(&mut self.undelivered);
        undone
    }

    /// Forgets what was on its way to this client.
    pub(crate) fn take_in_flight(&mut self, waiter: WaiterId) -> SmallVec<[GrantInFlight; 1]> {
        let taken = self.in_flight.remove(&waiter).unwrap_or_default();
        for in_flight in &taken {
            let at = in_flight.at();
            if self.in_flight_of_owner.get(&at) == Some(&waiter) {
                self.in_flight_of_owner.swap_remove(&at);
            }
        }
        give_back(&mut self.in_flight);
        give_back(&mut self.in_flight_of_owner);
        taken
    }

    /// The present hold ends now, by its owner or an operator. True when it was the tracked one.
    pub(crate) fn end_tracked(
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
        self.tracked.remove(view.key).is_some()
    }

    /// The tracked grants before this one ended without our seeing it.
    pub(crate) fn close_unseen(&mut self, view: &View<'_>, now: Now, fx: &mut Effects) {
        self.close_only(view, now, fx);
        let readers: Vec<_> = self.tracked.readers(view.key).cloned().collect();
        for owner in readers {
            self.close_reader(view.key, &owner, now, fx);
        }
    }

    /// The tracked READ grant of this owner ended without our seeing it, if there is one.
    pub(crate) fn close_reader(
        &mut self,
        key: KeyRef<'_>,
        owner: &[u8],
        now: Now,
        fx: &mut Effects,
    ) {
        if let Some(former) = self.tracked.remove_reader(key, owner) {
            self.count_end(former.deadline_ms <= now.wall_ms, fx);
        }
    }

    /// The tracked grant that was the only one of its kind ended without our seeing it.
    pub(crate) fn close_only(&mut self, view: &View<'_>, now: Now, fx: &mut Effects) {
        let Some(former) = self.tracked.remove(view.key) else {
            return;
        };
        // While the key is there, it knows best: a script may have cut the lease.
        let deadline_ms = match &view.state {
            KeyState::Held(hold) if hold.token == Some(former.token) => hold.deadline_ms,
            _ => Some(former.deadline_ms),
        };
        self.count_end(deadline_ms.is_some_and(|end| end <= now.wall_ms), fx);
    }

    fn count_end(&mut self, has_expired: bool, fx: &mut Effects) {
        if has_expired {
            self.stats.grants_expired += 1;
            fx.push(Effect::Notify(Event::Expire));
        } else {
            self.stats.grants_lost += 1;
            fx.push(Effect::Notify(Event::Lost));
        }
    }

    /// A hold that is waited for but was never tracked has ended: what the key still shows is told.
    /// (Where the key itself went away, the server's news of that has been passed on already.)
    pub(crate) fn announce_untracked(&self, view: &View<'_>, now: Now, fx: &mut Effects) {
        let event = match &view.state {
            _ if self.tracked.contains(view.key) => return,
            KeyState::Held(hold) if hold.is_over(now) => Event::Expire,
            KeyState::ReadWrite(lock) if !lock.is_held(now) => Event::Expire,
            KeyState::Bare(_) | KeyState::OtherHash | KeyState::OtherType => Event::Lost,
            KeyState::Held(_) | KeyState::ReadWrite(_) | KeyState::Absent => return,
        };
        fx.push(Effect::Notify(event));
    }
}

/// Whether all of what the key holds is known.
fn is_whole(state: &KeyState) -> bool {
    !matches!(state, KeyState::ReadWrite(lock) if !lock.is_whole)
}

/// The key is free now: tell those who wait outside.
pub(crate) fn free(fx: &mut Effects) {
    fx.push(Effect::Write(KeyWrite::Delete));
    fx.push(Effect::Publish);
}
