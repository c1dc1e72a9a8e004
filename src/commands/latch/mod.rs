//! `LATCH.*`: latches that are counted down.

pub mod down;
pub mod set;
pub mod wait;

use crate::commands::error::CommandError;
use crate::lock::LockError;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::sem_key;

/// Checks that a number is not that of a semaphore: one with permits beside it. Called when the key exists or is about
/// to be created; an absent key is an open latch.
///
/// # Errors
/// [`LockError::OtherCount`].
fn is_no_semaphore(ctx: Ctx<'_>, name: Str<'_>) -> Result<(), CommandError> {
    match sem_key::has_permits(ctx, name) {
        true => Err(LockError::OtherCount.into()),
        false => Ok(()),
    }
}
