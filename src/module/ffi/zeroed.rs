//! All-zero values of the bindings' C structs.

use redis_module::raw;

/// A type of which all zero is a valid value.
///
/// # Safety
/// The all-zero bit pattern is a valid value of the type.
pub(crate) unsafe trait Zeroable {}

// SAFETY: integers, nullable pointers and unions of structs of integers: all zero is valid for each.
unsafe impl Zeroable for raw::RedisModuleCommandKeySpec {}
// SAFETY: integers and nullable pointers: all zero is valid for each.
unsafe impl Zeroable for raw::RedisModuleCommandArg {}
// SAFETY: integers and arrays of them: all zero is valid for each.
unsafe impl Zeroable for raw::RedisModuleClientInfo {}

/// The all-zero value.
pub(crate) fn zeroed<T: Zeroable>() -> T {
    // SAFETY: `Zeroable` promises that all zero is a value of the type.
    unsafe { std::mem::zeroed() }
}
