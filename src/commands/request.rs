//! What stands behind the owner in `LOCK.ACQUIRE` and `LOCK.MACQUIRE`.

use crate::commands::args::{default_lease, once, Args};
use crate::lock::{Acquire, LockError, Mode, Wait};
use crate::module::entry::clients;
use crate::module::entry::parked;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;

/// Reads the options to the end: what is asked for, and whether the reply is to name the holder.
///
/// # Errors
/// A word that is no option, an option given twice or without its value, a value out of range; `SESSION`
/// where there is no connection.
pub fn request<'a>(
    ctx: Ctx,
    args: &mut Args<'_>,
    owner: Str<'a>,
    command: &'static str,
) -> Result<(Acquire<'a>, bool), LockError> {
    let (mut mode, mut lease, mut session) = (None, None, None);
    let (mut wait, mut count_once, mut with_holder) = (None, None, None);
    while let Some(option) = args.option() {
        match &option[..] {
            b"READ" => once(&mut mode, Mode::Read)?,
            b"WRITE" => once(&mut mode, Mode::Write)?,
            b"EX" => once(&mut lease, args.lease(1_000, command)?)?,
            b"PX" => once(&mut lease, args.lease(1, command)?)?,
            b"SESSION" => once(&mut session, ())?,
            b"BLOCK" => once(&mut wait, args.wait()?)?,
            b"ONCE" => once(&mut count_once, ())?,
            b"WITHHOLDER" => once(&mut with_holder, ())?,
            _ => return Err(LockError::Syntax),
        }
    }
    if session.is_some() {
        if lease.is_some() {
            return Err(LockError::Syntax);
        }
        clients::prepare(ctx)?;
    }
    let request = Acquire {
        owner: owner.bytes(),
        mode: mode.unwrap_or(Mode::Exclusive),
        names_lease: lease.is_some(),
        lease: lease.map_or_else(default_lease, Ok)?,
        session: session.is_some(),
        once: count_once.is_some(),
        wait: wait
            .filter(|_| parked::is_possible(ctx))
            .unwrap_or(Wait::No),
        client: ctx.client_id(),
    };
    Ok((request, with_holder.is_some()))
}
