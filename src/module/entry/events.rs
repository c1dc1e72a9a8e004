//! Events of the server: keys deleted or changed, databases flushed or swapped, data loaded, roles changed.
//!
//! A callback of a key here never writes and opens no lock: it runs during a client's command, and a write would reach
//! the AOF before the change that caused it. It only marks keys; the alarm settles them at the end of the tick. (Before
//! a `FLUSHDB` or `SWAPDB` the horizon is read.)
//!
//! Valkey from 8.1.0 to before 9.1.1 calls the callback of a key event on the client of the running command, selects
//! the event's database for it, and selects no other afterwards: behind a `MOVE` the client would stay in the other
//! database. The callback does not learn the former one. There the module subscribes to no class whose events may name
//! another database than the client's (`MOVE`, `COPY ... DB`, a key that expires under them): a server event, which has
//! a client of its own, reports the keys that are removed, and the cron looks at keys for the other changes.

use std::ffi::{c_char, c_int, c_void, CStr};

use redis_module::raw;

use crate::lock::{may_be_in_memory, permits_of, Event, KeyId, Locks, Resource, WaiterId};
use crate::module::answers;
use crate::module::apply::decide;
use crate::module::entry::alarm;
use crate::module::entry::condemned;
use crate::module::entry::load;
use crate::module::entry::slots;
use crate::module::ffi::api::checked;
use crate::module::ffi::call_reply::Reply;
use crate::module::ffi::ctx::{Callback, Ctx};
use crate::module::ffi::fault;
use crate::module::ffi::guard;
use crate::module::ffi::log;
use crate::module::ffi::raw_key::{self, RawKey};
use crate::module::ffi::strings::{OwnedStr, Str};
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

/// Where key events move clients: the most keys with waiters that the cron looks at.
const KEYS_PER_LOOK: usize = 1000;

/// Subscribes at load to the events that cost other commands little.
pub fn subscribe(ctx: Ctx<'_>) -> Option<()> {
    if shell::with(|shell| shell.events_move_clients) {
        subscribe_with(ctx, raw::REDISMODULE_EVENT_KEY, Some(on_removed))?;
    } else {
        // One subscription: each subscription adds about twenty instructions to every key event.
        let gone = raw::REDISMODULE_NOTIFY_EXPIRED | raw::REDISMODULE_NOTIFY_EVICTED;
        subscribe_keys(ctx, gone, Some(on_gone))?;
    }
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
/// so not before the first request waits.
pub fn watch(ctx: Ctx<'_>) {
    if shell::with(|shell| std::mem::replace(&mut shell.watching, true)) {
        return;
    }
    // Changes of the horizon's key before this were not noticed.
    shell::with(|shell| shell.locks.shared.tokens.doubt(0));
    let changes = match shell::with(|shell| shell.events_move_clients) {
        true => CHANGES & !raw::REDISMODULE_NOTIFY_GENERIC,
        false => CHANGES,
    };
    if subscribe_keys(ctx, changes, Some(on_changed)).is_none() {
        log::warning(
            "key events cannot be subscribed to: waiters will not notice a lock deleted by others",
        );
        // The next request that waits tries again.
        shell::with(|shell| shell.watching = fault::is_on("failed-subscription-not-repeated"));
    }
}

/// Where key events move clients: what is seen of the keys that this request waits for, so that [`look`] notices a
/// change.
pub fn see(ctx: Ctx<'_>, request: WaiterId) {
    if !shell::with(|shell| shell.events_move_clients) {
        return;
    }
    for (key, _) in shell::with(|shell| shell.locks.shared.waiters.places_of(request)) {
        let seen = seen(ctx, &key);
        shell::with(|shell| shell.locks.shared.waiters.see(key.as_ref(), seen));
    }
}

/// Where key events move clients: looks at some keys with waiters, and schedules those to be settled that have appeared
/// or have another TTL; and at the horizon, which is to have none. Called by the server's cron.
pub fn look(ctx: Ctx<'_>) {
    if !shell::with(|shell| shell.events_move_clients && shell.watching) {
        return;
    }
    let keys = shell::with(|shell| {
        let waiters = &shell.locks.shared.waiters;
        let (keys, next) = waiters.waited_from(shell.alarm.looked, KEYS_PER_LOOK);
        shell.alarm.looked = next;
        keys
    });
    let before = ctx.db();
    for key in keys {
        ctx.select(key.as_ref().db);
        let seen = seen(ctx, &key);
        shell::with(|shell| {
            let waiters = &mut shell.locks.shared.waiters;
            if waiters.see(key.as_ref(), seen) {
                waiters.schedule_settle(key.as_ref());
            }
        });
    }
    ctx.select(before);
    horizon::notice_ttl(ctx);
}

/// The type of a key's value and the end of its TTL, of a semaphore also those of its permits, as one number.
fn seen(ctx: Ctx<'_>, key: &KeyId) -> i64 {
    const TYPES: i64 = 16;
    let seen = |name: Str<'_>| {
        let key = RawKey::open(ctx, name, raw::REDISMODULE_READ | raw_key::NO_TRACE);
        key.map_or(0, |key| {
            let end_ms = key.end_ms().unwrap_or_default();
            end_ms.wrapping_mul(TYPES).wrapping_add(key.kind() as i64)
        })
    };
    let permits = match key.as_ref().resource {
        Resource::Semaphore => seen(OwnedStr::new(&permits_of(key.as_ref().name)).as_str()),
        _ => 0,
    };
    seen(name_of(key).as_str())
        .wrapping_mul(31)
        .wrapping_add(permits)
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
        } else {
            mark_expired(ctx, key);
        }
        alarm::rearm(ctx);
    });
    raw::REDISMODULE_OK as c_int
}

/// Where key events move clients: a key is about to be removed, because it was deleted, renamed, moved or replaced, or
/// has expired or is evicted. A value that overwrites it has an event of its type.
unsafe extern "C" fn on_removed(
    ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    let is_gone = matches!(
        subevent,
        raw::REDISMODULE_SUBEVENT_KEY_EXPIRED | raw::REDISMODULE_SUBEVENT_KEY_EVICTED
    );
    // As elsewhere: what is gone is noticed from the start, what others change from the first wait on.
    if raw_key::is_removing() || !is_gone && !shell::with(|shell| shell.watching) {
        return;
    }
    guard::entry(if is_gone { "gone" } else { "changed" }, || {
        // SAFETY: the server's context for this callback; the local value ends with it.
        let callback = unsafe { Callback::new(ctx) };
        // SAFETY: for this event the data is a key's info, whose key is open through the callback; so is its name. The
        // function is there: without this event it is not called.
        let name = unsafe {
            let key = (*data.cast::<raw::RedisModuleKeyInfo>()).key;
            raw::RedisModule_GetKeyNameFromModuleKey.map(|name_of| name_of(key).cast_mut())
        };
        let Some(name) = name.filter(|name| !name.is_null()) else {
            return;
        };
        // SAFETY: as above.
        let (ctx, key) = (callback.ctx(), unsafe { callback.string(name) });
        let is_horizon = horizon::is_horizon(key.bytes());
        // Fast path: runs for every key that is removed.
        if !is_horizon && !may_be_in_memory(key.bytes()) {
            return;
        }
        if is_horizon {
            horizon::mark_lost(key);
        } else if subevent == raw::REDISMODULE_SUBEVENT_KEY_OVERWRITTEN {
            return;
        } else if subevent == raw::REDISMODULE_SUBEVENT_KEY_EXPIRED {
            mark_expired(ctx, key);
        } else if shell::with(|shell| shell.locks.cares_about(ctx.key_ref(key))) {
            mark_lost(ctx, key);
        }
        alarm::rearm(ctx);
    });
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
        changed(ctx, unsafe { CStr::from_ptr(event) }, key);
    });
    raw::REDISMODULE_OK as c_int
}

/// A key, which may be one that the module knows, was changed.
fn changed(ctx: Ctx<'_>, event: &CStr, key: Str<'_>) {
    if horizon::is_horizon(key.bytes()) {
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
}

fn mark_expired(ctx: Ctx<'_>, key: Str<'_>) {
    if shell::with(|shell| shell.locks.expired(ctx.key_ref(key))) {
        ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, Event::Expire.name(), key);
    }
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
                load::used(ctx);
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
