//! The key of a lock, through the server's low-level key API: opens it and reads it, the exclusive hash here, any other
//! hash by [`rw_read`].
//!
//! A command names the owner of the hold: that owner's field is read by its name, and written with the client's own
//! string. The whole hash is read only if that field is absent.

use std::cell::Cell;
use std::rc::Rc;

use redis_module::raw;

use crate::lock::{
    most_reads, most_renewed, note_field, of_names, HashReader, KeyId, KeyState, Now, OwnerId,
    ReadDepth, LONGEST_NUMBER, MOST_OTHERS, MOST_READS, READERS_AT_ONCE, TOKEN_FIELD,
};
use crate::module::ffi::api::{Refused, Written};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::raw_key::{Fields, RawKey, NO_TRACE};
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::key::Key;
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::rw_read;
use crate::module::keyspace::siblings::{Siblings, Timeouts};
use crate::module::state::constants::constants;
use crate::module::state::settings;
use crate::module::state::shell;

/// The most fields that an event scans at several keys.
const MOST_FIELDS: usize = 16_384;

/// A lock's key, open during one callback.
pub struct LockKey<'a> {
    pub(super) ctx: Ctx<'a>,
    pub(super) name: Str<'a>,
    pub(super) db: i32,
    /// The owner that the command names.
    owner: Option<Str<'a>>,
    /// Other owners whose fields are read by their names.
    others: Vec<OwnerId>,
    /// The number of keys that the event works on: they share the bounds of its work.
    of: usize,
    /// The timeouts, with names of 64 bytes, that the event may read beyond the bounds of each reader, of the readers
    /// that are read by their names.
    spare: Option<Rc<Cell<u32>>>,
    /// `None` for an absent key that was opened to read.
    raw: Option<RawKey<'a>>,
    /// The mode in which it was opened.
    mode: u32,
    siblings: Siblings,
}

impl<'a> LockKey<'a> {
    /// Opens the key of the selected database to read and write. The server deletes a key whose TTL is over, as for any
    /// write command.
    pub fn open(ctx: Ctx<'a>, name: Str<'a>) -> LockKey<'a> {
        LockKey::open_mode(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    /// Opens the key to read and write, for a command of this owner.
    pub fn open_for(ctx: Ctx<'a>, name: Str<'a>, owner: Str<'a>) -> LockKey<'a> {
        let mut key = LockKey::open(ctx, name);
        key.owner = Some(owner);
        key
    }

    /// Opens several keys to read and write, for a command of this owner.
    pub fn open_all(ctx: Ctx<'a>, names: &[Str<'a>], owner: Str<'a>) -> Vec<LockKey<'a>> {
        LockKey::open_some(ctx, names, owner, names.len())
    }

    /// Opens some of so many keys.
    pub fn open_some(
        ctx: Ctx<'a>,
        names: &[Str<'a>],
        owner: Str<'a>,
        of: usize,
    ) -> Vec<LockKey<'a>> {
        let spare = Rc::new(Cell::new(MOST_READS));
        let open = |name: &Str<'a>| LockKey {
            spare: Some(spare.clone()),
            ..LockKey::open_for(ctx, *name, owner).one_of(of)
        };
        names.iter().map(open).collect()
    }

    /// The same key as one of so many that share the bounds of the event's work.
    pub fn one_of(self, of: usize) -> LockKey<'a> {
        LockKey { of, ..self }
    }

    /// The number of keys that the event works on.
    pub(crate) fn of(&self) -> usize {
        self.of
    }

    /// The most timeouts of this reader that are read or written.
    pub(crate) fn most_timeouts(&self, owner: &[u8]) -> u32 {
        let of = u32::try_from(self.of).unwrap_or(u32::MAX).max(1);
        (most_reads(self.name.bytes(), owner) / of).max(2)
    }

    /// The most timeouts of this reader that a renewal writes.
    pub(crate) fn most_renewed(&self, owner: &[u8]) -> u32 {
        let of = u32::try_from(self.of).unwrap_or(u32::MAX).max(1);
        (most_renewed(self.name.bytes(), owner) / of).max(2)
    }

    /// Whether one more timeout may be read of a reader whose first and newest ones are over.
    pub(crate) fn read_one_more(&self) -> bool {
        let cost = 1 + u32::try_from(self.name.bytes().len() / 64).unwrap_or(MOST_READS);
        let left = self.spare.as_ref().filter(|left| left.get() >= cost);
        left.inspect(|left| left.set(left.get() - cost)).is_some()
    }

    /// The most timeouts of other readers that are read, before the last of those readers.
    pub(crate) fn most_others(&self) -> usize {
        (of_names(MOST_OTHERS, self.name.bytes().len()) / self.of.max(1)).max(1)
    }

    /// The most fields of a hash of readers that are scanned: of a small hash the server passes all in one call.
    pub(crate) fn most_fields(&self) -> usize {
        match self.of {
            0 | 1 => usize::MAX,
            of => (MOST_FIELDS / of).max(16),
        }
    }

    /// The most waiting readers that one decision about this key grants.
    pub fn readers_at_once(&self) -> usize {
        (of_names(READERS_AT_ONCE, self.name.bytes().len()) / self.of.max(1)).max(1)
    }

    /// Opens the key to read.
    pub fn open_read(ctx: Ctx<'a>, name: Str<'a>) -> LockKey<'a> {
        LockKey::open_mode(ctx, name, raw::REDISMODULE_READ)
    }

    /// Opens the key to read without a trace ([`NO_TRACE`]), perhaps for one owner.
    pub fn peek(ctx: Ctx<'a>, name: Str<'a>, owner: Option<Str<'a>>) -> LockKey<'a> {
        let mut key = LockKey::open_mode(ctx, name, raw::REDISMODULE_READ | NO_TRACE);
        key.owner = owner;
        key
    }

    fn open_mode(ctx: Ctx<'a>, name: Str<'a>, mode: u32) -> LockKey<'a> {
        // A test may let this fail.
        let raw = match fault::is_hit("RedisModule_OpenKey") {
            true => None,
            false => RawKey::open(ctx, name, mode),
        };
        LockKey {
            ctx,
            name,
            db: ctx.db(),
            owner: None,
            others: Vec::new(),
            of: 1,
            spare: None,
            raw,
            mode,
            siblings: Siblings::default(),
        }
    }

    /// The open key; `None` for an absent key that was opened to read.
    pub(crate) fn handle(&self) -> Option<&RawKey<'_>> {
        self.raw.as_ref()
    }

    /// The type of its value (`REDISMODULE_KEYTYPE_*`).
    pub(crate) fn kind(&self) -> isize {
        self.handle()
            .map_or(raw::REDISMODULE_KEYTYPE_EMPTY, RawKey::kind)
    }

    /// The mode in which the key was opened; its sibling keys are opened in the same mode.
    pub(crate) fn mode(&self) -> u32 {
        self.mode
    }

    /// Takes over sibling names of this lock and owner that were made before the key was opened.
    pub fn keep(&mut self, siblings: Siblings) {
        self.siblings = siblings;
    }

    /// The fields of these owners are to be read by their names as well.
    pub fn read_also(&mut self, owners: impl IntoIterator<Item = OwnerId>) {
        self.others.extend(owners);
        if !self.others.is_empty() {
            self.spare
                .get_or_insert_with(|| Rc::new(Cell::new(MOST_READS)));
        }
    }

    /// Other owners whose fields are read by their names.
    pub(crate) fn others(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.others.iter().map(|owner| &owner[..])
    }

    /// The names of its sibling keys.
    pub fn siblings(&self) -> &Siblings {
        &self.siblings
    }

    /// Whether the key was opened to write.
    pub(crate) fn is_writable(&self) -> bool {
        self.mode & raw::REDISMODULE_WRITE != 0
    }

    /// The name of the sibling key with the token of a read-write lock.
    pub fn token_name(&self) -> Str<'_> {
        self.siblings.token(self.name.bytes())
    }

    /// Calls the body with the names of an owner's timeouts at a read-write lock.
    pub fn with_timeouts<T>(&self, owner: &[u8], body: impl FnOnce(&Timeouts) -> T) -> T {
        let lock = self.name.bytes();
        match self.owner_name() {
            Some(own) if own == owner => body(self.siblings.own(lock, owner)),
            _ => body(&Timeouts::of(lock, owner)),
        }
    }

    /// The owner that the command names.
    pub(crate) fn owner(&self) -> Option<Str<'a>> {
        self.owner
    }

    /// The bytes of that owner.
    pub fn owner_name(&self) -> Option<&'a [u8]> {
        self.owner.map(Str::bytes)
    }

    /// Marks the key as changed.
    pub(crate) fn signal(&self) {
        if !fault::is_on("change-not-signalled") {
            self.ctx.signal_modified(self.name);
        }
    }

    /// Deletes the key.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) fn delete(&mut self, replication: Replication<'_>) -> Written {
        self.open_key()?.delete_any()?;
        replication.del(self.name);
        Ok(())
    }

    /// The open key, to change it. A key that was opened to write always has a handle.
    pub(crate) fn open_key(&mut self) -> Result<&mut RawKey<'a>, Refused> {
        self.raw.as_mut().ok_or(Refused("RedisModule_OpenKey"))
    }

    /// Sets the end of the key's TTL, in milliseconds of the wall clock, and replicates it.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) fn set_deadline(
        &mut self,
        deadline_ms: i64,
        replication: Replication<'_>,
    ) -> Written {
        self.expire_at(deadline_ms)?;
        if !fault::is_on("lease-not-replicated") {
            replication.pexpireat(self.name, deadline_ms);
        }
        Ok(())
    }

    /// Sets the end of the key's TTL without replicating it.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) fn expire_at(&mut self, deadline_ms: i64) -> Written {
        self.open_key()?.expire_at(deadline_ms)
    }
}

/// The name of one of the core's keys as a server string.
pub fn name_of(key: &KeyId) -> OwnedStr {
    OwnedStr::new(key.as_ref().name)
}

impl Fields for HashReader {
    fn field(&mut self, field: &[u8], value: &[u8]) {
        HashReader::field(self, field, value);
    }
}

/// A hash with more fields is read whole only where that is needed.
const FEW_FIELDS: usize = 200;

impl LockKey<'_> {
    /// Reads the key, of a read-write lock as many readers as one decision may read.
    pub fn read(&self) -> KeyState {
        self.read_as(ReadDepth::All, None)
    }

    /// Reads the key; of a read-write lock, as much as `depth` says.
    pub fn read_to(&self, depth: ReadDepth, now: Now) -> KeyState {
        self.read_as(depth, Some(now))
    }

    /// The note beside the hold that this owner has of an exclusive lock.
    pub fn note(&self, owner: &[u8]) -> Option<OwnedStr> {
        let key = self.handle().filter(|key| key.len() > 1)?;
        key.field(OwnedStr::new(&note_field(owner)).as_str())
    }

    /// Whether the hash has so few fields that a reading of all of it is short.
    pub fn has_few_fields(&self) -> bool {
        self.handle().is_none_or(|key| key.len() <= FEW_FIELDS)
    }

    /// Reads the key to settle it.
    pub fn read_to_settle(&mut self, now: Now) -> KeyState {
        let owners = shell::with(|shell| shell.locks.owners_to_settle(self.id()));
        self.read_also(owners);
        match self.has_few_fields() {
            true => self.read(),
            false => self.read_to(ReadDepth::Two, now),
        }
    }

    fn read_as(&self, depth: ReadDepth, now: Option<Now>) -> KeyState {
        let Some(key) = self.handle() else {
            // A key that was opened to write has a handle. If not, nothing may be granted on it.
            return match self.is_writable() {
                true => KeyState::OtherType,
                false => KeyState::Absent,
            };
        };
        let (kind, fields) = (key.kind(), key.len());
        // SAFETY: called for a hash or a string only, and these are values.
        let deadline = || unsafe { key.end_ms_of_value() };
        match kind {
            raw::REDISMODULE_KEYTYPE_EMPTY => KeyState::Absent,
            raw::REDISMODULE_KEYTYPE_HASH if fields <= 2 => {
                let reader = self.read_own(key, fields).unwrap_or_else(|| scan(key));
                let is_too_long = reader.is_too_long();
                match reader.finish(deadline()) {
                    KeyState::OtherHash if !is_too_long => {
                        rw_read::read(self, key, fields, depth, now).unwrap_or(KeyState::OtherHash)
                    }
                    state => state,
                }
            }
            raw::REDISMODULE_KEYTYPE_HASH => rw_read::read(self, key, fields, depth, now)
                .unwrap_or_else(|| scan(key).finish(deadline())),
            raw::REDISMODULE_KEYTYPE_STRING if settings::string_holders() => {
                let state = |value: Option<&[u8]>| KeyState::of_string(deadline(), value);
                match fields <= LONGEST_NUMBER {
                    true => key.with_string(|value| state(Some(value))),
                    false => Some(state(None)),
                }
                .unwrap_or(KeyState::OtherType)
            }
            _ => KeyState::OtherType,
        }
    }

    /// Reads the hold of the command's owner, by name: 1,700 instructions; a scan of the whole hash takes 2,500. `None`
    /// if that owner holds nothing, or the hash has other fields.
    fn read_own(&self, key: &RawKey<'_>, fields: usize) -> Option<HashReader> {
        let owner = self.owner()?;
        let mut reader = HashReader::default();
        reader.field(owner.bytes(), key.field(owner)?.as_str().bytes());
        if fields > 1 && !reader.is_too_long() {
            let token = key.field(constants().token_field.as_str())?;
            reader.field(TOKEN_FIELD, token.as_str().bytes());
        }
        Some(reader)
    }
}

/// Reads the fields of a hash whose own TTL is not over, until one shows that the hash is foreign data.
fn scan(key: &RawKey<'_>) -> HashReader {
    let mut reader = HashReader::default();
    key.scan(&mut reader, |reader| !reader.is_other());
    reader
}
