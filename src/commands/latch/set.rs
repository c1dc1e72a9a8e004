//! `LATCH.SET key count [NX | XX]`

use crate::commands::args::{Args, KEY};
use crate::commands::latch::is_no_semaphore;
use crate::commands::sem::{condition, may_make, number, CONDITION};
use crate::lock::{Count, LockError};
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::count_key::CountKey;

/// Closes a latch for so many counts.
pub struct Set;

impl Command for Set {
    const SPEC: Spec = Spec {
        name: c"latch.set",
        flags: c"write deny-oom fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Closes a latch until it has been counted down so many times",
        complexity: c"O(1), with a count of 0 O(N) in the number of waiters",
        args: &[KEY, number(c"count", false), CONDITION],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let name = args.key()?;
        let count = args.number(0)?;
        let set_if = condition(&mut args)?;
        is_no_semaphore(ctx, name)?;
        let key = CountKey::open(ctx, name);
        let (now, id, state) = (ctx.now(), key.id(), key.read());
        if state == Count::Absent {
            may_make(ctx)?;
        }
        let set = key.decide(|locks, fx| locks.latch_set(id, state, count, set_if, now, fx))?;
        alarm::rearm(ctx);
        ctx.reply_maybe(set);
        Ok(())
    }
}
