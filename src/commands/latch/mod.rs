//! `LATCH.*`: latches that are counted down.

pub mod down;
pub mod set;
pub mod wait;

use crate::lock::LockError;
use crate::module::ctx::Ctx;
use crate::module::sem_key;
use crate::module::strings::Str;

/// One key is one thing: a number beside which permits stand is a semaphore's.
fn is_no_semaphore(ctx: Ctx, name: Str<'_>) -> Result<(), LockError> {
    match sem_key::has_permits(ctx, name) {
        true => Err(LockError::OtherCount),
        false => Ok(()),
    }
}
