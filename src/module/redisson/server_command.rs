//! The server's own commands, as a script would call them: their events, their replication and their
//! count of changes are their own.

use std::ffi::CStr;

use redis_module::raw;

use super::super::api::{api, fallible};
use super::super::ctx::Ctx;
use super::super::strings::Str;

/// Runs a command whose success is not in doubt; its number, where it answers one. `None`: the server refused
/// even to try.
pub fn run(ctx: Ctx, command: &CStr, words: &[Str<'_>]) -> Option<i64> {
    // SAFETY: the context is live; "v" takes an array of live strings, which a `Str` is and nothing else, and
    // its length as size_t. The reply is ours to free.
    unsafe {
        let reply = fallible!(
            RedisModule_Call(
                ctx.as_ptr(),
                command.as_ptr(),
                c"!v".as_ptr(),
                words.as_ptr().cast::<*mut raw::RedisModuleString>(),
                words.len(),
            ),
            std::ptr::null_mut()
        );
        if reply.is_null() {
            return None;
        }
        let number = api!(RedisModule_CallReplyInteger)(reply);
        api!(RedisModule_FreeCallReply)(reply);
        Some(number)
    }
}
