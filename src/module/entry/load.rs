//! `MODULE LOAD`, and why `MODULE UNLOAD` is refused.

use std::ffi::{c_int, CStr};
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use crate::module::entry::alarm;
use crate::module::entry::command::{self, Register};
use crate::module::entry::events;
use crate::module::entry::info;
use crate::module::entry::slots;
use crate::module::ffi::api::{self, api, has};
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::{server_version, Callback, Ctx};
use crate::module::ffi::fault;
use crate::module::ffi::filter::Filter;
use crate::module::ffi::guard;
use crate::module::ffi::log;
use crate::module::ffi::main_thread::MainThread;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::state::settings;
use crate::module::state::shell;

const NAME: &CStr = c"lock";

/// The module's version as one number for the server (`MODULE LIST`): 1.2.3 is 10203.
const VERSION: c_int = number(env!("CARGO_PKG_VERSION_MAJOR")) * 10_000
    + number(env!("CARGO_PKG_VERSION_MINOR")) * 100
    + number(env!("CARGO_PKG_VERSION_PATCH"));

const fn number(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => panic!("the version is not three numbers"),
    }
}

/// Major versions of the oldest supported servers.
const OLDEST_REDIS: i32 = 7;
const OLDEST_VALKEY: i32 = 8;

/// The server loads the module.
///
/// # Safety
/// Called for the server's call of `RedisModule_OnLoad` only, with its context.
pub unsafe fn on_load(
    raw_ctx: *mut raw::RedisModuleCtx,
    argc: c_int,
    commands: &'static [Register],
) -> c_int {
    // Nothing may allocate before this call: the allocator is the server's.
    // SAFETY: the context is the server's; the name is a constant.
    let status = unsafe {
        raw::Export_RedisModule_Init(
            raw_ctx,
            NAME.as_ptr(),
            VERSION,
            raw::REDISMODULE_APIVER_1 as c_int,
        )
    };
    if status != raw::REDISMODULE_OK as c_int || !has_allocator() {
        return raw::REDISMODULE_ERR as c_int;
    }
    guard::install_hook(shell::recover_from_panic);
    // SAFETY: the server's context for this callback; the local value ends with it.
    let callback = unsafe { Callback::new(raw_ctx) };
    let ctx = callback.ctx();
    match guard::entry("load", || load(ctx, argc, commands)) {
        Some(Ok(())) => raw::REDISMODULE_OK as c_int,
        failed => {
            if let Some(Err(reason)) = failed {
                log::warning(&format!("not loaded: {reason}"));
            }
            guard::remove_hook();
            raw::REDISMODULE_ERR as c_int
        }
    }
}

/// Whether no command has been sent since the load: within the command that loads the module.
static IS_LOADING: AtomicBool = AtomicBool::new(false);

/// The filter that sees the first command after the load. (A server that refuses it has the load behind itself at
/// once.)
// SAFETY: the module has no threads, and the server calls it on its main thread only.
static FIRST: MainThread<Filter> = unsafe { MainThread::empty() };

fn loaded(ctx: Ctx<'_>) {
    let filter = Filter::register(ctx, Some(on_first));
    IS_LOADING.store(filter.is_some(), Ordering::Relaxed);
    FIRST.set(filter);
}

unsafe extern "C" fn on_first(_: *mut raw::RedisModuleCommandFilterCtx) {
    IS_LOADING.store(false, Ordering::Relaxed);
}

/// Called by the server's cron, so after the command that has loaded the module.
pub fn used(ctx: Ctx<'_>) {
    if let Some(filter) = FIRST.take() {
        filter.unregister(ctx);
    }
    IS_LOADING.store(false, Ordering::Relaxed);
}

/// The server asks whether the module may be unloaded. It may not: the server keeps pointers to the descriptions of
/// commands, in queued and postponed commands, in connections and in the rules of users, and follows them afterwards.
/// Only within the command that loads it, when a setting of `MODULE LOADEX` is unknown, the server unloads the module
/// for sure, and ends itself at a refusal; until then it has looked up no command of the module.
///
/// # Safety
/// Called for the server's call of `RedisModule_OnUnload` only, with its context.
pub unsafe fn on_unload(raw_ctx: *mut raw::RedisModuleCtx) -> c_int {
    if !IS_LOADING.load(Ordering::Relaxed) {
        guard::entry("unload", || log::warning(NOT_UNLOADED));
        return raw::REDISMODULE_ERR as c_int;
    }
    // SAFETY: the server's context for this callback; the local value ends with it.
    let callback = unsafe { Callback::new(raw_ctx) };
    let ctx = callback.ctx();
    let done = guard::entry("unload", || {
        alarm::stop(ctx);
        FIRST.set(None);
        shell::stop();
    });
    if done.is_none() {
        guard::entry("unload-again", shell::stop);
    }
    guard::remove_hook();
    raw::REDISMODULE_OK as c_int
}

/// The line of the log after a refused `MODULE UNLOAD`.
const NOT_UNLOADED: &str =
    "not unloaded: a server with the lock module is restarted to replace or remove it, a pair \
by a fail-over (docs/PACKAGES.md, \"Upgrade\")";

fn has_allocator() -> bool {
    has!(RedisModule_Alloc) && has!(RedisModule_Log)
}

fn load(ctx: Ctx<'_>, argc: c_int, commands: &'static [Register]) -> Result<(), String> {
    check_server(ctx)?;
    if argc > 0 {
        return Err("the module takes no arguments; settings are lock.* in redis.conf".into());
    }
    if ctx.is_in_unit() {
        // The rest of a transaction is seen by no filter.
        return Err("load the module outside of MULTI".into());
    }
    if let Some(reason) = reason_not_to_load(ctx) {
        return Err(reason);
    }
    set_options(ctx);
    let own_category = command::add_category(ctx);
    for registration in commands {
        let registered = registration().perform(ctx, own_category);
        registered.ok_or("a command could not be registered")?;
    }
    settings::register(ctx).ok_or("the settings could not be registered")?;
    // SAFETY: the context is OnLoad's and all settings are registered.
    let status = unsafe { api!(RedisModule_LoadConfigs)(ctx.as_ptr()) };
    if status != raw::REDISMODULE_OK as c_int {
        return Err("a lock.* setting was refused".into());
    }
    info::register(ctx).ok_or("the INFO section could not be registered")?;
    shell::start(ctx);
    if ctx.is_starting_up() {
        let now = ctx.now();
        shell::with(|shell| {
            shell
                .locks
                .shared
                .startup_delay
                .begin(now, settings::startup_delay_ms())
        });
    }
    events::subscribe(ctx).ok_or("the server's events could not be subscribed to")?;
    if own_category.is_none() {
        log::notice("this server cannot add the ACL category @lock; grant +lock.acquire and so on");
    }
    warn_of_missing(ctx);
    events::follow_settings(ctx, |_| true);
    loaded(ctx);
    Ok(())
}

fn set_options(ctx: Ctx<'_>) {
    // Without this option every opened key would count as changed.
    let no_signals = raw::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED as c_int;
    // Without this option a replica ignores `repl-diskless-load swapdb`: `events.rs` has its events.
    let async_load = raw::REDISMODULE_OPTIONS_HANDLE_REPL_ASYNC_LOAD as c_int;
    let options = no_signals | async_load | slots::options(ctx, major_version());
    if fault::is_on("module-options-not-set") {
        return;
    }
    // SAFETY: the context is OnLoad's.
    unsafe { api!(RedisModule_SetModuleOptions)(ctx.as_ptr(), options) };
}

fn major_version() -> i32 {
    (server_version() >> 16) & 0xff
}

fn check_server(ctx: Ctx<'_>) -> Result<(), String> {
    const TOO_OLD: &str = "this module needs Redis 7.0 or Valkey 8.0 at least";
    let major = major_version();
    if major < OLDEST_REDIS || (ctx.is_valkey() && major < OLDEST_VALKEY) {
        return Err(TOO_OLD.into());
    }
    match api::first_missing() {
        Some(name) => Err(format!("{TOO_OLD}; this server lacks {name}")),
        None => Ok(()),
    }
}

/// A command, and a number of words after its name that is wrong for it.
type Needed = (&'static CStr, usize);

/// Without these the module is not loaded. The server puts `MULTI` and `EXEC` around the changes of one decision; it
/// does not load an AOF with an unknown command.
const REQUIRED: [Needed; 16] = [
    (c"DEL", 0),
    (c"HSET", 0),
    (c"HINCRBY", 0),
    (c"HDEL", 0),
    (c"PEXPIREAT", 0),
    (c"PERSIST", 0),
    (c"SET", 0),
    (c"ZADD", 0),
    (c"ZREM", 0),
    (c"PUBLISH", 0),
    (c"SPUBLISH", 0),
    (c"PEXPIRE", 0),
    (c"PTTL", 0),
    (c"INCR", 0),
    (c"MULTI", 1),
    (c"EXEC", 1),
];

/// In a cluster: whether all keys of a request are on this node (`slots`).
const REQUIRED_IN_CLUSTER: Needed = (c"EXISTS", 0);

/// Why the module cannot be loaded.
pub fn reason_not_to_load(ctx: Ctx<'_>) -> Option<String> {
    let missing: Vec<_> = REQUIRED
        .into_iter()
        .chain(ctx.is_cluster().then_some(REQUIRED_IN_CLUSTER))
        .filter(|needed| !is_there(ctx, *needed))
        .map(|(name, _)| name.to_string_lossy())
        .collect();
    (!missing.is_empty()).then(|| {
        format!(
            "this server has no {} under that name (rename-command): changes of locks would not reach replicas, \
             the AOF and waiting clients",
            missing.join(", ")
        )
    })
}

/// Commands that only read, and the features that need them.
const OPTIONAL: [(Needed, &str); 7] = [
    ((c"SCAN", 0), "LOCK.SCAN is refused"),
    (
        (c"CLIENT", 0),
        "a grant to a client that the server has condemned ends with its lease, and on \
         Redis 7.0 and 7.2, in a cluster, with I/O threads or with TLS, a waiter can get two replies to one request",
    ),
    (
        (c"ACL", 0),
        "the only user of the server has a share of the places, as one of several has (lock.user-share); Valkey from \
         9.1 on refuses grants to waiters of users with db=",
    ),
    (
        (c"PUBSUB", 0),
        "locks are not left free for Redisson's waiters (lock.free-after)",
    ),
    (
        (c"ZCOUNT", 0),
        "SEM.INFO counts permits whose leases have ended as held",
    ),
    (
        (c"COMMAND", 1),
        "LOCK.IF runs every command in a script of its own",
    ),
    (
        (c"EVAL", 0),
        "LOCK.IF runs commands of other modules in MULTI and in scripts only",
    ),
];

/// Logs which features do not work because a command has another name.
pub fn warn_of_missing(ctx: Ctx<'_>) {
    let for_7_0 = ((c"CLIENT", 0), "LOCK.BREAK is refused to every user");
    let for_7_0 = (!has!(RedisModule_SetCommandACLCategories)).then_some(for_7_0);
    for (needed, loss) in OPTIONAL.into_iter().chain(for_7_0) {
        if !is_there(ctx, needed) {
            let name = needed.0.to_string_lossy();
            log::warning(&format!(
                "this server has no {name} under that name (rename-command): {loss}"
            ));
        }
    }
}

/// Whether the server has this command under its own name: the error for too few or too many words, or for an unknown
/// subcommand, has the command's name. ("S" refuses commands that scripts must not run and "W" every write, so another
/// command of this name that accepts these words changes nothing.)
fn is_there(ctx: Ctx<'_>, (name, words): Needed) -> bool {
    let word = OwnedStr::new(b"x");
    let words: Vec<Str<'_>> = (0..words).map(|_| word.as_str()).collect();
    let Some(reply) = Reply::of(ctx, name, How::Probe, &words) else {
        return false;
    };
    let name = name.to_string_lossy();
    let count = format!(
        "wrong number of arguments for '{}' command",
        name.to_ascii_lowercase()
    );
    let subcommand = format!("Try {name} HELP.");
    let error = reply.whole().error().unwrap_or_default();
    error.ends_with(count.as_bytes())
        || error.ends_with(subcommand.as_bytes())
        || fault::is_on("missing-command-accepted")
}
