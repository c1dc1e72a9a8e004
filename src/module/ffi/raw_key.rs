//! A key of the server, open during one callback.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{null_mut, NonNull};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;

use crate::module::ffi::api::api;
use crate::module::ffi::api::{checked, fallible, Refused, Written};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::guard;
use crate::module::ffi::strings::{OwnedStr, Str};

/// The mode that reads a key without a trace: no statistics, no event, no update of its last access, and no deletion
/// when its TTL is over. (Redis 7.0 has `NOTOUCH` only: there the read counts as a hit or a miss.)
pub(crate) const NO_TRACE: u32 = redis_module::raw::REDISMODULE_OPEN_KEY_NOTOUCH
    | redis_module::raw::REDISMODULE_OPEN_KEY_NONOTIFY
    | redis_module::raw::REDISMODULE_OPEN_KEY_NOSTATS
    | redis_module::raw::REDISMODULE_OPEN_KEY_NOEXPIRE;

/// Whether [`removing`] runs.
static REMOVES: AtomicBool = AtomicBool::new(false);

/// Whether the module itself is removing a key, its last element or its value: the server's event of it is no news.
pub(crate) fn is_removing() -> bool {
    REMOVES.load(Relaxed)
}

fn removing<T>(body: impl FnOnce() -> T) -> T {
    REMOVES.store(true, Relaxed);
    let result = body();
    REMOVES.store(false, Relaxed);
    result
}

/// An open key; closed on drop. It borrows the context that it was opened in, so it is closed before the callback of
/// that context returns.
///
/// The server refuses an operation that does not fit the type of the value, except where a method says so. A change
/// needs the key exclusively: bytes that it has lent, and a scan, end before.
pub(crate) struct RawKey<'a> {
    /// Open until `drop`.
    raw: NonNull<raw::RedisModuleKey>,
    ctx: PhantomData<Ctx<'a>>,
}

impl Drop for RawKey<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `open` got the key from the server, its context is live (`'a`), and nothing else closes it.
        unsafe { api!(RedisModule_CloseKey)(self.as_ptr()) };
    }
}

impl<'a> RawKey<'a> {
    /// Opens a key of the selected database. `None` for an absent key that is opened to read, and in no other case.
    #[inline]
    pub(crate) fn open(ctx: Ctx<'a>, name: Str<'_>, mode: u32) -> Option<RawKey<'a>> {
        // SAFETY: context and name are live. The server keeps a reference of its own to the name.
        let key = unsafe { api!(RedisModule_OpenKey)(ctx.as_ptr(), name.as_ptr(), mode as c_int) };
        NonNull::new(key.cast()).map(|raw| RawKey {
            raw,
            ctx: PhantomData,
        })
    }

    /// The pointer, for calls into the server. It is valid until the key is dropped.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut raw::RedisModuleKey {
        self.raw.as_ptr()
    }

    /// The type of its value (`REDISMODULE_KEYTYPE_*`).
    #[inline]
    pub(crate) fn kind(&self) -> isize {
        // SAFETY: the key is open.
        unsafe { api!(RedisModule_KeyType)(self.as_ptr()) as isize }
    }

    /// Whether it has no value.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.kind() == raw::REDISMODULE_KEYTYPE_EMPTY
    }

    /// The number of elements of its value.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        // SAFETY: the key is open.
        unsafe { api!(RedisModule_ValueLength)(self.as_ptr()) }
    }

    /// The end of its TTL, in milliseconds of the wall clock; `None` without a TTL or a value.
    #[inline]
    pub(crate) fn end_ms(&self) -> Option<i64> {
        if self.is_empty() {
            return None;
        }
        // SAFETY: the key is open and has a value.
        unsafe { self.end_ms_of_value() }
    }

    /// [`RawKey::end_ms`] of a key that is known to have a value.
    ///
    /// # Safety
    /// The key has a value: Redis 8.6 ends itself when this is called for a key without one.
    #[inline]
    pub(crate) unsafe fn end_ms_of_value(&self) -> Option<i64> {
        // SAFETY: the key is open, and the caller promises that it has a value.
        let at = unsafe { api!(RedisModule_GetAbsExpire)(self.as_ptr()) };
        (at != raw::REDISMODULE_NO_EXPIRE.into()).then_some(at)
    }

    /// The result of the body for its string; `None` when it holds no string.
    pub(crate) fn with_string<T>(&self, body: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if self.kind() != raw::REDISMODULE_KEYTYPE_STRING {
            return None;
        }
        let (mut len, mode) = (0, raw::REDISMODULE_READ as c_int);
        // SAFETY: the key is open and holds a string, whose bytes stay until the key is changed. The body gets them for
        // its own time only, and cannot change the key meanwhile (`&self`); no body opens the key a second time.
        unsafe {
            let data = fallible!(
                RedisModule_StringDMA(self.as_ptr(), &mut len, mode),
                null_mut()
            );
            (!data.is_null()).then(|| body(std::slice::from_raw_parts(data.cast(), len)))
        }
    }

    /// Sets its value to this string, and removes its TTL.
    ///
    /// # Errors
    /// When the server refuses.
    #[inline]
    pub(crate) fn set_string(&mut self, value: Str<'_>) -> Written {
        // SAFETY: key and string are live; the server keeps a reference of its own to the string.
        removing(|| unsafe { checked!(RedisModule_StringSet(self.as_ptr(), value.as_ptr())) })
    }

    /// Sets its value and the end of its TTL. If the server refuses the end, the key is deleted: what is to end would
    /// stay for ever.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) fn set_string_until(&mut self, value: Str<'_>, at_ms: i64) -> Written {
        self.set_string(value)?;
        let ends = self.expire_at(at_ms);
        if ends.is_err() {
            let _ = self.delete();
        }
        ends
    }

    /// Sets the end of its TTL, in milliseconds of the wall clock; `REDISMODULE_NO_EXPIRE` removes the TTL.
    ///
    /// # Errors
    /// When the server refuses, as it does for a key without a value.
    #[inline]
    pub(crate) fn expire_at(&mut self, at_ms: i64) -> Written {
        // SAFETY: the key is open.
        unsafe { checked!(RedisModule_SetAbsExpire(self.as_ptr(), at_ms)) }
    }

    /// Deletes it.
    ///
    /// # Errors
    /// When the server refuses.
    #[inline]
    pub(crate) fn delete(&mut self) -> Written {
        // SAFETY: the key is open.
        removing(|| unsafe { checked!(RedisModule_DeleteKey(self.as_ptr())) })
    }

    /// Deletes it; a value of many elements is freed outside of the main thread.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) fn delete_any(&mut self) -> Written {
        const MANY: usize = 250;
        if self.len() <= MANY {
            return self.delete();
        }
        // SAFETY: the key is open.
        removing(|| unsafe { checked!(RedisModule_UnlinkKey(self.as_ptr())) })
    }

    /// The value of one field of a hash; `None` as well when it holds no hash.
    pub(crate) fn field(&self, name: Str<'_>) -> Option<OwnedStr> {
        let mut value: *mut raw::RedisModuleString = null_mut();
        // SAFETY: the key is open; the variadic list is a live string, a place for the value, and NULL as its end. The
        // value's reference is ours. (For a key of another type the call is refused, and the value stays NULL.)
        unsafe {
            api!(RedisModule_HashGet)(
                self.as_ptr(),
                raw::REDISMODULE_HASH_NONE as c_int,
                name.as_ptr(),
                &raw mut value,
                null_mut::<c_void>(),
            );
            OwnedStr::from_raw(value)
        }
    }

    /// Sets one or two fields of a hash. The words are those of `HSET`: the key's name (not used here) and pairs.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) fn set_fields(&mut self, words: &[Str<'_>]) -> Written {
        let [_, field, value, rest @ ..] = words else {
            return Err(Refused("RedisModule_HashSet"));
        };
        let (field_2, value_2) = match rest {
            [field, value, ..] => (field.as_ptr(), value.as_ptr()),
            _ => (null_mut(), null_mut()),
        };
        // SAFETY: the key is open; the variadic list is one or two pairs of live strings and then NULL (a NULL field is
        // its end); the server copies them.
        let fields = unsafe {
            fallible!(
                RedisModule_HashSet(
                    self.as_ptr(),
                    raw::REDISMODULE_HASH_COUNT_ALL as c_int,
                    field.as_ptr(),
                    value.as_ptr(),
                    field_2,
                    value_2,
                    null_mut::<c_void>(),
                ),
                0
            )
        };
        match usize::try_from(fields) == Ok(words.len() / 2) || fault::is_on("refused-hold-is-told")
        {
            true => Ok(()),
            false => Err(Refused("RedisModule_HashSet")),
        }
    }

    /// Removes a field of a hash. A field that is absent, or whose own TTL is over, is no error.
    ///
    /// # Errors
    /// When the server refuses.
    pub(crate) fn drop_field(&mut self, name: Str<'_>) -> Written {
        // SAFETY: the key is open; the variadic list is a live string, the value that means deletion, and NULL as its
        // end.
        let dropped = removing(|| unsafe {
            fallible!(
                RedisModule_HashSet(
                    self.as_ptr(),
                    raw::REDISMODULE_HASH_NONE as c_int,
                    name.as_ptr(),
                    raw::REDISMODULE_HASH_DELETE,
                    null_mut::<c_void>(),
                ),
                0
            )
        });
        match dropped == 0 && !self.is_empty() && self.field(name).is_some() {
            true => Err(Refused("RedisModule_HashSet")),
            false => Ok(()),
        }
    }

    /// The score of an element of a sorted set; `None` as well when it holds no sorted set.
    pub(crate) fn score(&self, element: Str<'_>) -> Option<f64> {
        let mut score = 0.0;
        // SAFETY: the key is open, the element live. For an empty key or another type the server returns an error.
        let status =
            unsafe { api!(RedisModule_ZsetScore)(self.as_ptr(), element.as_ptr(), &mut score) };
        (status == raw::REDISMODULE_OK as c_int).then_some(score)
    }

    /// Adds an element to a sorted set, or sets its score.
    ///
    /// # Errors
    /// When the server refuses, as it does for another type.
    pub(crate) fn set_score(&mut self, element: Str<'_>, score: f64) -> Written {
        let (key, element) = (self.as_ptr(), element.as_ptr());
        // SAFETY: the key is open, the element live, and the pointer to flags may be NULL.
        unsafe { checked!(RedisModule_ZsetAdd(key, score, element, null_mut())) }
    }

    /// Removes an element of a sorted set. An element that is absent is no error.
    ///
    /// # Errors
    /// When the server refuses, as it does for another type.
    pub(crate) fn remove_element(&mut self, element: Str<'_>) -> Written {
        let (key, element) = (self.as_ptr(), element.as_ptr());
        // SAFETY: the key is open, the element live, and the place for the result may be NULL.
        removing(|| unsafe { checked!(RedisModule_ZsetRem(key, element, null_mut())) })
    }

    /// Reads a hash field by field, until `goes_on`, which is called every few fields, returns false. True when every
    /// field was read.
    pub(crate) fn scan<F: Fields>(
        &self,
        reader: &mut F,
        mut goes_on: impl FnMut(&mut F) -> bool,
    ) -> bool {
        let cursor = Cursor::new();
        loop {
            let to = (&raw mut *reader).cast();
            // SAFETY: key and cursor are live. The callback gets `reader` back, which nothing else uses during the
            // call, and does not keep it. Nothing changes the hash before the scan ends (`&self`). (The result is 0
            // for a scan that is over and for one that could not begin.)
            let more = unsafe {
                api!(RedisModule_ScanKey)(self.as_ptr(), cursor.0, Some(on_field::<F>), to) != 0
            };
            if !more || !goes_on(reader) {
                return !more;
            }
        }
    }
}

/// The position of a scan; freed on drop, also when a body of the scan panics.
struct Cursor(*mut raw::RedisModuleScanCursor);

impl Cursor {
    fn new() -> Cursor {
        // SAFETY: takes no arguments. (Never NULL: a server without memory ends itself.)
        Cursor(unsafe { api!(RedisModule_ScanCursorCreate)() })
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        // SAFETY: the cursor is ours, and is freed here only.
        unsafe { api!(RedisModule_ScanCursorDestroy)(self.0) };
    }
}

/// Receives the fields of a hash.
pub(crate) trait Fields {
    /// One field and its value, in any order.
    fn field(&mut self, field: &[u8], value: &[u8]);
}

unsafe extern "C" fn on_field<F: Fields>(
    _key: *mut raw::RedisModuleKey,
    field: *mut raw::RedisModuleString,
    value: *mut raw::RedisModuleString,
    to: *mut c_void,
) {
    guard::entry("field", || {
        // SAFETY: `to` is the `F` that `RawKey::scan` passed and that nothing else uses meanwhile; field and value live
        // through the callback.
        let (reader, field, value) =
            unsafe { (&mut *to.cast::<F>(), Str::new(field), Str::new(value)) };
        reader.field(field.bytes(), value.bytes());
    });
}
