//! A key with a string: a number of permits, the count of a latch, a timeout of a reader, the record of a token, a
//! horizon, Redisson's counter. Each change is signalled and replicated here.

use redis_module::raw;

use crate::module::ffi::api::{Refused, Written};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::raw_key::RawKey;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::replication::Replication;

/// The key of the selected database, open during one callback. Its value may be of any type.
pub struct StringKey<'a> {
    pub(crate) ctx: Ctx<'a>,
    pub(crate) name: Str<'a>,
    /// `None` for an absent key that was opened to read.
    raw: Option<RawKey<'a>>,
}

impl<'a> StringKey<'a> {
    /// Opens the key in this mode.
    pub fn open(ctx: Ctx<'a>, name: Str<'a>, mode: u32) -> StringKey<'a> {
        let raw = RawKey::open(ctx, name, mode);
        StringKey { ctx, name, raw }
    }

    /// Opens the key to read and write.
    pub fn open_to_write(ctx: Ctx<'a>, name: Str<'a>) -> StringKey<'a> {
        StringKey::open(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    /// Whether there is no such key.
    pub fn is_absent(&self) -> bool {
        self.raw.as_ref().is_none_or(RawKey::is_empty)
    }

    /// The end of the key's TTL, in milliseconds of the wall clock.
    pub fn end_ms(&self) -> Option<i64> {
        self.raw.as_ref()?.end_ms()
    }

    /// The result of the body for the key's string; `None` for an absent key or another type.
    pub fn with_text<T>(&self, body: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.raw.as_ref()?.with_string(body)
    }

    /// Whether the key has another type.
    pub fn is_foreign(&self) -> bool {
        self.raw.as_ref().is_some_and(|key| {
            !matches!(
                key.kind(),
                raw::REDISMODULE_KEYTYPE_EMPTY | raw::REDISMODULE_KEYTYPE_STRING
            )
        })
    }

    /// The open key, to change it. A key that was opened to write always has a handle.
    fn open_key(&mut self) -> Result<&mut RawKey<'a>, Refused> {
        self.raw.as_mut().ok_or(Refused("RedisModule_OpenKey"))
    }

    /// Writes a text. A TTL goes.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn set(&mut self, text: &OwnedStr, replication: Replication<'_>) -> Written {
        self.open_key()?.set_string(text.as_str())?;
        self.changed();
        replication.set(self.name, text.as_str());
        Ok(())
    }

    /// Writes a text with the end of its TTL.
    ///
    /// # Errors
    /// When the server refuses. If it refuses the end, the key is deleted, or stays as it was.
    pub fn set_until(
        &mut self,
        text: &OwnedStr,
        end_ms: i64,
        replication: Replication<'_>,
    ) -> Written {
        let written = self.open_key()?.set_string_until(text.as_str(), end_ms);
        self.changed();
        match written {
            Ok(()) => replication.set_until(self.name, text.as_str(), end_ms),
            Err(_) if self.is_absent() => replication.del(self.name),
            Err(_) => {}
        }
        written
    }

    /// Sets the end of the key's TTL.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn expire_at(&mut self, end_ms: i64, replication: Replication<'_>) -> Written {
        self.open_key()?.expire_at(end_ms)?;
        self.changed();
        replication.pexpireat(self.name, end_ms);
        Ok(())
    }

    /// Deletes the key.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn delete(&mut self, replication: Replication<'_>) -> Written {
        self.open_key()?.delete()?;
        self.changed();
        replication.del(self.name);
        Ok(())
    }

    fn changed(&self) {
        self.ctx.signal_modified(self.name);
    }
}
