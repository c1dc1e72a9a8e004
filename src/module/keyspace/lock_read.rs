//! Reads a lock's key: the exclusive hash here, any other hash by [`rw_read`].

use redis_module::raw;

use crate::lock::{HashReader, KeyState, Now, ReadDepth, TOKEN_FIELD};
use crate::module::ffi::raw_key::RawKey;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::rw_read;
use crate::module::state::constants::constants;
use crate::module::state::shell;

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
        // SAFETY: called for a hash only, and a hash is a value.
        let deadline = || unsafe { key.end_ms_of_value() };
        match kind {
            raw::REDISMODULE_KEYTYPE_EMPTY => KeyState::Absent,
            raw::REDISMODULE_KEYTYPE_HASH if fields <= 2 => {
                let reader = self.read_own(key, fields).unwrap_or_else(|| scan(key));
                match reader.finish(deadline()) {
                    KeyState::OtherHash => rw_read::read(self, key, fields, depth, now),
                    state => state,
                }
            }
            raw::REDISMODULE_KEYTYPE_HASH => match rw_read::read(self, key, fields, depth, now) {
                // Newer servers count fields whose own TTL is over, until they remove them.
                KeyState::OtherHash => scan(key).finish(deadline()),
                state => state,
            },
            _ => KeyState::OtherType,
        }
    }

    /// Reads the hold of the command's owner, by name: 1,700 instructions; a scan of the whole hash takes 2,500. `None`
    /// if that owner holds nothing, or the hash has other fields.
    fn read_own(&self, key: &RawKey<'_>, fields: usize) -> Option<HashReader> {
        let owner = self.owner()?;
        let mut reader = HashReader::default();
        reader.field(owner.bytes(), key.field(owner)?.as_str().bytes());
        if fields > 1 {
            let token = key.field(constants().token_field())?;
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
