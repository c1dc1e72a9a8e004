//! A string key with a number: the free permits of a semaphore, the count of a latch.

use redis_module::raw;

use crate::lock::{parse_integer, Count, CountChange, KeyRef, KeyWrite, Resource};
use crate::module::ffi::api::Written;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::key::{Key, OTHER_KIND};
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::string_key::StringKey;

/// The key, open during one callback.
pub struct CountKey<'a> {
    db: i32,
    key: StringKey<'a>,
}

impl<'a> CountKey<'a> {
    /// Opens the key of the selected database to read and write.
    pub fn open(ctx: Ctx<'a>, name: Str<'a>) -> CountKey<'a> {
        let (db, key) = (ctx.db(), StringKey::open_to_write(ctx, name));
        CountKey { db, key }
    }

    /// Opens the key to read.
    pub fn open_read(ctx: Ctx<'a>, name: Str<'a>) -> CountKey<'a> {
        let key = StringKey::open(ctx, name, raw::REDISMODULE_READ);
        CountKey { db: ctx.db(), key }
    }

    /// Reads the key.
    pub fn read(&self) -> Count {
        match self.key.with_text(parse_integer) {
            Some(Some(count)) => Count::Is(count, self.key.end_ms()),
            Some(None) => Count::OtherString,
            None if self.key.is_absent() => Count::Absent,
            None => Count::OtherType,
        }
    }

    /// The end of the key's TTL, in milliseconds of the wall clock.
    pub fn end_ms(&self) -> Option<i64> {
        self.key.end_ms()
    }

    /// Writes a number. The key's TTL stays, unless the key is made anew (`is_new`).
    ///
    /// # Errors
    /// When the server refuses. (If it refuses the TTL only, the number stays without one.)
    pub fn set(&mut self, number: i64, is_new: bool, replication: Replication<'_>) -> Written {
        let keeps_ttl = !is_new && !fault::is_on("count-loses-its-ttl");
        let end_ms = self.end_ms().filter(|_| keeps_ttl);
        self.key.set(&OwnedStr::of_number(number), replication)?;
        match end_ms {
            Some(end_ms) => self.key.expire_at(end_ms, replication),
            None => Ok(()),
        }
    }
}

/// As the key of a latch.
impl<'a> Key<'a> for CountKey<'a> {
    fn ctx(&self) -> Ctx<'a> {
        self.key.ctx
    }

    fn name(&self) -> Str<'a> {
        self.key.name
    }

    fn id(&self) -> KeyRef<'a> {
        KeyRef::lock(self.db, self.key.name.bytes()).of(Resource::Latch)
    }

    fn write(&mut self, change: &KeyWrite, replication: Replication<'_>) -> Written {
        match change {
            KeyWrite::Count(CountChange::Set(count)) => self.set(*count, false, replication),
            KeyWrite::Count(CountChange::Make(count)) => self.set(*count, true, replication),
            KeyWrite::Count(CountChange::Delete) => self.key.delete(replication),
            _ => Err(OTHER_KIND),
        }
    }
}
