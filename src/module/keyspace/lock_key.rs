//! The lock hash, through the server's low-level key API: read it, change it, replicate the change.
//!
//! A command knows whose hold it is about: that owner's field is looked up by name, and written under
//! the client's own string. Only where it is not there is the whole hash read.

use std::cell::{Cell, OnceCell};
use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, NonNull};

use redis_module::raw;

use crate::lock::{HashReader, KeyId, KeyRef, WroteBeside};
use crate::module::ffi::api::api;
use crate::module::ffi::checked::{checked, fallible, Refused, Written};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::guard;
use crate::module::ffi::raw_key::NO_TRACE;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::siblings::{Siblings, Timeouts};

/// A lock's key, open for this call.
pub struct LockKey<'a> {
    ctx: Ctx,
    name: Str<'a>,
    db: i32,
    /// Who asks.
    owner: Option<Str<'a>>,
    /// Closed on drop; `None` for an absent key that was opened to read.
    raw: Option<NonNull<raw::RedisModuleKey>>,
    /// How it was opened.
    mode: u32,
    siblings: Siblings,
    /// Which of the keys beside it this server wrote last, for a hold of the owner who asks.
    wrote_beside: Cell<WroteBeside>,
    twin_is_held: OnceCell<bool>,
}

impl<'a> LockKey<'a> {
    /// Opens the key of the selected database to read and write. A key whose TTL is over is deleted
    /// on the way, as any write command would do.
    pub fn open(ctx: Ctx, name: Str<'a>) -> LockKey<'a> {
        LockKey::open_mode(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    /// Opens the key to read and write, for a command of this owner.
    pub fn open_for(ctx: Ctx, name: Str<'a>, owner: Str<'a>) -> LockKey<'a> {
        let mut key = LockKey::open(ctx, name);
        key.owner = Some(owner);
        key
    }

    /// Opens several keys to read and write, for a command of this owner.
    pub fn open_all(ctx: Ctx, names: &[Str<'a>], owner: Str<'a>) -> Vec<LockKey<'a>> {
        let names = names.iter().copied();
        names
            .map(|name| LockKey::open_for(ctx, name, owner))
            .collect()
    }

    /// Opens the key to read.
    pub fn open_read(ctx: Ctx, name: Str<'a>) -> LockKey<'a> {
        LockKey::open_mode(ctx, name, raw::REDISMODULE_READ)
    }

    /// Opens the key for a look, perhaps for one owner, that leaves no trace: see [`NO_TRACE`].
    pub fn peek(ctx: Ctx, name: Str<'a>, owner: Option<Str<'a>>) -> LockKey<'a> {
        let mut key = LockKey::open_mode(ctx, name, raw::REDISMODULE_READ | NO_TRACE);
        key.owner = owner;
        key
    }

    fn open_mode(ctx: Ctx, name: Str<'a>, mode: u32) -> LockKey<'a> {
        // SAFETY: context and name are live; the handle is closed by Drop, within this call.
        let handle = unsafe {
            fallible!(
                RedisModule_OpenKey(ctx.as_ptr(), name.as_ptr(), mode as c_int),
                null_mut()
            )
        };
        LockKey {
            ctx,
            name,
            db: ctx.db(),
            owner: None,
            raw: NonNull::new(handle.cast()),
            mode,
            siblings: Siblings::default(),
            wrote_beside: Cell::default(),
            twin_is_held: OnceCell::new(),
        }
    }

    /// The call that the key was opened in.
    pub fn ctx(&self) -> Ctx {
        self.ctx
    }

    /// The key's name as the server's string.
    pub fn name(&self) -> Str<'a> {
        self.name
    }

    /// The lock's name for the core.
    pub fn id(&self) -> KeyRef<'a> {
        KeyRef {
            db: self.db,
            name: self.name.bytes(),
        }
    }

    /// The open key; `None` for an absent one that was opened to read.
    pub(crate) fn handle(&self) -> Option<NonNull<raw::RedisModuleKey>> {
        self.raw
    }

    /// What type of value the key holds.
    pub(crate) fn kind(&self) -> isize {
        match self.raw {
            // SAFETY: the handle is open.
            Some(key) => unsafe { api!(RedisModule_KeyType)(key.as_ptr()) as isize },
            None => raw::REDISMODULE_KEYTYPE_EMPTY,
        }
    }

    /// How the key was opened: so are those beside it.
    pub(crate) fn mode(&self) -> u32 {
        self.mode
    }

    /// Keeps names that were made before it was opened: of this lock, and of the owner who asks.
    pub fn keep(&mut self, siblings: Siblings) {
        self.siblings = siblings;
    }

    /// The names of the keys beside it.
    pub fn siblings(&self) -> &Siblings {
        &self.siblings
    }

    /// Notes which of the keys beside it this server wrote last, for a hold of the owner who asks.
    pub(crate) fn set_wrote_beside(&self, wrote: WroteBeside) {
        self.wrote_beside.set(wrote);
    }

    /// Whether the timeouts of this owner are known to be no other lock's.
    pub(crate) fn owns_timeouts_of(&self, owner: &[u8]) -> bool {
        self.wrote_beside.get().timeouts && self.owner_name() == Some(owner)
    }

    /// Whether the token's key may be the twin's as well, as far as is known.
    pub(crate) fn token_may_be_twins(&self) -> bool {
        !self.wrote_beside.get().token && self.twin_is_held.get() != Some(&false)
    }

    /// Whether the twin is held for READ or WRITE: `find` looks for it once in a call.
    pub(crate) fn twin_is_held_or(&self, find: impl FnOnce() -> bool) -> bool {
        *self.twin_is_held.get_or_init(find)
    }

    /// Whether the key was opened to write.
    pub(crate) fn is_writable(&self) -> bool {
        self.mode & raw::REDISMODULE_WRITE != 0
    }

    /// The name of the token's key beside a read-write lock.
    pub fn token_name(&self) -> Str<'_> {
        self.siblings.token(self.name.bytes())
    }

    /// The names of an owner's timeouts beside a read-write lock.
    pub fn with_timeouts<T>(&self, owner: &[u8], body: impl FnOnce(&Timeouts) -> T) -> T {
        let lock = self.name.bytes();
        match self.owner_name() {
            Some(own) if own == owner => body(self.siblings.own(lock, owner)),
            _ => body(&Timeouts::of(lock, owner)),
        }
    }

    /// Who asks.
    pub(crate) fn owner(&self) -> Option<Str<'a>> {
        self.owner
    }

    /// The name of who asks.
    pub fn owner_name(&self) -> Option<&'a [u8]> {
        self.owner.map(Str::bytes)
    }

    pub(crate) fn deadline(&self, key: NonNull<raw::RedisModuleKey>) -> Option<i64> {
        // SAFETY: the handle is open.
        let at = unsafe { api!(RedisModule_GetAbsExpire)(key.as_ptr()) };
        (at != raw::REDISMODULE_NO_EXPIRE.into()).then_some(at)
    }

    /// Tells those who watch the key.
    pub(crate) fn signal(&self) {
        // SAFETY: context and name are live. (The status is always OK.)
        unsafe { api!(RedisModule_SignalModifiedKey)(self.ctx.as_ptr(), self.name.as_ptr()) };
    }

    /// Deletes the key.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) fn delete(&mut self, replication: Replication) -> Written {
        let key = self.open_key()?;
        // SAFETY: the handle is open for writing.
        unsafe { checked!(RedisModule_DeleteKey(key.as_ptr())) }?;
        replication.del(self.name);
        Ok(())
    }

    /// The open key. One that was opened to write has always a handle.
    pub(crate) fn open_key(&self) -> Result<NonNull<raw::RedisModuleKey>, Refused> {
        self.raw.ok_or(Refused("RedisModule_OpenKey"))
    }

    /// Gives the key an end.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) fn set_deadline(&mut self, deadline_ms: i64, replication: Replication) -> Written {
        self.expire_at(deadline_ms)?;
        replication.pexpireat(self.name, deadline_ms);
        Ok(())
    }

    /// Gives the key an end, and leaves the replication to the caller.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) fn expire_at(&self, deadline_ms: i64) -> Written {
        let key = self.open_key()?;
        // SAFETY: the handle is open for writing and the key exists: a hold was just read or written.
        unsafe { checked!(RedisModule_SetAbsExpire(key.as_ptr(), deadline_ms)) }
    }
}

/// Sets one or two fields of a hash. The words are live strings: the key's name, and pairs.
pub(crate) fn set_fields(
    key: NonNull<raw::RedisModuleKey>,
    words: &[*mut raw::RedisModuleString],
) -> Written {
    let word = |at: usize| words.get(at).copied().unwrap_or(null_mut());
    // SAFETY: the handle is open for writing and holds a hash or nothing; the variadic list is one or
    // two pairs of live strings and then NULL (a NULL field ends it); the server copies them.
    let fields = unsafe {
        fallible!(
            RedisModule_HashSet(
                key.as_ptr(),
                raw::REDISMODULE_HASH_COUNT_ALL as c_int,
                word(1),
                word(2),
                word(3),
                word(4),
                null_mut::<c_void>(),
            ),
            0
        )
    };
    match usize::try_from(fields) == Ok(words.len() / 2) {
        true => Ok(()),
        false => Err(Refused("RedisModule_HashSet")),
    }
}

impl Drop for LockKey<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.raw {
            // SAFETY: opened by us, closed exactly once, in the same call.
            unsafe { api!(RedisModule_CloseKey)(key.as_ptr()) };
        }
    }
}

/// The name of a key of the core as a server string.
pub fn name_of(key: &KeyId) -> OwnedStr {
    OwnedStr::new(key.as_ref().name)
}

/// The value of one field.
pub(crate) fn field(key: NonNull<raw::RedisModuleKey>, name: Str<'_>) -> Option<OwnedStr> {
    let mut value: *mut raw::RedisModuleString = null_mut();
    // SAFETY: the handle is open and holds a hash; the variadic list is a live string, where to put
    // the value, and the NULL that ends it. The value's reference is ours. (Refused is only a key of another
    // type, and then the value stays NULL.)
    unsafe {
        api!(RedisModule_HashGet)(
            key.as_ptr(),
            raw::REDISMODULE_HASH_NONE as c_int,
            name.as_ptr(),
            &raw mut value,
            null_mut::<c_void>(),
        );
        OwnedStr::from_raw(value)
    }
}

/// What is told every field of a hash.
pub(crate) trait Fields {
    /// One field and its value, in any order.
    fn field(&mut self, field: &[u8], value: &[u8]);
}

impl Fields for HashReader {
    fn field(&mut self, field: &[u8], value: &[u8]) {
        HashReader::field(self, field, value);
    }
}

/// Reads a hash field by field, until `goes_on` says no, which is asked every few fields. True when
/// everything was read.
pub(crate) fn scan_to<F: Fields>(
    key: NonNull<raw::RedisModuleKey>,
    reader: &mut F,
    mut goes_on: impl FnMut(&mut F) -> bool,
) -> bool {
    // SAFETY: the cursor is created and destroyed here; the callback gets `reader` back and does
    // not keep it; nothing changes the hash meanwhile. (A scan that has not begun gives 0 as one that is
    // done does; it is refused for other types only, and the caller has seen a hash.)
    unsafe {
        let cursor = api!(RedisModule_ScanCursorCreate)();
        let mut more = true;
        while more {
            let to = (&raw mut *reader).cast();
            more = api!(RedisModule_ScanKey)(key.as_ptr(), cursor, Some(on_field::<F>), to) != 0;
            if more && !goes_on(reader) {
                break;
            }
        }
        api!(RedisModule_ScanCursorDestroy)(cursor);
        !more
    }
}

unsafe extern "C" fn on_field<F: Fields>(
    _key: *mut raw::RedisModuleKey,
    field: *mut raw::RedisModuleString,
    value: *mut raw::RedisModuleString,
    to: *mut c_void,
) {
    guard::entry("field", || {
        // SAFETY: `to` is the reader that `scan_to` passed and nobody else uses meanwhile; field and
        // value live through the callback.
        let (reader, field, value) =
            unsafe { (&mut *to.cast::<F>(), Str::new(field), Str::new(value)) };
        reader.field(field.bytes(), value.bytes());
    });
}
