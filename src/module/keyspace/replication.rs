//! Handing changes to replicas and the AOF, where there are any.
//!
//! Both get the effects as plain commands (`DEL`, `HSET`, `PEXPIREAT` with absolute times), so whoever
//! reads them needs no module. `RedisModule_Replicate` looks the command up and builds its words before
//! the server finds out that nobody is there to get them: 2,600 instructions, and an acquire and its
//! release need three. So it is asked first, and the answer is the server's own: it propagates to an AOF
//! that is on, and to replicas while it is a master with a replication backlog (`shouldPropagate` in
//! its server.c). The first is read with every change. The second is asked once and remembered until
//! something happens after which it can matter:
//!
//! * a change of role;
//! * the loading of data, which may end with a backlog for the replicas of before the restart;
//! * a child process, or a snapshot that is being written.
//!
//! The first replica of a server gets its backlog and a fresh replication id when it asks to be
//! synchronized, and no event tells of that. But nobody can follow this history yet: the id and an offset
//! leave the server only with a snapshot, by a child for the replica, or in a file. What changed
//! before is in the snapshot as data, and what changes after it is replicated. What the backlog has of
//! the time in between (words of `count_change` among it) is before every offset that was given out.
//!
//! A node of a cluster always replicates: slots move by other ways.
//!
//! The server refuses a command whose name it does not know. `needed` checks the names at load, and they do not change
//! later, so no call is expected to fail. A failure is counted and logged all the same: at that point the change is
//! decided and mostly made, so the caller cannot be refused.

use std::ffi::{c_int, CStr};
use std::sync::atomic::{AtomicU64, Ordering};

use redis_module::raw;

use crate::module::ffi::api::api;
use crate::module::ffi::checked::fallible;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::log;
use crate::module::ffi::strings::{pointers, OwnedStr, Str};
use crate::module::state::shell;

/// Commands that the server did not take, since the module was loaded.
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// No failure is logged before this moment of the monotonic clock.
static QUIET_UNTIL_MS: AtomicU64 = AtomicU64::new(0);

const LOG_EVERY_MS: u64 = 1_000;

/// Commands that neither replicas nor the AOF got, since the server did not take them.
pub fn failures() -> u64 {
    FAILURES.load(Ordering::Relaxed)
}

/// Where the changes of one event go.
#[derive(Clone, Copy)]
pub struct Replication<'a> {
    ctx: Ctx<'a>,
    aof: bool,
    replicas: bool,
}

impl<'a> Replication<'a> {
    /// Of the command that is served in this context.
    pub fn of_command(ctx: Ctx<'a>) -> Replication<'a> {
        Replication::of_command_with(ctx, ctx.flags())
    }

    /// The same with the context's flags, for who has asked for them.
    pub fn of_command_with(ctx: Ctx<'a>, flags: u32) -> Replication<'a> {
        Replication {
            ctx,
            aof: flags & raw::REDISMODULE_CTX_FLAGS_AOF != 0,
            replicas: replicas_may_receive(ctx),
        }
    }

    /// Of an event that no command caused: to everybody, without asking. (Only a command has the words
    /// that `count_change` needs to name.)
    pub fn of_event(ctx: Ctx<'a>) -> Replication<'a> {
        Replication {
            ctx,
            aof: true,
            replicas: true,
        }
    }

    /// `DEL key`.
    pub fn del(self, key: Str<'_>) {
        self.send(c"DEL", &[key]);
    }

    /// `HSET key field value [field value]`; the words begin with the key.
    pub fn hset(self, words: &[Str<'_>]) {
        self.send(c"HSET", words);
    }

    /// `HINCRBY key field increment`.
    pub fn hincrby(self, key: Str<'_>, field: Str<'_>, by: i64) {
        if self.has_receiver() {
            let by = OwnedStr::of_number(by);
            self.send(c"HINCRBY", &[key, field, by.as_str()]);
        } else {
            self.count_change();
        }
    }

    /// `HDEL key field`.
    pub fn hdel(self, key: Str<'_>, field: Str<'_>) {
        self.send(c"HDEL", &[key, field]);
    }

    /// `PEXPIREAT key milliseconds`.
    pub fn pexpireat(self, key: Str<'_>, at_ms: i64) {
        if self.has_receiver() {
            let at = OwnedStr::of_number(at_ms);
            self.send(c"PEXPIREAT", &[key, at.as_str()]);
        } else {
            self.count_change();
        }
    }

    /// `PERSIST key`.
    pub fn persist(self, key: Str<'_>) {
        self.send(c"PERSIST", &[key]);
    }

    /// `SET key value`.
    pub fn set(self, key: Str<'_>, value: Str<'_>) {
        self.send(c"SET", &[key, value]);
    }

    /// `SET key value PXAT milliseconds`.
    pub fn set_until(self, key: Str<'_>, value: Str<'_>, at_ms: i64) {
        if self.has_receiver() {
            let (word, at) = (OwnedStr::new(b"PXAT"), OwnedStr::of_number(at_ms));
            let words = [key, value, word.as_str(), at.as_str()];
            self.send(c"SET", &words);
        } else {
            self.count_change();
        }
    }

    /// `ZADD key score member [score member ...]`; the words begin with the key.
    pub fn zadd(self, words: &[Str<'_>]) {
        self.send(c"ZADD", words);
    }

    /// `ZREM key member [member ...]`; the words begin with the key.
    pub fn zrem(self, words: &[Str<'_>]) {
        self.send(c"ZREM", words);
    }

    /// `PUBLISH channel message`, to the replicas' own subscribers only.
    pub fn publish(self, channel: Str<'_>, message: Str<'_>) {
        self.publish_by(c"PUBLISH", channel, message);
    }

    /// `SPUBLISH channel message`, to the replicas' own subscribers only.
    pub fn publish_in_shard(self, channel: Str<'_>, message: Str<'_>) {
        self.publish_by(c"SPUBLISH", channel, message);
    }

    fn publish_by(self, command: &CStr, channel: Str<'_>, message: Str<'_>) {
        if self.replicas {
            // SAFETY: context and strings live through the call. The "Ass" arguments are two strings;
            // "A" leaves the AOF out.
            let status = unsafe {
                fallible!(
                    RedisModule_Replicate(
                        self.ctx.as_ptr(),
                        command.as_ptr(),
                        c"Ass".as_ptr(),
                        channel.as_ptr(),
                        message.as_ptr(),
                    ),
                    raw::REDISMODULE_ERR as c_int
                )
            };
            self.check(status, command);
        }
    }

    fn has_receiver(self) -> bool {
        self.aof || self.replicas
    }

    fn send(self, command: &CStr, words: &[Str<'_>]) {
        if !self.has_receiver() {
            return self.count_change();
        }
        // SAFETY: the context is live, and so are the strings. "v" takes an array of them and its length as size_t; the
        // server keeps references of its own.
        let status = unsafe {
            fallible!(
                RedisModule_Replicate(
                    self.ctx.as_ptr(),
                    command.as_ptr(),
                    c"v".as_ptr(),
                    pointers(words),
                    words.len(),
                ),
                raw::REDISMODULE_ERR as c_int
            )
        };
        self.check(status, command);
    }

    /// Counts a command that the server did not take, and says so in the log, at most once a second.
    fn check(self, status: c_int, command: &CStr) {
        if status == raw::REDISMODULE_OK as c_int {
            return;
        }
        let failures = FAILURES.fetch_add(1, Ordering::Relaxed) + 1;
        let now = self.ctx.now().mono_ms;
        if now >= QUIET_UNTIL_MS.load(Ordering::Relaxed) {
            QUIET_UNTIL_MS.store(now + LOG_EVERY_MS, Ordering::Relaxed);
            log::warning(&format!(
                "{} of a lock could not be handed to replicas and the AOF, which differ from this server now \
                 (replication_failures:{failures})",
                command.to_string_lossy()
            ));
        }
    }

    /// A change that nobody is told of still counts as one: `save` points go by it.
    fn count_change(self) {
        // It always answers OK.
        // SAFETY: the context is that of a command, which has words. Nobody gets them: either the server
        // comes to the same answer as `of_command` did a moment ago, and only counts, or a backlog
        // has come that nobody follows yet (see above).
        unsafe { api!(RedisModule_ReplicateVerbatim)(self.ctx.as_ptr()) };
    }
}

/// Something happened after which replicas may hear what they did not hear before.
pub fn forget_receivers() {
    shell::with(|shell| shell.replicas_may_receive = None);
}

fn replicas_may_receive(ctx: Ctx<'_>) -> bool {
    if let Some(known) = shell::with(|shell| shell.replicas_may_receive) {
        return known;
    }
    let may = ctx.is_cluster() || ctx.is_replica() || ctx.has_backlog();
    shell::with(|shell| shell.replicas_may_receive = Some(may));
    may
}
