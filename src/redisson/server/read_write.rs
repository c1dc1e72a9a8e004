//! The scripts of `RReadWriteLock`: dispatches each to the file that runs it.

use crate::module::ffi::ctx::Ctx;
use crate::redisson::scripts::read_write::ReadWrite;
use crate::redisson::server::{read_lock, write_lock, Call, Reply, Surroundings};

/// Runs one of the scripts. `None`: the data or the call is not plain, and nothing was changed.
pub fn run(
    ctx: Ctx<'_>,
    script: ReadWrite,
    call: &Call<'_>,
    around: Surroundings,
) -> Option<Reply> {
    match script {
        ReadWrite::WriteAcquire => write_lock::acquire(ctx, call, around),
        ReadWrite::WriteUnlock(form) => write_lock::unlock(ctx, call, form),
        ReadWrite::Force(mode, form) => write_lock::force(ctx, call, mode, form),
        ReadWrite::ReadAcquire { shortens } => read_lock::acquire(ctx, call, shortens, around),
        ReadWrite::ReadUnlock(form) => read_lock::unlock(ctx, call, form),
    }
}
