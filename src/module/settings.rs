//! The settings `lock.*`: registered with the server, so that `redis.conf`, `CONFIG GET`, `CONFIG SET`
//! and `CONFIG REWRITE` know them. redis.conf.example explains each.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use redis_module::configuration::{
    register_bool_configuration, register_i64_configuration, ConfigurationFlags,
};
use redis_module::Context;

use super::ctx::Ctx;
use crate::lock::{Grace, Limits};

struct Number {
    name: &'static str,
    value: AtomicI64,
    default: i64,
    min: i64,
    max: i64,
}

impl Number {
    const fn new(name: &'static str, default: i64, min: i64, max: i64) -> Number {
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

static DEFAULT_LEASE: Number = Number::new("default-lease", 30_000, 1, CENTURY_MS);
static MAX_LEASE: Number = Number::new("max-lease", CENTURY_MS, 1, CENTURY_MS);
static MAX_WAIT: Number = Number::new("max-wait", CENTURY_MS, 0, CENTURY_MS);
static MAX_WAITERS: Number = Number::new("max-waiters", 10_000, 0, 1_000_000);
static MAX_WAITERS_PER_KEY: Number = Number::new("max-waiters-per-key", 10_000, 0, 1_000_000);
static QUEUE_GRACE: Number = Number::new("queue-grace", 1_000, 0, 60_000);
static MAX_OWNER_LEN: Number = Number::new("max-owner-len", 256, 1, 65_536);
static MAX_TRACKED: Number = Number::new("max-tracked", 10_000, 0, 10_000_000);
static STARTUP_DELAY: Number = Number::new("startup-delay", 0, 0, CENTURY_MS);
static PUBLISH: AtomicBool = AtomicBool::new(true);
static DRAIN: AtomicBool = AtomicBool::new(false);

/// Registers every setting; the values of `redis.conf` follow with `LoadConfigs`.
pub fn register(ctx: Ctx) {
    let context = Context::new(ctx.as_ptr());
    for number in [
        &DEFAULT_LEASE,
        &MAX_LEASE,
        &MAX_WAIT,
        &MAX_WAITERS,
        &MAX_WAITERS_PER_KEY,
        &QUEUE_GRACE,
        &MAX_OWNER_LEN,
        &MAX_TRACKED,
        &STARTUP_DELAY,
    ] {
        register_i64_configuration(
            &context,
            number.name,
            &number.value,
            number.default,
            number.min,
            number.max,
            ConfigurationFlags::DEFAULT,
            None,
        );
    }
    for (name, value, default) in [("publish", &PUBLISH, true), ("drain", &DRAIN, false)] {
        register_bool_configuration(
            &context,
            name,
            value,
            default,
            ConfigurationFlags::DEFAULT,
            None,
        );
    }
}

/// The lease of an acquire or a renewal that names none, in milliseconds.
pub fn default_lease_ms() -> i64 {
    DEFAULT_LEASE.get().min(MAX_LEASE.get())
}

/// The longest lease that a request may ask for, in milliseconds.
pub fn max_lease_ms() -> i64 {
    MAX_LEASE.get()
}

/// The longest bounded wait that a request may ask for, in milliseconds.
pub fn max_wait_ms() -> i64 {
    MAX_WAIT.get()
}

/// The longest owner, in bytes.
pub fn max_owner_len() -> usize {
    MAX_OWNER_LEN.get_usize()
}

/// Whether freeing a lock publishes Redisson's release message.
pub fn publish() -> bool {
    PUBLISH.load(Ordering::Relaxed)
}

/// For so many milliseconds after a start or a promotion no lock is granted.
pub fn startup_delay_ms() -> u64 {
    STARTUP_DELAY.get().unsigned_abs()
}

/// Whether waiters are sent away and none is parked, so that the module can be unloaded.
pub fn drain() -> bool {
    DRAIN.load(Ordering::Relaxed)
}

/// The limits in force.
pub fn limits() -> Limits {
    Limits {
        max_waiters: if drain() { 0 } else { MAX_WAITERS.get_usize() },
        max_waiters_per_key: MAX_WAITERS_PER_KEY.get_usize(),
        max_tracked: MAX_TRACKED.get_usize(),
    }
}

/// The rule for kept places.
pub fn grace() -> Grace {
    Grace {
        ms: if drain() {
            0
        } else {
            QUEUE_GRACE.get().unsigned_abs()
        },
        max_places: MAX_WAITERS.get_usize(),
    }
}
