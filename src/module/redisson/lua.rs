//! The way of everything that is not plain: the server runs the script, as it was sent and for who sent it.

use std::ffi::CStr;
use std::io::Error;

use redis_module::raw;

use super::super::api::{api, fallible};
use super::super::ctx::Ctx;
use super::Call;
use crate::lock::LockError;

/// As the caller's user, in the caller's protocol, with the effects replicated, refused where memory is full
/// (without "M" a script of ours would be let through), and with errors as replies.
const AS_USER: &CStr = c"C0!MEv";
/// The same without errors as replies: then the number of the error says what was wrong.
const AS_USER_TOLD_BY_NUMBER: &CStr = c"C0!Mv";
/// For a caller without a user, who may do anything.
const AS_NOBODY: &CStr = c"0!MEv";

/// `EACCES`: the caller's user may not run the command that was sent. That stands in the ACL's log now.
const MAY_NOT_RUN: i32 = 13;
/// `ENOTSUP`: the caller has no user.
const HAS_NO_USER: i32 = 95;

/// Runs the script and passes on what it says.
///
/// # Errors
/// When the caller's user may not run the command that it sent.
pub fn run(ctx: Ctx, call: &Call<'_>) -> Result<(), LockError> {
    let reply = call_server(ctx, call, AS_USER_TOLD_BY_NUMBER).or_else(|number| {
        // Nothing was run.
        let again = match number {
            MAY_NOT_RUN => return Err(LockError::MayNotRun(call.command())),
            HAS_NO_USER => AS_NOBODY,
            _ => AS_USER,
        };
        call_server(ctx, call, again).map_err(|_| LockError::Internal)
    })?;
    // SAFETY: the context is live, the reply is ours to free, once.
    unsafe {
        api!(RedisModule_ReplyWithCallReply)(ctx.as_ptr(), reply);
        api!(RedisModule_FreeCallReply)(reply);
    }
    Ok(())
}

fn call_server(
    ctx: Ctx,
    call: &Call<'_>,
    format: &CStr,
) -> Result<*mut raw::RedisModuleCallReply, i32> {
    let command = match call.is_by_sha1() {
        true => c"EVALSHA",
        false => c"EVAL",
    };
    let words: Vec<_> = call
        .words
        .iter()
        .skip(1)
        .map(|word| word.as_ptr())
        .collect();
    // SAFETY: the context is live; "v" takes an array of live strings and its length as size_t.
    let reply = unsafe {
        fallible!(
            RedisModule_Call(
                ctx.as_ptr(),
                command.as_ptr(),
                format.as_ptr(),
                words.as_ptr(),
                words.len(),
            ),
            std::ptr::null_mut()
        )
    };
    match reply.is_null() {
        true => Err(Error::last_os_error().raw_os_error().unwrap_or(0)),
        false => Ok(reply),
    }
}
