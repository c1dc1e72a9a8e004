//! Calls of server functions that can fail.
//!
//! In a build for the tests `LOCK.FAULT API function` makes one such call fail: see [`super::fault`].

/// Calls a function that can fail; `$failure` is its result when it fails. A build for the tests can make it fail once
/// (`LOCK.FAULT API function`): then the function is not called.
macro_rules! fallible {
    ($name:ident($($argument:expr),* $(,)?), $failure:expr) => {
        match $crate::module::ffi::fault::is_hit(stringify!($name)) {
            true => $failure,
            false => $crate::module::ffi::api::api!($name)($($argument),*),
        }
    };
}
pub(crate) use fallible;

/// A refusal of the server: the function that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused(pub &'static str);

/// The result of a write.
pub type Written = Result<(), Refused>;

/// Calls a function that returns a status. A status other than OK is a refusal.
macro_rules! checked {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        const OK: i32 = redis_module::raw::REDISMODULE_OK as i32;
        const ERR: i32 = redis_module::raw::REDISMODULE_ERR as i32;
        match $crate::module::ffi::checked::fallible!($name($($argument),*), ERR) {
            OK => Ok(()),
            _ => Err($crate::module::ffi::checked::Refused(stringify!($name))),
        }
    }};
}
pub(crate) use checked;
