//! Strings of the server that nearly every grant and release needs, made once.

use crate::lock::TOKEN_FIELD;
use crate::module::ffi::main_thread::MainThread;
use crate::module::ffi::strings::{OwnedStr, Str};

/// Strings that nearly every grant and release needs, made once.
pub struct Constants {
    one: OwnedStr,
    token_field: OwnedStr,
    released: OwnedStr,
}

impl Constants {
    /// Makes them.
    fn make() -> Constants {
        Constants {
            one: OwnedStr::of_number(1u32),
            token_field: OwnedStr::new(TOKEN_FIELD),
            released: OwnedStr::new(b"0"),
        }
    }

    /// The hold count 1.
    pub fn one() -> Str<'static> {
        Constants::get(|constants| &constants.one)
    }

    /// The name of the token's field.
    pub fn token_field() -> Str<'static> {
        Constants::get(|constants| &constants.token_field)
    }

    /// Redisson's release message.
    pub fn released() -> Str<'static> {
        Constants::get(|constants| &constants.released)
    }

    fn get(which: impl FnOnce(&Constants) -> &OwnedStr) -> Str<'static> {
        // SAFETY: the string lives as long as the module is loaded, which is longer than any call.
        CONSTANTS.with(|constants| unsafe { Str::new(which(constants).as_ptr()) })
    }
}

// SAFETY: the module has no threads, and the server calls it on its main thread only.
static CONSTANTS: MainThread<Constants> = unsafe { MainThread::empty() };

/// Makes them: the module is loaded.
pub fn start() {
    CONSTANTS.set(Some(Constants::make()));
}

/// Gives them back: the module is unloaded.
pub fn stop() {
    CONSTANTS.set(None);
}
