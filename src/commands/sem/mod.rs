//! `SEM.*`: semaphores whose permits have leases.

pub mod acquire;
pub mod info;
pub mod release;
pub mod renew;
pub mod set;

use smallvec::SmallVec;

use crate::commands::error::CommandError;
use crate::lock::{permits_of, twin_of, LockError, Now, SemView};
use crate::module::acl;
use crate::module::entry::alarm;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::sem_key::SemKey;
use crate::module::sessions;

/// The name of the key of the permits, which a command on this semaphore does not name itself.
///
/// # Errors
/// [`CommandError::MayNotUsePermits`] if the caller's user may not write that key, or the twin, which has the same
/// key of permits: a reply shows whether the twin exists.
fn permits_to_write(ctx: Ctx<'_>, key: Str<'_>) -> Result<OwnedStr, CommandError> {
    let permits = OwnedStr::new(&permits_of(key.bytes()));
    let twin = twin_of(key.bytes()).map(|twin| OwnedStr::new(&twin));
    let twin = twin.as_ref().map(OwnedStr::as_str);
    let keys: SmallVec<[Str<'_>; 2]> = twin.into_iter().chain([permits.as_str()]).collect();
    let may_write = acl::may_write(ctx, &keys);
    drop(keys);
    match may_write {
        true => Ok(permits),
        false => Err(CommandError::MayNotUsePermits),
    }
}

/// Opens a semaphore for a command on the permit of this id, and makes the view with `read`.
///
/// # Errors
/// [`CommandError::MayNotUsePermits`]; those of opening; [`LockError::SiblingsTaken`] where the permit may belong to
/// another semaphore.
fn open_permit<'a>(
    ctx: Ctx<'a>,
    name: Str<'a>,
    id: Str<'_>,
    read: impl FnOnce(&SemKey<'a>, Option<Str<'_>>, Now) -> SemView<'a>,
) -> Result<(SemKey<'a>, SemView<'a>, Now), CommandError> {
    let permits = permits_to_write(ctx, name)?;
    if sessions::end_permit_first(ctx, name, id) {
        alarm::rearm(ctx);
    }
    let key = SemKey::open_with(ctx, name, permits)?;
    let now = ctx.now();
    let view = read(&key, Some(id), now);
    match key.may_be_anothers(&view, id, now) {
        true => Err(LockError::SiblingsTaken.into()),
        false => Ok((key, view, now)),
    }
}
