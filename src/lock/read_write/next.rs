//! The requests for READ and WRITE that the next decision about a key may grant: each needs sibling keys, and only the
//! shell can read whether these are free.

use crate::lock::effect::Cx;
use crate::lock::locks::Locks;
use crate::lock::read_write::settle::may_enter;
use crate::lock::read_write::state::ReadWrite;
use crate::lock::wait::passed::PASSED_AT_ONCE;
use crate::lock::{KeyRef, KeyState, LockError, Mode, Now, OwnerId, WaiterId};

/// Readers that one decision grants at most; others follow at the end of the tick.
pub const READERS_AT_ONCE: usize = 64;

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
        let queue = self
            .shared
            .waiters
            .queue(key)
            .into_iter()
            .flat_map(|queue| queue.iter())
            .take(PASSED_AT_ONCE + readers);
        let mut living = queue.filter(|(_, waiter)| !waiter.is_over(now)).peekable();
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
        let queue = self.shared.waiters.queue(key).into_iter();
        let mut waiters = queue
            .flat_map(|queue| queue.iter().map(|(_, waiter)| waiter))
            .take(PASSED_AT_ONCE + 1);
        let is_shared = |mode| mode != Mode::Exclusive;
        waiters
            .find(|waiter| is_shared(waiter.mode) || !waiter.is_over(now))
            .is_some_and(|waiter| is_shared(waiter.mode))
    }

    /// The hold that a parked request on several keys asks for at each of them.
    pub fn pending_request(&self, request: WaiterId) -> Option<PendingRequest> {
        let (_, place) = self.shared.waiters.places_of(request).into_iter().next()?;
        let (owner, waiter) = self.shared.waiters.at(place)?;
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
