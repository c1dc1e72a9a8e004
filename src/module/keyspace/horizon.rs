//! The two keys that fencing tokens depend on.
//!
//! The *horizon* (`redis_lock:horizon`, in a cluster one for each slot in use) keeps tokens rising after a restart: see
//! `lock::token`. Redisson's *counter* (`redisson_lock_token:{name}`) belongs to its `RFencedLock`; if it exists, a
//! token of the lock is minted above it and written back to it.

use redis_module::raw;

use crate::lock::{
    parse_counter, parse_decimal, prefixed, slot_of, Domain, Now, Token, COUNTER, HORIZON_DB,
};
use crate::module::ffi::api::{Refused, Written};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::log;
use crate::module::ffi::raw_key::{RawKey, NO_TRACE};
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::string_key::StringKey;
use crate::module::state::constants::is_cluster;
use crate::module::state::shell;

/// The name of the horizon, in a cluster its prefix. No lock may have it.
const HORIZON: &str = "redis_lock:horizon";
/// The refusal to store a horizon when its key has another type.
pub const FOREIGN_HORIZON: Refused = Refused("the key of the horizon holds another type");

/// Whether no lock, semaphore or latch may have this name: a grant overwrites a key of such a name.
pub fn is_reserved(name: &[u8]) -> bool {
    let counter = name.strip_prefix(COUNTER.as_bytes());
    is_horizon(name) || counter.is_some_and(|rest| rest.starts_with(b":"))
}

/// Whether this name is reserved for horizons.
pub fn is_horizon(name: &[u8]) -> bool {
    name.starts_with(HORIZON.as_bytes())
}

/// Whether a token of this domain can be minted and its grant be written. `is_there`: whether every key that would be
/// written exists, the horizon's aside.
pub fn may_mint(ctx: Ctx<'_>, domain: Domain, is_there: bool) -> bool {
    let horizon_is_safe = if is_cluster() {
        learn_slot(ctx, domain)
    } else {
        learn_horizon(ctx)
    };
    // Inside a transaction that has paused traffic, a key that looks absent, the lock's or the horizon's, may only be
    // hidden, and writing it aborts the server. Whether the horizon will be stored anew is not known before the token
    // is minted: the lock's own data may raise it.
    let is_seen = || is_there && horizon_exists(ctx, domain);
    horizon_is_safe && (!ctx.is_paused() || is_seen() || fault::is_on("hidden-key-written-over"))
}

/// Whether the key of the horizon exists, so that it can be stored anew. (`write_horizon` checks its type.)
fn horizon_exists(ctx: Ctx<'_>, domain: Domain) -> bool {
    let name = horizon_name(domain);
    in_horizon_db(ctx, || {
        !StringKey::open_to_write(ctx, name.as_str()).is_absent()
    })
}

/// In a cluster: reads the horizon of the slot, before every token, because it moves with its slot. False when it must
/// be stored anew and cannot be, because the slot moves to or from this node and takes no new key: then nothing is
/// granted.
fn learn_slot(ctx: Ctx<'_>, slot: Domain) -> bool {
    read_and_learn(ctx, slot)
        && (!wants_horizon(ctx, slot)
            || ctx.probe_write_detached(horizon_name(slot).as_str())
            || fault::is_on("leaving-slot-gets-a-horizon"))
}

/// Reads the horizon of a domain, for a decision that mints no token and needs it nevertheless.
pub fn learn_of(ctx: Ctx<'_>, domain: Domain) {
    match is_cluster() {
        true => read_and_learn(ctx, domain),
        false => learn_horizon(ctx),
    };
}

/// Outside a cluster: whether the server would run a write command now. What refuses one there refuses all.
pub fn probe_write(ctx: Ctx<'_>) -> bool {
    ctx.probe_write(horizon_name(0).as_str())
}

fn read_and_learn(ctx: Ctx<'_>, domain: Domain) -> bool {
    let stored = in_horizon_db(ctx, || read_horizon(ctx, horizon_name(domain).as_str()));
    if let Some(stored) = stored {
        learn(ctx, domain, stored);
    }
    stored.is_some()
}

/// Whether the next token will need the horizon stored anew.
fn wants_horizon(ctx: Ctx<'_>, domain: Domain) -> bool {
    let now_us = ctx.now().wall_us();
    shell::with(|shell| shell.locks.shared.tokens.wants_horizon(domain, now_us))
}

/// Outside a cluster: reads the horizon, unless it is known: before the first token, and before a flush of data that
/// may have another process's horizon. False when its key has another type.
pub fn learn_horizon(ctx: Ctx<'_>) -> bool {
    shell::with(|shell| shell.locks.shared.tokens.knows(0)) || read_and_learn(ctx, 0)
}

/// Gives the core the stored horizon, 0 for none. An implausible number is logged once.
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

/// The horizon that is stored under this name, 0 without one; `None` when the key is no string.
fn read_horizon(ctx: Ctx<'_>, name: Str<'_>) -> Option<u64> {
    let (stored, is_foreign) = stored_number(ctx, name);
    shell::with(|shell| shell.locks.shared.tokens.set_foreign(is_foreign));
    (!is_foreign).then_some(stored.unwrap_or(0))
}

/// Outside a cluster, after `SWAPDB` of the horizon's database: the horizon is in the other database now. If it was not
/// known yet, it is read there.
pub fn learn_swapped_horizon(ctx: Ctx<'_>, first: i32, second: i32) {
    let other = match HORIZON_DB {
        db if db == first => second,
        db if db == second => first,
        _ => return,
    };
    if !shell::with(|shell| shell.locks.shared.tokens.knows(0)) {
        let db = ctx.db();
        ctx.select(other);
        let (stored, _) = stored_number(ctx, horizon_name(0).as_str());
        ctx.select(db);
        learn(ctx, 0, stored.unwrap_or(0));
    }
}

/// Notes that a horizon's key was changed or deleted: [`restore_horizons`] reads it, and stores it again if necessary.
pub fn mark_lost(key: Str<'_>) {
    let domain = domain_of(key);
    shell::with(|shell| shell.locks.shared.tokens.lose(domain));
}

/// Outside a cluster, where no event reports it: notes that the horizon has got a TTL, and is to be stored again.
pub fn notice_ttl(ctx: Ctx<'_>) {
    let name = horizon_name(0);
    let open = || RawKey::open(ctx, name.as_str(), raw::REDISMODULE_READ | NO_TRACE);
    let ends = || open().is_some_and(|key| key.end_ms().is_some());
    if !is_cluster() && in_horizon_db(ctx, ends) {
        mark_lost(name.as_str());
    }
}

/// Stores horizons again that were deleted, or replaced by a number below the tokens so far: `at_most` of them. False
/// when the server refuses writes at the moment.
pub fn restore_horizons(ctx: Ctx<'_>, now: Now, at_most: usize) -> bool {
    ctx.select(HORIZON_DB);
    for _ in 0..at_most {
        let Some(domain) = shell::with(|shell| shell.locks.shared.tokens.pop_lost()) else {
            break;
        };
        let name = horizon_name(domain);
        let (stored, is_foreign) = stored_number(ctx, name.as_str());
        if let Some(stored) = stored {
            // Another client has stored a number: it stays if it covers the tokens so far, and is never lowered.
            learn(ctx, domain, stored);
            if !shell::with(|shell| shell.locks.shared.tokens.is_uncovered(domain)) {
                continue;
            }
        } else if is_foreign {
            // Foreign data stays; as long as it does, no token is minted.
            continue;
        }
        if ctx.probe_write(name.as_str()) {
            let now_us = now.wall_us();
            let horizon = shell::with(|shell| shell.locks.shared.tokens.reserve(domain, now_us));
            if let Err(what) = write_horizon(ctx, domain, horizon, Replication::of_event(ctx)) {
                shell::note_refusal(what);
                shell::with(|shell| shell.locks.shared.tokens.put_off(domain));
                return false;
            }
        } else if !is_cluster() {
            shell::with(|shell| shell.locks.shared.tokens.put_off(domain));
            return false;
        }
        // In a cluster the slot may have left this node, and its horizon with it.
    }
    true
}

/// Stores the horizon of a domain.
///
/// # Errors
/// When the server refuses, or the key has another type now: [`FOREIGN_HORIZON`]. (The module subscribes to key events
/// when the first request waits, so it may have missed an earlier change.) The key is read again before the next token.
pub fn write_horizon(
    ctx: Ctx<'_>,
    domain: Domain,
    horizon: u64,
    replication: Replication<'_>,
) -> Written {
    let name = horizon_name(domain);
    let written = in_horizon_db(ctx, || {
        let mut key = StringKey::open_to_write(ctx, name.as_str());
        match key.is_foreign() {
            true => Err(FOREIGN_HORIZON),
            false => key.set(&OwnedStr::of_number(horizon), replication),
        }
    });
    if written.is_err() {
        shell::with(|shell| shell.locks.shared.tokens.doubt(domain));
    }
    written
}

/// Writes the token back to Redisson's counter.
///
/// # Errors
/// When the server refuses.
pub fn write_counter(
    ctx: Ctx<'_>,
    lock: Str<'_>,
    token: Token,
    replication: Replication<'_>,
) -> Written {
    match counter_name(lock.bytes()) {
        Some(name) => {
            let mut key = StringKey::open_to_write(ctx, name.as_str());
            key.set(&OwnedStr::of_number(token.get()), replication)
        }
        None => Ok(()),
    }
}

/// The domain whose horizon covers a key.
pub fn domain_of(key: Str<'_>) -> Domain {
    if is_cluster() {
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
    if db == HORIZON_DB || fault::is_on("horizon-in-another-database") {
        return body();
    }
    ctx.select(HORIZON_DB);
    let result = body();
    ctx.select(db);
    result
}

/// The number that is stored under this name, and whether the key has another type. The key is opened to write, because
/// that counts no key-space miss.
fn stored_number(ctx: Ctx<'_>, name: Str<'_>) -> (Option<u64>, bool) {
    let key = StringKey::open_to_write(ctx, name);
    (key.with_text(parse_decimal).flatten(), key.is_foreign())
}

/// The name of a lock's counter. `None` when it is in another slot, as for a name with braces but no hash tag: such a
/// counter is ignored.
pub fn counter_name(lock: &[u8]) -> Option<OwnedStr> {
    let name = prefixed(COUNTER, lock);
    let reachable = !is_cluster() || slot_of(&name) == slot_of(lock);
    reachable.then(|| OwnedStr::new(&name))
}

/// The number in Redisson's counter of this lock; `None` without one.
pub(crate) fn read_counter(ctx: Ctx<'_>, lock: &[u8]) -> Option<u64> {
    let name = counter_name(lock)?;
    // Opened to write, because that counts no key-space miss.
    let key = StringKey::open_to_write(ctx, name.as_str());
    key.with_text(parse_counter)?
}
