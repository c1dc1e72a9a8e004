//! The lock hash, through the server's low-level key API: read it, change it, replicate the change.
//!
//! Replicas and the AOF get the effects as plain commands (`DEL`, `HSET`, `PEXPIREAT` with absolute
//! times), so whoever reads them needs no module.

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, NonNull};

use redis_module::raw;

use super::api::api;
use super::ctx::Ctx;
use super::guard;
use super::shell;
use super::strings::{OwnedStr, Str};
use crate::lock::{HashReader, KeyId, KeyRef, KeyState, KeyWrite, Token};

/// A lock's key, open for this call.
pub struct LockKey<'a> {
    ctx: Ctx,
    name: Str<'a>,
    db: i32,
    /// Closed on drop; `None` for an absent key that was opened to read.
    raw: Option<NonNull<raw::RedisModuleKey>>,
}

impl<'a> LockKey<'a> {
    /// Opens the key of the selected database to read and write. A key whose TTL is over is deleted
    /// on the way, as any write command would do.
    pub fn open(ctx: Ctx, name: Str<'a>) -> LockKey<'a> {
        LockKey::open_mode(ctx, name, raw::REDISMODULE_READ | raw::REDISMODULE_WRITE)
    }

    /// Opens the key to read.
    pub fn open_read(ctx: Ctx, name: Str<'a>) -> LockKey<'a> {
        LockKey::open_mode(ctx, name, raw::REDISMODULE_READ)
    }

    fn open_mode(ctx: Ctx, name: Str<'a>, mode: u32) -> LockKey<'a> {
        // SAFETY: context and name are live; the handle is closed by Drop, within this call.
        let handle =
            unsafe { api!(RedisModule_OpenKey)(ctx.as_ptr(), name.as_ptr(), mode as c_int) };
        LockKey {
            ctx,
            name,
            db: ctx.db(),
            raw: NonNull::new(handle.cast()),
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

    /// What the key holds.
    pub fn read(&self) -> KeyState {
        let Some(key) = self.raw else {
            return KeyState::Absent;
        };
        // SAFETY: the handle is open.
        let (kind, fields) = unsafe {
            let kind = api!(RedisModule_KeyType)(key.as_ptr()) as isize;
            (kind, api!(RedisModule_ValueLength)(key.as_ptr()))
        };
        match kind {
            raw::REDISMODULE_KEYTYPE_EMPTY => KeyState::Absent,
            raw::REDISMODULE_KEYTYPE_HASH if fields <= 2 => scan(key).finish(self.deadline(key)),
            raw::REDISMODULE_KEYTYPE_HASH => KeyState::OtherHash,
            _ => KeyState::OtherType,
        }
    }

    fn deadline(&self, key: NonNull<raw::RedisModuleKey>) -> Option<i64> {
        // SAFETY: the handle is open.
        let at = unsafe { api!(RedisModule_GetAbsExpire)(key.as_ptr()) };
        (at != raw::REDISMODULE_NO_EXPIRE.into()).then_some(at)
    }

    /// Makes a change, replicates it, and tells those who watch the key.
    pub fn write(&mut self, change: &KeyWrite) {
        match change {
            KeyWrite::Delete => self.delete(),
            KeyWrite::Take {
                clear,
                owner,
                token,
                deadline_ms,
            } => {
                if *clear {
                    self.delete();
                }
                self.set_fields(owner, Some(1), Some(*token));
                self.set_deadline(*deadline_ms);
            }
            KeyWrite::Adjust {
                owner,
                count,
                token,
                deadline_ms,
            } => {
                if count.is_some() || token.is_some() {
                    self.set_fields(owner, *count, *token);
                }
                if let Some(deadline_ms) = deadline_ms {
                    self.set_deadline(*deadline_ms);
                }
            }
        }
        // SAFETY: context and name are live.
        unsafe { api!(RedisModule_SignalModifiedKey)(self.ctx.as_ptr(), self.name.as_ptr()) };
    }

    fn delete(&mut self) {
        let Some(key) = self.raw else {
            return;
        };
        // SAFETY: the handle is open for writing; "s" takes one string.
        unsafe {
            api!(RedisModule_DeleteKey)(key.as_ptr());
            api!(RedisModule_Replicate)(
                self.ctx.as_ptr(),
                c"DEL".as_ptr(),
                c"s".as_ptr(),
                self.name.as_ptr(),
            );
        }
    }

    /// Sets the owner's count, the token, or both, in one call.
    fn set_fields(&mut self, owner: &[u8], count: Option<u32>, token: Option<Token>) {
        let Some(key) = self.raw else {
            return;
        };
        // A hold count of 1 and the token's field are in every grant: those strings are kept.
        let (one, token_field) = shell::with(|shell| shell.constants.pointers());
        let owner = OwnedStr::new(owner);
        let other_count = count.filter(|count| *count != 1).map(OwnedStr::of_number);
        let token = token.map(|token| OwnedStr::new(TokenText::new(token).bytes()));
        let count = count.map(|_| other_count.as_ref().map_or(one, OwnedStr::as_ptr));

        // The command's words, ended by the NULLs that end a shorter variadic list.
        let mut words = [
            self.name.as_ptr(),
            null_mut(),
            null_mut(),
            null_mut(),
            null_mut(),
        ];
        let pairs = [
            count.map(|count| (owner.as_ptr(), count)),
            token.as_ref().map(|token| (token_field, token.as_ptr())),
        ];
        let mut len = 1;
        for (field, value) in pairs.into_iter().flatten() {
            for (slot, word) in words.iter_mut().skip(len).zip([field, value]) {
                *slot = word;
            }
            len += 2;
        }
        let [_, field_1, value_1, field_2, value_2] = words;
        // SAFETY: the handle is open for writing and holds a hash or nothing; the variadic list is
        // one or two pairs of live strings and then NULL (a NULL field ends it); the server copies
        // them. "v" takes an array of strings and its length as size_t.
        unsafe {
            api!(RedisModule_HashSet)(
                key.as_ptr(),
                raw::REDISMODULE_HASH_NONE as c_int,
                field_1,
                value_1,
                field_2,
                value_2,
                null_mut::<c_void>(),
            );
            api!(RedisModule_Replicate)(
                self.ctx.as_ptr(),
                c"HSET".as_ptr(),
                c"v".as_ptr(),
                words.as_ptr(),
                len,
            );
        }
    }

    fn set_deadline(&mut self, deadline_ms: i64) {
        let Some(key) = self.raw else {
            return;
        };
        // SAFETY: the handle is open for writing and the key exists: a hold was just read or
        // written. "sl" takes a string and a long long.
        unsafe {
            api!(RedisModule_SetAbsExpire)(key.as_ptr(), deadline_ms);
            api!(RedisModule_Replicate)(
                self.ctx.as_ptr(),
                c"PEXPIREAT".as_ptr(),
                c"sl".as_ptr(),
                self.name.as_ptr(),
                deadline_ms,
            );
        }
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

/// The fields of a small hash.
fn scan(key: NonNull<raw::RedisModuleKey>) -> HashReader {
    let mut reader = HashReader::default();
    // SAFETY: the cursor is created and destroyed here; the callback gets `reader` back and does
    // not keep it; nothing changes the hash meanwhile.
    unsafe {
        let cursor = api!(RedisModule_ScanCursorCreate)();
        let to = (&raw mut reader).cast();
        while api!(RedisModule_ScanKey)(key.as_ptr(), cursor, Some(on_field), to) != 0 {}
        api!(RedisModule_ScanCursorDestroy)(cursor);
    }
    reader
}

unsafe extern "C" fn on_field(
    _key: *mut raw::RedisModuleKey,
    field: *mut raw::RedisModuleString,
    value: *mut raw::RedisModuleString,
    to: *mut c_void,
) {
    guard::entry("field", || {
        // SAFETY: `to` is the reader that `scan` passed and nobody else uses meanwhile; field and
        // value live through the callback.
        let (reader, field, value) = unsafe {
            (
                &mut *to.cast::<HashReader>(),
                Str::new(field),
                Str::new(value),
            )
        };
        reader.field(field.bytes(), value.bytes());
    });
}

/// The value of the token field, `t` and digits, without a detour through the allocator.
struct TokenText {
    text: [u8; 20],
    start: usize,
}

impl TokenText {
    fn new(token: Token) -> TokenText {
        let (mut text, mut start, mut left) = ([b't'; 20], 20, token.get());
        for slot in text.iter_mut().rev() {
            if left == 0 {
                break;
            }
            *slot = b'0' + (left % 10) as u8;
            left /= 10;
            start -= 1;
        }
        TokenText {
            text,
            start: start - 1,
        }
    }

    fn bytes(&self) -> &[u8] {
        self.text.get(self.start..).unwrap_or_default()
    }
}
