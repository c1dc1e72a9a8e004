//! Lines in the server's log. A message is an argument of the format, never the format.

use std::ffi::{CStr, CString};

use crate::module::ffi::api::api;

/// Logs a message that needs an operator's attention.
pub fn warning(message: &str) {
    write(c"warning", message);
}

/// Logs a message for information.
pub fn notice(message: &str) {
    write(c"notice", message);
}

fn write(level: &CStr, message: &str) {
    let clean: Vec<u8> = message.bytes().filter(|byte| *byte >= b' ').collect();
    let Ok(text) = CString::new(clean) else {
        return;
    };
    // SAFETY: a NULL context is allowed: the context would only name the module. The format takes exactly one C string,
    // which lives until the call returns.
    unsafe {
        api!(RedisModule_Log)(
            std::ptr::null_mut(),
            level.as_ptr(),
            c"lock: %s".as_ptr(),
            text.as_ptr(),
        )
    };
}
