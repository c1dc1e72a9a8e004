//! The way of everything that is not plain: the server runs the script, as it was sent and for who sent it.
//!
//! Inside a module's call a script must not run for so long that the server turns to other clients
//! ([`crate::redisson::scripts::steps`]). So a script with loops is given to Lua only if they are short.

use std::ffi::CStr;
use std::io::Error;

use crate::lock::LockError;
use crate::module::ffi::call_reply;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::raw_key::Fields;
use crate::module::keyspace::lock_key::LockKey;
use crate::redisson::scripts::steps::{Loops, Steps, MOST_STEPS};
use crate::redisson::server::effects::{kind, KeyKind};
use crate::redisson::server::{Call, ScriptError, Str};

/// As the caller's user, in the caller's protocol, with the effects replicated, refused where memory is full
/// (without "M" a script of ours would be let through), and with errors as replies.
const AS_USER: &CStr = c"C0!MEv";
/// The same without errors as replies: then the number of the error says what was wrong.
const AS_USER_WITH_ERRNO: &CStr = c"C0!Mv";
/// For a caller without a user, who may do anything.
const WITHOUT_USER: &CStr = c"0!MEv";

/// `EACCES`: the caller's user may not run the command that was sent. That stands in the ACL's log now.
const MAY_NOT_RUN: i32 = 13;
/// `ENOTSUP`: the caller has no user.
const HAS_NO_USER: i32 = 95;

impl Fields for Steps {
    fn field(&mut self, _field: &[u8], value: &[u8]) {
        Steps::field(self, value);
    }
}

/// Runs the script and passes on what it says.
///
/// # Errors
/// When the caller's user may not run the command that it sent, and when the script could run for too long.
pub fn run(ctx: Ctx<'_>, call: &Call<'_>) -> Result<(), ScriptError> {
    if ctx.is_in_script() {
        // A script has called another module's command that calls this one. EVAL inside a script ends the server.
        return Err(ScriptError::InScript);
    }
    if could_be_long(ctx, call) {
        return Err(ScriptError::TooManyHolds);
    }
    let reply = call_server(ctx, call, AS_USER_WITH_ERRNO).or_else(|number| {
        // Nothing was run.
        let again = match number {
            MAY_NOT_RUN => return Err(ScriptError::MayNotRun(call.command())),
            HAS_NO_USER => WITHOUT_USER,
            _ => AS_USER,
        };
        call_server(ctx, call, again).map_err(|_| ScriptError::from(LockError::Internal))
    })?;
    reply.forward(ctx);
    Ok(())
}

/// Whether the script's loops may take more steps than Lua is given. What they read is not changed before: an
/// unlock only takes one hold away. A key of another type, or none, ends the script before its loops.
fn could_be_long(ctx: Ctx<'_>, call: &Call<'_>) -> bool {
    match (call.script.native.loops(), call.key(0)) {
        (Loops::Holds, Some(lock)) => !was_answered(ctx, call) && has_many_holds(ctx, lock),
        // `Script::is_called_with` has refused calls with more keys than `MOST_STEPS`.
        _ => false,
    }
}

/// Whether the latch of this unlock holds something: that ends the script before it looks at the lock. A look at a lock
/// whose time is over deletes it, so no look may be taken that the script does not take.
fn was_answered(ctx: Ctx<'_>, call: &Call<'_>) -> bool {
    // Unlocks without a latch have four keys.
    call.key(4)
        .is_some_and(|latch| LockKey::peek(ctx, latch, None).handle().is_some())
}

fn has_many_holds(ctx: Ctx<'_>, lock: Str<'_>) -> bool {
    let key = LockKey::peek(ctx, lock, None);
    let (KeyKind::Hash, Some(handle)) = (kind(&key), key.handle()) else {
        return false;
    };
    let fields = handle.len();
    // So many need not be read.
    if fields as u64 > MOST_STEPS {
        return true;
    }
    let mut steps = Steps::default();
    let was_read = handle.scan(&mut steps, |steps| !steps.are_too_many());
    !was_read || steps.are_too_many()
}

fn call_server(ctx: Ctx<'_>, call: &Call<'_>, format: &CStr) -> Result<call_reply::Reply, i32> {
    let command = match call.is_by_sha1() {
        true => c"EVALSHA",
        false => c"EVAL",
    };
    let words = call.words.get(1..).unwrap_or_default();
    call_reply::Reply::of(ctx, command, format, words)
        .ok_or_else(|| Error::last_os_error().raw_os_error().unwrap_or(0))
}
