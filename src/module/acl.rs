//! Permissions that the server does not check by itself for this module's commands.

use redis_module::raw;

use crate::module::ffi::api::{api, has};
use crate::module::ffi::checked::fallible;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{pointers, OwnedStr, Str};

/// Why `LOCK.BREAK` is refused.
pub enum Denied {
    /// The call has no user that the server can check.
    NoUser,
    /// The user lacks the permission.
    NotPermitted,
}

/// Whether the calling user may run `LOCK.BREAK`. Before 7.2 a module's command belongs to no category, so a user
/// without `@dangerous` could break locks. There the user needs the permissions for its effects: `DEL` on the key, and
/// `CLIENT KILL`.
pub fn may_break(ctx: Ctx<'_>, key: Str<'_>) -> Result<(), Denied> {
    if has!(RedisModule_SetCommandACLCategories) {
        return Ok(());
    }
    // Only a connection is known to have a user: without one, the call for the user's name ends the server.
    if ctx.client_info(ctx.client_id()).is_none() {
        return Err(Denied::NoUser);
    }
    let del = OwnedStr::new(b"DEL");
    let kill = [b"CLIENT".as_slice(), b"KILL", b"ID", b"1"].map(OwnedStr::new);
    let kill: Vec<Str<'_>> = kill.iter().map(OwnedStr::as_str).collect();
    if user_may(ctx, &[del.as_str(), key]) && user_may(ctx, &kill) {
        Ok(())
    } else {
        Err(Denied::NotPermitted)
    }
}

/// Whether the caller's user may read and write these keys, which its command does not name. A call by a script or a
/// module has no user of its own: it is permitted, as its caller was.
pub fn may_write(ctx: Ctx<'_>, keys: &[Str<'_>]) -> bool {
    const WRITE: u32 = raw::REDISMODULE_CMD_KEY_ACCESS
        | raw::REDISMODULE_CMD_KEY_INSERT
        | raw::REDISMODULE_CMD_KEY_UPDATE
        | raw::REDISMODULE_CMD_KEY_DELETE;
    may_use(ctx, keys, WRITE)
}

/// The same for reading one key.
pub fn may_read(ctx: Ctx<'_>, key: Str<'_>) -> bool {
    may_use(ctx, &[key], raw::REDISMODULE_CMD_KEY_ACCESS)
}

fn may_use(ctx: Ctx<'_>, keys: &[Str<'_>], flags: u32) -> bool {
    if !ctx.has_connection() {
        return true;
    }
    let may = as_user(ctx, |user| {
        keys.iter().all(|key| {
            // SAFETY: the user is live until `as_user` frees it, after the body; the key's name is live.
            let status = unsafe {
                api!(RedisModule_ACLCheckKeyPermissions)(user.0, key.as_ptr(), flags as i32)
            };
            status == raw::REDISMODULE_OK as i32
        })
    });
    may.unwrap_or(false)
}

/// Whether the caller's user may publish to this channel with `PUBLISH`, in a cluster with `SPUBLISH`. A call by a
/// script or a module has no user of its own: it is permitted, as its caller was.
pub fn may_publish(ctx: Ctx<'_>, channel: Str<'_>) -> bool {
    if !ctx.has_connection() {
        return true;
    }
    let command: &[u8] = match ctx.is_cluster() {
        true => b"SPUBLISH",
        false => b"PUBLISH",
    };
    let (command, message) = (OwnedStr::new(command), OwnedStr::new(b""));
    user_may(ctx, &[command.as_str(), channel, message.as_str()])
}

fn user_may(ctx: Ctx<'_>, command: &[Str<'_>]) -> bool {
    as_user(ctx, |user| user.may_run(command)).unwrap_or(false)
}

/// The user of the calling connection.
pub struct User(*mut raw::RedisModuleUser);

impl User {
    /// Whether it may run this command, which has all its words, on the keys and channels in it.
    pub fn may_run(&self, command: &[Str<'_>]) -> bool {
        // SAFETY: the user is live until `as_user` frees it, after the body. The array is one of live strings, as long
        // as stated, and the server only reads it.
        let status = unsafe {
            let argv = pointers(command).cast_mut();
            api!(RedisModule_ACLCheckCommandPermissions)(self.0, argv, command.len() as i32)
        };
        status == raw::REDISMODULE_OK as i32
    }
}

/// The name of the calling connection's user. To be called for a connection only: without one the call ends the server.
pub fn name_of_caller(ctx: Ctx<'_>) -> Option<OwnedStr> {
    // SAFETY: the context is live, and its client is a connection, which has a user. The name is ours to free.
    unsafe {
        OwnedStr::from_raw(fallible!(
            RedisModule_GetCurrentUserName(ctx.as_ptr()),
            std::ptr::null_mut()
        ))
    }
}

/// The result of the body for the calling connection's user; `None` if the server knows no user of its name. To be
/// called for a connection only, as [`name_of_caller`].
pub fn as_user<T>(ctx: Ctx<'_>, ask: impl FnOnce(&User) -> T) -> Option<T> {
    named(name_of_caller(ctx)?.as_str(), ask)
}

/// Whether the server has a user of this name.
pub fn exists(name: Str<'_>) -> bool {
    named(name, |_| ()).is_some()
}

fn named<T>(name: Str<'_>, ask: impl FnOnce(&User) -> T) -> Option<T> {
    // SAFETY: the name is live. The user is ours to free, and is freed after the body.
    unsafe {
        let user = fallible!(
            RedisModule_GetModuleUserFromUserName(name.as_ptr()),
            std::ptr::null_mut()
        );
        if user.is_null() {
            return None;
        }
        let answer = ask(&User(user));
        api!(RedisModule_FreeModuleUser)(user);
        Some(answer)
    }
}
