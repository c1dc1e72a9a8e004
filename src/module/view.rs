//! The view of a lock or a semaphore for one decision: its keys, and the keys that a token depends on.

use crate::lock::{
    Fence, KeyState, LockError, Need, Now, Planned, SemState, SemView, View, WaiterId,
};
use crate::module::answers;
use crate::module::apply::decide;
use crate::module::ffi::fault;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::key::Key;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::sem_key::SemKey;
use crate::module::keyspace::{horizon, rw_read, siblings};
use crate::module::state::shell;
use crate::module::subscribers;
use crate::module::tickets;

/// The view for a decision about a key in this state, with what the core states that the decision needs. Waiters that
/// could not be granted the lock by the decision are dismissed first.
#[inline]
pub fn view_for<'a>(
    key: &LockKey<'a>,
    state: KeyState,
    planned: &Planned<'_>,
    now: Now,
) -> View<'a> {
    let id = key.id();
    let need = shell::with(|shell| shell.locks.need(id, &state, planned, now));
    let mut view = View {
        key: id,
        state,
        domain: horizon::domain_of(key.name()),
        fence: None,
        has_subscriber: false,
        readers: key.readers_at_once(),
    };
    match need {
        Need::Nothing => {}
        Need::Horizon => horizon::learn_of(key.ctx(), view.domain),
        Need::Token => {
            let counter = horizon::read_counter(key.ctx(), view.key.name);
            let may_grant = false;
            view.fence = Some(Fence { counter, may_grant });
            prepare_waiters(key, &mut view, planned, now);
            let may_grant = is_grant_safe(key, &view, now);
            view.fence = Some(Fence { counter, may_grant });
            view.has_subscriber = subscribers::has_relevant_subscriber(key.ctx(), view.key, now);
        }
    }
    view
}

/// Whether a grant can be made safe now: see [`Fence`].
fn is_grant_safe(key: &LockKey<'_>, view: &View<'_>, now: Now) -> bool {
    let ctx = key.ctx();
    let needs_siblings = || shell::with(|shell| shell.locks.next_may_need_siblings(view.key, now));
    let is_hidden = || ctx.is_paused() && needs_siblings();
    let is_there = view.state != KeyState::Absent && !is_hidden();
    horizon::may_mint(ctx, view.domain, is_there) && siblings::siblings_are_here(key, &view.state)
}

/// Brings to the head of the queue a waiter that may be granted the lock.
fn prepare_waiters(key: &LockKey<'_>, view: &mut View<'_>, planned: &Planned<'_>, now: Now) {
    if shell::with(|shell| shell.locks.shared.waiters.live() == 0) {
        return;
    }
    loop {
        let with = (key.of(), view.has_counter());
        tickets::ask(key.ctx(), view.key, with, now);
        if fault::is_on("siblings-of-a-waiter-overlooked")
            || !shell::with(|shell| shell.locks.next_may_need_siblings(view.key, now))
            || !fail_conflicting_waiters(key, &mut view.state, planned, now)
        {
            return;
        }
    }
}

/// Fails the requests at the head of the queue that are for READ or WRITE and cannot have their sibling keys. To be
/// called before a decision that may grant them the lock. Returns whether the next ones are to be asked for. Of a lock
/// that was not read whole the holds of these requests' owners are read: a script may have given them one.
fn fail_conflicting_waiters(
    key: &LockKey<'_>,
    state: &mut KeyState,
    planned: &Planned<'_>,
    now: Now,
) -> bool {
    let mut have_failed = false;
    loop {
        let next_for = |state: &KeyState| {
            shell::with(|shell| {
                let rest = shell.locks.rest(key.id(), state, planned, now).into_owned();
                let most = key.readers_at_once();
                let next = shell.locks.next_for_shared(key.id(), &rest, most, now);
                (rest, next)
            })
        };
        let (mut rest, mut next) = next_for(state);
        if rw_read::read_owners(key, state, next.iter().map(|asking| &asking.owner[..]), now) {
            (rest, next) = next_for(state);
        }
        let mut refused: Vec<(WaiterId, LockError)> = Vec::new();
        for asking in &next {
            if let Err(error) = siblings::may_begin(key, &rest, (asking.mode, &asking.owner), now) {
                refused.push((asking.request, error));
            }
        }
        if refused.is_empty() {
            return have_failed;
        }
        have_failed = true;
        let (has_room, fx) = decide(now, |locks, cx| {
            locks.shared.waiters.fail_refused(&refused, next.len(), cx)
        });
        answers::note_all(key.ctx(), &fx);
        if !has_room {
            // Then the decision grants nothing to a waiter, and the key is settled once more.
            return false;
        }
    }
}

impl<'a> SemKey<'a> {
    /// The view for a decision that may grant a permit.
    pub fn minting_view(&self, own: Option<(Str<'_>, u8)>, now: Now) -> SemView<'a> {
        tickets::ask(self.ctx(), self.id(), (1, false), now);
        let mut view = self.plain_view(own, now);
        let both_there = matches!(&view.state, SemState::There(permits) if permits.taken > 0);
        let may_grant = horizon::may_mint(self.ctx(), view.domain, both_there);
        view.may_grant = Some(may_grant);
        view.has_subscriber = subscribers::has_relevant_subscriber(self.ctx(), view.key, now);
        view
    }

    /// The view for a decision that may hand off permits: with what a token needs if there is a waiter.
    pub fn hand_off_view(&self, own: Option<(Str<'_>, u8)>, now: Now) -> SemView<'a> {
        if shell::with(|shell| shell.locks.shared.waiters.live_queue(self.id()).is_some()) {
            self.minting_view(own, now)
        } else {
            self.plain_view(own, now)
        }
    }
}
