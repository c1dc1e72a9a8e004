//! No panic crosses into C: there it would end the server.
//!
//! Every function that the server calls runs its body in [`entry`]. A panic there is a bug of this module: it is
//! counted and logged with its place in the source, and `entry` returns `None`.

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
    // A panic may leave the module's tables half-changed. `recover` schedules every key to be settled and fails each
    // request that was dropped, so no table is trusted that was being changed.
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

/// Logs the place of a panic in the server's log instead of writing it to standard error. `recover` runs after each
/// panic that [`entry`] has caught.
pub fn install_hook(recover: fn()) {
    // Set already, when the module was loaded before at the same address: the function is the same then.
    let _ = RECOVER.set(recover);
    std::panic::set_hook(Box::new(|info| {
        let place = info
            .location()
            .map_or_else(String::new, ToString::to_string);
        log::warning(&format!("panic at {place}"));
    }));
}

/// Restores the default hook: the code of the present one is unloaded with the module.
pub fn remove_hook() {
    drop(std::panic::take_hook());
}
