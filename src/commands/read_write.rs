//! What READ and WRITE ask of a command beyond the exclusive lock: whether the keys beside the lock may be
//! written, and how much of it is to be read.

use crate::lock::{
    is_reserved, siblings_stay, KeyState, Lease, LockError, Mode, Now, ReadDepth, ReadWrite,
};
use crate::module::acl;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::beside;
use crate::module::keyspace::horizon;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::siblings::{Siblings, Timeouts};
use crate::module::state::shell;

/// Whether this owner may hold READ or WRITE at this key, as far as names and the ACL go.
/// The names of the keys beside are kept for those who need them again.
pub fn may_use(
    ctx: Ctx,
    name: Str<'_>,
    owner: Str<'_>,
    siblings: &Siblings,
) -> Result<(), LockError> {
    let (key, owner) = (name.bytes(), owner.bytes());
    if is_reserved(owner) {
        return Err(LockError::OwnerLooksLikeField);
    }
    if shell::is_cluster() && !siblings_stay(key, owner) {
        return Err(LockError::SiblingsLeave);
    }
    let timeout = siblings.own(key, owner).first();
    if !acl::may_write(ctx, &[timeout, siblings.token(key)]) {
        return Err(LockError::MayNotWriteSiblings);
    }
    are_all_there(ctx, name)
}

/// Whether the keys beside the lock are all to be seen. Not while their slot is on its way between nodes, nor
/// within a transaction that paused writes: what looks absent may only be hidden then.
fn are_all_there(ctx: Ctx, key: Str<'_>) -> Result<(), LockError> {
    if ctx.is_paused() || !beside::slot_is_here(ctx, key) {
        return Err(LockError::TryAgain);
    }
    Ok(())
}

/// The same for a command that ends or renews, which may or may not say READ or WRITE.
#[inline]
pub fn may_change(
    key: &LockKey<'_>,
    owner: Str<'_>,
    (mode, state): (Option<Mode>, &KeyState),
) -> Result<(), LockError> {
    match (mode, state) {
        (None, KeyState::ReadWrite(_)) if is_reserved(owner.bytes()) => Ok(()),
        (Some(_), _) | (None, KeyState::ReadWrite(_)) => {
            may_use(key.ctx(), key.name(), owner, key.siblings())
        }
        (None, _) => Ok(()),
    }
}

/// The same for an operator, who ends every hold.
pub fn may_break(ctx: Ctx, key: Str<'_>, state: &KeyState, now: Now) -> Result<(), LockError> {
    let KeyState::ReadWrite(lock) = state else {
        return Ok(());
    };
    let name = key.bytes();
    let readers = lock.readers(now);
    let timeouts: Vec<_> = readers
        .map(|reader| Timeouts::of(name, &reader.owner))
        .collect();
    let siblings = Siblings::default();
    let mut keys: Vec<_> = timeouts.iter().map(Timeouts::first).collect();
    keys.push(siblings.token(name));
    if !acl::may_write(ctx, &keys) {
        return Err(LockError::MayNotWriteSiblings);
    }
    are_all_there(ctx, key)
}

/// How much an acquire must know.
pub fn depth_to_acquire(key: &LockKey<'_>, mode: Mode) -> ReadDepth {
    if mode == Mode::Exclusive {
        return ReadDepth::Two;
    }
    shell::with(|shell| {
        let waiters = &shell.locks.waiters;
        match mode {
            Mode::Read if waiters.live_on(key.id()) == 0 => ReadDepth::Own,
            Mode::Write if waiters.upgrader(key.id()).is_some() => ReadDepth::All,
            _ => ReadDepth::Two,
        }
    })
}

/// Whether an acquire may need a new token: not to join readers whose token is known.
pub fn needs_token(key: &LockKey<'_>, lock: &ReadWrite, mode: Mode, now: Now) -> bool {
    let domain = horizon::domain_of(key.name());
    let shares = |token| {
        shell::with(|shell| {
            let locks = &shell.locks;
            locks.waiters.live_on(key.id()) == 0 && !locks.tokens.is_inherited(domain, token)
        })
    };
    // In a cluster the slot may have been another node's meanwhile, which its horizon would tell.
    mode != Mode::Read
        || !lock.is_held(now)
        || shell::is_cluster()
        || !lock.token(now).is_some_and(shares)
}

/// Whether a renewal may need a token: for a hold that has none.
pub fn renewal_needs_token(state: &KeyState, now: Now) -> bool {
    match (state.hold(now), state) {
        (Some(hold), _) => hold.token.is_none(),
        (None, KeyState::ReadWrite(lock)) => lock.token(now).is_none(),
        (None, _) => false,
    }
}

/// What the key holds, as far as a renewal must know.
pub fn depth_to_renew(key: &LockKey<'_>, lease: Lease, now: Now) -> KeyState {
    let state = key.read_to(ReadDepth::Two, now);
    let (KeyState::ReadWrite(lock), Some(owner)) = (&state, key.owner_name()) else {
        return state;
    };
    match lock.depth_to_renew(owner, lease.deadline(now), now) {
        ReadDepth::All if !lock.is_whole => key.read_to(ReadDepth::All, now),
        _ => state,
    }
}
