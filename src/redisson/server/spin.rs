//! The unlocks of the spin lock, natively: those of `RLock`, with their arguments in another order and without a
//! message.

use crate::module::ffi::ctx::Ctx;
use crate::redisson::scripts::Spin;
use crate::redisson::server::rlock::{give, Give};
use crate::redisson::server::{Call, Reply, Surroundings};

/// Runs one of the scripts. `None`: the data or the call is not plain, and nothing was changed.
pub fn run(ctx: Ctx<'_>, script: Spin, call: &Call<'_>, around: Surroundings) -> Option<Reply> {
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
