//! Slots of a cluster that move atomically (Redis 8.4, Valkey 9).
//!
//! A child of the source writes a snapshot of the slot, the commands replicated meanwhile follow, and during a pause of
//! writes the slot becomes the target's. The module's writes are replicated as plain commands, so they move too. No
//! grant is made during a pause of writes, nor in a slot of another node: the alarm probes the key before each. This
//! file does the rest, for which there is no key event: in Redis the keys of the slot disappear at the source, and
//! appear at the target, without events.

use std::ffi::c_int;

use redis_module::raw;

use crate::lock::{slot_of, LockError};
use crate::module::ffi::call_reply::{How, Part, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{number_of_keys, OwnedStr, Str};
use crate::module::state::constants::is_cluster;
use crate::module::state::shell;

/// Constants of Valkey that the bindings of `redis-module`, made from Redis' header, do not have. `build.rs` generates
/// them with bindgen from `ffi/headers/valkeymodule.h`, under the header's names.
mod valkey {
    include!(concat!(env!("OUT_DIR"), "/valkeymodule.rs"));
}

/// The first major version of Valkey that has such moves.
const VALKEY_SINCE: i32 = 9;

/// The event of Redis. (Valkey has another event of this number, which the module does not subscribe to.)
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

/// The event of atomic moves on this server.
pub fn event_of(ctx: Ctx<'_>) -> u64 {
    match ctx.is_valkey() {
        true => VALKEY_EVENT,
        false => REDIS_EVENT,
    }
}

/// Handles the event of an atomic move.
pub fn moved(ctx: Ctx<'_>, subevent: u64) {
    let (imported, exported) = match ctx.is_valkey() {
        true => (VALKEY_IMPORTED, VALKEY_EXPORTED),
        false => (REDIS_IMPORTED, REDIS_EXPORTED),
    };
    if subevent == imported {
        // A client may be parked on a key of the slot since before it left this node, and not be redirected yet.
        shell::with(|shell| shell.locks.shared.waiters.schedule_settle_all(None));
    } else if subevent == exported {
        shell::with(|shell| {
            shell.locks.left(|name| !is_local(name));
            // Tickets of the slot fail: the server redirects parked clients only.
            if shell.locks.shared.waiters.tickets() > 0 {
                shell.locks.shared.waiters.schedule_settle_all(None);
            }
        });
    }
}

/// Whether the slot of a key is this node's; true as well if the server has no function for that.
fn is_local(name: &[u8]) -> bool {
    // SAFETY: a pointer that is written once, at load.
    let can_access = unsafe { raw::RedisModule_ClusterCanAccessKeysInSlot };
    // SAFETY: takes a number, needs no context.
    can_access.is_none_or(|can_access| unsafe { can_access(slot_of(name).into()) } != 0)
}

/// Checks the keys behind the word at `numkeys_at`. A wrong number of keys is left to the command.
///
/// # Errors
/// As the server's own for such keys: `CrossSlot`, and `Rehashing` while some of them are on the other node.
pub fn check_keys(ctx: Ctx<'_>, words: &[Str<'_>], numkeys_at: usize) -> Result<(), LockError> {
    if !is_cluster() {
        return Ok(());
    }
    let count = number_of_keys(words, numkeys_at).unwrap_or(0);
    let keys = words
        .get(numkeys_at + 1..)
        .and_then(|rest| rest.get(..count));
    check_together(ctx, keys.unwrap_or_default())
}

/// Checks that keys of a cluster may be used together.
///
/// # Errors
/// As [`check_keys`].
pub fn check_together(ctx: Ctx<'_>, keys: &[Str<'_>]) -> Result<(), LockError> {
    let [first, _, ..] = keys else {
        return Ok(());
    };
    let slot = slot_of(first.bytes());
    if keys.iter().any(|key| slot_of(key.bytes()) != slot) {
        return Err(LockError::CrossSlot);
    }
    // The server refuses the call if it would redirect a client that sends it, or answer it `TRYAGAIN`.
    match Reply::of(ctx, c"EXISTS", How::AsModule, keys) {
        Some(_) => Ok(()),
        None => Err(LockError::Rehashing),
    }
}

/// The error with which a replica redirects a client that sends a write: `MOVED slot host:port`. `None`: the server
/// does not tell where the slot is.
pub fn redirection(ctx: Ctx<'_>, key: Str<'_>) -> Option<String> {
    let slot = slot_of(key.bytes());
    let word = OwnedStr::new(b"SLOTS");
    let reply = Reply::of(ctx, c"CLUSTER", How::AsModule, &[word.as_str()])?;
    // Each range is `[first, last, [host, port, ...] of the master, ...]`.
    let is_here = |range: &Part<'_>| {
        let [first, last] = [0, 1].map(|at| range.element(at).and_then(Part::number));
        matches!((first, last), (Some(first), Some(last)) if (first..=last).contains(&slot.into()))
    };
    let node = reply.whole().elements()?.find(is_here)?.element(2)?;
    // The host is nil where clients take that of this connection, and the redirection has none then.
    let host = node.element(0).and_then(Part::bytes).unwrap_or_default();
    let (host, port) = (String::from_utf8_lossy(host), node.element(1)?.number()?);
    Some(format!("MOVED {slot} {host}:{port}"))
}
