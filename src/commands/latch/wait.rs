//! `LATCH.WAIT key [BLOCK ms]`

use crate::commands::args::{once, option, Args, KEY};
use crate::commands::latch::is_no_semaphore;
use crate::lock::{self, Count, LockError, Waited};
use crate::module::apply::decide;
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::entry::events;
use crate::module::entry::parked;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::count_key::CountKey;
use crate::module::state::parked::Shape;

/// Waits until a latch is open. Replies 1, or 0 when it is still closed.
pub struct Wait;

impl Command for Wait {
    const SPEC: Spec = Spec {
        name: c"latch.wait",
        flags: c"readonly fast blocking",
        acl: c"read fast blocking",
        key: Some(access::READ),
        arity: -2,
        summary: c"Tells whether a latch is open, or waits until it is",
        complexity: c"O(1)",
        args: &[KEY, option(c"milliseconds", c"BLOCK", true)],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let name = args.key()?;
        let mut wait = None;
        while let Some(option) = args.option() {
            match &option[..] {
                b"BLOCK" => once(&mut wait, args.wait()?)?,
                _ => return Err(LockError::Syntax),
            }
        }
        let wait = wait.filter(|_| parked::is_possible(ctx));
        let wait = wait.unwrap_or(lock::Wait::No);
        let key = CountKey::open_read(ctx, name);
        let (now, id, state) = (ctx.now(), key.id(), key.read());
        if state != Count::Absent {
            is_no_semaphore(ctx, name)?;
        }
        let client = ctx.client_id();
        let (waited, _) = decide(|locks, _| locks.latch_wait(id, state, client, wait, now));
        drop(key);
        match waited? {
            Waited::Open => ctx.reply_integer(1),
            Waited::Closed => ctx.reply_integer(0),
            Waited::Parked(waiter) => {
                parked::expect(waiter, Shape::Latch);
                alarm::rearm(ctx);
                events::watch(ctx);
                if !parked::block(ctx, name, waiter)? {
                    ctx.reply_integer(0);
                }
            }
        }
        Ok(())
    }
}
