//! Grants of READ and WRITE, first holds and re-entries.

use std::borrow::Cow;

use crate::lock::effect::Cx;
use crate::lock::grant::Granted;
use crate::lock::locks::Locks;
use crate::lock::read_write::change::{write, RwWrite};
use crate::lock::read_write::state::ReadWrite;
use crate::lock::session::bindings::BoundRef;
use crate::lock::state::View;
use crate::lock::{Acquire, Answer, KeyRef, KeyState, LockError, Mode, Now, Token, Wait};

impl KeyState {
    /// The read-write lock at this key, if it is held as far as it was read.
    pub(crate) fn held_for_reading_or_writing(&self, now: Now) -> Option<&ReadWrite> {
        match self {
            KeyState::ReadWrite(lock) if lock.is_held(now) => Some(lock),
            _ => None,
        }
    }
}

/// As [`KeyState::held_for_reading_or_writing`], by value.
fn take_held(state: Cow<'_, KeyState>, now: Now) -> Option<Box<ReadWrite>> {
    state.held_for_reading_or_writing(now)?;
    match state {
        Cow::Owned(KeyState::ReadWrite(lock)) => Some(lock),
        Cow::Borrowed(KeyState::ReadWrite(lock)) => Some(lock.clone()),
        _ => None,
    }
}

/// Whether this request is an upgrade: a reader asks for WRITE.
pub fn upgrades(state: &KeyState, req: &Acquire<'_>, now: Now) -> bool {
    let lock = state.held_for_reading_or_writing(now);
    req.mode == Mode::Write
        && lock
            .is_some_and(|lock| lock.writer(now).is_none() && lock.reader(req.owner, now).is_some())
}

impl Locks {
    /// A request of a holder, which passes the queue.
    pub(crate) fn enter_again(
        &mut self,
        view: &View<'_>,
        req: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Answer, LockError> {
        let delay_ms = self.shared.startup_delay.left(cx.now);
        if delay_ms > 0 && upgrades(&view.state, req, cx.now) {
            // The data that this server has lost may have held another reader.
            return match req.wait {
                Wait::No => Err(LockError::InStartupDelay(delay_ms)),
                _ => self.wait_or_refuse(view, req, cx),
            };
        }
        let granted = self.enter(view, Cow::Borrowed(&view.state), req, cx)?;
        self.shared.granted_at_once(view.key, req, cx.now);
        let older = self
            .shared
            .waiters
            .withdraw_mode(view.key, req.owner, req.mode);
        self.shared.waiters.take_over(older.as_slice(), cx);
        if let Some(lock) = &granted.lock {
            self.note_longer(view.key, lock, cx.now);
        }
        Ok(Answer::Granted(granted.token))
    }

    /// Grants a hold that is compatible with the present holders (`rest`).
    pub(crate) fn enter(
        &mut self,
        view: &View<'_>,
        rest: Cow<'_, KeyState>,
        to: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Granted, LockError> {
        let Some(mut lock) = take_held(rest, cx.now) else {
            return self.begin(view, to, cx);
        };
        let holds = lock.count_of(to.mode, to.owner, cx.now);
        if !to.once {
            lock.may_count_one_more((to.mode, view.key.name, to.owner), cx.now)?;
        }
        let former = lock.token(cx.now);
        let known = former.filter(|token| self.is_shared_token(view, &lock, to, *token, cx.now));
        let token = match known {
            Some(token) => token,
            None => self.mint(view, cx)?,
        };
        let what = BoundRef::lock(to.mode, view.key, to.owner);
        let end_ms = match holds {
            Some(_) => {
                let tokens = (self.bound_token(what, (to.mode, &lock), cx.now), token);
                let sessions = &mut self.shared.sessions;
                sessions.lease_end_after_reentry(what, to, tokens, cx.now)
            }
            None => self.shared.sessions.lease_end(to, cx.now),
        };
        let since = former.and_then(|_| Some(lock.token_record.as_ref()?.since));
        self.prune(view.key, &mut lock, cx);
        lock.add_hold((to.mode, to.owner), (holds, to.once), end_ms, cx);
        match known {
            Some(_) => lock.share_token_record(known, cx),
            None => lock.set_token_record((since.unwrap_or(token), token), end_ms, cx),
        }
        match holds {
            Some(_) => {
                self.stats.reentries += 1;
                self.tracked.extended(what, end_ms);
            }
            None => {
                self.untrack_former(view, &lock, to, cx);
                self.track(view.key, to, (token, end_ms), cx);
            }
        }
        Ok(Granted {
            token,
            deadline_ms: end_ms,
            is_fresh: holds.is_none(),
            lock: Some(lock),
        })
    }

    /// Whether this grant gets the token of the present holders. Readers share the token of their phase, and a writer
    /// that also reads shares its own. But a new reader gets no token that may be below tokens that the data has lost.
    fn is_shared_token(
        &self,
        view: &View<'_>,
        lock: &ReadWrite,
        to: &Acquire<'_>,
        token: Token,
        now: Now,
    ) -> bool {
        if lock.count_of(to.mode, to.owner, now).is_some() {
            return true;
        }
        let is_new_holder = !lock.writes(to.owner, now);
        to.mode != Mode::Write
            && !(is_new_holder && self.shared.tokens.is_inherited(view.domain, token))
    }

    /// Begins a lock without holders: what is left at the key is removed.
    fn begin(
        &mut self,
        view: &View<'_>,
        to: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Granted, LockError> {
        let token = self.mint(view, cx)?;
        let end_ms = self.shared.sessions.lease_end(to, cx.now);
        self.sweep(view, cx);
        if view.state != KeyState::Absent {
            write(cx, RwWrite::Clear);
        }
        let mut lock = Box::new(ReadWrite::fresh());
        match to.mode {
            Mode::Read => lock.add_reader(to.owner, end_ms, cx),
            _ => lock.set_writer(to.owner, end_ms, cx),
        }
        lock.set_token_record((token, token), end_ms, cx);
        self.track(view.key, to, (token, end_ms), cx);
        Ok(Granted {
            token,
            deadline_ms: end_ms,
            is_fresh: true,
            lock: Some(lock),
        })
    }

    /// Ends the tracked grants that must have ended unnoticed before a fresh hold.
    fn untrack_former(
        &mut self,
        view: &View<'_>,
        lock: &ReadWrite,
        to: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) {
        if to.mode == Mode::Read {
            self.untrack_stale_reader(view.key, to.owner, cx);
        }
        if to.mode == Mode::Write || lock.writer.is_none() {
            self.untrack_stale_single(view, cx);
        }
    }

    /// Removes the expired readers that a refused request has read from the hash, so that the next one reads others.
    pub(crate) fn prune_seen(&mut self, view: &View<'_>, cx: &mut Cx<'_>) {
        let KeyState::ReadWrite(lock) = &view.state else {
            return;
        };
        if lock.is_held(cx.now) && lock.readers(cx.now).count() < lock.readers.len() {
            let mut lock = (**lock).clone();
            self.prune(view.key, &mut lock, cx);
        }
        self.read_on(view.key, lock, cx.now);
    }

    /// Removes expired readers from the hash and from the tracked grants.
    pub(crate) fn prune(&mut self, key: KeyRef<'_>, lock: &mut ReadWrite, cx: &mut Cx<'_>) {
        for owner in lock.prune(cx) {
            self.untrack_stale_reader(key, &owner, cx);
        }
    }

    /// Records when the lock becomes free without a command, for its waiters. If the lock was not read whole, that is
    /// the end of the readers that were read: the next settling finds others. If they are all over, it is due now.
    pub(crate) fn note_ends(&mut self, key: KeyRef<'_>, lock: &ReadWrite, now: Now) {
        if self.record_ends(key, lock, now) {
            self.shared.waiters.schedule_settle(key);
        }
        self.read_on(key, lock, now);
    }

    /// Whether too little was read of a lock to know a holder, beside the reader that waits to upgrade.
    pub(crate) fn must_read_on(&self, key: KeyRef<'_>, lock: &ReadWrite, now: Now) -> bool {
        lock.is_unknown(now, |owner| self.shared.waiters.may_upgrade(key, owner))
    }

    /// Schedules such a lock, with or without waiters: other clients may wait for the message that it is free.
    pub(crate) fn read_on(&mut self, key: KeyRef<'_>, lock: &ReadWrite, now: Now) {
        if self.must_read_on(key, lock, now) {
            self.shared.waiters.schedule_settle_id(key.to_id());
        }
    }

    /// As [`Locks::note_ends`], within a settling. True if the only reader waits to upgrade: it may be granted WRITE.
    pub(crate) fn record_ends(&mut self, key: KeyRef<'_>, lock: &ReadWrite, now: Now) -> bool {
        // A reader that waits to upgrade waits for the other readers only.
        let last = lock.readers(now).max_by_key(|reader| reader.until_ms);
        let upgrader = last.filter(|reader| self.shared.waiters.may_upgrade(key, &reader.owner));
        let is_alone =
            upgrader.is_some() && lock.writer(now).is_none() && lock.readers(now).nth(1).is_none();
        let is_known = !lock.is_whole && self.shared.waiters.lease(key).is_some();
        if !(is_alone && is_known) {
            let ends = lock.ends(now, upgrader.map(|reader| &reader.owner[..]));
            self.shared.waiters.set_lease(key, ends);
        }
        self.shared.waiters.set_shared_holders(key, lock, now);
        is_alone && !is_known
    }

    /// As [`Locks::note_ends`] after a grant or an extension: the recorded end never moves back.
    pub(crate) fn note_longer(&mut self, key: KeyRef<'_>, lock: &ReadWrite, now: Now) {
        let known = self.shared.waiters.lease(key).filter(|_| !lock.is_whole);
        self.note_ends(key, lock, now);
        if self.shared.waiters.lease(key) < known {
            self.shared.waiters.set_lease(key, known);
        }
    }

    /// Whether another reader waits to upgrade already: then each would wait for the other for ever.
    pub(crate) fn another_upgrades(&self, view: &View<'_>, req: &Acquire<'_>, now: Now) -> bool {
        let first = self.shared.waiters.first_writer(view.key);
        first.is_some_and(|first| {
            *first != *req.owner
                && view
                    .state
                    .held_for_reading_or_writing(now)
                    .is_some_and(|lock| lock.reader(first, now).is_some())
        })
    }
}
