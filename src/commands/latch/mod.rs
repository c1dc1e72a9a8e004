//! `LATCH.*`: latches that are counted down.

pub mod down;
pub mod set;
pub mod wait;

use crate::lock::LockError;
use crate::module::ctx::Ctx;
use crate::module::sem_key;
use crate::module::strings::Str;

/// A number with permits beside it is a semaphore, and no latch.
fn is_no_semaphore(ctx: Ctx, name: Str<'_>) -> Result<(), LockError> {
    match sem_key::has_permits(ctx, name) {
        true => Err(LockError::OtherCount),
        false => Ok(()),
    }
}
