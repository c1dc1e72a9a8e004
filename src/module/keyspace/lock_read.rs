//! Reads what a lock's key holds: the exclusive hash here, any other by [`rw_read`].

use std::ptr::NonNull;

use redis_module::raw;

use crate::lock::{HashReader, KeyState, Now, ReadDepth, TOKEN_FIELD};
use crate::module::ffi::api::api;
use crate::module::keyspace::lock_key::{field, scan_to, LockKey};
use crate::module::keyspace::rw_read;
use crate::module::state::constants::Constants;

impl LockKey<'_> {
    /// What the key holds, all of it.
    pub fn read(&self) -> KeyState {
        self.read_as(ReadDepth::All, None)
    }

    /// What the key holds; of a read-write lock, as much as the question needs.
    pub fn read_to(&self, depth: ReadDepth, now: Now) -> KeyState {
        self.read_as(depth, Some(now))
    }

    fn read_as(&self, depth: ReadDepth, now: Option<Now>) -> KeyState {
        let Some(key) = self.handle() else {
            // One that was opened to write has a handle. If not, nothing may be granted on it.
            return match self.is_writable() {
                true => KeyState::OtherType,
                false => KeyState::Absent,
            };
        };
        // SAFETY: the handle is open.
        let (kind, fields) = unsafe {
            let kind = api!(RedisModule_KeyType)(key.as_ptr()) as isize;
            (kind, api!(RedisModule_ValueLength)(key.as_ptr()))
        };
        match kind {
            raw::REDISMODULE_KEYTYPE_EMPTY => KeyState::Absent,
            raw::REDISMODULE_KEYTYPE_HASH if fields <= 2 => {
                let reader = self.read_own(key, fields).unwrap_or_else(|| scan(key));
                match reader.finish(self.deadline(key)) {
                    KeyState::OtherHash => rw_read::read(self, key, fields, depth, now),
                    state => state,
                }
            }
            raw::REDISMODULE_KEYTYPE_HASH => match rw_read::read(self, key, fields, depth, now) {
                // Newer servers count fields whose own TTL is over until they remove them.
                KeyState::OtherHash => scan(key).finish(self.deadline(key)),
                state => state,
            },
            _ => KeyState::OtherType,
        }
    }

    /// The hold of the owner who asks, by name: 1,700 instructions, where reading the whole hash
    /// takes 2,500. `None` where that owner holds nothing, or the hash has other fields.
    fn read_own(&self, key: NonNull<raw::RedisModuleKey>, fields: usize) -> Option<HashReader> {
        let owner = self.owner()?;
        let mut reader = HashReader::default();
        reader.field(owner.bytes(), field(key, owner)?.as_str().bytes());
        if fields > 1 {
            let token = field(key, Constants::token_field())?;
            reader.field(TOKEN_FIELD, token.as_str().bytes());
        }
        Some(reader)
    }
}

/// The fields of a hash that are still there, as far as to see that it is another's.
fn scan(key: NonNull<raw::RedisModuleKey>) -> HashReader {
    let mut reader = HashReader::default();
    scan_to(key, &mut reader, |reader| !reader.is_other());
    reader
}
