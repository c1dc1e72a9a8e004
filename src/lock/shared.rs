//! The part of the memory that all kinds of resource share.

use std::collections::HashSet;

use crate::lock::effect::Outcome;
use crate::lock::finals::Finals;
use crate::lock::grant::in_flight::{GrantInFlight, GrantsInFlight};
use crate::lock::request::Acquire;
use crate::lock::session::bindings::{Sessions, ToBind};
use crate::lock::time::StartupDelay;
use crate::lock::token::{NoToken, Tokens};
use crate::lock::wait::limits::Used;
use crate::lock::wait::request::{Terms, Waiter, WaiterId};
use crate::lock::wait::waiters::Waiters;
use crate::lock::{Cx, Domain, Effect, KeyRef, LockError, Now, Token, UserId};

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
    /// The holds that are to be bound: of requests that wait, and of grants in flight.
    pub fn holds_to_bind(&self) -> usize {
        self.waiters.used_by(UserId::UNKNOWN).all.sessions + self.in_flight.to_bind.all()
    }

    /// Whether this request, if it is for a session, may bind holds of these keys. What waits to be bound counts as if
    /// it were.
    ///
    /// # Errors
    /// [`LockError::TooManyBound`], [`LockError::LongSession`]
    pub(crate) fn may_bind<'k>(
        &mut self,
        keys: impl IntoIterator<Item = KeyRef<'k>> + Clone,
        req: &Acquire<'_>,
    ) -> Result<(), LockError> {
        if !req.session {
            return Ok(());
        }
        let share = self.waiters.limits.user_share;
        let to_bind = self.to_bind(keys.clone(), req);
        let admitted = self.sessions.admit(keys.clone(), req, (share, to_bind));
        let resource = keys.into_iter().next().map(|key| key.resource);
        if admitted == Err(LockError::TooManyBound) {
            self.waiters.stats[resource.unwrap_or_default()].busy += 1;
        }
        admitted
    }

    /// The holds that are to be bound, beside these that are asked for.
    fn to_bind<'k>(&self, keys: impl IntoIterator<Item = KeyRef<'k>>, req: &Acquire<'_>) -> ToBind {
        let (waiters, in_flight) = (&self.waiters, &self.in_flight.to_bind);
        let Used { own, all } = waiters.used_by(req.user);
        let mut replaced = 0;
        if own.sessions > 0 {
            let older = waiters.requests_of(keys, req.owner).into_iter();
            let older = older.map(|id| waiters.usage_of(id, req.user).sessions);
            replaced = older.sum();
        }
        ToBind {
            own: own.sessions + in_flight.of(req.user),
            all: all.sessions + in_flight.all(),
            replaced,
        }
    }

    /// The number of users of whom something counts towards their share. O(N) in these users.
    pub fn users_with_usage(&self) -> usize {
        let users = self.waiters.places.users().chain(self.sessions.users());
        let users = users.chain(self.in_flight.to_bind.users());
        let users = users.chain(self.finals.users());
        users.collect::<HashSet<UserId>>().len()
    }

    /// `FINAL`: the owner gives up its acquisitions for this key up to this number, says this user. Its wait ends.
    /// Returns whether there was one; the caller ends its holds. `None`: nothing is to end, see [`Finals::note`].
    pub fn give_up(
        &mut self,
        (key, owner): (KeyRef<'_>, &[u8]),
        what: (u64, UserId),
        cx: &mut Cx<'_>,
    ) -> Option<bool> {
        if !self.finals.note((key, owner), what, cx.now) {
            return None;
        }
        let withdrawn = self.waiters.withdraw(key, owner);
        let has_waited = withdrawn.is_some();
        self.waiters.end_withdrawn(withdrawn, cx);
        Some(has_waited)
    }

    /// The request waits for this key alone: at the end of its queue, or at the place of the owner's former request.
    ///
    /// # Errors
    /// Those of [`Waiters::admit`].
    pub(crate) fn park(
        &mut self,
        key: KeyRef<'_>,
        req: &Acquire<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<WaiterId, LockError> {
        let (keys, owner) = ([key], (req.owner, None));
        let former = self.waiters.former(&keys, req.owner);
        let id = self.waiters.admit(&keys, req, &former)?;
        let waiter = self.waiter(id, req, cx.now);
        self.waiters.enqueue(&keys, owner, &waiter, &former, cx);
        Ok(id)
    }

    /// A new token of this domain, above the two numbers in the data of its key.
    #[inline]
    pub(crate) fn mint(
        &mut self,
        domain: Domain,
        (seen, counter): (u64, u64),
        cx: &mut Cx<'_>,
    ) -> Result<Token, NoToken> {
        let now_us = cx.now.wall_us();
        let minted = self.tokens.mint(domain, seen, counter, now_us)?;
        let horizon = minted.horizon;
        cx.effects
            .extend(horizon.map(|horizon| Effect::Horizon(domain, horizon)));
        Ok(minted.token)
    }

    /// The request is granted without a wait: its owner knows of its earlier grants, and its former wait has ended.
    pub(crate) fn granted_at_once(&mut self, key: KeyRef<'_>, req: &Acquire<'_>, now: Now) {
        self.in_flight.claim(key, req.owner);
        self.waiters.granted_at_once(key, req.owner, req.mode, now);
    }

    /// A waiter, which has left its queues, was granted this. While the grants are in flight, until the reply is
    /// written, it is the request that its connection waits for. The message of a ticket is delivered in this event.
    pub(crate) fn handed_off(
        &mut self,
        waiter: &Waiter,
        grants: impl IntoIterator<Item = GrantInFlight>,
        granted: Outcome,
        cx: &mut Cx<'_>,
    ) {
        self.sessions.waits(waiter);
        self.waiters.count_wait(waiter, cx.now);
        for grant in grants {
            if grant.reentry.is_none() {
                self.waiters.windows.count_hand_off(grant.key.as_ref());
            }
            self.in_flight.put(waiter.id, grant);
        }
        cx.answer(waiter, granted);
        if waiter.ticket.is_some() {
            self.delivered(waiter.id);
        }
    }

    /// The waiter for this request.
    pub(crate) fn waiter(&mut self, id: WaiterId, req: &Acquire<'_>, now: Now) -> Waiter {
        let waiter = Waiter {
            user: req.user,
            mode: req.mode,
            lease: req.lease,
            terms: Terms::new(req.session, req.count),
            limit: req.limit,
            ticket: req
                .notify
                .map(|notify| self.waiters.channels.ticket(notify)),
            ..Waiter::new(id, req.client, req.wait.deadline(now), now)
        };
        self.sessions.waits(&waiter);
        waiter
    }
}
