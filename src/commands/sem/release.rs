//! `SEM.RELEASE key id`

use crate::commands::args::{Args, KEY};
use crate::commands::sem::{open_permit, ID};
use crate::lock::LockError;
use crate::module::apply::decide;
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::sem_key::SemKey;

/// Gives a permit back: to the next waiter, or to those that are free.
pub struct Release;

impl Command for Release {
    const SPEC: Spec = Spec {
        name: c"sem.release",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: 3,
        summary: c"Gives a permit back, to the next waiter if there is one",
        complexity: c"O(log(N)) with N permits held, however many wait",
        args: &[KEY, ID],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let (name, id) = (args.key()?, args.owner()?);
        let (key, view, now) = open_permit(ctx, name, id, SemKey::handing_view)?;
        let (released, fx) = decide(|locks, fx| locks.sem_release(&view, id.bytes(), now, fx));
        let (released, change) = released?;
        key.apply(&change, &fx, Replication::of_command(ctx))?;
        alarm::rearm(ctx);
        ctx.reply_maybe(released.then_some(1));
        Ok(())
    }
}
