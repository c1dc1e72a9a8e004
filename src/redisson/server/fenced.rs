//! The acquires of `RFencedLock`, natively: those of `RLock`, preceded by an increment of a counter.

use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::raw_key::RawKey;
use crate::module::keyspace::lock_key::LockKey;
use crate::redisson::scripts::{acquire, next_token, time_to_live, Acquire, Fenced};
use crate::redisson::server::effects::string;
use crate::redisson::server::rlock::{held, hold, First};
use crate::redisson::server::server_command::run as server;
use crate::redisson::server::{Call, Reply, Surroundings};

/// Runs one of the scripts. `None`: the data or the call is not plain, and nothing was changed.
pub fn run(ctx: Ctx<'_>, script: Fenced, call: &Call<'_>, around: Surroundings) -> Option<Reply> {
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
