//! `LATCH.*`: latches that are counted down.

pub mod down;
pub mod set;
pub mod wait;

use crate::lock::LockError;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::sem_key;

/// A number with permits beside it is a semaphore, and no latch. To be called when the key exists or is about to be
/// made; an absent key is an open latch.
fn is_no_semaphore(ctx: Ctx, name: Str<'_>) -> Result<(), LockError> {
    match sem_key::has_permits(ctx, name) {
        true => Err(LockError::OtherCount),
        false => Ok(()),
    }
}
