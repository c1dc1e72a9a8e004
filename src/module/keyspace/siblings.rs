//! The sibling keys of a lock: a reader's timeouts, and the token of a read-write lock. Their names, their values, and
//! whether they are free for a hold of READ or WRITE.
//!
//! Their names are made of the lock's and the owner's, as Redisson makes them, so another hold, or data of another
//! kind, may have the same names. Foreign data in a sibling key counts as no timeout and no token, and is neither
//! overwritten nor deleted. Sibling keys are opened one at a time. The timeout of a dead reader may still exist: the
//! server deletes it when it is opened to write, as for any command.

use std::cell::OnceCell;

use redis_module::raw;

use crate::lock::{
    any_with_same_timeouts, is_read_write, slot_of, timeout_name, timeout_prefix, token_name,
    KeyState, LockError, Mode, Now, TokenRecord, MODE_FIELD,
};
use crate::module::ffi::api::Written;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::key::Key;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::string_key::StringKey;
use crate::module::state::constants::is_cluster;

/// The names of one owner's timeouts at one lock: that of the first hold, from which the others are made.
pub struct Timeouts(OwnedStr);

impl Timeouts {
    /// Makes them.
    pub fn of(lock: &[u8], owner: &[u8]) -> Timeouts {
        let prefix = timeout_prefix(lock, owner);
        Timeouts(OwnedStr::new(&timeout_name(&prefix, 1)))
    }

    /// The name of the first hold's timeout.
    pub fn first(&self) -> Str<'_> {
        self.0.as_str()
    }

    /// Their common prefix.
    fn prefix(&self) -> &[u8] {
        let first = self.first().bytes();
        first.strip_suffix(b"1").unwrap_or(first)
    }

    /// Calls the body with the name of the n-th hold's timeout.
    pub fn with<T>(&self, n: u32, body: impl FnOnce(Str<'_>) -> T) -> T {
        match n {
            1 => body(self.first()),
            n => body(OwnedStr::new(&timeout_name(self.prefix(), n)).as_str()),
        }
    }
}

/// The names of one lock's sibling keys: the token's, and the timeouts' of the command's owner.
#[derive(Default)]
pub struct Siblings {
    token: OnceCell<OwnedStr>,
    own: OnceCell<Timeouts>,
}

impl Siblings {
    /// The token's key. `lock` is the same in every call.
    pub fn token(&self, lock: &[u8]) -> Str<'_> {
        let made = self.token.get_or_init(|| OwnedStr::new(&token_name(lock)));
        made.as_str()
    }

    /// The timeouts. `lock` and `owner` are the same in every call.
    pub fn own(&self, lock: &[u8], owner: &[u8]) -> &Timeouts {
        self.own.get_or_init(|| Timeouts::of(lock, owner))
    }
}

/// The purpose of a sibling key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SiblingKind {
    /// One READ hold.
    Timeout,
    /// The fencing token.
    Token,
}

/// The value of every timeout, as Redisson writes it.
pub(crate) const TIMEOUT: &[u8] = b"1";

/// Checks that a sibling key is absent or has data of this kind.
///
/// # Errors
/// [`LockError::SiblingForeign`].
fn may_use(ctx: Ctx<'_>, name: Str<'_>, what: SiblingKind) -> Result<(), LockError> {
    let sibling = StringKey::open_to_write(ctx, name);
    match sibling.is_absent() || sibling.has(what) {
        true => Ok(()),
        false => Err(LockError::SiblingForeign),
    }
}

/// As a sibling key.
impl StringKey<'_> {
    /// Whether the key exists and has a value of this kind.
    pub(crate) fn has(&self, what: SiblingKind) -> bool {
        let fits = self.with_text(|value| match what {
            SiblingKind::Timeout => value == TIMEOUT,
            SiblingKind::Token => TokenRecord::parse(value, None).is_some(),
        });
        fits == Some(true)
    }

    /// Sets the value and the end, but leaves foreign data, which was written during the hold (`may_begin` has checked
    /// the key before it began).
    pub(crate) fn put(
        &mut self,
        (value, what): (&[u8], SiblingKind),
        deadline_ms: Option<i64>,
        replication: Replication<'_>,
    ) -> Written {
        let is_there = !self.is_absent();
        if is_there && !self.has(what) {
            return Ok(());
        }
        match deadline_ms {
            // All timeouts have the same value: only the end is new. If the server refuses it, the old end stays.
            Some(end_ms) if is_there && what == SiblingKind::Timeout => {
                self.expire_at(end_ms, replication)
            }
            Some(end_ms) => self.set_until(&OwnedStr::new(value), end_ms, replication),
            None => self.set(&OwnedStr::new(value), replication),
        }
    }

    /// Deletes the key, unless it holds foreign data.
    pub(crate) fn delete_own(
        &mut self,
        what: SiblingKind,
        replication: Replication<'_>,
    ) -> Written {
        match self.has(what) || fault::is_on("foreign-data-deleted") {
            true => self.delete(replication),
            false => Ok(()),
        }
    }
}

/// Whether the sibling keys permit this owner a READ or WRITE hold.
///
/// # Errors
/// [`LockError::SiblingsTaken`] if they belong to holds of another lock, [`LockError::SiblingForeign`] if one of them
/// has data of another kind. A re-entry is checked for the keys that it adds.
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
    let ctx = key.ctx();
    if held.is_none_or(|lock| lock.token_record.is_none()) {
        may_use(ctx, key.token_name(), SiblingKind::Token)?;
    }
    if mode != Mode::Read {
        return Ok(());
    }
    let known = held.and_then(|lock| lock.reader(owner, now));
    let next = known.map_or(1, |reader| reader.count.saturating_add(1));
    key.with_timeouts(owner, |names| {
        names.with(next, |name| may_use(ctx, name, SiblingKind::Timeout))?;
        match known.is_none() && belong_to_another_lock(ctx, key.name(), owner, names) {
            true => Err(LockError::SiblingsTaken),
            false => Ok(()),
        }
    })
}

/// Whether the timeouts of a first READ hold of this owner are those of a reader of another lock: one whose name and
/// owner, joined by a colon, give the same text. The reader's field counts even if its timeouts are over: its next
/// release would delete them.
pub(crate) fn belong_to_another_lock(
    ctx: Ctx<'_>,
    lock: Str<'_>,
    owner: &[u8],
    names: &Timeouts,
) -> bool {
    let (name, first) = (lock.bytes(), names.first().bytes());
    let is_reachable = |other: &[u8]| !is_cluster() || slot_of(name) == slot_of(other);
    any_with_same_timeouts((first, owner), |other, reader| {
        is_reachable(other) && has_reader(ctx, other, reader)
    })
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

/// Whether all sibling keys of a read-write lock are on this node. While a slot moves between nodes, the hash may be on
/// one of them and the timeouts of its readers on the other: the readers seem dead then.
pub fn siblings_are_here(key: &LockKey<'_>, state: &KeyState) -> bool {
    !matches!(state, KeyState::ReadWrite(_)) || slot_is_here(key.ctx(), key.name())
}

/// Whether all keys of this key's slot are on this node, and the slot does not move: probed with a name that never
/// exists. (False as well while the server refuses all writes, which has the same consequence for the caller.)
pub fn slot_is_here(ctx: Ctx<'_>, key: Str<'_>) -> bool {
    if !is_cluster() {
        return true;
    }
    let mut name = token_name(key.bytes());
    name.extend_from_slice(b":none");
    ctx.probe_write_detached(OwnedStr::new(&name).as_str())
}
