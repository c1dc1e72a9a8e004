//! The part of the memory that all kinds of resource share.

use crate::lock::finals::Finals;
use crate::lock::grant::in_flight::GrantsInFlight;
use crate::lock::name::Resource;
use crate::lock::request::Acquire;
use crate::lock::session::bindings::{BoundRef, Sessions};
use crate::lock::time::StartupDelay;
use crate::lock::token::Tokens;
use crate::lock::wait::request::{Waiter, WaiterId};
use crate::lock::wait::waiters::Waiters;
use crate::lock::{Cx, KeyRef, LockError, Now, UserId};

/// What all kinds of resource share.
#[derive(Debug, Default)]
pub struct Shared {
    /// The waiters.
    pub waiters: Waiters,
    /// The bindings of holds to connections.
    pub sessions: Sessions,
    /// The sources of tokens.
    pub tokens: Tokens,
    /// The grants that are in flight or to undo.
    pub in_flight: GrantsInFlight,
    /// The startup delay.
    pub startup_delay: StartupDelay,
    /// The acquisitions that were given up.
    pub finals: Finals,
}

impl Shared {
    /// Whether this user may bind holds of these names.
    ///
    /// # Errors
    /// [`LockError::TooManyBound`], [`LockError::LongSession`]
    pub(crate) fn may_bind<'a>(
        &mut self,
        resource: Resource,
        user: UserId,
        asked: impl IntoIterator<Item = BoundRef<'a>>,
    ) -> Result<(), LockError> {
        let share = self.waiters.limits.user_share;
        let admitted = self.sessions.admit((user, share), asked);
        if admitted == Err(LockError::TooManyBound) {
            self.waiters.stats[resource].busy += 1;
        }
        admitted
    }

    /// `FINAL`: the owner gives up its acquisitions for this key up to this number. Its wait ends. Returns whether
    /// there was one; the caller ends its holds. `None`: nothing is to end, see [`Finals::note`].
    pub fn give_up(
        &mut self,
        key: KeyRef<'_>,
        owner: &[u8],
        number: u64,
        cx: &mut Cx<'_>,
    ) -> Option<bool> {
        if !self.finals.note(key, owner, number, cx.now) {
            return None;
        }
        let withdrawn = self.waiters.withdraw(key, owner);
        let has_waited = withdrawn.is_some();
        self.waiters.end_withdrawn(withdrawn, cx);
        Some(has_waited)
    }

    /// The waiter for this request for a lock.
    pub(crate) fn waiter(&mut self, id: WaiterId, req: &Acquire<'_>, now: Now) -> Waiter {
        let waiter = Waiter {
            user: req.user,
            mode: req.mode,
            lease: req.lease,
            session: req.session,
            ticket: req
                .notify
                .map(|notify| self.waiters.channels.ticket(notify)),
            ..Waiter::new(id, req.client, req.wait.deadline(now), now)
        };
        self.sessions.waits(&waiter);
        waiter
    }
}
