//! Waiters for READ and WRITE that the next decision about a key may grant: each of them needs keys beside the
//! lock, and only the shell can see whether these are free.

use super::super::effect::Effects;
use super::super::locks::Locks;
use super::super::state::is_held;
use super::super::{KeyRef, KeyState, LockError, Mode, Now, OwnerId, WaiterId};
use super::settle::may_enter;

/// A parked request for READ or WRITE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asking {
    /// The request.
    pub request: WaiterId,
    /// READ or WRITE.
    pub mode: Mode,
    /// The owner.
    pub owner: OwnerId,
}

impl Locks {
    /// The requests at the head of the queue that may be granted together, if they are for READ or WRITE: one
    /// writer, or the readers before the first writer. None while the key can grant nothing to them: it is not
    /// free, and it is not held by the owner of the present command, who may release it (`None`: no owner's
    /// command, then the key may become free).
    pub fn next_for_shared(
        &self,
        key: KeyRef<'_>,
        state: &KeyState,
        owner: Option<&[u8]>,
        now: Now,
    ) -> Vec<Asking> {
        let may_end = owner.is_none_or(|owner| is_held(state, Some(owner), now));
        let queue = self
            .waiters
            .queue(key)
            .into_iter()
            .flat_map(|queue| queue.iter());
        let mut living = queue
            .filter(|(_, waiter)| waiter.deadline_ms.is_none_or(|end| end > now.mono_ms))
            .peekable();
        let mode = match living.peek() {
            Some((first, waiter)) if may_end || may_enter(state, waiter.mode, first, now) => {
                waiter.mode
            }
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
            .map(|(owner, waiter)| Asking {
                request: waiter.id,
                mode,
                owner: owner.into(),
            })
            .collect()
    }

    /// What a parked request on many keys asks for at each of them.
    pub fn asks_for(&self, request: WaiterId) -> Option<Asking> {
        let (key, seq) = self.waiters.places_of(request).into_iter().next()?;
        let (owner, waiter) = self.waiters.at(key.as_ref(), seq)?;
        Some(Asking {
            request,
            mode: waiter.mode,
            owner: owner.into(),
        })
    }

    /// This request cannot be granted: it leaves the queue and gets this error.
    pub fn dismiss(&mut self, request: WaiterId, error: &LockError, fx: &mut Effects) {
        if self.waiters.dismiss(request) {
            self.fail(vec![request], error, fx);
        }
    }
}
