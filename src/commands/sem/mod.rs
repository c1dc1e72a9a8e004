//! `SEM.*`: semaphores with permits that end.

pub mod acquire;
pub mod info;
pub mod release;
pub mod renew;
pub mod set;

use crate::lock::{permits_of, LockError, Now, SemView, SetIf};
use crate::module::acl;
use crate::module::entry::alarm;
use crate::module::entry::command::{Arg, ArgKind};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::sem_key::SemKey;
use crate::module::sem_sessions;

use crate::commands::args::{once, Args};

/// `id`, for the descriptions.
const ID: Arg = Arg {
    name: c"id",
    kind: ArgKind::String,
    token: None,
    optional: false,
};

/// `[NX | XX]`, for the descriptions.
pub(crate) const CONDITION: Arg = Arg {
    name: c"condition",
    kind: ArgKind::OneOf(&[one_of(c"nx", c"NX"), one_of(c"xx", c"XX")]),
    token: None,
    optional: true,
};

const fn one_of(name: &'static std::ffi::CStr, token: &'static std::ffi::CStr) -> Arg {
    Arg {
        name,
        kind: ArgKind::Word,
        token: Some(token),
        optional: false,
    }
}

/// A number without a word before it, for the descriptions.
pub(crate) const fn number(name: &'static std::ffi::CStr, optional: bool) -> Arg {
    Arg {
        name,
        kind: ArgKind::Integer,
        token: None,
        optional,
    }
}

/// Whether the caller's user may write the permits, whose key its command does not name: answers that key's name.
fn may_write(ctx: Ctx, key: Str<'_>) -> Result<OwnedStr, LockError> {
    let permits = OwnedStr::new(&permits_of(key.bytes()));
    match acl::may_write(ctx, &[permits.as_str()]) {
        true => Ok(permits),
        false => Err(LockError::MayNotWritePermits),
    }
}

/// Opens a semaphore for a command about the permit of this id, and reads it.
///
/// # Errors
/// Where the caller's user may not write the permits, and where the permit may be another semaphore's.
fn open_permit<'a>(
    ctx: Ctx,
    name: Str<'a>,
    id: Str<'_>,
    read: impl FnOnce(&SemKey<'a>, Option<Str<'_>>, Now) -> SemView<'a>,
) -> Result<(SemKey<'a>, SemView<'a>, Now), LockError> {
    let beside = may_write(ctx, name)?;
    if sem_sessions::end_first(ctx, name, id) {
        alarm::rearm(ctx);
    }
    let key = SemKey::open_with(ctx, name, beside)?;
    let now = ctx.now();
    let view = read(&key, Some(id), now);
    match key.may_be_anothers(&view, id, now) {
        true => Err(LockError::SiblingsTaken),
        false => Ok((key, view, now)),
    }
}

/// Whether a key that looks absent may be made. Within a transaction that paused writes it may only be hidden,
/// its TTL over: writing it then ends the server (as a plain `SET` does).
pub(crate) fn may_make(ctx: Ctx) -> Result<(), LockError> {
    match ctx.is_paused() {
        true => Err(LockError::TryAgain),
        false => Ok(()),
    }
}

/// `NX`, `XX` or nothing.
pub(crate) fn condition(args: &mut Args<'_>) -> Result<SetIf, LockError> {
    let mut set_if = None;
    while let Some(option) = args.option() {
        match &option[..] {
            b"NX" => once(&mut set_if, SetIf::Absent)?,
            b"XX" => once(&mut set_if, SetIf::There)?,
            _ => return Err(LockError::Syntax),
        }
    }
    Ok(set_if.unwrap_or(SetIf::Always))
}
