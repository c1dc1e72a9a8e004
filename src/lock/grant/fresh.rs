//! Writes a grant: the one place where a lock is granted.

use std::borrow::Cow;

use crate::lock::effect::{Cx, Effect, Event, KeyWrite};
use crate::lock::grant::tracked::TrackedGrant;
use crate::lock::locks::Locks;
use crate::lock::name::OwnerAt;
use crate::lock::request::Acquire;
use crate::lock::session::bindings::BoundRef;
use crate::lock::token::NoToken;
use crate::lock::view::View;
use crate::lock::{KeyRef, KeyState, Lease, LockError, Mode, OwnerId, RwWrite, Token, UserId};

/// The owner that gets a grant, and the terms.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grantee<'a> {
    pub owner: &'a [u8],
    pub mode: Mode,
    /// Ignored for a session, which has its own lease.
    pub lease: Lease,
    pub session: bool,
    /// Whether the request names its lease: then a re-entry ends the binding.
    pub names_lease: bool,
    pub client: u64,
    pub user: UserId,
}

impl<'a> Grantee<'a> {
    /// The owner and the terms of an acquire.
    pub fn of(req: &Acquire<'a>) -> Grantee<'a> {
        Grantee {
            owner: req.owner,
            mode: req.mode,
            lease: req.lease,
            session: req.session,
            names_lease: req.names_lease,
            client: req.client,
            user: req.user,
        }
    }
}

/// A grant that was made.
#[derive(Debug)]
pub(crate) struct Granted {
    pub token: Token,
    pub deadline_ms: i64,
    /// Whether this is the first hold of its owner, not a re-entry.
    pub is_fresh: bool,
    /// The content of the key after the grant, if other waiters may still be compatible with it.
    pub after: Option<KeyState>,
}

impl Locks {
    /// Grants a hold that is compatible with the present holders (`rest`).
    pub(crate) fn grant_in(
        &mut self,
        view: &View<'_>,
        rest: Cow<'_, KeyState>,
        to: &Grantee<'_>,
        cx: &mut Cx<'_>,
    ) -> Result<Granted, LockError> {
        self.shared.waiters.schedule_settle_others(view.key);
        if to.mode != Mode::Exclusive {
            let entered = self.enter(view, rest, (to, false), cx)?;
            self.shared.waiters.windows.end_unused(view.key);
            return Ok(Granted {
                token: entered.token,
                deadline_ms: entered.end_ms,
                is_fresh: entered.is_fresh,
                after: Some(KeyState::ReadWrite(Box::new(entered.lock))),
            });
        }
        let token = self.mint(view, cx)?;
        self.shared.waiters.windows.end_unused(view.key);
        let lease = self.shared.sessions.lease_of(to.session, to.lease);
        let deadline_ms = lease.deadline(cx.now);
        self.sweep(view, cx);
        cx.write(KeyWrite::Take {
            clear: view.state != KeyState::Absent,
            owner: OwnerId::from_slice(to.owner),
            token,
            deadline_ms,
        });
        if self.may_have_token_record(&view.state) {
            cx.write(KeyWrite::ReadWrite(RwWrite::DropTokenRecord));
        }
        self.track(view.key, to, (token, deadline_ms), cx);
        Ok(Granted {
            token,
            deadline_ms,
            is_fresh: true,
            after: None,
        })
    }

    /// Records a first hold: its event, its binding, its tracked grant.
    pub(crate) fn track(
        &mut self,
        key: KeyRef<'_>,
        to: &Grantee<'_>,
        (token, deadline_ms): (Token, i64),
        cx: &mut Cx<'_>,
    ) {
        self.had_shared |= to.mode != Mode::Exclusive;
        cx.notify(Event::Acquire);
        let what = BoundRef::lock(to.mode, key, to.owner);
        match to.session {
            true => self
                .shared
                .sessions
                .bind(what, (to.client, to.user), token, cx.now),
            false => drop(self.shared.sessions.unbind(what)),
        }
        self.stats.grants += 1;
        let tracked = TrackedGrant {
            token,
            since_ms: cx.now.mono_ms,
            client: to.client,
            deadline_ms,
            may_share: false,
            session: to.session,
        };
        let max = self.shared.waiters.limits.max_tracked;
        self.stats.grants_unwatched += match to.mode {
            Mode::Read => {
                let at = OwnerAt {
                    key: key.to_id(),
                    owner: to.owner.into(),
                };
                self.tracked.insert_of(at, tracked, max)
            }
            _ => self.tracked.insert(key, tracked, max),
        };
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
        // Without a fence a token could repeat an earlier one: a bug, refused as an internal error.
        let fence = view.fence.ok_or(LockError::Internal)?;
        if !fence.may_grant {
            return Err(self.shared.tokens.no_grant());
        }
        let seen = view.state.token().map_or(0, Token::get);
        let counter = fence.counter.unwrap_or(0);
        let minted = self
            .shared
            .tokens
            .mint(view.domain, seen, counter, cx.now.wall_us());
        let minted = minted.map_err(|why| self.refuse_token(view.key, why))?;
        cx.effects.extend(
            minted
                .horizon
                .map(|horizon| Effect::Horizon(view.domain, horizon)),
        );
        cx.effects
            .extend(fence.counter.map(|_| Effect::Counter(minted.token)));
        Ok(minted.token)
    }

    /// The error of a request for which no token can be minted. An implausible number is counted.
    #[cold]
    pub(crate) fn refuse_token(&mut self, key: KeyRef<'_>, why: NoToken) -> LockError {
        self.stats.tokens_implausible += u64::from(why != NoToken::Exhausted);
        why.at(key)
    }
}
