//! A string key with a number: the free permits of a semaphore, the count of a latch.

use redis_module::raw;

use crate::lock::{parse_integer, Count, CountChange, KeyRef, KeyWrite, Resource};
use crate::module::ffi::api::{Refused, Written};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::raw_key::RawKey;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::key::{Key, OTHER_KIND};
use crate::module::keyspace::replication::Replication;

/// The key, open during one callback.
pub struct CountKey<'a> {
    ctx: Ctx<'a>,
    name: Str<'a>,
    db: i32,
    /// `None` for an absent key that was opened to read.
    raw: Option<RawKey<'a>>,
}

impl<'a> CountKey<'a> {
    /// Opens the key of the selected database to read and write.
    pub fn open(ctx: Ctx<'a>, name: Str<'a>) -> CountKey<'a> {
        CountKey::open_mode(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    /// Opens the key to read.
    pub fn open_read(ctx: Ctx<'a>, name: Str<'a>) -> CountKey<'a> {
        CountKey::open_mode(ctx, name, raw::REDISMODULE_READ)
    }

    fn open_mode(ctx: Ctx<'a>, name: Str<'a>, mode: u32) -> CountKey<'a> {
        CountKey {
            ctx,
            name,
            db: ctx.db(),
            raw: RawKey::open(ctx, name, mode),
        }
    }

    /// Reads the key.
    pub fn read(&self) -> Count {
        let Some(key) = &self.raw else {
            return Count::Absent;
        };
        match key.kind() {
            raw::REDISMODULE_KEYTYPE_EMPTY => Count::Absent,
            raw::REDISMODULE_KEYTYPE_STRING => match key.with_string(parse_integer) {
                Some(Some(count)) => Count::Is(count, key.end_ms()),
                Some(None) => Count::OtherString,
                None => Count::OtherType,
            },
            _ => Count::OtherType,
        }
    }

    /// The end of the key's TTL, in milliseconds of the wall clock.
    pub fn end_ms(&self) -> Option<i64> {
        self.raw.as_ref()?.end_ms()
    }

    /// Writes a number. The key's TTL stays, unless the key is made anew (`is_new`).
    ///
    /// # Errors
    /// When the server refuses. (If it refuses the TTL only, the number stays without one.)
    pub fn set(&mut self, number: i64, is_new: bool, replication: Replication<'_>) -> Written {
        let keeps_ttl = !is_new && !fault::is_on("count-loses-its-ttl");
        let end_ms = self.end_ms().filter(|_| keeps_ttl);
        let key = self.raw.as_mut().ok_or(Refused("RedisModule_OpenKey"))?;
        let value = OwnedStr::of_number(number);
        key.set_string(value.as_str())?;
        replication.set(self.name, value.as_str());
        self.ctx.signal_modified(self.name);
        if let Some(end_ms) = end_ms {
            key.expire_at(end_ms)?;
            replication.pexpireat(self.name, end_ms);
        }
        Ok(())
    }

    fn delete(&mut self, replication: Replication<'_>) -> Written {
        let key = self.raw.as_mut().ok_or(Refused("RedisModule_OpenKey"))?;
        key.delete()?;
        replication.del(self.name);
        self.ctx.signal_modified(self.name);
        Ok(())
    }
}

/// As the key of a latch.
impl<'a> Key<'a> for CountKey<'a> {
    fn ctx(&self) -> Ctx<'a> {
        self.ctx
    }

    fn name(&self) -> Str<'a> {
        self.name
    }

    fn id(&self) -> KeyRef<'a> {
        KeyRef::lock(self.db, self.name.bytes()).of(Resource::Latch)
    }

    fn write(&mut self, change: &KeyWrite, replication: Replication<'_>) -> Written {
        match change {
            KeyWrite::Count(CountChange::Set(count)) => self.set(*count, false, replication),
            KeyWrite::Count(CountChange::Make(count)) => self.set(*count, true, replication),
            KeyWrite::Count(CountChange::Delete) => self.delete(replication),
            _ => Err(OTHER_KIND),
        }
    }
}
