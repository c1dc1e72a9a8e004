//! What the server's ACL cannot say about our commands, asked of it by hand.

use redis_module::raw;

use super::api::{api, has};
use super::ctx::Ctx;
use super::strings::{OwnedStr, Str};
use crate::lock::LockError;

/// Before 7.2 a module's command belongs to no category, so a user without `@dangerous` could break
/// locks. There, LOCK.BREAK demands what it amounts to: `DEL` on the key, and `CLIENT KILL`.
pub fn may_break(ctx: Ctx, key: Str<'_>) -> Result<(), LockError> {
    if has!(RedisModule_SetCommandACLCategories) {
        return Ok(());
    }
    // Only a real connection surely has a user: asking for the name of none ends the server.
    if ctx.client_info(ctx.client_id()).is_none() {
        return Err(LockError::NoUser);
    }
    let del = OwnedStr::new(b"DEL");
    let kill = [b"CLIENT".as_slice(), b"KILL", b"ID", b"1"].map(OwnedStr::new);
    let kill: Vec<Str<'_>> = kill.iter().map(OwnedStr::as_str).collect();
    if user_may(ctx, &[del.as_str(), key]) && user_may(ctx, &kill) {
        Ok(())
    } else {
        Err(LockError::MayNotBreak)
    }
}

fn user_may(ctx: Ctx, command: &[Str<'_>]) -> bool {
    let mut argv: Vec<_> = command.iter().map(|word| word.as_ptr()).collect();
    // SAFETY: the calling client is a real connection and has a user; name and user are ours to
    // free; the arguments live through the call and are those of a whole, valid command.
    unsafe {
        let Some(name) = OwnedStr::from_raw(api!(RedisModule_GetCurrentUserName)(ctx.as_ptr()))
        else {
            return false;
        };
        let user = api!(RedisModule_GetModuleUserFromUserName)(name.as_str().as_ptr());
        if user.is_null() {
            return false;
        }
        let argc = argv.len() as i32;
        let status = api!(RedisModule_ACLCheckCommandPermissions)(user, argv.as_mut_ptr(), argc);
        api!(RedisModule_FreeModuleUser)(user);
        status == raw::REDISMODULE_OK as i32
    }
}
