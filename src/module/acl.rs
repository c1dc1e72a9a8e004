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

/// Whether the caller's user may read and write these keys, which its command does not name. A call by a
/// script or a module has no user of its own here: it is trusted as far as what called it.
pub fn may_write(ctx: Ctx, keys: &[&[u8]]) -> bool {
    if !ctx.has_connection() {
        return true;
    }
    const WRITE: u32 = raw::REDISMODULE_CMD_KEY_ACCESS
        | raw::REDISMODULE_CMD_KEY_INSERT
        | raw::REDISMODULE_CMD_KEY_UPDATE
        | raw::REDISMODULE_CMD_KEY_DELETE;
    as_user(ctx, |user| {
        keys.iter().all(|key| {
            let key = OwnedStr::new(key);
            // SAFETY: the user is live, and so is the key's name.
            let status = unsafe {
                api!(RedisModule_ACLCheckKeyPermissions)(user, key.as_ptr(), WRITE as i32)
            };
            status == raw::REDISMODULE_OK as i32
        })
    })
}

fn user_may(ctx: Ctx, command: &[Str<'_>]) -> bool {
    let mut argv: Vec<_> = command.iter().map(|word| word.as_ptr()).collect();
    as_user(ctx, |user| {
        let argc = argv.len() as i32;
        // SAFETY: the user is live; the arguments live through the call and are those of a whole,
        // valid command.
        let status =
            unsafe { api!(RedisModule_ACLCheckCommandPermissions)(user, argv.as_mut_ptr(), argc) };
        status == raw::REDISMODULE_OK as i32
    })
}

/// Asks something about the calling connection's user; no if it has none. The caller has made sure that
/// there is a connection.
fn as_user(ctx: Ctx, ask: impl FnOnce(*mut raw::RedisModuleUser) -> bool) -> bool {
    // SAFETY: the calling client is a real connection and has a user; name and user are ours to free.
    unsafe {
        let Some(name) = OwnedStr::from_raw(api!(RedisModule_GetCurrentUserName)(ctx.as_ptr()))
        else {
            return false;
        };
        let user = api!(RedisModule_GetModuleUserFromUserName)(name.as_str().as_ptr());
        if user.is_null() {
            return false;
        }
        let answer = ask(user);
        api!(RedisModule_FreeModuleUser)(user);
        answer
    }
}
