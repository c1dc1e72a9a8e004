//! The settings `lock.*`, registered with the server for `redis.conf`, `CONFIG GET`, `CONFIG SET` and `CONFIG REWRITE`.
//! redis.conf.example explains each.

use std::ffi::{c_char, c_int, c_longlong, c_void, CStr};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use redis_module::raw;

use crate::lock::{self, FinalRule, Grace, Lease, Limits, SessionRule, WindowRule};
use crate::module::ffi::api::api;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::guard;
use crate::module::ffi::log;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::state::shell::{self, Shell};

struct Number {
    name: &'static CStr,
    value: AtomicI64,
    default: i64,
    min: i64,
    max: i64,
}

impl Number {
    const fn new(name: &'static CStr, default: i64, min: i64, max: i64) -> Number {
        Number {
            name,
            value: AtomicI64::new(default),
            default,
            min,
            max,
        }
    }

    fn get(&self) -> i64 {
        self.value.load(Ordering::Relaxed)
    }

    fn get_usize(&self) -> usize {
        usize::try_from(self.get()).unwrap_or(0)
    }
}

/// A hundred years in milliseconds: the longest lease and wait that any setting allows.
const CENTURY_MS: i64 = 100 * 366 * 24 * 3_600 * 1_000;

static DEFAULT_LEASE: Number = Number::new(c"default-lease", 30_000, 1, CENTURY_MS);
static MAX_LEASE: Number = Number::new(c"max-lease", CENTURY_MS, 1, CENTURY_MS);
static MAX_WAIT: Number = Number::new(c"max-wait", CENTURY_MS, 0, CENTURY_MS);
static MAX_WAITERS: Number = Number::new(c"max-waiters", 10_000, 0, 1_000_000);
static MAX_WAITERS_PER_KEY: Number = Number::new(c"max-waiters-per-key", 10_000, 0, 1_000_000);
static MAX_TICKETS: Number = Number::new(c"max-tickets", 100_000, 0, 10_000_000);
static MAX_WAIT_BYTES: Number = Number::new(c"max-wait-bytes", 64 << 20, 1 << 20, 1 << 40);
static USER_SHARE: Number = Number::new(c"user-share", 50, 1, 100);
static QUEUE_GRACE: Number = Number::new(c"queue-grace", 1_000, 0, 60_000);
static MAX_OWNER_LEN: Number = Number::new(c"max-owner-len", 256, 1, 65_536);
static MAX_TRACKED: Number = Number::new(c"max-tracked", 10_000, 0, 10_000_000);
static FINAL_TIME: Number = Number::new(c"final-time", 60_000, 0, 3_600_000);
static MAX_FINALS: Number = Number::new(c"max-finals", 100_000, 0, 10_000_000);
static SESSION_LEASE: Number = Number::new(c"session-lease", 10_000, 100, CENTURY_MS);
static STARTUP_DELAY: Number = Number::new(c"startup-delay", 0, 0, CENTURY_MS);
static FREE_AFTER: Number = Number::new(c"free-after", 1, 0, 1_000_000);
static FREE_WINDOW: Number = Number::new(c"free-window", 50, 1, 60_000);

struct Switch {
    name: &'static CStr,
    value: AtomicBool,
    default: bool,
}

impl Switch {
    const fn new(name: &'static CStr, default: bool) -> Switch {
        Switch {
            name,
            value: AtomicBool::new(default),
            default,
        }
    }

    fn get(&self) -> bool {
        self.value.load(Ordering::Relaxed)
    }
}

static PUBLISH: Switch = Switch::new(c"publish", true);
static DEADLOCK_DETECT: Switch = Switch::new(c"deadlock-detect", true);
static STRING_HOLDERS: Switch = Switch::new(c"string-holders", false);

/// Settings of former versions. A configuration that has one is told so, and is accepted: an upgrade ends no server.
const GONE: [&CStr; 3] = [c"drain", c"redisson-scripts", c"top-names"];

/// Registers every setting; `LoadConfigs` applies the values of `redis.conf` later. `None` when the server refuses one.
pub fn register(ctx: Ctx<'_>) -> Option<()> {
    for number in [
        &DEFAULT_LEASE,
        &MAX_LEASE,
        &MAX_WAIT,
        &MAX_WAITERS,
        &MAX_WAITERS_PER_KEY,
        &MAX_TICKETS,
        &MAX_WAIT_BYTES,
        &USER_SHARE,
        &QUEUE_GRACE,
        &MAX_OWNER_LEN,
        &MAX_TRACKED,
        &FINAL_TIME,
        &MAX_FINALS,
        &SESSION_LEASE,
        &STARTUP_DELAY,
        &FREE_AFTER,
        &FREE_WINDOW,
    ] {
        register_number(ctx, number)?;
    }
    register_switch(ctx, &PUBLISH)?;
    register_switch(ctx, &DEADLOCK_DETECT)?;
    register_switch(ctx, &STRING_HOLDERS)?;
    GONE.iter().try_for_each(|name| register_gone(ctx, name))
}

// Both give the server a pointer to the static itself: a copy in memory would leak when a load fails.

fn register_number(ctx: Ctx<'_>, number: &'static Number) -> Option<()> {
    // SAFETY: the context is OnLoad's; the number is a static of the module, as are its functions: the server calls
    // them only while the module is loaded.
    let status = unsafe {
        api!(RedisModule_RegisterNumericConfig)(
            ctx.as_ptr(),
            number.name.as_ptr(),
            number.default,
            raw::REDISMODULE_CONFIG_DEFAULT,
            number.min,
            number.max,
            Some(get_number),
            Some(set_number),
            Some(apply),
            (&raw const *number).cast_mut().cast(),
        )
    };
    (status == raw::REDISMODULE_OK as c_int).then_some(())
}

fn register_switch(ctx: Ctx<'_>, switch: &'static Switch) -> Option<()> {
    // SAFETY: the context is OnLoad's; the switch is a static of the module, as are its functions: the server calls
    // them only while the module is loaded.
    let status = unsafe {
        api!(RedisModule_RegisterBoolConfig)(
            ctx.as_ptr(),
            switch.name.as_ptr(),
            switch.default.into(),
            raw::REDISMODULE_CONFIG_DEFAULT,
            Some(get_switch),
            Some(set_switch),
            Some(apply),
            (&raw const *switch).cast_mut().cast(),
        )
    };
    (status == raw::REDISMODULE_OK as c_int).then_some(())
}

fn register_gone(ctx: Ctx<'_>, name: &CStr) -> Option<()> {
    // SAFETY: the context is OnLoad's; the server copies the name and the default. The functions are the module's: the
    // server calls them only while the module is loaded.
    let status = unsafe {
        api!(RedisModule_RegisterStringConfig)(
            ctx.as_ptr(),
            name.as_ptr(),
            c"".as_ptr(),
            raw::REDISMODULE_CONFIG_HIDDEN,
            Some(get_gone),
            Some(set_gone),
            None,
            null_mut(),
        )
    };
    (status == raw::REDISMODULE_OK as c_int).then_some(())
}

/// There is no value.
unsafe extern "C" fn get_gone(_name: *const c_char, _: *mut c_void) -> *mut raw::RedisModuleString {
    null_mut()
}

/// At the load a warning, later an error. (The default is set at the load, as that of every setting.)
unsafe extern "C" fn set_gone(
    name: *const c_char,
    value: *mut raw::RedisModuleString,
    _: *mut c_void,
    error: *mut *mut raw::RedisModuleString,
) -> c_int {
    let accepted = guard::entry("settings", || {
        // SAFETY: the server's NUL-terminated name and its string, both live through the callback.
        let (name, value) = unsafe { (CStr::from_ptr(name), Str::new(value)) };
        // Redis 7.0 names it without the module.
        let name = name.to_string_lossy();
        let name = name.strip_prefix("lock.").unwrap_or(&name);
        let text = format!("the setting lock.{name} has gone, see \"What goes\" in CHANGELOG.md");
        if shell::is_started() {
            // SAFETY: the server's place for an error, which it frees.
            unsafe { *error = OwnedStr::new(text.as_bytes()).into_raw() };
            return false;
        }
        if !value.bytes().is_empty() {
            log::warning(&format!(
                "{text}: the line in the configuration does nothing"
            ));
        }
        true
    });
    match accepted {
        Some(true) => raw::REDISMODULE_OK as c_int,
        _ => raw::REDISMODULE_ERR as c_int,
    }
}

unsafe extern "C" fn get_number(_name: *const c_char, number: *mut c_void) -> c_longlong {
    // SAFETY: the pointer is the one that was registered, to a static that is only read.
    unsafe { &*number.cast_const().cast::<Number>() }.get()
}

/// The server has checked the value against `min` and `max`.
unsafe extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    number: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the pointer is the one that was registered, to a static of which an atomic field is written.
    let number = unsafe { &*number.cast_const().cast::<Number>() };
    number.value.store(value, Ordering::Relaxed);
    raw::REDISMODULE_OK as c_int
}

unsafe extern "C" fn get_switch(_name: *const c_char, switch: *mut c_void) -> c_int {
    // SAFETY: the pointer is the one that was registered, to a static that is only read.
    unsafe { &*switch.cast_const().cast::<Switch>() }
        .get()
        .into()
}

unsafe extern "C" fn set_switch(
    _name: *const c_char,
    value: c_int,
    switch: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    // SAFETY: the pointer is the one that was registered, to a static of which an atomic field is written.
    let switch = unsafe { &*switch.cast_const().cast::<Switch>() };
    switch.value.store(value != 0, Ordering::Relaxed);
    raw::REDISMODULE_OK as c_int
}

/// `CONFIG SET` has changed this setting, and has set the others that it names. (When a later one is refused, it sets
/// the old values again and calls this again.)
unsafe extern "C" fn apply(
    _ctx: *mut raw::RedisModuleCtx,
    _setting: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    if !fault::is_on("setting-not-pushed") {
        guard::entry("settings", || shell::with(Shell::push_settings));
    }
    raw::REDISMODULE_OK as c_int
}

/// The settings that the core's decisions depend on.
pub(super) fn of_core() -> lock::Settings {
    let grace_ms = QUEUE_GRACE.get().unsigned_abs();
    // Without `lock.publish` Redisson's waiters get no message, so a window would help only clients that poll.
    let polled = string_holders();
    let after = if publish() || polled {
        FREE_AFTER.get()
    } else {
        0
    };
    let default = SessionRule::default();
    lock::Settings {
        limits: limits(),
        grace: Grace {
            ms: grace_ms,
            max_places: MAX_WAITERS.get_usize(),
        },
        windows: WindowRule {
            after: u32::try_from(after).unwrap_or(0),
            window_ms: FREE_WINDOW.get().unsigned_abs(),
            polled,
        },
        session: SessionRule {
            lease: Lease::from_ms(SESSION_LEASE.get()).unwrap_or(default.lease),
        },
        finals: FinalRule {
            ms: FINAL_TIME.get().unsigned_abs(),
            most: MAX_FINALS.get_usize(),
        },
        detects_deadlocks: DEADLOCK_DETECT.get(),
        startup_delay_ms: startup_delay_ms(),
    }
}

/// The lease of an acquire or a renewal without `EX` and `PX`, in milliseconds.
pub fn default_lease_ms() -> i64 {
    DEFAULT_LEASE.get().min(MAX_LEASE.get())
}

/// The longest lease of a request, in milliseconds.
pub fn max_lease_ms() -> i64 {
    MAX_LEASE.get()
}

/// The longest bounded wait of a request, in milliseconds.
pub fn max_wait_ms() -> i64 {
    MAX_WAIT.get()
}

/// The longest owner, in bytes.
pub fn max_owner_len() -> usize {
    MAX_OWNER_LEN.get_usize()
}

/// Whether freeing a lock publishes Redisson's release message.
pub fn publish() -> bool {
    PUBLISH.get()
}

/// The time without grants after a start or a promotion, in milliseconds.
pub fn startup_delay_ms() -> u64 {
    STARTUP_DELAY.get().unsigned_abs()
}

/// Whether a string with a TTL is a lock that another owner holds.
pub fn string_holders() -> bool {
    STRING_HOLDERS.get()
}

/// Whether requests may wait with `NOTIFY`.
pub fn has_tickets() -> bool {
    MAX_TICKETS.get() > 0
}

/// The limits on what is kept in memory.
pub fn limits() -> Limits {
    Limits {
        max_waiters: MAX_WAITERS.get_usize(),
        max_waiters_per_key: MAX_WAITERS_PER_KEY.get_usize(),
        max_tickets: MAX_TICKETS.get_usize(),
        max_wait_bytes: MAX_WAIT_BYTES.get_usize(),
        user_share: USER_SHARE.get_usize(),
        max_tracked: MAX_TRACKED.get_usize(),
    }
}
