//! What the core sees of a lock for one decision: its key, and the keys that a token depends on.

use crate::lock::{Ending, Fence, KeyRef, KeyState, LockError, Mode, View, WaiterId};
use crate::module::answers;
use crate::module::apply::decide;
use crate::module::ffi::ctx::Ctx;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::{beside, horizon};
use crate::module::state::shell;
use crate::module::subscribers;

/// The view for a decision that needs no token.
pub fn plain_view<'a>(key: &LockKey<'a>, state: KeyState) -> View<'a> {
    View {
        key: key.id(),
        state,
        domain: horizon::domain_of(key.name()),
        fence: None,
        has_subscriber: false,
    }
}

/// The view for a decision that may mint a token and ends no hold: what the two keys hold is read first.
pub fn minting_view<'a>(key: &LockKey<'a>, state: KeyState) -> View<'a> {
    ending_view(key, state, &Ending::Nothing)
}

/// The same for a decision that ends these holds.
pub fn ending_view<'a>(key: &LockKey<'a>, state: KeyState, ending: &Ending<'_>) -> View<'a> {
    let ctx = key.ctx();
    fail_conflicting_waiters(key, &state, ending);
    let mut view = plain_view(key, state);
    let counter = horizon::read_counter(ctx, key.name().bytes());
    let is_hidden = || ctx.is_paused() && may_need_siblings(ctx, view.key);
    let is_there = view.state != KeyState::Absent && !is_hidden();
    let may_grant = horizon::may_mint(ctx, view.domain, is_there)
        && beside::siblings_are_here(key, &view.state);
    view.fence = Some(Fence { counter, may_grant });
    view.has_subscriber = subscribers::has_relevant_subscriber(ctx, view.key);
    view
}

/// Whether the next waiter may have keys of its own written beside the lock. Those before it whose waits are over are
/// still in the line, so it is any of the waiters up to the first that goes on waiting.
fn may_need_siblings(ctx: Ctx<'_>, key: KeyRef<'_>) -> bool {
    let now_ms = ctx.now().mono_ms;
    shell::with(|shell| {
        let Some(queue) = shell.locks.waiters.queue(key) else {
            return false;
        };
        let mut waiters = queue.iter().map(|(_, waiter)| waiter);
        let goes_on = |deadline_ms: Option<u64>| deadline_ms.is_none_or(|end| end > now_ms);
        let is_shared = |mode| mode != Mode::Exclusive;
        waiters
            .find(|waiter| is_shared(waiter.mode) || goes_on(waiter.deadline_ms))
            .is_some_and(|waiter| is_shared(waiter.mode))
    })
}

/// The view for a decision that may hand the lock on when it has ended these holds: tokens matter if a request waits.
pub fn hand_off_view<'a>(key: &LockKey<'a>, state: KeyState, ending: &Ending<'_>) -> View<'a> {
    if shell::with(|shell| shell.locks.queue(key.id()).is_some()) {
        ending_view(key, state, ending)
    } else {
        plain_view(key, state)
    }
}

/// Fails the requests at the head of the queue that are for READ or WRITE and cannot have the keys beside the lock. To be
/// called before a decision that may grant the lock to them: when it has ended these holds.
fn fail_conflicting_waiters(key: &LockKey<'_>, state: &KeyState, ending: &Ending<'_>) {
    if shell::with(|shell| shell.locks.waiters.live() == 0) {
        return;
    }
    let now = key.ctx().now();
    let rest = shell::with(|shell| shell.locks.rest(key.id(), state, ending, now));
    loop {
        let next = shell::with(|shell| shell.locks.next_for_shared(key.id(), &rest, now));
        let mut refused: Vec<(WaiterId, LockError)> = Vec::new();
        for asking in &next {
            if let Err(error) = beside::may_begin(key, &rest, (asking.mode, &asking.owner), now) {
                refused.push((asking.request, error));
            }
        }
        if refused.is_empty() {
            return;
        }
        let ((), fx) = decide(now, |locks, cx| {
            for (request, error) in &refused {
                locks.dismiss(*request, error, cx);
            }
        });
        answers::note_all(&fx);
    }
}
