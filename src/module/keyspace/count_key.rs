//! A string that holds a number, through the server's low-level key API: the free permits of a semaphore,
//! the count of a latch.

use std::ffi::c_int;
use std::ptr::NonNull;

use redis_module::raw;

use crate::lock::{parse_integer, Count, KeyRef};
use crate::module::ffi::api::api;
use crate::module::ffi::checked::{checked, fallible, Refused, Written};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::replication::Replication;

/// The key, open for this call.
pub struct CountKey<'a> {
    ctx: Ctx,
    name: Str<'a>,
    db: i32,
    /// Closed on drop; `None` for an absent key that was opened to read.
    raw: Option<NonNull<raw::RedisModuleKey>>,
}

impl<'a> CountKey<'a> {
    /// Opens the key of the selected database to read and write.
    pub fn open(ctx: Ctx, name: Str<'a>) -> CountKey<'a> {
        CountKey::open_mode(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    /// Opens the key to read.
    pub fn open_read(ctx: Ctx, name: Str<'a>) -> CountKey<'a> {
        CountKey::open_mode(ctx, name, raw::REDISMODULE_READ)
    }

    fn open_mode(ctx: Ctx, name: Str<'a>, mode: u32) -> CountKey<'a> {
        CountKey {
            ctx,
            name,
            db: ctx.db(),
            raw: open_key(ctx, name, mode),
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

    /// The key's name for the core.
    pub fn id(&self) -> KeyRef<'a> {
        KeyRef {
            db: self.db,
            name: self.name.bytes(),
        }
    }

    /// What the key holds.
    pub fn read(&self) -> Count {
        let Some(key) = self.raw else {
            return Count::Absent;
        };
        // SAFETY: the handle is open; the bytes that StringDMA points to are only read, before anything
        // can change the key.
        unsafe {
            match api!(RedisModule_KeyType)(key.as_ptr()) as isize {
                raw::REDISMODULE_KEYTYPE_EMPTY => Count::Absent,
                raw::REDISMODULE_KEYTYPE_STRING => {
                    let (mut len, mode) = (0, raw::REDISMODULE_READ as c_int);
                    let data = fallible!(
                        RedisModule_StringDMA(key.as_ptr(), &mut len, mode),
                        std::ptr::null_mut()
                    );
                    if data.is_null() {
                        return Count::OtherType;
                    }
                    match parse_integer(std::slice::from_raw_parts(data.cast(), len)) {
                        Some(count) => Count::Is(count, end_of(key)),
                        None => Count::OtherString,
                    }
                }
                _ => Count::OtherType,
            }
        }
    }

    /// When the key ends.
    pub fn end_ms(&self) -> Option<i64> {
        end_of(self.raw?)
    }

    /// Writes a number. The key's TTL stays, unless the number begins something new.
    ///
    /// # Errors
    /// When the server refuses. (If only the TTL was refused, the number lasts.)
    pub fn set(&mut self, number: i64, is_new: bool, replication: Replication) -> Written {
        let key = self.raw.ok_or(Refused("RedisModule_OpenKey"))?;
        let value = OwnedStr::of_number(number);
        let end_ms = self.end_ms().filter(|_| !is_new);
        // SAFETY: the handle is open for writing; StringSet keeps a reference of its own.
        unsafe { checked!(RedisModule_StringSet(key.as_ptr(), value.as_ptr())) }?;
        replication.set(self.name, value.as_str());
        self.signal();
        if let Some(end_ms) = end_ms {
            // SAFETY: as above, and the key exists now.
            unsafe { checked!(RedisModule_SetAbsExpire(key.as_ptr(), end_ms)) }?;
            replication.pexpireat(self.name, end_ms);
        }
        Ok(())
    }

    /// Deletes the key.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn delete(&mut self, replication: Replication) -> Written {
        let key = self.raw.ok_or(Refused("RedisModule_OpenKey"))?;
        // SAFETY: the handle is open for writing.
        unsafe { checked!(RedisModule_DeleteKey(key.as_ptr())) }?;
        replication.del(self.name);
        self.signal();
        Ok(())
    }

    /// Tells those who watch the key.
    fn signal(&self) {
        // SAFETY: context and name are live.
        unsafe { api!(RedisModule_SignalModifiedKey)(self.ctx.as_ptr(), self.name.as_ptr()) };
    }
}

impl Drop for CountKey<'_> {
    fn drop(&mut self) {
        close_key(self.raw);
    }
}

/// Opens a key of the selected database.
pub fn open_key(ctx: Ctx, name: Str<'_>, mode: u32) -> Option<NonNull<raw::RedisModuleKey>> {
    // SAFETY: context and name are live; the caller closes the handle within this call. (NULL is given for an
    // absent key that is opened to read, and for nothing else.)
    let key = unsafe { api!(RedisModule_OpenKey)(ctx.as_ptr(), name.as_ptr(), mode as c_int) };
    NonNull::new(key.cast())
}

/// Closes it, once.
pub fn close_key(key: Option<NonNull<raw::RedisModuleKey>>) {
    if let Some(key) = key {
        // SAFETY: opened by `open_key`; its two owners close it in their drop only.
        unsafe { api!(RedisModule_CloseKey)(key.as_ptr()) };
    }
}

/// Whether an open key has no value.
pub fn is_empty(key: NonNull<raw::RedisModuleKey>) -> bool {
    // SAFETY: the handle is open.
    let kind = unsafe { api!(RedisModule_KeyType)(key.as_ptr()) };
    kind as isize == raw::REDISMODULE_KEYTYPE_EMPTY
}

/// When an open key ends.
pub fn end_of(key: NonNull<raw::RedisModuleKey>) -> Option<i64> {
    if is_empty(key) {
        return None;
    }
    // SAFETY: the handle is open. (Redis 8.6 ends when it is asked this of a key without a value.)
    let at = unsafe { api!(RedisModule_GetAbsExpire)(key.as_ptr()) };
    (at != raw::REDISMODULE_NO_EXPIRE.into()).then_some(at)
}
