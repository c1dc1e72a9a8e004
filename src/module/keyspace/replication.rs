//! Replication of changes to replicas and the AOF, if there are any.
//!
//! Both get the effects as plain commands (`DEL`, `HSET`, `SET`, `PEXPIREAT` with absolute times), so a server that
//! reads them needs no module. `RedisModule_Replicate` looks the command up and builds its words before the server
//! checks for a receiver: 2,600 instructions, and an acquire and its release need three calls. So the module checks
//! first, by the server's own rule: it propagates to an AOF that is on, and to replicas while it is a master with a
//! replication backlog (`shouldPropagate` in its server.c). The first condition is read with every change. The second
//! is read once and remembered until one of these events, after which it may be another:
//!
//! * a change of role;
//! * the loading of data, which may end with a backlog for the replicas of before the restart;
//! * the start of a child process, or of writing a snapshot.
//!
//! The server makes its backlog and a fresh replication id when its first replica requests synchronization, and sends
//! no event then. But no replica can follow this history yet: the id and an offset leave the server only with a
//! snapshot, by a child for the replica, or in a file. Earlier changes are in the snapshot as data; later changes are
//! replicated. The commands that the backlog has of the time in between (those of `count_change` among them) lie before
//! every offset that was given out.
//!
//! A node of a cluster always replicates: slots move by other ways.
//!
//! The server refuses a command whose name it does not know. `entry::load` checks the names, and they do not change
//! later, so no call is expected to fail. A failure is counted and logged all the same: at that point the change is
//! decided and mostly made, so the caller cannot be refused.

use std::ffi::{c_int, CStr};
use std::sync::atomic::{AtomicU64, Ordering};

use redis_module::raw;

use crate::module::ffi::api::api;
use crate::module::ffi::api::fallible;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::log;
use crate::module::ffi::raw_key::{RawKey, NO_TRACE};
use crate::module::ffi::strings::{pointers, OwnedStr, Str};
use crate::module::state::shell;

/// Commands that the server has refused to replicate since the module was loaded.
static FAILURES: AtomicU64 = AtomicU64::new(0);

/// No failure is logged before this moment of the monotonic clock.
static QUIET_UNTIL_MS: AtomicU64 = AtomicU64::new(0);

const LOG_EVERY_MS: u64 = 1_000;

/// Number of commands that neither replicas nor the AOF got, because the server refused them.
pub fn failures() -> u64 {
    FAILURES.load(Ordering::Relaxed)
}

/// The receivers of the changes of one command or event.
#[derive(Clone, Copy)]
pub struct Replication<'a> {
    ctx: Ctx<'a>,
    aof: bool,
    replicas: bool,
}

impl<'a> Replication<'a> {
    /// The receivers of the changes of the command of this context.
    pub fn of_command(ctx: Ctx<'a>) -> Replication<'a> {
        Replication::of_command_with(ctx, ctx.flags())
    }

    /// [`Replication::of_command`] with the context's flags, for a caller that has them.
    pub fn of_command_with(ctx: Ctx<'a>, flags: u32) -> Replication<'a> {
        Replication {
            ctx,
            aof: flags & raw::REDISMODULE_CTX_FLAGS_AOF != 0,
            replicas: replicas_may_receive(ctx),
        }
    }

    /// The receivers of changes that no command caused: all, without a check. (`count_change` needs the words of a
    /// command.)
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
        (self.aof && !fault::is_on("aof-overlooked")) || self.replicas
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

    /// Counts a command that the server has refused, and logs it, at most once a second.
    fn check(self, status: c_int, command: &CStr) {
        if status == raw::REDISMODULE_OK as c_int || fault::is_on("failed-replication-not-counted")
        {
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

    /// Counts a change that has no receiver: `save` points depend on the number of changes.
    fn count_change(self) {
        // The status is always OK.
        // SAFETY: the context is live, and that of a command, which has words. No replica gets them: either the
        // server's check has the same result as that of `of_command`, and it only counts; or it has a new backlog that
        // no replica follows yet (see the top of this file).
        unsafe { api!(RedisModule_ReplicateVerbatim)(self.ctx.as_ptr()) };
    }
}

/// Forgets whether replicas may receive changes: an event has happened after which that may be otherwise.
pub fn forget_receivers() {
    if !fault::is_on("first-replica-overlooked") {
        shell::with(|shell| shell.replicas_may_receive = None);
    }
}

fn replicas_may_receive(ctx: Ctx<'_>) -> bool {
    if let Some(known) = shell::with(|shell| shell.replicas_may_receive) {
        return known;
    }
    let may = ctx.is_cluster() || ctx.is_replica() || ctx.has_backlog();
    shell::with(|shell| shell.replicas_may_receive = Some(may));
    may
}

/// Replicates the lease that a key has, for a request that was granted and has changed nothing. From Redis 7.2 on and
/// in Valkey, the next `WAIT` or `WAITAOF` of a client waits for what its own commands have replicated. Without this
/// command it would not wait for a hold that another connection took.
pub fn confirm(ctx: Ctx<'_>, key: Str<'_>) {
    let replication = Replication::of_command(ctx);
    if !replication.has_receiver() {
        return;
    }
    let open = RawKey::open(ctx, key, raw::REDISMODULE_READ | NO_TRACE);
    match open.and_then(|key| key.end_ms()) {
        Some(at_ms) => replication.pexpireat(key, at_ms),
        None => replication.persist(key),
    }
}
