//! The context of one callback: clocks, flags, replies, messages, events.
//!
//! A [`Ctx`] borrows from the [`Callback`] that an entry point makes of the server's pointer, or from a
//! [`DetachedCtx`]. So it cannot be kept beyond either, nor can anything that holds one: an open key, a replication.

use std::ffi::{c_int, CStr};
use std::marker::PhantomData;
use std::ptr::{null_mut, NonNull};
use std::time::SystemTime;

use redis_module::raw;

use crate::lock::{KeyRef, Now};
use crate::module::ffi::api::api;
use crate::module::ffi::api::fallible;
use crate::module::ffi::api::zeroed;
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};

/// The callback of the server that is running.
pub struct Callback(*mut raw::RedisModuleCtx);

impl Callback {
    /// # Safety
    /// `raw` is the context that the server passed to the callback now running, and the value is dropped before that
    /// callback returns.
    pub unsafe fn new(raw: *mut raw::RedisModuleCtx) -> Callback {
        Callback(raw)
    }

    /// Its context.
    pub fn ctx(&self) -> Ctx<'_> {
        Ctx {
            raw: self.0,
            callback: PhantomData,
        }
    }

    /// A string that the server passed to the callback.
    ///
    /// # Safety
    /// `raw` is such a string: the server keeps it alive and unchanged until the callback returns.
    pub unsafe fn string(&self, raw: *mut raw::RedisModuleString) -> Str<'_> {
        // SAFETY: the caller promises a string that lives as long as the callback, which outlives `self`.
        unsafe { Str::new(raw) }
    }

    /// The words of the command that the callback is for.
    ///
    /// # Safety
    /// `argv` and `argc` are what the server passed to the callback.
    pub unsafe fn words(&self, argv: *mut *mut raw::RedisModuleString, argc: c_int) -> &[Str<'_>] {
        let argc = usize::try_from(argc).unwrap_or(0);
        if argc == 0 {
            return &[];
        }
        // SAFETY: the server passes an array of `argc` live strings. Array and strings stay unchanged until the
        // callback returns, which outlives `self`. A `Str` is `repr(transparent)` over such a pointer.
        unsafe { std::slice::from_raw_parts(argv.cast::<Str<'_>>(), argc) }
    }
}

/// A live context, for `'a`: that of the callback that is running, or a detached one.
#[derive(Clone, Copy)]
pub struct Ctx<'a> {
    raw: *mut raw::RedisModuleCtx,
    callback: PhantomData<&'a ()>,
}

/// A context of no client, which the server makes on demand.
struct DetachedCtx(NonNull<raw::RedisModuleCtx>);

impl DetachedCtx {
    /// `None`: the server refuses.
    fn new(of: Ctx<'_>) -> Option<DetachedCtx> {
        // SAFETY: the context is live; only its module is read. The new one is ours to free.
        let raw = unsafe {
            fallible!(
                RedisModule_GetDetachedThreadSafeContext(of.as_ptr()),
                null_mut()
            )
        };
        NonNull::new(raw).map(DetachedCtx)
    }

    fn ctx(&self) -> Ctx<'_> {
        Ctx {
            raw: self.0.as_ptr(),
            callback: PhantomData,
        }
    }
}

impl Drop for DetachedCtx {
    fn drop(&mut self) {
        // SAFETY: the context was made by `new`, is freed here only, and no `Ctx` of it is left: they borrow from
        // `self`.
        unsafe { api!(RedisModule_FreeThreadSafeContext)(self.0.as_ptr()) };
    }
}

/// Whether the server is a master out of memory (`maxmemory`), which refuses new requests; needs no context.
pub fn is_out_of_memory() -> bool {
    const DECISIVE: u32 = raw::REDISMODULE_CTX_FLAGS_OOM | raw::REDISMODULE_CTX_FLAGS_SLAVE;
    // SAFETY: without a context the server adds no flags of a client, and reads none.
    let flags = unsafe { api!(RedisModule_GetContextFlags)(null_mut()) }.unsigned_abs();
    flags & DECISIVE == raw::REDISMODULE_CTX_FLAGS_OOM
}

/// Both clocks, the wall clock as the server itself reads it, but to the microsecond; needs no context.
pub fn now() -> Now {
    let wall_us = match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since_1970) => i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX),
        Err(_) => 0,
    };
    // SAFETY: takes no arguments and touches no context.
    let mono_us = unsafe { api!(RedisModule_MonotonicMicroseconds)() };
    Now {
        wall_ms: wall_us / 1_000,
        wall_sub_us: (wall_us % 1_000) as u16,
        mono_ms: mono_us / 1_000,
    }
}

/// The server's version, two hexadecimal digits for each part.
pub fn server_version() -> i32 {
    // SAFETY: a pointer written at load; the function takes no arguments.
    unsafe { raw::RedisModule_GetServerVersion.map(|get| get()) }.unwrap_or(0)
}

/// The server's description of a connection; `None` when the connection has ended.
fn info_of(id: u64) -> Option<raw::RedisModuleClientInfo> {
    let mut info: raw::RedisModuleClientInfo = zeroed();
    info.version = raw::REDISMODULE_CLIENTINFO_VERSION.into();
    // SAFETY: the struct has the layout of the version that it states, and lives through the call.
    let found = unsafe { api!(RedisModule_GetClientInfoById)((&raw mut info).cast(), id) };
    (found == raw::REDISMODULE_OK as i32).then_some(info)
}

impl Ctx<'_> {
    /// The pointer, for calls into the server.
    pub fn as_ptr(self) -> *mut raw::RedisModuleCtx {
        self.raw
    }

    /// The lock of this name in the selected database.
    pub fn key_ref<'k>(self, name: Str<'k>) -> KeyRef<'k> {
        KeyRef::lock(self.db(), name.bytes())
    }

    /// Both clocks.
    pub fn now(self) -> Now {
        now()
    }

    /// The state of the server and of this call (`REDISMODULE_CTX_FLAGS_*`).
    pub(crate) fn flags(self) -> u32 {
        // SAFETY: the context is live (see `Ctx`).
        let flags = unsafe { api!(RedisModule_GetContextFlags)(self.raw) };
        flags.unsigned_abs()
    }

    /// Whether this call may park its client: not inside MULTI and scripts, not for commands from a master, and not on
    /// a (writable) replica, where no waiter is granted a lock.
    pub fn may_block(self) -> bool {
        const NEVER: u32 = raw::REDISMODULE_CTX_FLAGS_MULTI
            | raw::REDISMODULE_CTX_FLAGS_SLAVE
            | raw::REDISMODULE_CTX_FLAGS_LUA
            | raw::REDISMODULE_CTX_FLAGS_REPLICATED
            | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        self.flags() & NEVER == 0
    }

    /// Whether the caller has subscribed to a channel. Only in RESP3 may such a client send other commands.
    pub fn is_subscribed(self) -> bool {
        const SUBSCRIBED: u64 = raw::REDISMODULE_CLIENTINFO_FLAG_PUBSUB as u64;
        self.flags() & raw::REDISMODULE_CTX_FLAGS_RESP3 != 0
            && info_of(self.client_id()).is_some_and(|info| info.flags & SUBSCRIBED != 0)
    }

    /// Whether the server blocks a client that has subscribed. Valkey refuses that from 8.1.1 on.
    pub fn parks_subscribers(self) -> bool {
        const REFUSED_SINCE: i32 = 0x08_01_01;
        !(self.is_valkey() && server_version() >= REFUSED_SINCE)
    }

    /// Whether a subscriber of key events leaves the client of a command in the database of the event.
    pub fn events_move_clients(self) -> bool {
        const SINCE: i32 = 0x08_01_00;
        const MENDED: i32 = 0x09_01_01;
        self.is_valkey() && (SINCE..MENDED).contains(&server_version())
    }

    /// Whether writes are paused for replicas and clients (`CLIENT PAUSE`, a failover). A write during the pause aborts
    /// the server.
    pub fn is_paused(self) -> bool {
        // SAFETY: takes no arguments.
        unsafe { api!(RedisModule_AvoidReplicaTraffic)() != 0 }
    }

    /// Whether a script is running.
    pub fn is_in_script(self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_LUA != 0
    }

    /// Whether a script or a transaction is running: in both the server itself refuses to block a client.
    pub fn is_in_unit(self) -> bool {
        const UNIT: u32 = raw::REDISMODULE_CTX_FLAGS_LUA | raw::REDISMODULE_CTX_FLAGS_MULTI;
        self.flags() & UNIT != 0
    }

    /// Whether this server follows another.
    pub fn is_replica(self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_SLAVE != 0
    }

    /// Whether changes of keys are a replay. (While a replica loads a snapshot beside its data, clients make them.)
    pub fn is_loading(self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_LOADING != 0
    }

    /// Whether a write that no client requested may be made now: on a master, not while data is being loaded, not
    /// during a pause.
    pub fn may_write(self) -> bool {
        !self.is_replica()
            && !self.is_loading()
            && (!self.is_paused() || fault::is_on("writes-in-a-pause"))
    }

    /// Whether the server runs as a cluster node.
    pub fn is_cluster(self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_CLUSTER != 0
    }

    /// Whether there is a replication backlog; true as well where `INFO` does not say.
    pub fn has_backlog(self) -> bool {
        !self.info_field_is(c"replication", c"repl_backlog_active", c"0")
            || !self.info_field_is(c"replication", c"connected_slaves", c"0")
    }

    /// Whether the server calls itself Valkey.
    pub fn is_valkey(self) -> bool {
        self.info_field_is(c"server", c"server_name", c"valkey")
    }

    /// Whether the server itself is starting; false when the module is loaded into a running server.
    pub fn is_starting_up(self) -> bool {
        const STARTUP: u32 = raw::REDISMODULE_CTX_FLAGS_SERVER_STARTUP;
        // SAFETY: takes no arguments.
        let known = unsafe { api!(RedisModule_GetContextFlagsAll)() };
        if known.unsigned_abs() & STARTUP != 0 {
            return self.flags() & STARTUP != 0;
        }
        // 7.0 has no flag for it. A starting server has no connection yet; `MODULE LOAD` is sent over one.
        self.info_field_is(c"clients", c"connected_clients", c"0")
    }

    /// Whether a field of `INFO` has this value; false as well where the field is missing.
    fn info_field_is(self, section: &CStr, name: &CStr, value: &CStr) -> bool {
        // SAFETY: context, section and name are live. The info is ours, and is freed after the last use of its field.
        unsafe {
            let info = fallible!(
                RedisModule_GetServerInfo(self.raw, section.as_ptr()),
                null_mut()
            );
            if info.is_null() {
                return false;
            }
            let field = api!(RedisModule_ServerInfoGetFieldC)(info, name.as_ptr());
            let is_equal = !field.is_null() && CStr::from_ptr(field) == value;
            api!(RedisModule_FreeServerInfo)(self.raw, info);
            is_equal
        }
    }

    /// Whether `maxmemory` may evict keys.
    pub fn may_evict(self) -> bool {
        self.flags() & raw::REDISMODULE_CTX_FLAGS_EVICT != 0
    }

    /// Whether the caller is a connection: not a script, nor another module.
    pub fn has_connection(self) -> bool {
        !self.is_in_script() && self.is_connection()
    }

    /// [`Ctx::has_connection`] where the caller is known to be no script.
    ///
    /// Valkey 9.1 also finds a client without a connection, while that client executes. Such a client may not block,
    /// and is in no transaction of its own.
    pub fn is_connection(self) -> bool {
        const DENY_BLOCKING: u32 = raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING;
        let blocking = self.flags() & (DENY_BLOCKING | raw::REDISMODULE_CTX_FLAGS_MULTI);
        if blocking == DENY_BLOCKING {
            return false;
        }
        // SAFETY: with NULL the server writes nothing, and returns whether a connection has this id.
        let found = unsafe { api!(RedisModule_GetClientInfoById)(null_mut(), self.client_id()) };
        found == raw::REDISMODULE_OK as i32
    }

    /// The selected database.
    pub fn db(self) -> i32 {
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_GetSelectedDb)(self.raw) }
    }

    /// Selects a database; in a client's call the caller selects the old one again. Only an unknown number is refused:
    /// each number here comes from this server, and the number of databases never changes.
    pub fn select(self, db: i32) {
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_SelectDb)(self.raw, db) };
    }

    /// The id of the calling connection.
    pub fn client_id(self) -> u64 {
        // SAFETY: the context is live.
        unsafe { api!(RedisModule_GetClientId)(self.raw) }
    }

    /// Sends a keyspace event about a key of the selected database.
    pub fn notify(self, class: i32, event: &CStr, key: Str<'_>) {
        // SAFETY: the context, the name and the key live through the call; the key is not kept. (The status is
        // always OK.)
        unsafe {
            api!(RedisModule_NotifyKeyspaceEvent)(self.raw, class, event.as_ptr(), key.as_ptr())
        };
    }

    /// Marks a key as changed, for `WATCH` and client-side caching.
    pub fn signal_modified(self, key: Str<'_>) {
        // SAFETY: context and name are live. (The status is always OK.)
        unsafe { api!(RedisModule_SignalModifiedKey)(self.raw, key.as_ptr()) };
    }

    /// Whether `notify-keyspace-events` has this class of events.
    pub fn notifies(self, class: i32) -> bool {
        // SAFETY: takes no arguments.
        unsafe { api!(RedisModule_GetNotifyKeyspaceEvents)() & class != 0 }
    }

    /// Publishes a message to the subscribers of this server.
    pub fn publish(self, channel: Str<'_>, message: Str<'_>) {
        // SAFETY: context and strings live through the call.
        unsafe {
            api!(RedisModule_PublishMessage)(self.raw, channel.as_ptr(), message.as_ptr());
        }
    }

    /// Publishes a message on a shard channel.
    pub fn publish_in_shard(self, channel: Str<'_>, message: Str<'_>) {
        // SAFETY: context and strings live through the call.
        unsafe {
            api!(RedisModule_PublishMessageShard)(self.raw, channel.as_ptr(), message.as_ptr());
        }
    }

    /// In a cluster: publishes on the channel and on the shard channel of the same name, as `PUBLISH` and `SPUBLISH`
    /// do. The message is not replicated: replicas get it by the cluster bus, and would send a replicated one again.
    pub fn publish_in_cluster(self, channel: Str<'_>, message: Str<'_>) {
        // SAFETY: context and strings live through the calls.
        unsafe {
            api!(RedisModule_PublishMessage)(self.raw, channel.as_ptr(), message.as_ptr());
            api!(RedisModule_PublishMessageShard)(self.raw, channel.as_ptr(), message.as_ptr());
        }
    }

    /// Whether the server would run a write command on this key now: not with `NOREPLICAS`, `MISCONF`, a moved slot or
    /// a cluster that is down. The probe, an `HDEL` of the empty field, changes nothing: no lock has an empty owner,
    /// and at a key of another type the command fails with `WRONGTYPE` after the checks.
    pub fn probe_write(self, key: Str<'_>) -> bool {
        // SAFETY: "S" checks as for scripts, "E" gives refusals as error replies, "sc" takes one string and one C
        // string; both live through the call. The reply is ours, and is freed after the last use of its text.
        unsafe {
            let reply = fallible!(
                RedisModule_Call(
                    self.raw,
                    c"HDEL".as_ptr(),
                    c"SEsc".as_ptr(),
                    key.as_ptr(),
                    c"".as_ptr(),
                ),
                null_mut()
            );
            if reply.is_null() {
                return false;
            }
            let ran = match api!(RedisModule_CallReplyType)(reply) as isize {
                raw::REDISMODULE_REPLY_INTEGER => true,
                raw::REDISMODULE_REPLY_ERROR => {
                    let mut len = 0;
                    let text = api!(RedisModule_CallReplyStringPtr)(reply, &mut len);
                    !text.is_null()
                        && std::slice::from_raw_parts(text.cast(), len).starts_with(b"WRONGTYPE")
                }
                _ => false,
            };
            api!(RedisModule_FreeCallReply)(reply);
            ran
        }
    }

    /// [`Ctx::probe_write`] without the calling client. A client that has sent `ASKING` may write into a slot that this
    /// node imports; the module's own keys must not be written there.
    pub fn probe_write_detached(self, key: Str<'_>) -> bool {
        let detached = DetachedCtx::new(self);
        detached.is_some_and(|detached| detached.ctx().probe_write(key))
    }

    /// Address and name of a connection; `None` when it has ended, or when this is the id of a script or of another
    /// module. (While one of these executes, Valkey 9.1 finds it, and ends when it is asked for the address.)
    pub fn client_info(self, id: u64) -> Option<(String, Option<OwnedStr>)> {
        if id == self.client_id() && !self.has_connection() {
            return None;
        }
        let info = info_of(id)?;
        // SAFETY: the context is live; `addr` is NUL-terminated; the name's reference is ours.
        unsafe {
            let addr = CStr::from_ptr(info.addr.as_ptr()).to_string_lossy();
            let name = raw::RedisModule_GetClientNameById
                .and_then(|get| OwnedStr::from_raw(get(self.raw, id)));
            // The server's form of addresses, for CLIENT KILL ADDR.
            let addr = if addr.contains(':') {
                format!("[{addr}]:{}", info.port)
            } else {
                format!("{addr}:{}", info.port)
            };
            Some((addr, name))
        }
    }

    /// An integer.
    pub fn reply_integer(self, value: i64) {
        // The status of every reply function is OK in every server; for a client without replies they do nothing.
        // SAFETY: the context is live (see `Ctx`).
        unsafe { api!(RedisModule_ReplyWithLongLong)(self.raw, value) };
    }

    /// A status, as `+OK`.
    pub fn reply_status(self, status: &CStr) {
        // SAFETY: the context is live (see `Ctx`); the server copies the text.
        unsafe { api!(RedisModule_ReplyWithSimpleString)(self.raw, status.as_ptr()) };
    }

    /// Nil: `$-1`, or `_` in RESP3.
    pub fn reply_nil(self) {
        // SAFETY: the context is live (see `Ctx`).
        unsafe { api!(RedisModule_ReplyWithNull)(self.raw) };
    }

    /// Nil in the place of an array: `*-1`, or `_` in RESP3.
    pub fn reply_nil_array(self) {
        // SAFETY: the context is live (see `Ctx`).
        unsafe { api!(RedisModule_ReplyWithNullArray)(self.raw) };
    }

    /// An integer, or nil.
    pub fn reply_maybe(self, value: Option<i64>) {
        match value {
            Some(value) => self.reply_integer(value),
            None => self.reply_nil(),
        }
    }

    /// A bulk string.
    pub fn reply_bytes(self, bytes: &[u8]) {
        // SAFETY: the context is live (see `Ctx`); the bytes are copied.
        unsafe {
            api!(RedisModule_ReplyWithStringBuffer)(self.raw, bytes.as_ptr().cast(), bytes.len())
        };
    }

    /// The same, or nil.
    pub fn reply_bytes_or_nil(self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => self.reply_bytes(bytes),
            None => self.reply_nil(),
        }
    }

    /// The header of an array of `len` elements.
    pub fn reply_array(self, len: usize) {
        // SAFETY: the context is live (see `Ctx`).
        unsafe { api!(RedisModule_ReplyWithArray)(self.raw, len as _) };
    }

    /// The header of a map of `pairs` pairs; RESP2 clients get a flat array.
    pub fn reply_map(self, pairs: usize) {
        // SAFETY: the context is live (see `Ctx`).
        unsafe { api!(RedisModule_ReplyWithMap)(self.raw, pairs as _) };
    }

    /// An error.
    pub fn reply_error(self, error: &impl std::fmt::Display) {
        let text = std::ffi::CString::new(error.to_string()).unwrap_or_default();
        // SAFETY: the context is live (see `Ctx`); the text is copied.
        unsafe { api!(RedisModule_ReplyWithError)(self.raw, text.as_ptr()) };
    }
}
