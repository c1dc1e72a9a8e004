//! News from the server: keys that went away or changed, databases flushed or swapped, data loaded,
//! roles changed.
//!
//! A callback here never writes and never opens a key: it runs in the middle of somebody else's
//! command, and a write would reach the AOF before the change that caused it. It only marks keys; the
//! alarm settles them at the end of the turn.

use std::ffi::{c_char, c_int, c_void, CStr};

use redis_module::raw;

use crate::lock::{Event, KeyRef};
use crate::module::alarm;
use crate::module::api::checked;
use crate::module::condemned;
use crate::module::ctx::Ctx;
use crate::module::fence;
use crate::module::guard;
use crate::module::key::name_of;
use crate::module::log;
use crate::module::replication;
use crate::module::sessions;
use crate::module::settings;
use crate::module::shell;
use crate::module::slots;
use crate::module::strings::Str;
use crate::redisson;

/// Everything that may put something else in the place of a lock, or end or prolong it: strings and
/// the results of `SORT`, `SUNIONSTORE` and the like are written over whatever is there. (A stream is
/// not: it comes to a free name only, or by a GENERIC event.)
const CHANGES: c_int = raw::REDISMODULE_NOTIFY_GENERIC
    | raw::REDISMODULE_NOTIFY_HASH
    | raw::REDISMODULE_NOTIFY_STRING
    | raw::REDISMODULE_NOTIFY_LIST
    | raw::REDISMODULE_NOTIFY_SET
    | raw::REDISMODULE_NOTIFY_ZSET;

/// Subscribes at load to what costs other commands nothing.
pub fn subscribe(ctx: Ctx) -> Option<()> {
    subscribe_keys(ctx, raw::REDISMODULE_NOTIFY_EXPIRED, on_expired)?;
    subscribe_keys(ctx, raw::REDISMODULE_NOTIFY_EVICTED, on_evicted)?;
    for id in [
        raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
        raw::REDISMODULE_EVENT_FLUSHDB,
        raw::REDISMODULE_EVENT_LOADING,
        raw::REDISMODULE_EVENT_SWAPDB,
        raw::REDISMODULE_EVENT_CRON_LOOP,
        raw::REDISMODULE_EVENT_CONFIG,
        raw::REDISMODULE_EVENT_FORK_CHILD,
        raw::REDISMODULE_EVENT_PERSISTENCE,
    ] {
        subscribe_to(ctx, id)?;
    }
    Some(())
}

/// Subscribes to a server event, if the server has it.
pub fn subscribe_to(ctx: Ctx, id: u64) -> Option<()> {
    subscribe_with(ctx, id, on_server_event)
}

/// Subscribes, once, to clients that come and go: nobody pays for that before the first hold is bound to one.
pub fn watch_clients(ctx: Ctx) -> Option<()> {
    if !shell::with(|shell| shell.watching_clients) {
        let id = raw::REDISMODULE_EVENT_CLIENT_CHANGE;
        subscribe_with(ctx, id, sessions::on_client_event)?;
        let has_jobs = sessions::has_jobs(ctx);
        shell::with(|shell| (shell.watching_clients, shell.has_jobs) = (true, has_jobs));
    }
    Some(())
}

type EventCallback =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, raw::RedisModuleEvent, u64, *mut c_void);

fn subscribe_with(ctx: Ctx, id: u64, callback: EventCallback) -> Option<()> {
    let event = raw::RedisModuleEvent { id, dataver: 1 };
    // SAFETY: the context is live and of this module; the callback has the type that the server expects.
    unsafe {
        checked!(RedisModule_SubscribeToServerEvent(
            ctx.as_ptr(),
            event,
            Some(callback)
        ))
    }
    .ok()
}

/// Subscribes, once, to the key events that waiters depend on. They cost every writing command of
/// every client a little, so nobody pays before the first request is parked.
pub fn watch(ctx: Ctx) {
    if shell::with(|shell| std::mem::replace(&mut shell.watching, true)) {
        return;
    }
    // What happened to the horizon's key so far was not heard of.
    shell::with(|shell| shell.locks.tokens.doubt(0));
    if subscribe_keys(ctx, CHANGES, on_changed).is_none() {
        log::warning(
            "key events cannot be subscribed to: waiters will not notice a lock deleted by others",
        );
        // The next request that is parked tries again.
        shell::with(|shell| shell.watching = false);
    }
}

/// Who asks for our events is told of every lost lock, even before anybody waits.
pub fn watch_if_asked(ctx: Ctx) {
    if ctx.is_asked_for(raw::REDISMODULE_NOTIFY_MODULE) {
        watch(ctx);
    }
}

type KeyCallback = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    c_int,
    *const c_char,
    *mut raw::RedisModuleString,
) -> c_int;

fn subscribe_keys(ctx: Ctx, types: c_int, callback: KeyCallback) -> Option<()> {
    // SAFETY: the context is live and belongs to this module.
    unsafe {
        checked!(RedisModule_SubscribeToKeyspaceEvents(
            ctx.as_ptr(),
            types,
            Some(callback)
        ))
    }
    .ok()
}

unsafe extern "C" fn on_expired(
    ctx: *mut raw::RedisModuleCtx,
    _types: c_int,
    _event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    guard::entry("expired", || {
        // SAFETY: the server's context and key for this callback.
        let (ctx, key) = unsafe { (Ctx::new(ctx), Str::new(key)) };
        if shell::with(|shell| shell.deletes) {
            return;
        }
        if shell::with(|shell| shell.locks.expired(id(ctx, key))) {
            ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, Event::Expire.name(), key);
        }
        alarm::rearm(ctx);
    });
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn on_evicted(
    ctx: *mut raw::RedisModuleCtx,
    _types: c_int,
    _event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    guard::entry("evicted", || {
        // SAFETY: the server's context and key for this callback.
        let (ctx, key) = unsafe { (Ctx::new(ctx), Str::new(key)) };
        lose(ctx, key);
        if fence::is_horizon(key.bytes()) {
            fence::lose_horizon(key);
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
        // SAFETY: the server's context, key and NUL-terminated event name for this callback.
        let (ctx, key, event) = unsafe { (Ctx::new(ctx), Str::new(key), CStr::from_ptr(event)) };
        // Every writing command of every client comes by here, and nearly all leave at once: 80
        // of the 600 instructions that the server spends on the call.
        if fence::is_horizon(key.bytes()) {
            fence::lose_horizon(key);
        } else if !shell::with(|shell| {
            !shell.locks.is_idle() && shell.locks.cares_about(id(ctx, key))
        }) {
            return;
        } else if matches!(event.to_bytes(), b"del" | b"rename_from" | b"move_from")
            && !shell::with(|shell| shell.deletes)
        {
            lose(ctx, key);
        } else {
            let asked = ctx.is_asked_for(raw::REDISMODULE_NOTIFY_MODULE);
            shell::with(|shell| shell.locks.changed(id(ctx, key), asked));
        }
        alarm::rearm(ctx);
    });
    raw::REDISMODULE_OK as c_int
}

/// Tells others that we have deleted a key. We hear of it, too: then a lock that was freed is no lost one,
/// even if somebody waits for it who could not be granted it yet.
pub fn tell_of_deletion(ctx: Ctx, key: Str<'_>) {
    tell_of_our_own(ctx, raw::REDISMODULE_NOTIFY_GENERIC, c"del", key);
}

/// Tells others that a key had run out which we have swept away before the server saw that. The lock is held
/// again when we hear of it, too.
pub fn tell_of_expiry(ctx: Ctx, key: Str<'_>) {
    let event = Event::KeyExpired.name();
    tell_of_our_own(ctx, raw::REDISMODULE_NOTIFY_EXPIRED, event, key);
}

fn tell_of_our_own(ctx: Ctx, class: c_int, event: &CStr, key: Str<'_>) {
    shell::with(|shell| shell.deletes = true);
    ctx.notify(class, event, key);
    shell::with(|shell| shell.deletes = false);
}

fn lose(ctx: Ctx, key: Str<'_>) {
    if shell::with(|shell| shell.locks.lost(id(ctx, key))) {
        ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, Event::Lost.name(), key);
    }
}

/// The locks of a database (`None`: of all) are gone from under their names. Others are told one by one,
/// if anybody asks to be: the server itself says nothing of the keys.
fn lose_all(ctx: Ctx, db: Option<i32>) {
    if !ctx.is_asked_for(raw::REDISMODULE_NOTIFY_MODULE) {
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

/// The lock of this name in the selected database.
pub fn id<'a>(ctx: Ctx, key: Str<'a>) -> KeyRef<'a> {
    KeyRef {
        db: ctx.db(),
        name: key.bytes(),
    }
}

unsafe extern "C" fn on_server_event(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    guard::entry("server-event", || {
        // SAFETY: the server's context for this callback.
        let ctx = unsafe { Ctx::new(ctx) };
        match event.id {
            raw::REDISMODULE_EVENT_CRON_LOOP => return alarm::check(ctx),
            raw::REDISMODULE_EVENT_CONFIG => {
                warn_of_eviction(ctx);
                condemned::follow_setting(ctx);
                watch_if_asked(ctx);
                alarm::follow_settings();
                redisson::server::follow_setting(ctx);
            }
            raw::REDISMODULE_EVENT_FORK_CHILD | raw::REDISMODULE_EVENT_PERSISTENCE => {
                return replication::ask_again();
            }
            // An AOF that is replayed, or a snapshot that takes the place of the data, flushes and
            // swaps as well. Everything is looked at again when it has been loaded.
            raw::REDISMODULE_EVENT_FLUSHDB | raw::REDISMODULE_EVENT_SWAPDB if ctx.is_loading() => {
                return;
            }
            raw::REDISMODULE_EVENT_FLUSHDB if subevent != raw::REDISMODULE_SUBEVENT_FLUSHDB_END => {
                if !ctx.is_cluster() && !ctx.is_replica() {
                    fence::learn_horizon(ctx);
                }
                return;
            }
            raw::REDISMODULE_EVENT_FLUSHDB => {
                // SAFETY: for this event the data is a flush info, live through the callback.
                let db = unsafe { (*data.cast::<raw::RedisModuleFlushInfo>()).dbnum };
                let db = (db >= 0).then_some(db);
                lose_all(ctx, db);
                shell::with(|shell| shell.locks.flushed(db));
            }
            raw::REDISMODULE_EVENT_SWAPDB => {
                // SAFETY: for this event the data is a swap info, live through the callback.
                let info = unsafe { &*data.cast::<raw::RedisModuleSwapDbInfo>() };
                let (first, second) = (info.dbnum_first, info.dbnum_second);
                if !ctx.is_cluster() && !ctx.is_replica() {
                    fence::learn_swapped_horizon(ctx, first, second);
                }
                if first != second {
                    lose_all(ctx, Some(first));
                    lose_all(ctx, Some(second));
                }
                shell::with(|shell| shell.locks.swapped(first, second));
            }
            raw::REDISMODULE_EVENT_LOADING
                if subevent >= raw::REDISMODULE_SUBEVENT_LOADING_ENDED =>
            {
                shell::with(|shell| shell.locks.reloaded());
                replication::ask_again();
            }
            raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => {
                let now = ctx.now();
                shell::with(|shell| match subevent {
                    raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER => {
                        shell
                            .locks
                            .startup_delay
                            .begin(now, settings::startup_delay_ms());
                        shell.locks.reloaded();
                    }
                    _ => shell.locks.demoted(),
                });
                replication::ask_again();
            }
            slots::REDIS_EVENT | slots::VALKEY_EVENT => slots::moved(ctx, subevent),
            _ => return,
        }
        alarm::rearm(ctx);
    });
}

/// Says so in the log when `maxmemory` may delete locks under their holders.
pub fn warn_of_eviction(ctx: Ctx) {
    let risky = ctx.may_evict();
    let news = shell::with(|shell| std::mem::replace(&mut shell.eviction_risk, risky) != risky);
    if news && risky {
        log::warning(
            "maxmemory is set with a policy that may evict locks, and an evicted lock has two holders: \
             use 'maxmemory-policy noeviction' on a server that keeps locks",
        );
    }
}
