//! Permissions that the server does not check by itself for this module's commands. A refusal leaves an entry in `ACL
//! LOG`, as the server's own refusals do.

use std::ffi::CStr;
use std::io::{Error, ErrorKind};
use std::ptr::{null_mut, NonNull};

use redis_module::raw;

use crate::module::ffi::api::fallible;
use crate::module::ffi::api::{api, has};
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::{server_version, Ctx};
use crate::module::ffi::fault;
use crate::module::ffi::strings::{pointers, OwnedStr, Str};
use crate::module::state::constants::constants;

/// Whether the calling user may run `LOCK.BREAK`. Before 7.2 a module's command belongs to no category, so a user
/// without `@dangerous` could break locks. There the user needs the permissions for its effects: `DEL` on the key, and
/// `CLIENT KILL`.
pub fn may_break(ctx: Ctx<'_>, key: Str<'_>) -> bool {
    if has!(RedisModule_SetCommandACLCategories) {
        return true;
    }
    let user = has_user(ctx).then(|| User::of_caller(ctx));
    let Some(user) = user.flatten() else {
        return false;
    };
    let del = OwnedStr::new(b"DEL");
    let kill = [b"CLIENT".as_slice(), b"KILL", b"ID", b"1"].map(OwnedStr::new);
    let kill: Vec<Str<'_>> = kill.iter().map(OwnedStr::as_str).collect();
    let may = user.may_run(&[del.as_str(), key]) && user.may_run(&kill);
    if !may {
        user.log(Refused::Command(c"lock.break"));
    }
    may
}

/// Whether the caller's user may read and write these keys, which its command does not name. A call by a module without
/// a user is permitted.
pub fn may_write(ctx: Ctx<'_>, keys: &[Str<'_>]) -> bool {
    caller_may(ctx, |user| user.may_write(keys))
}

/// The same for reading one key. Where the refusal is none of the command, it is not logged (`logs`).
pub fn may_read(ctx: Ctx<'_>, key: Str<'_>, logs: bool) -> bool {
    caller_may(ctx, |user| user.may_read(key, logs))
}

/// Whether the caller's user may publish to this channel with `PUBLISH`, in a cluster with `SPUBLISH`. A call by a
/// module without a user is permitted.
pub fn may_publish(ctx: Ctx<'_>, channel: Str<'_>) -> bool {
    caller_may(ctx, |user| user.may_publish(channel))
}

/// Whether the caller's user may run this command, of which these are all words, on the keys and channels in it. A call
/// by a module without a user is permitted.
pub fn may_run(ctx: Ctx<'_>, command: &CStr, words: &[Str<'_>]) -> bool {
    caller_may(ctx, |user| {
        let may = user.may_run_here(words);
        if !may {
            user.log(Refused::Command(command));
        }
        may
    })
}

fn caller_may(ctx: Ctx<'_>, may: impl FnOnce(&User<'_>) -> bool) -> bool {
    !has_user(ctx) || User::of_caller(ctx).is_some_and(|user| may(&user))
}

/// Whether the call has a user: that of the connection or, in a script, of the caller of the script.
pub fn has_user(ctx: Ctx<'_>) -> bool {
    if ctx.has_connection() {
        return true;
    }
    // A script that a module has called may have none. "C" runs a command as the user. Without a user the server
    // refuses that before it looks for the command, which does not exist.
    ctx.is_in_script()
        && Reply::of(ctx, c"lock.none", How::AsUser, &[]).is_none()
        && Error::last_os_error().kind() == ErrorKind::NotFound
}

/// The name of the calling user. To be called only if there is one ([`has_user`]): without one the call ends the
/// server.
pub fn name_of_caller(ctx: Ctx<'_>) -> Option<OwnedStr> {
    // SAFETY: the context is live, and its client has a user. The name is ours to free.
    unsafe {
        OwnedStr::from_raw(fallible!(
            RedisModule_GetCurrentUserName(ctx.as_ptr()),
            null_mut()
        ))
    }
}

/// A user of the server, in one callback. Nothing that deletes users runs in the life of this value.
pub struct User<'a> {
    raw: NonNull<raw::RedisModuleUser>,
    name: OwnedStr,
    ctx: Ctx<'a>,
}

/// What was refused, for `ACL LOG`.
#[derive(Clone, Copy)]
pub enum Refused<'a> {
    /// The command of this name.
    Command(&'a CStr),
    /// A key.
    Key(Str<'a>),
    /// A channel.
    Channel(Str<'a>),
}

impl<'a> User<'a> {
    /// The calling user; see [`name_of_caller`].
    pub fn of_caller(ctx: Ctx<'a>) -> Option<User<'a>> {
        User::named(ctx, name_of_caller(ctx)?)
    }

    /// The user of this name; `None` if the server has none.
    pub fn named(ctx: Ctx<'a>, name: OwnedStr) -> Option<User<'a>> {
        // SAFETY: the name is live. The user is ours to free.
        let raw = unsafe {
            fallible!(
                RedisModule_GetModuleUserFromUserName(name.as_ptr()),
                null_mut()
            )
        };
        NonNull::new(raw).map(|raw| User { raw, name, ctx })
    }

    /// Whether it may run this command, which has all its words, on the keys and channels in it.
    pub fn may_run(&self, command: &[Str<'_>]) -> bool {
        // SAFETY: the user is live, see `User`. The array is one of live strings, as long as stated, and the server
        // only reads it.
        let status = unsafe {
            let argv = pointers(command).cast_mut();
            api!(RedisModule_ACLCheckCommandPermissions)(
                self.raw.as_ptr(),
                argv,
                command.len() as i32,
            )
        };
        status == raw::REDISMODULE_OK as i32
    }

    /// [`User::may_run`] in the selected database. Valkey 9.1 has users that are limited to some databases, and answers
    /// a module that they may run nothing; `ACL DRYRUN` knows better.
    pub fn may_run_here(&self, command: &[Str<'_>]) -> bool {
        const DATABASES_SINCE: i32 = 0x09_00_00;
        if self.may_run(command) {
            return true;
        }
        if server_version() < DATABASES_SINCE {
            return false;
        }
        let dry_run = OwnedStr::new(b"DRYRUN");
        let words = [&[dry_run.as_str(), self.name.as_str()], command].concat();
        let reply = Reply::of(self.ctx, c"ACL", How::AsModule, &words);
        reply.is_some_and(|reply| reply.whole().bytes() == Some(b"OK"))
    }

    /// Whether it may read and write these keys.
    pub fn may_write(&self, keys: &[Str<'_>]) -> bool {
        const WRITE: u32 = raw::REDISMODULE_CMD_KEY_ACCESS
            | raw::REDISMODULE_CMD_KEY_INSERT
            | raw::REDISMODULE_CMD_KEY_UPDATE
            | raw::REDISMODULE_CMD_KEY_DELETE;
        if fault::is_on("keys-beside-unasked") {
            return true;
        }
        let refused = keys.iter().find(|key| !self.may_use(**key, WRITE));
        refused
            .inspect(|key| self.log(Refused::Key(**key)))
            .is_none()
    }

    fn may_read(&self, key: Str<'_>, logs: bool) -> bool {
        let may = self.may_use(key, raw::REDISMODULE_CMD_KEY_ACCESS);
        if logs && !may {
            self.log(Refused::Key(key));
        }
        may
    }

    fn may_use(&self, key: Str<'_>, flags: u32) -> bool {
        // SAFETY: the user is live, see `User`; the key's name is live.
        let status = unsafe {
            api!(RedisModule_ACLCheckKeyPermissions)(self.raw.as_ptr(), key.as_ptr(), flags as i32)
        };
        status == raw::REDISMODULE_OK as i32
    }

    /// Whether it may publish to this channel.
    pub fn may_publish(&self, channel: Str<'_>) -> bool {
        // For the message any word will do.
        let may = self.may_run_here(&[constants().publish.as_str(), channel, channel]);
        if !may {
            self.log(Refused::Channel(channel));
        }
        may
    }

    /// Adds an entry to `ACL LOG`.
    pub fn log(&self, refused: Refused<'_>) {
        use raw::{
            RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_CHANNEL as CHANNEL,
            RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_CMD as COMMAND,
            RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_KEY as KEY,
        };
        let name;
        let (object, reason) = match refused {
            Refused::Command(command) => {
                name = OwnedStr::new(command.to_bytes());
                (name.as_str(), COMMAND)
            }
            Refused::Key(key) => (key, KEY),
            Refused::Channel(channel) => (channel, CHANNEL),
        };
        // SAFETY: the context is live; the user is live, see `User`; the server copies the object.
        unsafe {
            api!(RedisModule_ACLAddLogEntry)(
                self.ctx.as_ptr(),
                self.raw.as_ptr(),
                object.as_ptr(),
                reason,
            );
        }
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        // SAFETY: the user is ours, and is freed here only. (The server keeps the user that it names.)
        unsafe { api!(RedisModule_FreeModuleUser)(self.raw.as_ptr()) };
    }
}
