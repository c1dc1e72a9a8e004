//! Runs a script that is not plain in Lua: the server gets it as it was sent, on behalf of the client that sent it.
//!
//! The server does not serve other clients while a script runs inside a module's call
//! ([`crate::redisson::scripts::steps`]). So a script with loops is run in Lua only if the loops are short.

use std::io::Error;

use crate::lock::LockError;
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::raw_key::Fields;
use crate::module::keyspace::lock_key::LockKey;
use crate::redisson::scripts::steps::{Loops, Steps, MOST_STEPS};
use crate::redisson::server::effects::{kind, KeyKind};
use crate::redisson::server::{Call, ScriptError, Str};

/// `EACCES`: the caller's user may not run the command that was sent. The server has written that to the ACL log.
const MAY_NOT_RUN: i32 = 13;
/// `ENOTSUP`: the caller has no user.
const HAS_NO_USER: i32 = 95;

impl Fields for Steps {
    fn field(&mut self, _field: &[u8], value: &[u8]) {
        Steps::field(self, value);
    }
}

/// Runs the script and forwards its reply.
///
/// # Errors
/// When the caller's user may not run the command that it sent, and when the script could run for too long.
pub fn run(ctx: Ctx<'_>, call: &Call<'_>) -> Result<(), ScriptError> {
    if ctx.is_in_script() {
        // A script has called another module's command, which calls this one. EVAL inside a script ends the server.
        return Err(ScriptError::InScript);
    }
    if could_be_long(ctx, call) {
        return Err(ScriptError::TooManyHolds);
    }
    // Without errors as replies the error number names the reason.
    let reply = call_server(ctx, call, How::ScriptAsUser).or_else(|number| {
        // Nothing has run yet.
        let again = match number {
            MAY_NOT_RUN => return Err(ScriptError::MayNotRun(call.command())),
            HAS_NO_USER => How::ScriptWithoutUser,
            _ => How::ScriptAsUserWithErrors,
        };
        call_server(ctx, call, again).map_err(|_| ScriptError::from(LockError::Internal))
    })?;
    reply.forward(ctx);
    Ok(())
}

/// Whether the script's loops may take more steps than the limit for Lua. The script does not change what the loops
/// read, except that an unlock takes one hold away. A key of another type, or none, ends the script before its loops.
/// loops.
fn could_be_long(ctx: Ctx<'_>, call: &Call<'_>) -> bool {
    match (call.script.native.loops(), call.key(0)) {
        _ if fault::is_on("long-script-goes-to-lua") => false,
        (Loops::Holds, Some(lock)) => !was_answered(ctx, call) && has_many_holds(ctx, lock),
        // `Script::is_called_with` has refused calls with more keys than `MOST_STEPS`.
        _ => false,
    }
}

/// Whether the latch of this unlock exists: the script then ends before it reads the lock. Reading a lock after its
/// deadline deletes it, so the module must not read where the script does not.
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
    // Above the limit the fields need not be read.
    if fields as u64 > MOST_STEPS {
        return true;
    }
    let mut steps = Steps::default();
    let was_read = handle.scan(&mut steps, |steps| !steps.are_too_many());
    !was_read || steps.are_too_many()
}

fn call_server(ctx: Ctx<'_>, call: &Call<'_>, how: How) -> Result<Reply, i32> {
    let command = match call.is_by_sha1() {
        true => c"EVALSHA",
        false => c"EVAL",
    };
    let words = call.words.get(1..).unwrap_or_default();
    Reply::of(ctx, command, how, words)
        .ok_or_else(|| Error::last_os_error().raw_os_error().unwrap_or(0))
}
