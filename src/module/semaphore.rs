//! The views of a semaphore for decisions that may grant a permit, and the effects of decisions.

use redis_module::raw;

use crate::lock::{Effect, LockError, Now, PermitChange, SemState, SemView};
use crate::module::answers;
use crate::module::apply;
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::horizon;
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::sem_key::SemKey;
use crate::module::state::settings;
use crate::module::state::shell;
use crate::module::subscribers::{self, SEMAPHORE_CHANNEL};
use crate::module::tickets;

impl<'a> SemKey<'a> {
    /// The view for a decision that may grant a permit.
    pub fn minting_view(&self, own: Option<Str<'_>>, now: Now) -> SemView<'a> {
        self.fail_conflicting_waiters(now);
        tickets::ask(self.ctx(), self.id(), 1, now);
        let mut view = self.plain_view(own, now);
        let both_there = matches!(&view.state, SemState::There(permits) if permits.taken > 0);
        let may_grant = horizon::may_mint(self.ctx(), view.domain, both_there);
        view.may_grant = Some(may_grant);
        view.has_subscriber = subscribers::has_relevant_subscriber(self.ctx(), view.key, now);
        view
    }

    /// The view for a decision that may hand off permits: with what a token needs if there is a waiter.
    pub fn hand_off_view(&self, own: Option<Str<'_>>, now: Now) -> SemView<'a> {
        if shell::with(|shell| shell.locks.shared.waiters.live_queue(self.id()).is_some()) {
            self.minting_view(own, now)
        } else {
            self.plain_view(own, now)
        }
    }

    /// Fails all parked requests while the twin has the same set: no permit may be granted then.
    fn fail_conflicting_waiters(&self, now: Now) {
        let key = self.id();
        if shell::with(|shell| shell.locks.shared.waiters.live_queue(key).is_some())
            && self.probe_twin()
        {
            let ((), fx) = apply::decide(now, |locks, cx| {
                locks
                    .shared
                    .waiters
                    .fail_all(key, &LockError::SiblingsTaken, cx);
            });
            answers::note_all(self.ctx(), &fx);
        }
    }

    /// Makes a change, replicates it, and then, with the keys closed, sends its events and message.
    ///
    /// # Errors
    /// When the server refuses the change: see [`apply::refused`].
    pub fn apply(
        mut self,
        change: &PermitChange,
        fx: &[Effect],
        replication: Replication<'_>,
    ) -> Result<(), LockError> {
        if change.is_empty() && fx.is_empty() {
            return Ok(());
        }
        let pending = answers::Pending::new(self.ctx(), fx);
        fault::trip("apply");
        let (ctx, db, name) = (self.ctx(), self.id().db, self.name());
        if let Err(what) = self.carry_out(change, fx, replication) {
            drop(self);
            let error = apply::refused(ctx, db, &[name], what);
            pending.fail(&error);
            return Err(error);
        }
        pending.note();
        drop(self);
        for effect in fx {
            if let Effect::Notify(event) = effect {
                ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, event.name(), name);
            }
        }
        if let Some(free) = change.publish.filter(|_| settings::publish()) {
            let channel = subscribers::channel_of(SEMAPHORE_CHANNEL, name.bytes());
            let message = OwnedStr::of_number(free);
            apply::publish_to(ctx, channel.as_str(), message.as_str(), replication);
        }
        Ok(())
    }
}
