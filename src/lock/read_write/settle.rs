//! Settles a read-write lock: undelivered grants are undone, compatible waiters are granted.
//!
//! The requests for READ and WRITE that the next decision about a key may grant: each needs sibling keys, and only
//! the shell can read whether these are free.

use crate::lock::compatibility::{compatibility, Compatibility};
use crate::lock::effect::Cx;
use crate::lock::grant::in_flight::GrantInFlight;
use crate::lock::grant::HandedOff;
use crate::lock::locks::Locks;
use crate::lock::read_write::state::ReadWrite;
use crate::lock::state::View;
use crate::lock::wait::hearing::PASSED_AT_ONCE;
use crate::lock::{KeyRef, KeyState, LockError, Mode, Now, OwnerId, WaiterId};

impl GrantInFlight {
    /// Whether this grant is still held.
    pub(crate) fn is_in(&self, lock: &ReadWrite, now: Now) -> bool {
        lock.has_grant((self.mode, &self.owner), self.token, now)
    }
}

impl Locks {
    /// Whether settling may write: a compatible waiter is granted, a grant is undone, or expired readers are removed,
    /// so that the others can be read.
    pub(crate) fn may_change_shared(
        &mut self,
        key: KeyRef<'_>,
        lock: &ReadWrite,
        now: Now,
    ) -> bool {
        if let Some(undone) = self.shared.in_flight.undone(key) {
            if undone.iter().any(|undone| undone.is_in(lock, now)) {
                return true;
            }
            self.shared.in_flight.take_undone(key);
        }
        if self.must_read_on(key, lock, now) {
            return true;
        }
        let Some((owner, waiter)) = self.shared.waiters.first(key) else {
            return is_left_over(lock, now);
        };
        let state = KeyState::ReadWrite(Box::new(lock.clone()));
        may_enter(&state, waiter.mode, owner, now)
    }

    /// See [`Locks::settle`].
    pub(crate) fn settle_shared(
        &mut self,
        view: &View<'_>,
        present: &ReadWrite,
        undone: Vec<GrantInFlight>,
        cx: &mut Cx<'_>,
    ) {
        let mut lock = present.clone();
        let mut took_back = None;
        for undone in undone {
            if !undone.is_in(&lock, cx.now) {
                continue;
            }
            if undone.reentry.is_some() {
                lock.count_one_less(undone.mode, &undone.owner, cx);
                continue;
            }
            let whose = (undone.mode, &undone.owner[..]);
            let was_tracked = self.untrack_shared(view, &lock, whose, cx);
            self.stats.grants_undone += u64::from(was_tracked.is_some());
            self.end_shared(view, &mut lock, whose, cx);
            self.shared.waiters.restore(&undone, cx.now);
            took_back = Some(undone.mode);
        }
        if let Some(mode) = took_back {
            return self.hand_off_shared(view, lock, mode, cx);
        }
        let ends = self.shared.waiters.lease(view.key);
        if !lock.is_held(cx.now) && ends.is_some_and(|end| end > cx.now.wall_ms) {
            self.stats.foreign_wakeups += 1;
        }
        if lock.is_held(cx.now) {
            self.untrack_gone(view, &lock, cx);
            if self.must_read_on(view.key, &lock, cx.now) {
                self.prune(view.key, &mut lock, cx);
            }
            // What follows grants a reader that waits to upgrade.
            self.record_ends(view.key, &lock, cx.now);
            self.read_on(view.key, &lock, cx.now);
        } else if self.shared.waiters.waiting_on(view.key) == 0 && is_left_over(&lock, cx.now) {
            return self.hand_off_shared(view, lock, Mode::Read, cx);
        }
        let rest = KeyState::ReadWrite(Box::new(lock));
        if self.hand_off(view, &rest, cx) == HandedOff::Reserved {
            // The request on several keys reads less of each.
            let KeyState::ReadWrite(mut lock) = rest else {
                return;
            };
            self.prune(view.key, &mut lock, cx);
        }
    }

    /// Ends the tracked grants that the lock no longer states.
    pub(crate) fn untrack_gone(&mut self, view: &View<'_>, lock: &ReadWrite, cx: &mut Cx<'_>) {
        if lock.writer.is_none() {
            self.untrack_stale_single(view, cx);
        }
        if !lock.is_whole {
            return;
        }
        let now = cx.now;
        let is_gone = |owner: &[u8]| lock.reader(owner, now).is_none();
        self.untrack_readers(view.key, (usize::MAX, is_gone), cx);
    }
}

/// Whether a lock has expired readers only, or its mode only: an earlier step may have removed the last of them.
fn is_left_over(lock: &ReadWrite, now: Now) -> bool {
    !lock.is_held(now) && !lock.is_over(now)
}

/// Whether a waiter of this mode and owner is compatible with the present holders.
pub fn may_enter(state: &KeyState, mode: Mode, owner: &[u8], now: Now) -> bool {
    matches!(
        compatibility(state, mode, owner, now),
        Ok(Compatibility::Free | Compatibility::Within)
    )
}

/// Readers that one decision grants at most; others follow at the end of the tick.
pub const READERS_AT_ONCE: usize = 64;

/// A waiter for READ or WRITE, or a request on several keys that waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingRequest {
    /// The request.
    pub request: WaiterId,
    /// The kind of hold.
    pub mode: Mode,
    /// The owner.
    pub owner: OwnerId,
}

impl Locks {
    /// The requests at the head of the queue that may be granted together, if they ask for READ or WRITE: one request
    /// for WRITE, or the readers before the first one, `readers` at most. Empty while `rest`, the state after those
    /// holds have ended, excludes all of them, and while more waits at the head are over than one decision ends.
    pub fn next_for_shared(
        &self,
        key: KeyRef<'_>,
        rest: &KeyState,
        readers: usize,
        now: Now,
    ) -> Vec<PendingRequest> {
        let waiters = self.shared.waiters.waiters_at(key);
        let waiters = waiters.take(PASSED_AT_ONCE + readers);
        let mut living = waiters
            .filter(|(_, waiter)| !waiter.is_over(now))
            .peekable();
        let mode = match living.peek() {
            Some((first, waiter)) if may_enter(rest, waiter.mode, first, now) => waiter.mode,
            _ => return Vec::new(),
        };
        let most = match mode {
            Mode::Exclusive => 0,
            Mode::Write => 1,
            Mode::Read => readers,
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

    /// Whether the next waiter may need sibling keys. Waiters before it whose waits are over are still in the queue, so
    /// it is any of the waiters up to the first whose wait is not over.
    pub fn next_may_need_siblings(&self, key: KeyRef<'_>, now: Now) -> bool {
        let waiters = self.shared.waiters.waiters_at(key);
        let mut waiters = waiters.map(|(_, waiter)| waiter).take(PASSED_AT_ONCE + 1);
        let is_shared = |mode| mode != Mode::Exclusive;
        waiters
            .find(|waiter| is_shared(waiter.mode) || !waiter.is_over(now))
            .is_some_and(|waiter| is_shared(waiter.mode))
    }

    /// The hold that a waiting request on several keys asks for at each of them.
    pub fn pending_request(&self, request: WaiterId) -> Option<PendingRequest> {
        let (owner, waiter) = self.shared.waiters.request(request)?;
        Some(PendingRequest {
            request,
            mode: waiter.mode,
            owner: owner.into(),
        })
    }

    /// Removes a request that cannot be granted from its queues, and answers it this error.
    pub fn dismiss(&mut self, request: WaiterId, error: &LockError, cx: &mut Cx<'_>) {
        self.shared.waiters.fail_request(request, error, cx);
    }
}

impl ReadWrite {
    /// The lock without the holds of this owner in this mode.
    pub(crate) fn without(&self, whose: (Mode, &[u8])) -> KeyState {
        let mut rest = self.clone();
        rest.end(whose);
        KeyState::ReadWrite(Box::new(rest))
    }

    pub(crate) fn end(&mut self, (mode, owner): (Mode, &[u8])) {
        match mode {
            Mode::Read => drop(self.readers.remove(owner)),
            _ => self.writer = None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_expired_readers_leave_is_to_be_deleted() {
        let now = Now {
            wall_ms: 5,
            ..Now::at_mono(0)
        };
        assert!(is_left_over(&ReadWrite::emptied(Some(6)), now));
        assert!(is_left_over(&ReadWrite::emptied(None), now));
        assert!(
            !is_left_over(&ReadWrite::emptied(Some(5)), now),
            "it ends itself"
        );
    }
}
