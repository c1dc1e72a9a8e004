//! Slots of a cluster that move atomically (Redis 8.4, Valkey 9).
//!
//! A child of the source writes a snapshot of the slot, what is replicated meanwhile follows, and while
//! writes are paused the slot becomes the target's. Our writes are replicated as plain commands, so they
//! go along; no grant is made while writes are paused, nor in a slot that is not this node's: the alarm asks the
//! server before each. What is left to do here is what no key event tells of: in Redis the keys of
//! the slot vanish silently at the source, and appear silently at the target.

use std::ffi::c_int;

use redis_module::raw;

use crate::lock::slot_of;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::valkey;
use crate::module::state::shell;

/// The first major version of Valkey that has such moves.
const VALKEY_SINCE: i32 = 9;

/// The event of Redis. (Valkey, which never hears of it from here, calls another one by this number.)
pub const REDIS_EVENT: u64 = raw::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION;
const REDIS_IMPORTED: u64 = raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_COMPLETED;
const REDIS_EXPORTED: u64 = raw::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_MIGRATE_COMPLETED;

/// The event of Valkey.
pub const VALKEY_EVENT: u64 = valkey::VALKEYMODULE_EVENT_ATOMIC_SLOT_MIGRATION;
const VALKEY_IMPORTED: u64 = valkey::VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_IMPORT_COMPLETED;
const VALKEY_EXPORTED: u64 = valkey::VALKEYMODULE_SUBEVENT_ATOMIC_SLOT_MIGRATION_EXPORT_COMPLETED;

/// The module option for such moves. While a module without it is loaded, Valkey refuses to move slots atomically. The
/// bit is set only for servers that know it: another server may give it another meaning one day.
pub fn options(ctx: Ctx<'_>, major_version: i32) -> c_int {
    match ctx.is_valkey() && major_version >= VALKEY_SINCE {
        true => valkey::VALKEYMODULE_OPTIONS_HANDLE_ATOMIC_SLOT_MIGRATION,
        false => 0,
    }
}

/// The event of such moves on this server.
pub fn event_of(ctx: Ctx<'_>) -> u64 {
    match ctx.is_valkey() {
        true => VALKEY_EVENT,
        false => REDIS_EVENT,
    }
}

/// Something has happened to such a move.
pub fn moved(ctx: Ctx<'_>, subevent: u64) {
    let (imported, exported) = match ctx.is_valkey() {
        true => (VALKEY_IMPORTED, VALKEY_EXPORTED),
        false => (REDIS_IMPORTED, REDIS_EXPORTED),
    };
    if subevent == imported {
        // Somebody may have been parked on a key of the slot before it left, and not been redirected
        // yet now that it is back.
        shell::with(|shell| shell.locks.schedule_settle_all(None));
    } else if subevent == exported {
        shell::with(|shell| shell.locks.left(|name| !is_local(name)));
    }
}

/// Whether the slot of a key is this node's, or the server does not say.
fn is_local(name: &[u8]) -> bool {
    // SAFETY: a pointer that is written once, at load.
    let can_access = unsafe { raw::RedisModule_ClusterCanAccessKeysInSlot };
    // SAFETY: takes a number, and calls nothing back.
    can_access.is_none_or(|can_access| unsafe { can_access(slot_of(name).into()) } != 0)
}
