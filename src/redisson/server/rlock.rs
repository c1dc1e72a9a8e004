//! The scripts of `RLock`, natively: read, decide, write, close the key, and then send the events.
//!
//! Events and replicated commands are those of the script's own commands, one key event for each command and the same
//! words for replicas and the AOF. An unlock deletes the hash without counting it down first; the event and the
//! replicated command `HINCRBY` are sent nevertheless.

use redis_module::raw;

use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::raw_key::RawKey;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::replication::Replication;
use crate::module::state::constants::constants;
use crate::module::state::shell;
use crate::redisson::scripts::{
    acquire, lease_end, next_token, own_count, time_to_live, unlock, Acquire, Fenced, Held, Inner,
    RLock, Spin, Unlock,
};
use crate::redisson::server::effects::{
    count, field, has_field, kind, made, notify_unlock_latch, prolong, prolong_counted, server,
    string, write_unlock_latch, KeyKind, Message, UnlockLatch,
};
use crate::redisson::server::{Call, Reply, Str, Surroundings};

/// Runs one of the scripts. `None`: the data or the call is not plain, or the server refused a write; nothing was
/// changed.
pub fn run(ctx: Ctx<'_>, script: RLock, call: &Call<'_>, around: Surroundings) -> Option<Reply> {
    match script {
        RLock::Acquire => take(ctx, call, First::Counted, around),
        RLock::AcquireBySet => take(ctx, call, First::Set, around),
        RLock::Unlock => give(ctx, &Give::of(call, Inner::Publish, around)?, around),
        RLock::UnlockOfNone => give_even_none(ctx, call, around),
        RLock::UnlockBy => give(ctx, &Give::of(call, call.publisher(3)?, around)?, around),
        RLock::UnlockOnce => {
            let mut unlock = Give::of(call, call.publisher(3)?, around)?;
            unlock.latch = Some((call.key(2)?, call.arg(4)?));
            give(ctx, &unlock, around)
        }
        RLock::Renew => renew(ctx, call, around).map(|renewed| Reply::Number(renewed.into())),
        RLock::RenewAll => renew_all(ctx, call, around).map(Reply::Numbers),
        RLock::Force => force(ctx, call, Inner::Publish, around),
        RLock::ForceBy => force(ctx, call, call.publisher(1)?, around),
    }
}

/// The command with which a script writes the first hold.
pub(crate) enum First {
    /// By `HINCRBY`.
    Counted,
    /// By `HSET`.
    Set,
}

fn take(ctx: Ctx<'_>, call: &Call<'_>, first: First, around: Surroundings) -> Option<Reply> {
    let (name, lease, owner) = (call.key(0)?, call.arg(0)?, call.arg(1)?);
    let key = LockKey::open(ctx, name);
    let now_ms = ctx.now().wall_ms;
    let decided = acquire(held(&key, owner)?, lease.bytes(), now_ms)?;
    if decided == Acquire::Refused {
        shell::with(|shell| shell.locks.refused_outside(ctx.key_ref(name)));
        let end_ms = key.handle().and_then(RawKey::end_ms);
        return time_to_live(end_ms, now_ms).map(Reply::Number);
    }
    if around.are_short_of_memory() && !fault::is_on("script-takes-in-a-full-memory") {
        return None;
    }
    hold(key, owner, decided, first, around)?;
    Some(Reply::Nil)
}

/// Carries out the decision on an acquire; a refused one changes nothing. `None`: the server refused, and nothing was
/// changed.
pub(crate) fn hold(
    key: LockKey<'_>,
    owner: Str<'_>,
    decided: Acquire,
    first: First,
    around: Surroundings,
) -> Option<()> {
    let (ctx, name) = (key.ctx(), key.name());
    match decided {
        Acquire::First(end_ms) => take_first(key, owner, end_ms, first, around)?,
        Acquire::Again(end_ms) => {
            drop(key);
            count(ctx, name, owner, 1)?;
            prolong_counted(ctx, (name, owner, 1), end_ms, around.replication(ctx))?;
        }
        Acquire::Refused => {}
    }
    Some(())
}

/// Writes the first hold into an absent key.
fn take_first(
    mut key: LockKey<'_>,
    owner: Str<'_>,
    end_ms: i64,
    first: First,
    around: Surroundings,
) -> Option<()> {
    let (ctx, name) = (key.ctx(), key.name());
    let replication = around.replication(ctx);
    let constants = constants();
    let words = [name, owner, constants.one()];
    made(key.open_key().and_then(|handle| handle.set_fields(&words)))?;
    let event = match first {
        First::Counted => {
            replication.hincrby(name, owner, 1);
            c"hincrby"
        }
        First::Set => {
            replication.hset(&words);
            c"hset"
        }
    };
    let leased = made(key.set_deadline(end_ms, replication));
    if leased.is_none() {
        // Without a deadline the lock would be held for ever.
        made(key.delete(replication))?;
    }
    leased?;
    key.signal();
    drop(key);
    ctx.notify(raw::REDISMODULE_NOTIFY_HASH, event, name);
    ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"expire", name);
    Some(())
}

/// The oldest unlock: on a free lock it replies 1 and publishes the release message.
fn give_even_none(ctx: Ctx<'_>, call: &Call<'_>, around: Surroundings) -> Option<Reply> {
    let key = LockKey::open(ctx, call.key(0)?);
    let is_absent = matches!(kind(&key), KeyKind::Absent);
    drop(key);
    let unlock = Give::of(call, Inner::Publish, around)?;
    if !is_absent {
        return give(ctx, &unlock, around);
    }
    let message = unlock.message?;
    message.replicate(around.replication(ctx));
    message.publish(ctx);
    Some(Reply::Number(1))
}

/// An unlock.
pub(crate) struct Give<'a> {
    /// The lock.
    pub name: Str<'a>,
    /// The lease of the remaining holds.
    pub lease: Str<'a>,
    /// The owner that unlocks.
    pub owner: Str<'a>,
    /// The latch for the reply, and its lease.
    pub latch: Option<(Str<'a>, Str<'a>)>,
    /// The release message, if the script publishes one.
    pub message: Option<Message<'a>>,
}

impl<'a> Give<'a> {
    fn of(call: &Call<'a>, publisher: Inner, around: Surroundings) -> Option<Give<'a>> {
        Some(Give {
            name: call.key(0)?,
            lease: call.arg(1)?,
            owner: call.arg(2)?,
            latch: None,
            message: Some(Message::of(call, publisher, around)?),
        })
    }
}

/// Runs an unlock, with or without a latch.
pub(crate) fn give(ctx: Ctx<'_>, unlocking: &Give<'_>, around: Surroundings) -> Option<Reply> {
    let (name, lease, owner) = (unlocking.name, unlocking.lease, unlocking.owner);
    let latch = match unlocking.latch {
        None => None,
        Some((latch, lease)) => match UnlockLatch::open(ctx, latch)? {
            UnlockLatch::Says(answer) => return Some(Reply::Number(answer)),
            UnlockLatch::Unset(latch) => Some((latch, lease)),
        },
    };
    let key = LockKey::open(ctx, name);
    let now_ms = ctx.now().wall_ms;
    let decided = unlock(held(&key, owner)?, lease.bytes(), now_ms)?;
    if decided == Unlock::NotOwner {
        return Some(Reply::Nil);
    }
    let latch = match latch {
        Some((latch, lease)) => Some((latch, lease_end(lease.bytes(), now_ms)?)),
        None => None,
    };
    match decided {
        Unlock::Less(end_ms) => {
            drop(key);
            count(ctx, name, owner, -1)?;
            prolong_counted(ctx, (name, owner, -1), end_ms, around.replication(ctx))?;
            if let Some((latch, end_ms)) = latch {
                let latch = write_unlock_latch(latch, 0, end_ms, around.replication(ctx));
                notify_unlock_latch(ctx, latch);
            }
            Some(Reply::Number(0))
        }
        _ => {
            let message = unlocking.message.as_ref();
            free(key, owner, latch, around.replication(ctx), message)?;
            Some(Reply::Number(1))
        }
    }
}

/// Ends the last hold: all keys are written before the first event is sent.
fn free(
    mut key: LockKey<'_>,
    owner: Str<'_>,
    latch: Option<(LockKey<'_>, i64)>,
    replication: Replication<'_>,
    message: Option<&Message<'_>>,
) -> Option<()> {
    let (ctx, name) = (key.ctx(), key.name());
    replication.hincrby(name, owner, -1);
    let deleted = made(key.delete(replication));
    if deleted.is_none() {
        replication.hincrby(name, owner, 1);
    }
    deleted?;
    key.signal();
    drop(key);
    if let Some(message) = message {
        message.replicate(replication);
    }
    let latch = latch.map(|(latch, end_ms)| write_unlock_latch(latch, 1, end_ms, replication));
    ctx.notify(raw::REDISMODULE_NOTIFY_HASH, c"hincrby", name);
    // Not `notify_deletion`: for the module's own waiters this is a release by another client.
    ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"del", name);
    if let Some(message) = message {
        message.publish(ctx);
    }
    if let Some(latch) = latch {
        notify_unlock_latch(ctx, latch);
    }
    Some(())
}

/// A renewal; false if the caller does not hold the lock.
fn renew(ctx: Ctx<'_>, call: &Call<'_>, around: Surroundings) -> Option<bool> {
    let (name, lease, owner) = (call.key(0)?, call.arg(0)?, call.arg(1)?);
    let key = LockKey::open(ctx, name);
    if !has_field(&key, owner)? {
        return Some(false);
    }
    let end_ms = lease_end(lease.bytes(), ctx.now().wall_ms)?;
    prolong(key, end_ms, around.replication(ctx))?;
    Some(true)
}

/// Renews all these locks: all are read before the first is changed.
fn renew_all(ctx: Ctx<'_>, call: &Call<'_>, around: Surroundings) -> Option<Vec<i64>> {
    let (lease, owners) = call.args.split_first()?;
    let end_ms = lease_end(lease.bytes(), ctx.now().wall_ms);
    let locks = call.keys.iter().zip(owners);
    let is_own = |(name, owner): (&Str<'_>, &Str<'_>)| {
        let is_own = has_field(&LockKey::open(ctx, *name), *owner)?;
        (!is_own || end_ms.is_some()).then_some(is_own)
    };
    let own: Vec<bool> = locks.map(is_own).collect::<Option<_>>()?;
    if let Some(end_ms) = end_ms {
        for (name, _) in call.keys.iter().zip(&own).filter(|(_, is_own)| **is_own) {
            prolong(LockKey::open(ctx, *name), end_ms, around.replication(ctx))?;
        }
    }
    Some(own.into_iter().map(i64::from).collect())
}

/// An unlock by force. The script deletes a key of any type; only a hash is deleted natively.
fn force(ctx: Ctx<'_>, call: &Call<'_>, publisher: Inner, around: Surroundings) -> Option<Reply> {
    let mut key = LockKey::open(ctx, call.key(0)?);
    match kind(&key) {
        KeyKind::Absent => return Some(Reply::Number(0)),
        KeyKind::Other => return None,
        KeyKind::Hash => {}
    }
    let message = Message::of(call, publisher, around)?;
    let (name, replication) = (key.name(), around.replication(ctx));
    made(key.delete(replication))?;
    key.signal();
    drop(key);
    message.replicate(replication);
    ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"del", name);
    message.publish(ctx);
    Some(Reply::Number(1))
}

/// The state of the lock as the script reads it.
pub(crate) fn held(key: &LockKey<'_>, owner: Str<'_>) -> Option<Held> {
    match (kind(key), key.handle()) {
        (KeyKind::Hash, Some(handle)) => match field(handle, owner)? {
            Some(count) => own_count(count.as_str().bytes()).map(Held::Own),
            None => Some(Held::Other),
        },
        (KeyKind::Other, _) => None,
        _ => Some(Held::Not),
    }
}

/// Runs one of the scripts. `None`: the data or the call is not plain, and nothing was changed.
pub fn run_spin(
    ctx: Ctx<'_>,
    script: Spin,
    call: &Call<'_>,
    around: Surroundings,
) -> Option<Reply> {
    let latch = match script {
        Spin::Unlock => None,
        Spin::UnlockOnce => Some((call.key(1)?, call.arg(2)?)),
    };
    let unlock = Give {
        name: call.key(0)?,
        lease: call.arg(0)?,
        owner: call.arg(1)?,
        latch,
        message: None,
    };
    give(ctx, &unlock, around)
}

/// Runs one of the scripts. `None`: the data or the call is not plain, and nothing was changed.
pub fn run_fenced(
    ctx: Ctx<'_>,
    script: Fenced,
    call: &Call<'_>,
    around: Surroundings,
) -> Option<Reply> {
    let (name, counter) = (call.key(0)?, call.key(1)?);
    let (lease, owner) = (call.arg(0)?, call.arg(1)?);
    let key = LockKey::open(ctx, name);
    let now_ms = ctx.now().wall_ms;
    let decided = acquire(held(&key, owner)?, lease.bytes(), now_ms)?;
    if decided == Acquire::Refused {
        let left_ms = time_to_live(key.handle().and_then(RawKey::end_ms), now_ms)?;
        return Some(match script {
            Fenced::Acquire => Reply::Number(left_ms),
            Fenced::AcquireToken => Reply::Numbers(vec![left_ms, -1]),
        });
    }
    drop(key);
    if around.are_short_of_memory() || counter.bytes() == name.bytes() {
        return None;
    }
    let token = next_token(string(ctx, counter)?.as_deref())?;
    // The server's own command leaves the TTL of the counter unchanged.
    server(ctx, c"INCR", &[counter])?;
    hold(
        LockKey::open(ctx, name),
        owner,
        decided,
        First::Counted,
        around,
    )?;
    Some(match script {
        Fenced::Acquire => Reply::Nil,
        Fenced::AcquireToken => Reply::Numbers(vec![-1, token]),
    })
}
