//! Faults on request, for the tests: a panic in a named entry, the failure of one call of a server function, and the
//! fault points of tests/fault-points.txt, small bugs of which the variable `LOCK_FAULT_POINT` turns one on.
//! Without the feature `fault-injection` the functions are empty.

#[cfg(feature = "fault-injection")]
pub use armed::arm;
#[cfg(feature = "fault-injection")]
pub(crate) use armed::{is_hit, is_on, trip};
#[cfg(not(feature = "fault-injection"))]
pub(crate) use unarmed::{is_hit, is_on, trip};

#[cfg(feature = "fault-injection")]
mod armed {
    use std::sync::{Mutex, OnceLock};

    use crate::module::ffi::log;

    /// The name of the fault, and the number of calls before it.
    static ARMED: Mutex<Option<(Vec<u8>, u64)>> = Mutex::new(None);

    /// Makes the entry of this name panic, or a call of the server's function of this name fail: once, after `pass`
    /// calls.
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
            log::warning(&format!("injected fault in '{name}'"));
        }
        hit
    }

    /// Whether the fault point of this name is on.
    pub(crate) fn is_on(point: &str) -> bool {
        static ON: OnceLock<String> = OnceLock::new();
        ON.get_or_init(|| std::env::var("LOCK_FAULT_POINT").unwrap_or_default()) == point
    }
}

#[cfg(not(feature = "fault-injection"))]
mod unarmed {
    #[inline(always)]
    pub(crate) fn trip(_: &str) {}

    #[inline(always)]
    pub(crate) fn is_hit(_: &str) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn is_on(_: &str) -> bool {
        false
    }
}
