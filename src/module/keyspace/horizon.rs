//! The two small keys that fencing tokens lean on.
//!
//! The *horizon* (`redis_lock:horizon`, in a cluster one per slot in use) makes tokens survive
//! restarts: see `lock::token`. Redisson's *counter* (`redisson_lock_token:{name}`) belongs to its
//! `RFencedLock`; where it exists, our tokens rise above it and are written back to it.

use redis_module::raw;

use crate::lock::{
    parse_counter, parse_decimal, prefixed, slot_of, Domain, Now, Token, HORIZON_DB,
};
use crate::module::ffi::checked::{Refused, Written};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::log;
use crate::module::ffi::raw_key::RawKey;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::replication::Replication;
use crate::module::state::shell;

/// The name of the horizon, or how its name begins in a cluster. No lock may have it.
const HORIZON: &str = "redis_lock:horizon";
const COUNTER: &str = "redisson_lock_token";
/// Why a horizon is not stored where its key holds another type.
pub const FOREIGN_HORIZON: Refused = Refused("the key of the horizon holds another type");

/// Whether no lock, semaphore or latch may have this name: a grant writes over what such a key holds.
pub fn is_reserved(name: &[u8]) -> bool {
    let counter = name.strip_prefix(COUNTER.as_bytes());
    is_horizon(name) || counter.is_some_and(|rest| rest.starts_with(b":"))
}

/// Whether this name is kept for horizons.
pub fn is_horizon(name: &[u8]) -> bool {
    name.starts_with(HORIZON.as_bytes())
}

/// Whether a token of this domain can be minted, and what is granted with it be written; `is_there`: every
/// key that would be written, but for the horizon's, exists.
pub fn may_mint(ctx: Ctx<'_>, domain: Domain, is_there: bool) -> bool {
    let horizon_is_safe = if shell::is_cluster() {
        learn_slot(ctx, domain)
    } else {
        learn_horizon(ctx)
    };
    // A key that looks absent, the lock's or the horizon's, may only be hidden while traffic is paused (inside a
    // transaction that paused it), and writing over it aborts the server. Whether the horizon is to be stored anew is
    // not known before the token is minted: the lock's own data may push it up.
    let is_seen = || is_there && horizon_exists(ctx, domain);
    horizon_is_safe && (!ctx.is_paused() || is_seen())
}

/// Whether the key of the horizon is there, so that it can be stored anew. (Of what type it is, `write_horizon` asks.)
fn horizon_exists(ctx: Ctx<'_>, domain: Domain) -> bool {
    let name = horizon_name(domain);
    let kind = in_horizon_db(ctx, || LockKey::open(ctx, name.as_str()).kind());
    kind != raw::REDISMODULE_KEYTYPE_EMPTY
}

/// In a cluster the horizon of the slot is read for every token: it moves with its slot. False when
/// it has to be stored anew and cannot be, because the slot is on its way, to another node or to
/// this one, and takes no new key of ours: no horizon, no grant.
fn learn_slot(ctx: Ctx<'_>, slot: Domain) -> bool {
    let name = horizon_name(slot);
    let read = || read_horizon(ctx, name.as_str());
    let Some(stored) = in_horizon_db(ctx, read) else {
        return false;
    };
    learn(ctx, slot, stored);
    !wants_horizon(ctx, slot) || ctx.probe_write_detached(name.as_str())
}

/// Whether the next token will need the horizon stored anew.
fn wants_horizon(ctx: Ctx<'_>, domain: Domain) -> bool {
    let now_us = ctx.now().wall_us();
    shell::with(|shell| shell.locks.tokens.wants_horizon(domain, now_us))
}

/// Outside a cluster: reads the horizon, unless it is known. Done before the first token, and before
/// the data that may hold another process's horizon is flushed. False where its key holds something else.
pub fn learn_horizon(ctx: Ctx<'_>) -> bool {
    if shell::with(|shell| shell.locks.tokens.knows(0)) {
        return true;
    }
    let read = || read_horizon(ctx, horizon_name(0).as_str());
    let stored = in_horizon_db(ctx, read);
    if let Some(stored) = stored {
        learn(ctx, 0, stored);
    }
    stored.is_some()
}

/// Takes in what a horizon's key holds, 0 for nothing. An implausible number is logged once.
fn learn(ctx: Ctx<'_>, domain: Domain, stored: u64) {
    let now = ctx.now();
    if shell::with(|shell| shell.locks.learn_horizon(domain, stored, now)) {
        let name = horizon_text(domain);
        log::warning(&format!(
            "the key '{name}' in database {HORIZON_DB} says that fencing tokens up to {stored} are in use, more than \
             a hundred years ahead of the clock: that is not believed, and the next grant writes over it",
        ));
    }
}

/// The horizon that is stored under this name, 0 where none is; `None` where the key is no string.
fn read_horizon(ctx: Ctx<'_>, name: Str<'_>) -> Option<u64> {
    let stored = read_number(ctx, name, parse_decimal);
    let is_foreign = stored.is_none() && !may_hold_number(ctx, name);
    shell::with(|shell| shell.locks.tokens.set_foreign(is_foreign));
    (!is_foreign).then_some(stored.unwrap_or(0))
}

/// Whether a key is a string, or is not there.
fn may_hold_number(ctx: Ctx<'_>, name: Str<'_>) -> bool {
    matches!(
        LockKey::open(ctx, name).kind(),
        raw::REDISMODULE_KEYTYPE_EMPTY | raw::REDISMODULE_KEYTYPE_STRING
    )
}

/// Outside a cluster, after two databases have changed places: the horizon is in the other one now.
/// One that was not known yet is taken in before it is forgotten there.
pub fn learn_swapped_horizon(ctx: Ctx<'_>, first: i32, second: i32) {
    let other = match HORIZON_DB {
        db if db == first => second,
        db if db == second => first,
        _ => return,
    };
    if !shell::with(|shell| shell.locks.tokens.knows(0)) {
        let db = ctx.db();
        ctx.select(other);
        let stored = read_number(ctx, horizon_name(0).as_str(), parse_decimal);
        ctx.select(db);
        learn(ctx, 0, stored.unwrap_or(0));
    }
}

/// Something happened to a horizon's key: it is looked at, and stored again if it is gone.
pub fn mark_lost(key: Str<'_>) {
    let domain = domain_of(key);
    shell::with(|shell| shell.locks.tokens.lose(domain));
}

/// Stores horizons again that were deleted, or replaced by a number that does not cover the tokens so far: so
/// many at most. False when the server refuses writes just now.
pub fn restore_horizons(ctx: Ctx<'_>, now: Now, at_most: usize) -> bool {
    ctx.select(HORIZON_DB);
    for _ in 0..at_most {
        let Some(domain) = shell::with(|shell| shell.locks.tokens.pop_lost()) else {
            break;
        };
        let name = horizon_name(domain);
        if let Some(stored) = read_number(ctx, name.as_str(), parse_decimal) {
            // Stored by another meanwhile: if it covers our tokens it stays, and it is never lowered.
            learn(ctx, domain, stored);
            if !shell::with(|shell| shell.locks.tokens.is_uncovered(domain)) {
                continue;
            }
        } else if !may_hold_number(ctx, name.as_str()) {
            // Foreign data stays; until it is gone no token is minted.
            continue;
        }
        if ctx.probe_write(name.as_str()) {
            let now_us = now.wall_us();
            let horizon = shell::with(|shell| shell.locks.tokens.reserve(domain, now_us));
            if let Err(what) = write_horizon(ctx, domain, horizon, Replication::of_event(ctx)) {
                shell::note_refusal(what);
                shell::with(|shell| shell.locks.tokens.put_off(domain));
                return false;
            }
        } else if !shell::is_cluster() {
            shell::with(|shell| shell.locks.tokens.put_off(domain));
            return false;
        }
        // In a cluster the slot may have left this node, and its horizon with it.
    }
    true
}

/// Stores the horizon of a domain.
///
/// # Errors
/// When the server refuses, or the key holds another type now: [`FOREIGN_HORIZON`]. (The module listens to key events
/// from the first wait on, so it may not have noticed an earlier change.) The key is read again before the next token.
pub fn write_horizon(
    ctx: Ctx<'_>,
    domain: Domain,
    horizon: u64,
    replication: Replication<'_>,
) -> Written {
    let name = horizon_name(domain);
    let name = name.as_str();
    let written = in_horizon_db(ctx, || match may_hold_number(ctx, name) {
        true => write_number(ctx, name, horizon, replication),
        false => Err(FOREIGN_HORIZON),
    });
    if written.is_err() {
        shell::with(|shell| shell.locks.tokens.doubt(domain));
    }
    written
}

/// Writes the token back to Redisson's counter.
///
/// # Errors
/// When the server refuses.
pub fn write_counter(key: &LockKey<'_>, token: Token, replication: Replication<'_>) -> Written {
    match counter_name(key.name().bytes()) {
        Some(name) => write_number(key.ctx(), name.as_str(), token.get(), replication),
        None => Ok(()),
    }
}

/// Whose horizon covers a key.
pub fn domain_of(key: Str<'_>) -> Domain {
    if shell::is_cluster() {
        slot_of(key.bytes())
    } else {
        0
    }
}

fn horizon_name(domain: Domain) -> OwnedStr {
    match shell::slot_tag(domain) {
        Some(_) => OwnedStr::new(horizon_text(domain).as_bytes()),
        None => OwnedStr::new(HORIZON.as_bytes()),
    }
}

fn horizon_text(domain: Domain) -> String {
    match shell::slot_tag(domain) {
        Some(tag) => format!("{HORIZON}:{{{tag}}}"),
        None => HORIZON.to_owned(),
    }
}

fn in_horizon_db<T>(ctx: Ctx<'_>, body: impl FnOnce() -> T) -> T {
    let db = ctx.db();
    if db == HORIZON_DB {
        return body();
    }
    ctx.select(HORIZON_DB);
    let result = body();
    ctx.select(db);
    result
}

/// The number that a string key holds. Opened to write, because that counts no key-space miss.
fn read_number(
    ctx: Ctx<'_>,
    name: Str<'_>,
    parse: impl FnOnce(&[u8]) -> Option<u64>,
) -> Option<u64> {
    RawKey::open_to_write(ctx, name)?.with_string(parse)?
}

fn write_number(ctx: Ctx<'_>, name: Str<'_>, number: u64, replication: Replication<'_>) -> Written {
    let value = OwnedStr::of_number(number);
    let key = RawKey::open_to_write(ctx, name).ok_or(Refused("RedisModule_OpenKey"))?;
    key.set_string(value.as_str())?;
    drop(key);
    ctx.signal_modified(name);
    replication.set(name, value.as_str());
    Ok(())
}

/// A lock's name with braces but no hash tag has its counter in another slot: then it is left alone.
fn counter_name(lock: &[u8]) -> Option<OwnedStr> {
    let name = prefixed(COUNTER, lock);
    let reachable = !shell::is_cluster() || slot_of(&name) == slot_of(lock);
    reachable.then(|| OwnedStr::new(&name))
}

/// The number in Redisson's counter of this lock, if there is one.
pub(crate) fn read_counter(ctx: Ctx<'_>, lock: &[u8]) -> Option<u64> {
    let name = counter_name(lock)?;
    read_number(ctx, name.as_str(), parse_counter)
}
