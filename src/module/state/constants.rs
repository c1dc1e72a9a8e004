//! Strings of the server that nearly every grant and release needs, made once: when the module is loaded.

use std::cell::Ref;

use crate::lock::TOKEN_FIELD;
use crate::module::ffi::main_thread::MainThread;
use crate::module::ffi::strings::{OwnedStr, Str};

/// The strings.
pub struct Constants {
    one: OwnedStr,
    token_field: OwnedStr,
    released: OwnedStr,
}

impl Constants {
    fn make() -> Constants {
        Constants {
            one: OwnedStr::of_number(1u32),
            token_field: OwnedStr::new(TOKEN_FIELD),
            released: OwnedStr::new(b"0"),
        }
    }

    /// The hold count 1.
    pub fn one(&self) -> Str<'_> {
        self.one.as_str()
    }

    /// The name of the token's field.
    pub fn token_field(&self) -> Str<'_> {
        self.token_field.as_str()
    }

    /// Redisson's release message.
    pub fn released(&self) -> Str<'_> {
        self.released.as_str()
    }
}

// SAFETY: the module has no threads, and the server calls it on its main thread only.
static CONSTANTS: MainThread<Constants> = unsafe { MainThread::empty() };

/// The strings, borrowed: [`stop`] panics while the borrow lives, and frees nothing.
///
/// # Panics
/// When the module is not loaded: a bug, caught by the guard.
#[inline]
pub fn constants() -> Ref<'static, Constants> {
    CONSTANTS.borrow()
}

/// Makes the strings: the module is loaded.
pub fn start() {
    CONSTANTS.set(Some(Constants::make()));
}

/// Frees the strings: the module is unloaded.
pub fn stop() {
    CONSTANTS.set(None);
}
