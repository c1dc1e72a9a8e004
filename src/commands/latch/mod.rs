//! `LATCH.*`: latches that are counted down.

pub mod down;
pub mod set;
pub mod wait;

use crate::commands::error::CommandError;
use crate::lock::{permits_of, LockError};
use crate::module::acl;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::sem_key;

/// Checks that a number is not that of a semaphore: one with permits beside it. Called when the key exists or is about
/// to be created; an absent key is an open latch. The reply must not depend on a key that the caller's user may not
/// read: without that permission the number counts as a latch.
///
/// # Errors
/// [`LockError::OtherCount`].
fn is_no_semaphore(ctx: Ctx<'_>, name: Str<'_>) -> Result<(), CommandError> {
    let may_read = || acl::may_read(ctx, OwnedStr::new(&permits_of(name.bytes())).as_str());
    match sem_key::has_permits(ctx, name) && may_read() {
        true => Err(LockError::OtherCount.into()),
        false => Ok(()),
    }
}
