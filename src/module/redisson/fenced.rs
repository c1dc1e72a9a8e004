//! The acquires of `RFencedLock`, natively: those of `RLock`, and a counter that rises first.

use super::super::api::api;
use super::super::count_key::end_of;
use super::super::ctx::Ctx;
use super::super::key::LockKey;
use super::effects::{count, prolong, string};
use super::rlock::{held, take_first, First};
use super::{Call, Reply, Str, Surroundings};
use crate::lock::redisson::{acquire, next_token, time_to_live, Acquire, Fenced};

/// Runs one of the scripts; `None`: the data, or the call, is not plain, and nothing was done.
pub fn run(ctx: Ctx, script: Fenced, call: &Call<'_>, around: Surroundings) -> Option<Reply> {
    let (name, counter) = (call.key(0)?, call.key(1)?);
    let (lease, owner) = (call.arg(0)?, call.arg(1)?);
    let key = LockKey::open(ctx, name);
    let now_ms = ctx.now().wall_ms;
    let decided = acquire(held(&key, owner)?, lease.bytes(), now_ms)?;
    if decided == Acquire::Refused {
        let left_ms = time_to_live(key.handle().and_then(end_of), now_ms)?;
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
    increment(ctx, counter)?;
    match decided {
        Acquire::First(end_ms) => {
            let key = LockKey::open(ctx, name);
            take_first(key, owner, end_ms, First::Counted, around);
        }
        Acquire::Again(end_ms) => {
            count(ctx, name, owner, c"1")?;
            prolong(LockKey::open(ctx, name), end_ms, around.replication(ctx));
        }
        Acquire::Refused => {}
    }
    Some(match script {
        Fenced::Acquire => Reply::Nil,
        Fenced::AcquireToken => Reply::Numbers(vec![-1, token]),
    })
}

/// By the server's own command, which leaves the TTL of the counter alone. `None`: it was refused.
fn increment(ctx: Ctx, counter: Str<'_>) -> Option<()> {
    // SAFETY: context and string live through the call; "s" takes a string. The reply is ours to free.
    unsafe {
        let (incr, format) = (c"INCR".as_ptr(), c"!s".as_ptr());
        let reply = api!(RedisModule_Call)(ctx.as_ptr(), incr, format, counter.as_ptr());
        if reply.is_null() {
            return None;
        }
        api!(RedisModule_FreeCallReply)(reply);
    }
    Some(())
}
