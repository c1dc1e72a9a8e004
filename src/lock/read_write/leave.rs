//! Release, renewal and break of a read-write lock.

use crate::lock::effect::{Cx, Event};
use crate::lock::grant::tracked::TrackedGrant;
use crate::lock::grant::HandedOff;
use crate::lock::locks::Locks;
use crate::lock::read_write::change::{write, RwWrite};
use crate::lock::read_write::state::{ReadDepth, ReadWrite};
use crate::lock::session::bindings::BoundRef;
use crate::lock::state::View;
use crate::lock::{Break, KeyState, LockError, Mode, Now, Release, Released, Renew, Token};

impl ReadWrite {
    /// The mode of the owner's hold that a command refers to. `None`: there is no such hold, or not under that token.
    ///
    /// # Errors
    /// If the owner has holds of both modes and the command names none.
    pub(crate) fn meant(
        &self,
        owner: &[u8],
        mode: Option<Mode>,
        token: Option<u64>,
        now: Now,
    ) -> Result<Option<Mode>, LockError> {
        let reads = self.reader(owner, now).is_some();
        let writes = self.writes(owner, now);
        let meant = match mode {
            None if reads && writes => return Err(LockError::WhichHold),
            None if reads => Some(Mode::Read),
            None if writes => Some(Mode::Write),
            Some(Mode::Read) if reads => mode,
            Some(Mode::Write) if writes => mode,
            _ => None,
        };
        Ok(meant.filter(|mode| self.is_named(*mode, token, now)))
    }

    /// Whether a holder lives and this is the latest token. An earlier token of the same phase does not count: its
    /// reader may be gone, and a writer may have held the lock since.
    pub(crate) fn is_held_under(&self, token: u64, now: Now) -> bool {
        let is_held = self.writer(now).is_some() || self.readers(now).next().is_some();
        is_held && self.token(now).is_some_and(|latest| latest.get() == token)
    }

    fn is_named(&self, mode: Mode, token: Option<u64>, now: Now) -> bool {
        token.is_none_or(|token| {
            Token::new(token).is_some_and(|token| self.is_under(mode, token, now))
        })
    }

    /// The depth of reading for a renewal: everything, if this lease was the longest and becomes shorter.
    pub fn depth_to_renew(&self, owner: &[u8], end_ms: i64, now: Now) -> ReadDepth {
        let longest =
            |reader: &crate::lock::read_write::Reader| Some(reader.until_ms) >= self.deadline_ms;
        match self.reader(owner, now) {
            Some(reader) if longest(reader) && end_ms < reader.until_ms => ReadDepth::All,
            _ => ReadDepth::Own,
        }
    }
}

impl Locks {
    /// `LOCK.RELEASE`; `None` if the owner has no such hold.
    pub(crate) fn release_shared(
        &mut self,
        view: &View<'_>,
        present: &ReadWrite,
        req: &Release<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Option<Released>, LockError> {
        let Some(mode) = present.meant(req.owner, req.mode, req.token, cx.now)? else {
            return Ok(None);
        };
        self.shared.in_flight.claim(view.key, req.owner);
        let mut lock = present.clone();
        let count = lock.count_of(mode, req.owner, cx.now);
        let left = count.unwrap_or(1) - 1;
        if left > 0 && !req.all {
            self.prune(view.key, &mut lock, cx);
            match mode {
                Mode::Read => lock.read_less(req.owner, cx),
                _ => lock.count_writes(left, cx),
            }
            return Ok(Some(Released::StillHeld));
        }
        let ended = self.untrack_shared(view, present, (mode, req.owner), cx);
        self.stats.grants_released += self.count_hold(ended, cx.now);
        self.give_back(view, lock, (mode, req.owner), cx);
        Ok(Some(Released::Freed))
    }

    /// Ends a hold by its owner or by the end of its session.
    pub(crate) fn give_back(
        &mut self,
        view: &View<'_>,
        mut lock: ReadWrite,
        (mode, owner): (Mode, &[u8]),
        cx: &mut Cx<'_>,
    ) {
        self.shared
            .sessions
            .unbind(BoundRef::lock(mode, view.key, owner));
        self.end_shared(view, &mut lock, (mode, owner), cx);
        cx.notify(Event::Release);
        self.hand_off_shared(view, lock, mode, cx);
    }

    /// Ends the tracking of a hold. Returns its grant if that was tracked.
    pub(crate) fn untrack_shared(
        &mut self,
        view: &View<'_>,
        lock: &ReadWrite,
        (mode, owner): (Mode, &[u8]),
        cx: &mut Cx<'_>,
    ) -> Option<TrackedGrant> {
        match mode {
            Mode::Read => self.tracked.remove_of(view.key, owner),
            _ => self.end_tracked(view, lock.token(cx.now), cx),
        }
    }

    /// Ends all holds of an owner in this mode, and removes them from the hash while other holders remain.
    pub(crate) fn end_shared(
        &mut self,
        view: &View<'_>,
        lock: &mut ReadWrite,
        (mode, owner): (Mode, &[u8]),
        cx: &mut Cx<'_>,
    ) {
        match mode {
            Mode::Read => lock.drop_reader(owner, cx),
            _ => lock.drop_writer(cx),
        }
        if lock.is_held(cx.now) {
            self.prune(view.key, lock, cx);
        }
    }

    /// After the end of a hold of this mode: grants the lock to compatible waiters, or frees the key.
    pub(crate) fn hand_off_shared(
        &mut self,
        view: &View<'_>,
        lock: ReadWrite,
        ended: Mode,
        cx: &mut Cx<'_>,
    ) {
        let is_held = lock.is_held(cx.now);
        if !is_held {
            self.untrack_gone(view, &lock, cx);
        }
        let rest = KeyState::ReadWrite(Box::new(lock));
        match self.hand_off(view, &rest, cx) {
            HandedOff::Granted | HandedOff::LeftFree => return,
            HandedOff::Reserved | HandedOff::NoWaiter | HandedOff::Blocked => {}
        }
        if let (true, KeyState::ReadWrite(lock)) = (is_held, &rest) {
            if let Some(end_ms) = lock.deadline_ms {
                cx.publish_if_shorter(&view.state, end_ms);
            }
            return self.note_ends(view.key, lock, cx.now);
        }
        self.free(view, ended, cx);
    }

    /// `LOCK.RENEW`; `None` if the owner has no such hold.
    pub(crate) fn renew_shared(
        &mut self,
        view: &View<'_>,
        present: &ReadWrite,
        req: &Renew<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Option<()>, LockError> {
        let Some(mode) = present.meant(req.owner, req.mode, req.token, cx.now)? else {
            return Ok(None);
        };
        let known = present.token(cx.now);
        let token = match known {
            Some(token) => token,
            None => self.mint(view, cx)?,
        };
        self.shared.in_flight.claim(view.key, req.owner);
        let what = BoundRef::lock(mode, view.key, req.owner);
        let bound = self.bound_token(what, (mode, present), cx.now);
        let (sessions, terms) = (&mut self.shared.sessions, (req.lease, req.names_lease));
        let end_ms = sessions.lease_end_after_use(what, bound, terms, cx.now);
        let mut lock = present.clone();
        self.prune(view.key, &mut lock, cx);
        if mode == Mode::Read {
            lock.renew_reader(req.owner, end_ms, cx);
            self.tracked.renewed_of(view.key, req.owner, end_ms);
        }
        // The TTL of the hash is the lease of the writer, and covers that of each reader.
        if lock.is_whole
            && !lock.is_cut
            && (mode == Mode::Write || lock.writer.is_none())
            && lock.longest() < i64::MAX
        {
            lock.set_lease(lock.longest().max(end_ms), cx);
        } else {
            lock.reach(end_ms, cx);
        }
        if mode == Mode::Write {
            let end_ms = lock.deadline_ms.unwrap_or(end_ms);
            self.tracked.renewed(view.key, known, end_ms);
        }
        if known.is_none() {
            lock.set_token_record((token, token), end_ms, cx);
        }
        if let Some(end_ms) = lock.deadline_ms {
            cx.publish_if_shorter(&view.state, end_ms);
        }
        self.stats.renewals += 1;
        self.note_ends(view.key, &lock, cx.now);
        Ok(Some(()))
    }

    /// Extends the lease of a hold to at least this end.
    pub(crate) fn extend_shared(
        &mut self,
        view: &View<'_>,
        present: &ReadWrite,
        (mode, owner): (Mode, &[u8]),
        (end_ms, now): (i64, Now),
        cx: &mut Cx<'_>,
    ) {
        let mut lock = present.clone();
        if mode == Mode::Write {
            lock.reach(end_ms, cx);
            let what = BoundRef::lock(mode, view.key, owner);
            self.tracked.extended(what, end_ms);
        } else if lock
            .reader(owner, now)
            .is_some_and(|reader| reader.until_ms < end_ms)
        {
            lock.read_again(owner, 0, end_ms, cx);
            self.tracked.renewed_of(view.key, owner, end_ms);
        }
        self.note_longer(view.key, &lock, now);
    }

    /// `LOCK.BREAK`: ends every hold. Timeouts of readers that were not read end with their TTLs. The caller has purged
    /// the waiters if asked to.
    pub(crate) fn break_shared(&mut self, view: &View<'_>, present: &ReadWrite, cx: &mut Cx<'_>) {
        let mut lock = present.clone();
        self.untrack_gone(view, &lock, cx);
        if lock.writer.is_some() {
            let ended = self.end_tracked(view, present.token(cx.now), cx);
            self.stats.grants_broken += u64::from(ended.is_some());
        }
        self.stats.grants_broken += self.untrack_key(view.key);
        if let Some(writer) = &lock.writer {
            let what = BoundRef::lock(Mode::Write, view.key, &writer.owner);
            self.shared.sessions.unbind(what);
        }
        for reader in lock.readers.take_all() {
            let what = BoundRef::lock(Mode::Read, view.key, &reader.owner);
            self.shared.sessions.unbind(what);
            write(cx, RwWrite::DropTimeouts(reader.owner, (1, reader.count)));
        }
        let ended = match lock.writer.take() {
            Some(_) => Mode::Write,
            None => Mode::Read,
        };
        lock.is_whole = true;
        cx.notify(Event::Break);
        self.hand_off_shared(view, lock, ended, cx);
    }

    /// Whether the break applies to these holds.
    pub(crate) fn breaks_shared(present: &ReadWrite, req: Break, now: Now) -> bool {
        let mode = present.writer(now).map_or(Mode::Read, |_| Mode::Write);
        present.is_held(now) && present.is_named(mode, req.token, now)
    }
}
