//! Whether the keys beside a lock are free for a hold of READ or WRITE. Their names are made of the lock's and
//! the owner's, as Redisson makes them, so another hold, or data of another kind, may have the same names.

use redis_module::raw;

use crate::lock::{
    any_with_same_timeouts, is_blocked, is_read_write, slot_of, token_name, twin_of, KeyState,
    LockError, Mode, Now, ReadDepth, ReadWrite, MODE_FIELD,
};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::sibling::{has_sibling, SiblingKind};
use crate::module::keyspace::siblings::Timeouts;
use crate::module::state::settings;
use crate::module::state::shell;

/// Whether this owner may be granted READ or WRITE here, as far as the keys beside the lock go.
///
/// # Errors
/// [`LockError::SiblingsTaken`] where they belong to another lock's holds, [`LockError::SiblingForeign`] where
/// one of them holds something else. A re-entry is checked for the keys that it adds.
#[inline]
pub fn may_begin(
    key: &LockKey<'_>,
    state: &KeyState,
    (mode, owner): (Mode, &[u8]),
    now: Now,
) -> Result<(), LockError> {
    match mode {
        Mode::Exclusive => Ok(()),
        _ => may_begin_beside(key, state, (mode, owner), now),
    }
}

fn may_begin_beside(
    key: &LockKey<'_>,
    state: &KeyState,
    (mode, owner): (Mode, &[u8]),
    now: Now,
) -> Result<(), LockError> {
    let held = match state {
        KeyState::OtherHash | KeyState::OtherType => return Ok(()),
        KeyState::ReadWrite(lock) if lock.is_held(now) => Some(&**lock),
        _ => None,
    };
    // SiblingKind a lock that is held already, a script may have taken the twin. Under a token that this server wrote
    // for this lock, no token is written.
    let is_known = |lock: &ReadWrite| {
        (mode == Mode::Read || lock.writes(owner, now))
            && shell::with(|shell| shell.locks.gave_token(key.id(), lock, now))
    };
    let is_twins = match held {
        None => has_held_twin(key),
        Some(lock) if is_known(lock) || is_blocked(state, mode, owner, now) => false,
        Some(_) => key.token_may_be_twins() && has_held_twin(key),
    };
    if is_twins {
        return Err(LockError::SiblingsTaken);
    }
    let ctx = key.ctx();
    if held.is_none_or(|lock| lock.token_record.is_none()) {
        has_sibling(ctx, key.token_name(), SiblingKind::Token).ok_or(LockError::SiblingForeign)?;
    }
    match mode {
        Mode::Read => may_read(key, (held, owner), now),
        _ => Ok(()),
    }
}

fn may_read(
    key: &LockKey<'_>,
    (held, owner): (Option<&ReadWrite>, &[u8]),
    now: Now,
) -> Result<(), LockError> {
    let known = held.and_then(|lock| lock.reader(owner, now));
    let next = known.map_or(1, |reader| reader.count.saturating_add(1));
    let (ctx, lock) = (key.ctx(), key.name());
    key.with_timeouts(owner, |names| {
        let is_there = |timeout: Str<'_>| has_sibling(ctx, timeout, SiblingKind::Timeout);
        let is_there = names.with(next, is_there);
        let is_there = is_there.ok_or(LockError::SiblingForeign)?;
        // SiblingKind a lock that is held the twin was not looked for: a script may have taken it.
        let is_new = known.is_none();
        let is_twins = is_new && is_there && held.is_some() && has_held_twin(key);
        match is_twins || (is_new && belong_to_another_lock(ctx, lock, owner, names)) {
            true => Err(LockError::SiblingsTaken),
            false => Ok(()),
        }
    })
}

/// Whether the keys of a first READ hold of this owner belong to another lock's reader. `is_held`: whether this lock
/// is held.
pub(crate) fn siblings_are_taken(ctx: Ctx<'_>, lock: Str<'_>, owner: &[u8], is_held: bool) -> bool {
    let names = Timeouts::of(lock.bytes(), owner);
    let may_be_twins =
        !is_held || has_sibling(ctx, names.first(), SiblingKind::Timeout) == Some(true);
    (may_be_twins && probe_held_twin(ctx, lock)) || belong_to_another_lock(ctx, lock, owner, &names)
}

/// Reads whether the lock's twin (its name differs in the braces only) is held for READ or WRITE.
pub(crate) fn probe_held_twin(ctx: Ctx<'_>, lock: Str<'_>) -> bool {
    let name = lock.bytes();
    let Some(twin) = twin_of(name).filter(|twin| is_reachable(name, twin)) else {
        return false;
    };
    let twin = OwnedStr::new(&twin);
    let twin = LockKey::open(ctx, twin.as_str());
    if twin.kind() != raw::REDISMODULE_KEYTYPE_HASH {
        return false;
    }
    let now = ctx.now();
    matches!(twin.read_to(ReadDepth::Two, now), KeyState::ReadWrite(lock) if lock.is_held(now))
}

/// Whether the twin of this open lock is held for READ or WRITE: read once, by [`probe_held_twin`], then remembered.
pub(crate) fn has_held_twin(key: &LockKey<'_>) -> bool {
    key.held_twin_or(|| probe_held_twin(key.ctx(), key.name()))
}

/// Whether the timeouts of this reader may be another lock's as well: of the twin, or of a lock whose name and owner
/// meet around a colon. No grant of the module makes them so; a script may.
pub(crate) fn are_shared(key: &LockKey<'_>, owner: &[u8], names: &Timeouts) -> bool {
    let (ctx, lock) = (key.ctx(), key.name());
    let twin = has_held_twin(key).then(|| twin_of(lock.bytes())).flatten();
    twin.is_some_and(|twin| has_reader(ctx, &twin, owner))
        || belong_to_another_lock(ctx, lock, owner, names)
}

/// Whether another lock has a reader whose timeouts have the names that this reader's would have. Its field is enough,
/// even if its timeouts are over: its next release would delete them.
fn belong_to_another_lock(ctx: Ctx<'_>, lock: Str<'_>, owner: &[u8], names: &Timeouts) -> bool {
    let (name, first) = (lock.bytes(), names.first().bytes());
    any_with_same_timeouts(
        (first, owner),
        settings::max_owner_len(),
        |other, reader| is_reachable(name, other) && has_reader(ctx, other, reader),
    )
}

fn has_reader(ctx: Ctx<'_>, lock: &[u8], reader: &[u8]) -> bool {
    let name = OwnedStr::new(lock);
    let key = LockKey::open(ctx, name.as_str());
    let Some(handle) = key
        .handle()
        .filter(|_| key.kind() == raw::REDISMODULE_KEYTYPE_HASH)
    else {
        return false;
    };
    let mode = handle.field(OwnedStr::new(MODE_FIELD).as_str());
    mode.is_some_and(|mode| is_read_write(mode.as_str().bytes()))
        && handle.field(OwnedStr::new(reader).as_str()).is_some()
}

/// In a cluster locks in other slots have other keys beside them.
fn is_reachable(name: &[u8], other: &[u8]) -> bool {
    !shell::is_cluster() || slot_of(name) == slot_of(other)
}

/// Whether two of these names share the keys beside them.
pub fn are_twins(names: &[Str<'_>]) -> bool {
    let mut all: Vec<&[u8]> = names.iter().map(|name| name.bytes()).collect();
    all.sort_unstable();
    let twins = all.iter().filter_map(|name| twin_of(name));
    twins
        .into_iter()
        .any(|twin| all.binary_search(&&twin[..]).is_ok())
}

/// Whether what is seen of a read-write lock is all there is. While a slot is on its way between nodes the hash
/// may be on one of them and the timeouts of its readers, who seem dead then, on the other.
pub fn siblings_are_here(key: &LockKey<'_>, state: &KeyState) -> bool {
    !matches!(state, KeyState::ReadWrite(_)) || slot_is_here(key.ctx(), key.name())
}

/// Whether all keys of this key's slot are on this node, and stay there: asked by the name of one that
/// never exists. (That it is refused because no writes are accepted at all comes to the same here.)
pub fn slot_is_here(ctx: Ctx<'_>, key: Str<'_>) -> bool {
    if !shell::is_cluster() {
        return true;
    }
    let mut name = token_name(key.bytes());
    name.extend_from_slice(b":none");
    ctx.probe_write_detached(OwnedStr::new(&name).as_str())
}
