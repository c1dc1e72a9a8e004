//! The server's strings: borrowed, or owned by the module.

use std::marker::PhantomData;

use redis_module::raw;

use crate::lock::parse_integer;
use crate::module::ffi::api::api;

/// A string that its owner keeps alive for `'a`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Str<'a> {
    raw: *mut raw::RedisModuleString,
    life: PhantomData<&'a ()>,
}

impl<'a> Str<'a> {
    /// # Safety
    /// `raw` is a live server string and stays so for `'a`.
    pub unsafe fn new(raw: *mut raw::RedisModuleString) -> Str<'a> {
        Str {
            raw,
            life: PhantomData,
        }
    }

    /// Its bytes.
    pub fn bytes(self) -> &'a [u8] {
        let mut len = 0;
        // SAFETY: the string is live for 'a (see `new`), and the server does not change a string that others refer to.
        unsafe {
            let data = api!(RedisModule_StringPtrLen)(self.raw, &mut len);
            std::slice::from_raw_parts(data.cast(), len)
        }
    }

    /// The pointer, for calls into the server.
    pub fn as_ptr(self) -> *mut raw::RedisModuleString {
        self.raw
    }
}

/// The words as the server takes them: an array of pointers to live strings, as long as the slice.
pub fn pointers(words: &[Str<'_>]) -> *const *mut raw::RedisModuleString {
    // A `Str` is `repr(transparent)` over the pointer.
    words.as_ptr().cast()
}

/// A string with a reference of the module.
pub struct OwnedStr(*mut raw::RedisModuleString);

impl OwnedStr {
    /// Copies these bytes.
    pub fn new(bytes: &[u8]) -> OwnedStr {
        // SAFETY: with a NULL context the string is not tied to a call; the bytes are copied. (Never NULL: a server
        // without memory ends itself.)
        OwnedStr(unsafe {
            api!(RedisModule_CreateString)(std::ptr::null_mut(), bytes.as_ptr().cast(), bytes.len())
        })
    }

    /// Takes over a string that a server function returned to be freed; `None` for NULL.
    ///
    /// # Safety
    /// `raw` is NULL or a live string whose reference is ours.
    pub unsafe fn from_raw(raw: *mut raw::RedisModuleString) -> Option<OwnedStr> {
        // Lazily: the drop of an `OwnedStr` of NULL would end the server.
        (!raw.is_null()).then(|| OwnedStr(raw))
    }

    /// A decimal number.
    pub fn of_number(number: impl itoa::Integer) -> OwnedStr {
        OwnedStr::new(itoa::Buffer::new().format(number).as_bytes())
    }

    /// The pointer, for calls into the server.
    pub fn as_ptr(&self) -> *mut raw::RedisModuleString {
        self.0
    }

    /// Gives the reference to the server, which frees it.
    pub fn into_raw(self) -> *mut raw::RedisModuleString {
        let raw = self.0;
        std::mem::forget(self);
        raw
    }

    /// The borrowed form.
    pub fn as_str(&self) -> Str<'_> {
        // SAFETY: our reference keeps the string alive as long as `self`.
        unsafe { Str::new(self.0) }
    }
}

impl Drop for OwnedStr {
    fn drop(&mut self) {
        // SAFETY: the reference is ours and is released here only.
        unsafe { api!(RedisModule_FreeString)(std::ptr::null_mut(), self.0) };
    }
}

/// The number of keys of a command that states it in the word at `numkeys_at`, which the keys follow; `None` if it is
/// no such number, or fewer words follow.
pub fn number_of_keys(words: &[Str<'_>], numkeys_at: usize) -> Option<usize> {
    let number = parse_integer(words.get(numkeys_at)?.bytes())?;
    let number = usize::try_from(number).ok().filter(|number| *number > 0)?;
    (number < words.len() - numkeys_at).then_some(number)
}
