//! What READ and WRITE need beyond the exclusive lock: permission to write the keys beside the lock, and the depth
//! to which the lock is read.

use crate::lock::{
    is_braced, is_reserved, siblings_stay, token_name, Acquire, KeyState, LockError, Mode, Now,
    ReadDepth, Renew,
};
use crate::module::acl;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::key::Key;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::siblings;
use crate::module::keyspace::siblings::{Siblings, Timeouts};
use crate::module::state::constants::is_cluster;
use crate::module::state::shell;

/// [`may_use`] for a request that would begin a hold of this mode: another lock may not have the same keys beside it.
/// Returns the names of the keys beside the lock, for later steps of the command.
///
/// # Errors
/// [`LockError::Braced`]; those of [`may_use`].
#[inline]
pub fn may_take(
    ctx: Ctx<'_>,
    name: Str<'_>,
    owner: Str<'_>,
    mode: Mode,
) -> Result<Siblings, LockError> {
    let siblings = Siblings::default();
    if mode != Mode::Exclusive {
        if is_braced(name.bytes()) && !fault::is_on("braced-name-taken") {
            return Err(LockError::Braced);
        }
        may_use(ctx, name, owner, &siblings)?;
    }
    Ok(siblings)
}

/// Checks that this owner may hold READ or WRITE at this key: the names, the slots, the ACL. `siblings` keeps the names
/// of the keys beside the lock.
///
/// # Errors
/// In this order: [`LockError::OwnerLooksLikeField`], [`LockError::SiblingsLeave`],
/// [`LockError::MayNotUseSiblings`], [`LockError::TryAgain`].
fn may_use(
    ctx: Ctx<'_>,
    name: Str<'_>,
    owner: Str<'_>,
    siblings: &Siblings,
) -> Result<(), LockError> {
    let (key, owner) = (name.bytes(), owner.bytes());
    if is_reserved(owner) {
        return Err(LockError::OwnerLooksLikeField);
    }
    if is_cluster() && !siblings_stay(key, owner) {
        return Err(LockError::SiblingsLeave);
    }
    let timeout = siblings.own(key, owner).first();
    may_write(ctx, &[timeout, siblings.token(key)])?;
    are_visible(ctx, name)
}

fn may_write(ctx: Ctx<'_>, beside: &[Str<'_>]) -> Result<(), LockError> {
    match acl::may_write(ctx, beside) {
        true => Ok(()),
        false => Err(LockError::MayNotUseSiblings),
    }
}

/// Checks that the keys beside the lock are all visible. While their slot moves between nodes, and within the
/// transaction that paused writes, a key that looks absent may be hidden.
///
/// # Errors
/// [`LockError::TryAgain`].
fn are_visible(ctx: Ctx<'_>, key: Str<'_>) -> Result<(), LockError> {
    if ctx.is_paused() || !siblings::slot_is_here(ctx, key) {
        return Err(LockError::TryAgain);
    }
    Ok(())
}

/// [`may_use`] for a release or a renewal: checks only if the request says READ or WRITE, or the key holds a read-write
/// lock. An owner that cannot hold READ or WRITE passes where the request says neither: the core finds that it holds
/// nothing.
#[inline]
fn may_change(
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

/// Checks that the key holds a lock, or nothing, which the caller may read: the keys beside a read-write lock tell how
/// long it is held.
///
/// # Errors
/// [`LockError::WrongType`], [`LockError::LockType`], [`LockError::MayNotUseSiblings`].
pub fn may_read(ctx: Ctx<'_>, key: Str<'_>, state: &KeyState) -> Result<(), LockError> {
    let token = || OwnedStr::new(&token_name(key.bytes()));
    match state {
        KeyState::ReadWrite(_) if !acl::may_read(ctx, token().as_str(), true) => {
            Err(LockError::MayNotUseSiblings)
        }
        state => state.check_is_lock(),
    }
}

/// Checks that the caller may end every hold of a read-write lock.
///
/// # Errors
/// [`LockError::MayNotUseSiblings`], [`LockError::TryAgain`].
pub fn may_break(ctx: Ctx<'_>, key: Str<'_>, state: &KeyState, now: Now) -> Result<(), LockError> {
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
    may_write(ctx, &keys)?;
    are_visible(ctx, key)
}

/// The state of the key, read to the depth that an acquire needs.
///
/// # Errors
/// If the keys beside the lock are taken: those of [`siblings::may_begin`].
#[inline]
pub fn read_to_acquire(
    key: &mut LockKey<'_>,
    req: &Acquire<'_>,
    now: Now,
) -> Result<KeyState, LockError> {
    let (depth, upgrader) = match req.mode {
        Mode::Exclusive => (ReadDepth::Two, None),
        mode => shell::with(|shell| {
            let depth = shell.locks.depth_to_acquire(key.id(), mode);
            (depth, shell.locks.upgrader(key.id(), mode))
        }),
    };
    key.read_also(upgrader);
    let state = key.read_to(depth, now);
    siblings::may_begin(key, &state, (req.mode, req.owner), now)?;
    Ok(state)
}

/// The state of the key, read to the depth that a release of this mode needs.
///
/// # Errors
/// Those of [`may_use`].
#[inline]
pub fn read_to_release(
    key: &LockKey<'_>,
    owner: Str<'_>,
    mode: Option<Mode>,
    now: Now,
) -> Result<KeyState, LockError> {
    let state = key.read_to(ReadDepth::Holder, now);
    may_change(key, owner, (mode, &state))?;
    Ok(state)
}

/// The state of the key, read to the depth that a renewal needs.
///
/// # Errors
/// Those of [`may_use`].
pub fn read_to_renew(
    key: &LockKey<'_>,
    owner: Str<'_>,
    req: &Renew<'_>,
    now: Now,
) -> Result<KeyState, LockError> {
    let state = read_to_release(key, owner, req.mode, now)?;
    let KeyState::ReadWrite(lock) = &state else {
        return Ok(state);
    };
    match lock.depth_to_renew(req.owner, req.lease.deadline(now), now) {
        // The TTL of a hash with many readers stays longer instead: each reader has its own.
        ReadDepth::All if !lock.is_whole && key.has_few_fields() => {
            Ok(key.read_to(ReadDepth::All, now))
        }
        _ => Ok(state),
    }
}
