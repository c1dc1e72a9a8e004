//! `SEM.RENEW key id [EX s | PX ms]`

use crate::commands::args::{default_lease, once, Args, KEY, LEASE};
use crate::commands::sem::{open_permit, ID};
use crate::lock::LockError;
use crate::module::apply::decide;
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::sem_key::SemKey;

/// Sets the lease of a permit that the id still holds.
pub struct Renew;

impl Command for Renew {
    const SPEC: Spec = Spec {
        name: c"sem.renew",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Sets the lease of a permit that the id still holds",
        complexity: c"O(log(N)) with N permits held",
        args: &[KEY, ID, LEASE],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let (name, id) = (args.key()?, args.owner()?);
        let mut lease = None;
        while let Some(option) = args.option() {
            match &option[..] {
                b"EX" => once(&mut lease, args.lease(1_000, "sem.renew")?)?,
                b"PX" => once(&mut lease, args.lease(1, "sem.renew")?)?,
                _ => return Err(LockError::Syntax),
            }
        }
        let names_lease = lease.is_some();
        let lease = (lease.map_or_else(default_lease, Ok)?, names_lease);
        let (key, view, now) = open_permit(ctx, name, id, SemKey::plain_view)?;
        let (renewed, fx) = decide(|locks, _| locks.sem_renew(&view, id.bytes(), lease, now));
        let (renewed, change) = renewed?;
        key.apply(&change, &fx, Replication::of_command(ctx))?;
        alarm::rearm(ctx);
        ctx.reply_integer(renewed.into());
        Ok(())
    }
}
