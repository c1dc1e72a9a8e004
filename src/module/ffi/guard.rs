//! No panic crosses into C: there it would end the server.
//!
//! Every function that the server calls runs its body through [`entry`]. A panic there is a bug of
//! this module: it is counted, logged with its place in the source, and the caller gets `None`.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::OnceLock;

use crate::module::ffi::{fault, log};

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Repairs the module's state after a panic: set once, when the module is loaded.
static RECOVER: OnceLock<fn()> = OnceLock::new();

/// Panics caught since the module was loaded.
pub fn panics() -> u64 {
    PANICS.load(Ordering::Relaxed)
}

/// Runs the body of an entry from C.
pub fn entry<T>(name: &'static str, body: impl FnOnce() -> T) -> Option<T> {
    // A panic may leave the module's tables half-changed. `recover` has every key settled and answers each request
    // that was dropped, so nothing is trusted that was being changed.
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
            if let Some(recover) = RECOVER.get() {
                recover();
            }
            None
        }
    }
}

/// Sends the text of a panic to the server's log instead of its standard error. `recover` runs after each panic that
/// [`entry`] has caught.
pub fn install_hook(recover: fn()) {
    // The module may be loaded again under the same address: then the function is the same one.
    let _ = RECOVER.set(recover);
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
