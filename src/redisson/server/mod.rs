//! Redisson's scripts run without Lua where the only difference is the time they take.
//!
//! With `lock.redisson-scripts yes` a command [`filter`] sees every command that the server receives. An `EVAL` or
//! `EVALSHA` of a known script ([`crate::redisson::scripts`]) becomes `lock.redisson`; its other words stay as they
//! were. That command checks that its user may run the command that was sent, and every command in the script
//! ([`permission`]). Then it has the effect of the script natively: the same replies, data, key events, messages and
//! replicated commands ([`rlock`], by way of [`effects`]). Everything that is not plain is left to the script itself
//! ([`lua`]); a native run checks that before its first write.

mod effects;
mod filter;
mod lua;
mod permission;
mod read_write;
mod rlock;

use std::fmt;

use redis_module::raw;

use crate::lock::LockError;
use crate::module::entry::alarm;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::replication::Replication;
use crate::module::state::shell::{self, Hooks};
use crate::redisson::scripts::{recognise, Inner, Native, Script};

/// The interface of this folder to the shell.
pub const HOOKS: Hooks = Hooks {
    start: || {
        filter::start();
        permission::start();
    },
    stop: || {
        filter::stop();
        permission::stop();
    },
    follow_setting: filter::follow_setting,
};

/// A call of a known script.
pub struct Call<'a> {
    script: &'static Script,
    /// All its words; the first is `lock.redisson`.
    words: &'a [Str<'a>],
    keys: &'a [Str<'a>],
    args: &'a [Str<'a>],
}

/// The reply of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// Nil.
    Nil,
    /// A number.
    Number(i64),
    /// An array of numbers.
    Numbers(Vec<i64>),
    /// An error: the script would take keys that belong to another lock.
    Refused(LockError),
}

/// Length of a SHA1 in hexadecimal digits. Every known text is longer.
const SHA1_LEN: usize = 40;

impl<'a> Call<'a> {
    /// Parses `name script numkeys key [key ...] arg [arg ...]`. `None`: the script is unknown, or not called as by
    /// Redisson.
    pub fn of(words: &'a [Str<'a>]) -> Option<Call<'a>> {
        let [_, script, numkeys, behind @ ..] = words else {
            return None;
        };
        let script = find(*script)?;
        if !script.is_called_with(numkeys.bytes(), behind.len()) {
            return None;
        }
        // A script with any number of keys has one argument more than keys.
        let keys = script.keys.unwrap_or(behind.len() / 2);
        let (keys, args) = behind.split_at_checked(keys)?;
        Some(Call {
            script,
            words,
            keys,
            args,
        })
    }

    /// Whether the script is named by its SHA1.
    fn is_by_sha1(&self) -> bool {
        self.words
            .get(1)
            .is_some_and(|word| word.bytes().len() == SHA1_LEN)
    }

    /// The name of the command that was sent.
    fn command(&self) -> &'static str {
        match self.is_by_sha1() {
            true => "evalsha",
            false => "eval",
        }
    }

    /// The key at this index.
    fn key(&self, at: usize) -> Option<Str<'a>> {
        self.keys.get(at).copied()
    }

    /// The argument at this index.
    fn arg(&self, at: usize) -> Option<Str<'a>> {
        self.args.get(at).copied()
    }

    /// The publishing command that this argument names.
    fn publisher(&self, at: usize) -> Option<Inner> {
        Inner::said(self.arg(at)?.bytes())
    }
}

/// The script with this SHA1 or this text.
fn find(script: Str<'_>) -> Option<&'static Script> {
    let word = script.bytes();
    match word.len() {
        SHA1_LEN => recognise(word).map(|(_, script)| script),
        _ => filter::find_text(word),
    }
}

/// Runs a call natively, or lets the server run the script, and replies.
///
/// # Errors
/// When the caller's user may not run the command that it sent, and when a native run is refused.
pub fn run(ctx: Ctx<'_>, call: &Call<'_>) -> Result<(), ScriptError> {
    let now = Surroundings::of(ctx);
    if now.are_in_transaction() && !now.are_history() && ctx.is_paused() {
        // In the transaction that paused writes, a key that looks absent may only be hidden. The script, native or not,
        // would overwrite it, which ends the server.
        return Err(LockError::TryAgain.into());
    }
    if now.are_plain() && permission::covers(ctx, call) {
        if let Some(reply) = native(ctx, call, now) {
            shell::with(|shell| match call.script.native {
                Native::RLock(_) => shell.redisson.redisson_rlock += 1,
                Native::Fenced(_) => shell.redisson.redisson_fenced += 1,
                Native::Spin(_) => shell.redisson.redisson_spin += 1,
                Native::ReadWrite(_) => shell.redisson.redisson_read_write += 1,
            });
            return Ok(answer(ctx, reply)?);
        }
    }
    lua::run(ctx, call)?;
    shell::with(|shell| shell.redisson.redisson_lua += 1);
    Ok(())
}

fn native(ctx: Ctx<'_>, call: &Call<'_>, now: Surroundings) -> Option<Reply> {
    if !fault::is_on("script-passes-the-queue") {
        alarm::settle_first(ctx, ctx.key_ref(call.key(0)?));
    }
    match call.script.native {
        Native::RLock(script) => rlock::run(ctx, script, call, now),
        Native::Fenced(script) => rlock::run_fenced(ctx, script, call, now),
        Native::Spin(script) => rlock::run_spin(ctx, script, call, now),
        Native::ReadWrite(script) => read_write::run(ctx, script, call, now),
    }
}

fn answer(ctx: Ctx<'_>, reply: Reply) -> Result<(), LockError> {
    match reply {
        Reply::Nil => ctx.reply_nil(),
        Reply::Refused(error) => return Err(error),
        Reply::Number(number) => ctx.reply_integer(number),
        Reply::Numbers(numbers) => {
            ctx.reply_array(numbers.len());
            for number in numbers {
                ctx.reply_integer(number);
            }
        }
    }
    Ok(())
}

/// The state of the server around a call.
#[derive(Clone, Copy)]
pub struct Surroundings {
    flags: u32,
    notifies_every_key: bool,
}

impl Surroundings {
    fn of(ctx: Ctx<'_>) -> Surroundings {
        Surroundings {
            flags: ctx.flags(),
            notifies_every_key: ctx
                .notifies(raw::REDISMODULE_NOTIFY_KEY_MISS | raw::REDISMODULE_NOTIFY_NEW),
        }
    }

    /// Whether a native run is possible: the call is a client's own, the server is no replica, and modules do not get
    /// events for new keys and key misses.
    fn are_plain(self) -> bool {
        const ODD: u32 = raw::REDISMODULE_CTX_FLAGS_SLAVE | raw::REDISMODULE_CTX_FLAGS_LUA;
        self.flags & ODD == 0 && !self.are_history() && !self.notifies_every_key
    }

    /// Whether the call comes from a master or the AOF instead of a client.
    fn are_history(self) -> bool {
        const HISTORY: u32 =
            raw::REDISMODULE_CTX_FLAGS_REPLICATED | raw::REDISMODULE_CTX_FLAGS_LOADING;
        self.flags & HISTORY != 0
    }

    /// Whether the call is part of a transaction.
    fn are_in_transaction(self) -> bool {
        self.flags & raw::REDISMODULE_CTX_FLAGS_MULTI != 0
    }

    /// Whether this server is a node of a cluster.
    fn is_cluster(self) -> bool {
        self.flags & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0
    }

    /// The destinations of this call's changes.
    fn replication(self, ctx: Ctx<'_>) -> Replication<'_> {
        Replication::of_command_with(ctx, self.flags)
    }

    /// Whether the server refuses commands that need memory.
    fn are_short_of_memory(self) -> bool {
        self.flags & raw::REDISMODULE_CTX_FLAGS_OOM != 0
    }
}

/// Why a script of Redisson's does not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptError {
    /// An error of locking.
    Lock(LockError),
    /// The caller's user may not run the command that it sent; that command's name.
    MayNotRun(&'static str),
    /// The script needs Lua, and another script is running.
    InScript,
    /// The script needs Lua, and would loop over more holds than the limit.
    TooManyHolds,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScriptError::Lock(error) => return error.fmt(f),
            ScriptError::MayNotRun(command) => {
                return write!(f, "NOPERM this user has no permissions to run the '{command}' command");
            }
            ScriptError::InScript => "ERR a script of Redisson's cannot run inside a script",
            ScriptError::TooManyHolds => {
                "ERR the lock states too many holds for a script of Redisson's, delete the key or set lock.redisson-scripts to no"
            }
        })
    }
}

impl From<LockError> for ScriptError {
    fn from(error: LockError) -> ScriptError {
        ScriptError::Lock(error)
    }
}
