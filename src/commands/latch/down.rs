//! `LATCH.DOWN key [n]`

use crate::commands::args::{Args, KEY};
use crate::commands::latch::is_no_semaphore;
use crate::commands::sem::number;
use crate::lock::{Count, LockError};
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::count_key::CountKey;

/// Counts a latch down; at 0 it opens.
pub struct Down;

impl Command for Down {
    const SPEC: Spec = Spec {
        name: c"latch.down",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::DELETE),
        arity: -2,
        summary: c"Counts a latch down and lets everybody in when nothing is left",
        complexity: c"O(1), O(N) in the number of waiters when it opens",
        args: &[KEY, number(c"n", true)],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let name = args.key()?;
        let by = if words.len() > 2 { args.number(1)? } else { 1 };
        if args.option().is_some() {
            return Err(LockError::Syntax);
        }
        let key = CountKey::open(ctx, name);
        let (now, id, state) = (ctx.now(), key.id(), key.read());
        if state != Count::Absent {
            is_no_semaphore(ctx, name)?;
        }
        let left = key.decide(|locks, fx| locks.latch_down(id, state, by, now, fx))?;
        alarm::rearm(ctx);
        ctx.reply_integer(left);
        Ok(())
    }
}
