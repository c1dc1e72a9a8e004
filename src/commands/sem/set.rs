//! `SEM.SET key permits [NX | XX]`

use crate::commands::args::{Args, KEY};
use crate::commands::sem::{condition, may_make, may_write, number, CONDITION};
use crate::lock::{LockError, SemState};
use crate::module::apply::decide;
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::sem_key::SemKey;

/// Makes a semaphore, or changes how many permits it has.
pub struct Set;

impl Command for Set {
    const SPEC: Spec = Spec {
        name: c"sem.set",
        flags: c"write deny-oom fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Makes a semaphore with so many permits, or changes how many it has",
        complexity: c"O(log(N)+M) with N permits held and M waiters that are granted one",
        args: &[KEY, number(c"permits", false), CONDITION],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let name = args.key()?;
        let permits = u32::try_from(args.number(0)?).map_err(|_| LockError::NotInteger)?;
        let set_if = condition(&mut args)?;
        let beside = may_write(ctx, name)?;
        let key = SemKey::open_with(ctx, name, beside)?;
        if key.probe_twin() {
            return Err(LockError::SiblingsTaken);
        }
        let now = ctx.now();
        let view = key.handing_view(None, now);
        if view.state == SemState::Absent {
            may_make(ctx)?;
        }
        let (set, fx) = decide(|locks, fx| locks.sem_set(&view, permits, set_if, now, fx));
        let (set, change) = set?;
        key.apply(&change, &fx, Replication::of_command(ctx))?;
        alarm::rearm(ctx);
        ctx.reply_maybe(set.map(i64::from));
        Ok(())
    }
}
