//! The scripts of `RLock`, natively: look, decide, write, and then, with the key closed, tell.
//!
//! What others are told is what the script's own commands would tell them: one key event for each, and the
//! same words to replicas and the AOF. An unlock deletes a hash without counting it down first; the event and
//! the word `HINCRBY` are sent all the same.

use std::ffi::{c_int, c_void, CStr};
use std::ptr::null_mut;

use redis_module::raw;

use super::super::api::api;
use super::super::count_key::{end_of, is_empty};
use super::super::ctx::Ctx;
use super::super::key::{field, LockKey};
use super::super::replication::Replication;
use super::super::strings::Constants;
use super::{Call, OwnedStr, Reply, Str, Surroundings};
use crate::lock::redisson::{
    acquire, lease_end, own_count, unlock, Acquire, Held, Inner, RLock, Unlock,
};

/// Runs one of the scripts; `None`: the data, or the call, is not plain, and nothing was done.
pub fn run(ctx: Ctx, script: RLock, call: &Call<'_>, around: Surroundings) -> Option<Reply> {
    match script {
        RLock::Acquire => take(ctx, call, First::Counted, around),
        RLock::AcquireBySet => take(ctx, call, First::Set, around),
        RLock::Unlock => give(ctx, call, Inner::Publish, false),
        RLock::UnlockOfNone => give_even_none(ctx, call),
        RLock::UnlockBy => give(ctx, call, call.publisher(3)?, false),
        RLock::UnlockOnce => give(ctx, call, call.publisher(3)?, true),
        RLock::Renew => renew(ctx, call).map(|renewed| Reply::Number(renewed.into())),
        RLock::RenewAll => renew_all(ctx, call).map(Reply::Numbers),
        RLock::Force => force(ctx, call, Inner::Publish),
        RLock::ForceBy => force(ctx, call, call.publisher(1)?),
    }
}

/// How a script writes the first hold.
enum First {
    /// By `HINCRBY`.
    Counted,
    /// By `HSET`.
    Set,
}

fn take(ctx: Ctx, call: &Call<'_>, first: First, around: Surroundings) -> Option<Reply> {
    let (name, lease, owner) = (call.key(0)?, call.arg(0)?, call.arg(1)?);
    let key = LockKey::open(ctx, name);
    let now_ms = ctx.now().wall_ms;
    match acquire(held(&key, owner)?, lease.bytes(), now_ms)? {
        Acquire::Refused => {
            let end_ms = key.handle().and_then(end_of);
            let left_ms = end_ms.map_or(-1, |end_ms| (end_ms - now_ms).max(0));
            return Some(Reply::Number(left_ms));
        }
        _ if around.are_short_of_memory() => return None,
        Acquire::First(end_ms) => take_first(key, owner, end_ms, first),
        Acquire::Again(end_ms) => {
            drop(key);
            count(ctx, name, owner, c"1")?;
            prolong(LockKey::open(ctx, name), end_ms);
        }
    }
    Some(Reply::Nil)
}

fn take_first(mut key: LockKey<'_>, owner: Str<'_>, end_ms: i64, first: First) {
    let (ctx, name, one) = (key.ctx(), key.name(), Constants::one());
    let replication = Replication::of_command(ctx);
    if let Some(handle) = key.handle() {
        // SAFETY: the handle is open for writing and has no value; the variadic list is one pair of live
        // strings, which the server copies, and the NULL that ends it.
        unsafe {
            api!(RedisModule_HashSet)(
                handle.as_ptr(),
                raw::REDISMODULE_HASH_NONE as c_int,
                owner.as_ptr(),
                one.as_ptr(),
                null_mut::<c_void>(),
            );
        }
    }
    let event = match first {
        First::Counted => {
            replication.hincrby(name, owner, 1);
            c"hincrby"
        }
        First::Set => {
            replication.hset(&[name.as_ptr(), owner.as_ptr(), one.as_ptr()]);
            c"hset"
        }
    };
    key.set_deadline(end_ms, replication);
    key.signal();
    drop(key);
    ctx.notify(raw::REDISMODULE_NOTIFY_HASH, event, name);
    ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"expire", name);
}

/// Counts a hold that is there up or down, by the server's own command: fields may have a TTL, of which a
/// module on most servers knows nothing. `None`: it was refused.
fn count(ctx: Ctx, name: Str<'_>, owner: Str<'_>, by: &CStr) -> Option<()> {
    // SAFETY: context and strings live through the call; "ssc" takes two strings and a C string. The reply is
    // ours to free.
    unsafe {
        let reply = api!(RedisModule_Call)(
            ctx.as_ptr(),
            c"HINCRBY".as_ptr(),
            c"!ssc".as_ptr(),
            name.as_ptr(),
            owner.as_ptr(),
            by.as_ptr(),
        );
        if reply.is_null() {
            return None;
        }
        api!(RedisModule_FreeCallReply)(reply);
    }
    Some(())
}

/// The oldest unlock: of what nobody holds it says that it is free now.
fn give_even_none(ctx: Ctx, call: &Call<'_>) -> Option<Reply> {
    let key = LockKey::open(ctx, call.key(0)?);
    let is_absent = matches!(kind(&key), Kind::Absent);
    drop(key);
    if !is_absent {
        return give(ctx, call, Inner::Publish, false);
    }
    let message = Message::of(call, Inner::Publish)?;
    message.replicate(ctx, Replication::of_command(ctx));
    message.publish(ctx);
    Some(Reply::Number(1))
}

/// An unlock, which perhaps leaves its answer in a latch.
fn give(ctx: Ctx, call: &Call<'_>, publisher: Inner, has_latch: bool) -> Option<Reply> {
    let (name, lease, owner) = (call.key(0)?, call.arg(1)?, call.arg(2)?);
    let latch = match has_latch {
        false => None,
        true => match Latch::open(ctx, call)? {
            Latch::Says(answer) => return Some(Reply::Number(answer)),
            Latch::Unset(latch) => Some((latch, call.arg(4)?)),
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
            count(ctx, name, owner, c"-1")?;
            prolong(LockKey::open(ctx, name), end_ms);
            if let Some((latch, end_ms)) = latch {
                let latch = write_latch(latch, 0, end_ms, Replication::of_command(ctx));
                tell_of_latch(ctx, latch);
            }
            Some(Reply::Number(0))
        }
        _ => {
            free(key, owner, latch, &Message::of(call, publisher)?);
            Some(Reply::Number(1))
        }
    }
}

/// The last hold ends: all keys are written before the first news of it.
fn free(
    mut key: LockKey<'_>,
    owner: Str<'_>,
    latch: Option<(LockKey<'_>, i64)>,
    message: &Message<'_>,
) {
    let (ctx, name) = (key.ctx(), key.name());
    let replication = Replication::of_command(ctx);
    replication.hincrby(name, owner, -1);
    key.delete(replication);
    key.signal();
    drop(key);
    message.replicate(ctx, replication);
    let latch = latch.map(|(latch, end_ms)| write_latch(latch, 1, end_ms, replication));
    ctx.notify(raw::REDISMODULE_NOTIFY_HASH, c"hincrby", name);
    // Not `tell_of_deletion`: to our own waiters this is a release by others.
    ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"del", name);
    message.publish(ctx);
    if let Some(latch) = latch {
        tell_of_latch(ctx, latch);
    }
}

/// The key in which an unlock leaves its answer.
enum Latch<'a> {
    /// This unlock was answered before.
    Says(i64),
    /// It was not.
    Unset(LockKey<'a>),
}

impl<'a> Latch<'a> {
    /// Opens it; `None` where it is no latch.
    fn open(ctx: Ctx, call: &Call<'a>) -> Option<Latch<'a>> {
        let key = LockKey::open(ctx, call.key(2)?);
        let Some(handle) = key.handle().filter(|handle| !is_empty(*handle)) else {
            return Some(Latch::Unset(key));
        };
        // SAFETY: the handle is open; the bytes that StringDMA points to are only read, before anything
        // can change the key.
        let value = unsafe {
            let kind = api!(RedisModule_KeyType)(handle.as_ptr()) as isize;
            if kind != raw::REDISMODULE_KEYTYPE_STRING {
                return None;
            }
            let (mut len, mode) = (0, raw::REDISMODULE_READ as c_int);
            let data = api!(RedisModule_StringDMA)(handle.as_ptr(), &mut len, mode);
            std::slice::from_raw_parts(data.cast::<u8>(), len)
        };
        match value {
            b"0" => Some(Latch::Says(0)),
            b"1" => Some(Latch::Says(1)),
            _ => None,
        }
    }
}

fn write_latch<'a>(
    latch: LockKey<'a>,
    answer: i64,
    end_ms: i64,
    replication: Replication,
) -> Str<'a> {
    let name = latch.name();
    if let Some(handle) = latch.handle() {
        let value = OwnedStr::of_number(answer);
        // SAFETY: the handle is open for writing and has no value yet; StringSet keeps a reference of its own.
        unsafe {
            api!(RedisModule_StringSet)(handle.as_ptr(), value.as_ptr());
            api!(RedisModule_SetAbsExpire)(handle.as_ptr(), end_ms);
        }
        replication.set_until(name, value.as_str(), end_ms);
        latch.signal();
    }
    name
}

fn tell_of_latch(ctx: Ctx, name: Str<'_>) {
    ctx.notify(raw::REDISMODULE_NOTIFY_STRING, c"set", name);
    ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"expire", name);
}

/// A renewal; false where the lock is not the caller's.
fn renew(ctx: Ctx, call: &Call<'_>) -> Option<bool> {
    let (name, lease, owner) = (call.key(0)?, call.arg(0)?, call.arg(1)?);
    let key = LockKey::open(ctx, name);
    if !has_field(&key, owner)? {
        return Some(false);
    }
    let end_ms = lease_end(lease.bytes(), ctx.now().wall_ms)?;
    prolong(key, end_ms);
    Some(true)
}

/// Renewals of all these locks: all of them are looked at before the first is touched.
fn renew_all(ctx: Ctx, call: &Call<'_>) -> Option<Vec<i64>> {
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
            prolong(LockKey::open(ctx, *name), end_ms);
        }
    }
    Some(own.into_iter().map(i64::from).collect())
}

fn prolong(mut key: LockKey<'_>, end_ms: i64) {
    let (ctx, name) = (key.ctx(), key.name());
    key.set_deadline(end_ms, Replication::of_command(ctx));
    key.signal();
    drop(key);
    ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"expire", name);
}

/// An unlock by force: of whatever is there, but only a hash is deleted here.
fn force(ctx: Ctx, call: &Call<'_>, publisher: Inner) -> Option<Reply> {
    let mut key = LockKey::open(ctx, call.key(0)?);
    match kind(&key) {
        Kind::Absent => return Some(Reply::Number(0)),
        Kind::Other => return None,
        Kind::Hash => {}
    }
    let message = Message::of(call, publisher)?;
    let (name, replication) = (key.name(), Replication::of_command(ctx));
    key.delete(replication);
    key.signal();
    drop(key);
    message.replicate(ctx, replication);
    ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"del", name);
    message.publish(ctx);
    Some(Reply::Number(1))
}

/// What a script publishes: the call's first argument, on the channel that is its second key.
struct Message<'a> {
    channel: Str<'a>,
    text: Str<'a>,
    in_shard: bool,
}

impl<'a> Message<'a> {
    fn of(call: &Call<'a>, publisher: Inner) -> Option<Message<'a>> {
        Some(Message {
            channel: call.key(1)?,
            text: call.arg(0)?,
            in_shard: publisher == Inner::Spublish,
        })
    }

    fn publish(&self, ctx: Ctx) {
        match self.in_shard {
            true => ctx.publish_in_shard(self.channel, self.text),
            false => ctx.publish(self.channel, self.text),
        }
    }

    /// To replicas. In a cluster they get the message by another way.
    fn replicate(&self, ctx: Ctx, replication: Replication) {
        match self.in_shard {
            _ if ctx.is_cluster() => {}
            true => replication.publish_in_shard(self.channel, self.text),
            false => replication.publish(self.channel, self.text),
        }
    }
}

/// What kind of value a key has.
enum Kind {
    Absent,
    Hash,
    Other,
}

fn kind(key: &LockKey<'_>) -> Kind {
    let Some(handle) = key.handle() else {
        return Kind::Absent;
    };
    // SAFETY: the handle is open.
    match unsafe { api!(RedisModule_KeyType)(handle.as_ptr()) } as isize {
        raw::REDISMODULE_KEYTYPE_EMPTY => Kind::Absent,
        raw::REDISMODULE_KEYTYPE_HASH => Kind::Hash,
        _ => Kind::Other,
    }
}

/// What the script would see of the lock.
fn held(key: &LockKey<'_>, owner: Str<'_>) -> Option<Held> {
    match (kind(key), key.handle()) {
        (Kind::Hash, Some(handle)) => match field(handle, owner) {
            Some(count) => own_count(count.as_str().bytes()).map(Held::Own),
            None => Some(Held::Other),
        },
        (Kind::Other, _) => None,
        _ => Some(Held::Not),
    }
}

/// Whether the lock has the owner's field, whatever is in it.
fn has_field(key: &LockKey<'_>, owner: Str<'_>) -> Option<bool> {
    match (kind(key), key.handle()) {
        (Kind::Hash, Some(handle)) => Some(field(handle, owner).is_some()),
        (Kind::Other, _) => None,
        _ => Some(false),
    }
}
