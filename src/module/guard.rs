//! No panic crosses into C: there it would end the server.
//!
//! Every function that the server calls runs its body through [`entry`]. A panic there is a bug of
//! this module: it is counted, logged with its place in the source, and the caller gets `None`.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::lock::LockError;
use crate::module::log;

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Panics caught since the module was loaded.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Runs the body of an entry from C.
pub fn entry<T>(name: &'static str, body: impl FnOnce() -> T) -> Option<T> {
    // What a panic may leave half-done is in our tables; `shell::recover` has every key settled
    // and answers whoever was dropped on the way, so nothing is trusted that was being changed.
    let result = catch_unwind(AssertUnwindSafe(|| {
        fault::trip(name);
        body()
    }));
    match result {
        Ok(value) => Some(value),
        Err(_) => {
            PANICS.fetch_add(1, Ordering::Relaxed);
            log::warning(&format!(
                "a bug in the lock module was caught in '{name}', see the line before"
            ));
            crate::module::shell::recover(super::ctx::now(), &LockError::Internal);
            None
        }
    }
}

/// A place in the midst of an entry where the tests let a bug strike.
pub fn weak_spot(name: &'static str) {
    fault::trip(name);
}

/// Whether a call of this function of the server is to fail, for the tests: then it is not made.
pub fn is_to_fail(function: &str) -> bool {
    fault::is_hit(function)
}

/// Sends the text of a panic to the server's log instead of its standard error.
pub fn install_hook() {
    std::panic::set_hook(Box::new(|info| {
        let place = info
            .location()
            .map_or_else(String::new, ToString::to_string);
        log::warning(&format!("panic at {place}"));
    }));
}

/// Gives the default hook back; this one's code goes away with the module.
pub fn remove_hook() {
    drop(std::panic::take_hook());
}

/// Bugs and refusals on request, for the tests.
#[cfg(feature = "fault-injection")]
pub mod fault {
    use std::sync::Mutex;

    /// What is to fail, and how many calls pass before.
    static ARMED: Mutex<Option<(Vec<u8>, u64)>> = Mutex::new(None);

    /// The entry of this name panics, or the call of this function of the server fails: once, after `pass` calls that
    /// do not.
    pub fn arm(name: &[u8], pass: u64) {
        if let Ok(mut armed) = ARMED.lock() {
            *armed = Some((name.to_vec(), pass));
        }
    }

    pub(crate) fn trip(name: &str) {
        if is_hit(name) {
            panic!("injected fault");
        }
    }

    pub(crate) fn is_hit(name: &str) -> bool {
        let hit = ARMED.lock().is_ok_and(|mut armed| match armed.as_mut() {
            Some((armed_name, pass)) if armed_name == name.as_bytes() && *pass > 0 => {
                *pass -= 1;
                false
            }
            Some((armed_name, _)) if armed_name == name.as_bytes() => {
                *armed = None;
                true
            }
            _ => false,
        });
        if hit {
            super::log::warning(&format!("injected fault in '{name}'"));
        }
        hit
    }
}

#[cfg(not(feature = "fault-injection"))]
mod fault {
    #[inline(always)]
    pub(crate) fn trip(_: &str) {}

    #[inline(always)]
    pub(crate) fn is_hit(_: &str) -> bool {
        false
    }
}
