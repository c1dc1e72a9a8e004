//! Events of the server: keys deleted or changed, databases flushed or swapped, data loaded, roles changed.
//!
//! A callback of a key here never writes and opens no lock: it runs during a client's command, and a write would reach
//! the AOF before the change that caused it. It only marks keys; the alarm settles them at the end of the tick. (Before
//! a `FLUSHDB` or `SWAPDB` the horizon is read.)

use std::ffi::{c_char, c_int, c_void, CStr};

use redis_module::raw;

use crate::lock::{may_be_in_memory, Event, Locks};
use crate::module::answers;
use crate::module::apply::decide;
use crate::module::entry::alarm;
use crate::module::entry::condemned;
use crate::module::entry::slots;
use crate::module::entry::unload;
use crate::module::ffi::api::checked;
use crate::module::ffi::call_reply::Reply;
use crate::module::ffi::ctx::{Callback, Ctx};
use crate::module::ffi::fault;
use crate::module::ffi::guard;
use crate::module::ffi::log;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::horizon;
use crate::module::keyspace::lock_key::name_of;
use crate::module::keyspace::replication;
use crate::module::state::settings;
use crate::module::state::shell;

/// The classes of events that may replace a lock by another value, or end or prolong it: strings and the results of
/// `SORT`, `SUNIONSTORE` and the like overwrite any key. (A stream does not: it is made under a free name only, or with
/// a GENERIC event.)
const CHANGES: c_int = raw::REDISMODULE_NOTIFY_GENERIC
    | raw::REDISMODULE_NOTIFY_HASH
    | raw::REDISMODULE_NOTIFY_STRING
    | raw::REDISMODULE_NOTIFY_LIST
    | raw::REDISMODULE_NOTIFY_SET
    | raw::REDISMODULE_NOTIFY_ZSET;

/// Subscribes at load to the events that cost other commands little.
pub fn subscribe(ctx: Ctx<'_>) -> Option<()> {
    // One subscription: each subscription adds about twenty instructions to every key event.
    let gone = raw::REDISMODULE_NOTIFY_EXPIRED | raw::REDISMODULE_NOTIFY_EVICTED;
    subscribe_keys(ctx, gone, Some(on_gone))?;
    for id in [
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
        raw::REDISMODULE_EVENT_FLUSHDB,
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_SWAPDB,
        raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD,
        raw::REDISMODULE_EVENT_CRON_LOOP,
        raw::REDISMODULE_EVENT_CONFIG,
        raw::REDISMODULE_EVENT_FORK_CHILD,
        raw::REDISMODULE_EVENT_PERSISTENCE,
    ] {
        subscribe_to(ctx, id)?;
    }
    // Servers without atomic moves of slots refuse this one.
    let _ = subscribe_to(ctx, slots::event_of(ctx));
    Some(())
}

/// Subscribes to a server event, if the server has it.
fn subscribe_to(ctx: Ctx<'_>, id: u64) -> Option<()> {
    subscribe_with(ctx, id, Some(on_server_event))
}

/// Subscribes a callback to a server event, if the server has it.
pub fn subscribe_with(
    ctx: Ctx<'_>,
    id: u64,
    callback: raw::RedisModuleEventCallback,
) -> Option<()> {
    let event = raw::RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the context is live and of this module.
    unsafe {
        checked!(RedisModule_SubscribeToServerEvent(
            ctx.as_ptr(),
            event,
            callback
        ))
    }
    .ok()
}

/// Subscribes, once, to the key events that waiters depend on. They cost time in every writing command of every client,
/// so not before the first request is parked.
pub fn watch(ctx: Ctx<'_>) {
    if shell::with(|shell| std::mem::replace(&mut shell.watching, true)) {
        return;
    }
    // Changes of the horizon's key before this were not noticed.
    shell::with(|shell| shell.locks.shared.tokens.doubt(0));
    if subscribe_keys(ctx, CHANGES, Some(on_changed)).is_none() {
        log::warning(
            "key events cannot be subscribed to: waiters will not notice a lock deleted by others",
        );
        // The next parked request tries again.
        shell::with(|shell| shell.watching = fault::is_on("failed-subscription-not-repeated"));
    }
}

/// Subscribes if `notify-keyspace-events` has the module's events: they include every lost lock, even without waiters.
fn watch_if_notified(ctx: Ctx<'_>) {
    if ctx.notifies(raw::REDISMODULE_NOTIFY_MODULE) {
        watch(ctx);
    }
}

fn subscribe_keys(
    ctx: Ctx<'_>,
    types: c_int,
    callback: raw::RedisModuleNotificationFunc,
) -> Option<()> {
    // SAFETY: the context is live and belongs to this module.
    unsafe {
        checked!(RedisModule_SubscribeToKeyspaceEvents(
            ctx.as_ptr(),
            types,
            callback
        ))
    }
    .ok()
}

/// A key has expired or was evicted.
unsafe extern "C" fn on_gone(
    ctx: *mut raw::RedisModuleCtx,
    types: c_int,
    _event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    guard::entry("gone", || {
        // SAFETY: the server's context for this callback; the local value ends with it.
        let callback = unsafe { Callback::new(ctx) };
        // SAFETY: the server's key for this callback.
        let (ctx, key) = (callback.ctx(), unsafe { callback.string(key) });
        if types & raw::REDISMODULE_NOTIFY_EVICTED != 0 {
            mark_lost(ctx, key);
            if horizon::is_horizon(key.bytes()) {
                horizon::mark_lost(key);
            }
        } else if shell::with(|shell| shell.notifies_own) {
            return;
        } else if shell::with(|shell| shell.locks.expired(ctx.key_ref(key))) {
            ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, Event::Expire.name(), key);
        }
        alarm::rearm(ctx);
    });
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn on_changed(
    ctx: *mut raw::RedisModuleCtx,
    _types: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    guard::entry("changed", || {
        // SAFETY: the server's context for this callback; the local value ends with it.
        let callback = unsafe { Callback::new(ctx) };
        // SAFETY: the server's key for this callback.
        let (ctx, key) = (callback.ctx(), unsafe { callback.string(key) });
        let name = key.bytes();
        let is_horizon = horizon::is_horizon(name);
        // Fast path: runs for every writing command of every client, and for nearly all returns here.
        if (!is_horizon && !may_be_in_memory(name)) || fault::is_on("key-events-ignored") {
            return;
        }
        // SAFETY: the server's NUL-terminated event name for this callback.
        let event = unsafe { CStr::from_ptr(event) };
        if is_horizon {
            horizon::mark_lost(key);
        } else if !shell::with(|shell| shell.locks.cares_about(ctx.key_ref(key))) {
            return;
        } else if matches!(event.to_bytes(), b"del" | b"rename_from" | b"move_from")
            && !shell::with(|shell| shell.notifies_own)
        {
            mark_lost(ctx, key);
        } else {
            let notifies = ctx.notifies(raw::REDISMODULE_NOTIFY_MODULE);
            shell::with(|shell| {
                if matches!(event.to_bytes(), b"hdel" | b"zrem") {
                    shell.locks.removed_from(ctx.key_ref(key));
                }
                shell.locks.changed(ctx.key_ref(key), notifies);
            });
        }
        alarm::rearm(ctx);
    });
    raw::REDISMODULE_OK as c_int
}

fn mark_lost(ctx: Ctx<'_>, key: Str<'_>) {
    if shell::with(|shell| shell.locks.lost(ctx.key_ref(key))) {
        ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, Event::Lost.name(), key);
    }
}

/// Sends the event `lost` for every lock of a database (`None`: of all) that was flushed or swapped, if such events are
/// enabled: the server itself sends no event for the keys.
fn mark_all_lost(ctx: Ctx<'_>, db: Option<i32>) {
    if !ctx.notifies(raw::REDISMODULE_NOTIFY_MODULE) {
        return;
    }
    let before = ctx.db();
    for key in shell::with(|shell| shell.locks.cared_about(db)) {
        ctx.select(key.as_ref().db);
        let name = name_of(&key);
        ctx.notify(
            raw::REDISMODULE_NOTIFY_MODULE,
            Event::Lost.name(),
            name.as_str(),
        );
    }
    ctx.select(before);
}

unsafe extern "C" fn on_server_event(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    guard::entry("server-event", || {
        // SAFETY: the server's context for this callback; the local value ends with it.
        let callback = unsafe { Callback::new(ctx) };
        let ctx = callback.ctx();
        match event.id {
            raw::REDISMODULE_EVENT_CRON_LOOP => {
                unload::used(ctx);
                return alarm::check(ctx);
            }
            raw::REDISMODULE_EVENT_CONFIG => {
                // SAFETY: for this event the data is a change of settings, live through the callback: an array of so
                // many names, each ended by a NUL.
                let changed: Vec<&CStr> = unsafe {
                    let change = &*data.cast::<raw::RedisModuleConfigChange>();
                    let names =
                        (0..change.num_changes as usize).map(|at| change.config_names.add(at));
                    names.map(|name| CStr::from_ptr(*name)).collect()
                };
                follow_settings(ctx, |name| changed.contains(&name));
            }
            raw::REDISMODULE_EVENT_FORK_CHILD | raw::REDISMODULE_EVENT_PERSISTENCE => {
                return replication::forget_receivers();
            }
            // The replay of an AOF flushes and swaps as well. Every key is settled when the load has ended.
            raw::REDISMODULE_EVENT_FLUSHDB | raw::REDISMODULE_EVENT_SWAPDB if ctx.is_loading() => {
                return;
            }
            raw::REDISMODULE_EVENT_FLUSHDB if subevent != raw::REDISMODULE_SUBEVENT_FLUSHDB_END => {
                let is_alone = !ctx.is_cluster() && !ctx.is_replica();
                if is_alone && !fault::is_on("flushed-horizon-not-read") {
                    horizon::learn_horizon(ctx);
                }
                return;
            }
            raw::REDISMODULE_EVENT_FLUSHDB => {
                // SAFETY: for this event the data is a flush info, live through the callback.
                let db = unsafe { (*data.cast::<raw::RedisModuleFlushInfo>()).dbnum };
                flushed(ctx, (db >= 0).then_some(db));
            }
            // `repl-diskless-load swapdb`: a snapshot was loaded beside the data, which it has now replaced, without
            // the event of a flush. The end of the load follows. An aborted load leaves the data as it is.
            raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD
                if subevent == raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED =>
            {
                flushed(ctx, None);
            }
            raw::REDISMODULE_EVENT_SWAPDB => {
                // SAFETY: for this event the data is a swap info, live through the callback.
                let info = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
                swapped(ctx, info.dbnum_first, info.dbnum_second);
            }
            raw::REDISMODULE_EVENT_LOADING
                if subevent >= raw::REDISMODULE_SUBEVENT_LOADING_ENDED =>
            {
                shell::with(|shell| shell.locks.reloaded());
                replication::forget_receivers();
            }
            raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => {
                role_changed(
                    ctx,
                    subevent == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER,
                );
            }
            slots::REDIS_EVENT | slots::VALKEY_EVENT => slots::moved(ctx, subevent),
            _ => return,
        }
        alarm::rearm(ctx);
    });
}

/// The module was loaded, or settings were changed. Those of the server are read only after a change, and where they
/// matter: to read one leaves traces (`SLOWLOG`).
pub fn follow_settings(ctx: Ctx<'_>, is_changed: impl Fn(&CStr) -> bool) {
    warn_of_eviction(ctx);
    if is_changed(IDLE_LIMIT) {
        shell::with(|shell| shell.idle_limit_is_new = true);
        if shell::with(|shell| shell.watching_clients) {
            warn_of_idle_limit(ctx);
        }
    }
    if is_changed(condemned::BUFFER_LIMITS) {
        shell::with(|shell| shell.buffers_are_limited = None);
    }
    watch_if_notified(ctx);
    alarm::follow_settings(ctx);
    unload::follow_setting(ctx);
    if let Some(hooks) = shell::hooks() {
        (hooks.follow_setting)(ctx);
    }
}

/// The content of a database (`None`: of all) is gone.
fn flushed(ctx: Ctx<'_>, db: Option<i32>) {
    mark_all_lost(ctx, db);
    shell::with(|shell| shell.locks.flushed(db));
}

/// `SWAPDB` has exchanged two databases.
fn swapped(ctx: Ctx<'_>, first: i32, second: i32) {
    if first == second {
        return;
    }
    if !ctx.is_cluster() && !ctx.is_replica() {
        horizon::learn_swapped_horizon(ctx, first, second);
    }
    mark_all_lost(ctx, Some(first));
    mark_all_lost(ctx, Some(second));
    shell::with(|shell| shell.locks.swapped(first, second));
}

/// The server has become a master, or a replica.
fn role_changed(ctx: Ctx<'_>, is_master: bool) {
    let now = ctx.now();
    match is_master {
        true => shell::with(|shell| {
            let delay_ms = settings::startup_delay_ms();
            shell.locks.shared.startup_delay.begin(now, delay_ms);
            shell.locks.reloaded();
        }),
        false => answers::note_all(ctx, &decide(now, Locks::demoted).1),
    }
    replication::forget_receivers();
}

/// The server's setting that closes idle connections.
const IDLE_LIMIT: &CStr = c"timeout";

/// Logs a warning if the server closes idle connections, where connections have holds, after each change.
pub fn warn_of_idle_limit(ctx: Ctx<'_>) {
    if !shell::with(|shell| std::mem::take(&mut shell.idle_limit_is_new)) {
        return;
    }
    let seconds = Reply::of_setting(ctx, IDLE_LIMIT);
    if let Some(seconds) = seconds.filter(|seconds| seconds != b"0") {
        let seconds = String::from_utf8_lossy(&seconds);
        log::warning(&format!(
            "timeout is {seconds}: a connection that sends nothing for so many seconds is closed, and its SESSION holds \
             are released: use 'timeout 0' on a server that keeps such holds"
        ));
    }
}

/// Logs a warning when `maxmemory` begins to permit that held locks are evicted.
fn warn_of_eviction(ctx: Ctx<'_>) {
    let risky = ctx.may_evict();
    let news = shell::with(|shell| std::mem::replace(&mut shell.eviction_risk, risky) != risky);
    if news && risky {
        log::warning(
            "maxmemory is set with a policy that may evict locks, and an evicted lock has two holders: \
             use 'maxmemory-policy noeviction' on a server that keeps locks",
        );
    }
}
