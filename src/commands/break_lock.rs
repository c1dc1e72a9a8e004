//! `LOCK.BREAK key [TOKEN t] [PURGE]`

use crate::commands::args::{once, word, Args, KEY, TOKEN};
use crate::commands::read_write;
use crate::lock::{self, Ending, LockError};
use crate::module::acl;
use crate::module::apply::{apply, decide};
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::view;

/// Ends a hold by force: an operator's command.
pub struct Break;

impl Command for Break {
    const SPEC: Spec = Spec {
        name: c"lock.break",
        flags: c"write fast",
        acl: c"write fast dangerous",
        key: Some(access::DELETE),
        arity: -2,
        summary:
            c"Ends a hold by force and hands the lock to the next waiter, or purges the waiters too",
        complexity: c"O(1), of readers O(N) in the number of holds, with PURGE O(N) in the number of waiters",
        args: &[KEY, TOKEN, word(c"purge", c"PURGE")],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let name = args.key()?;
        let (mut token, mut purge) = (None, None);
        while let Some(option) = args.option() {
            match &option[..] {
                b"TOKEN" => once(&mut token, args.token()?)?,
                b"PURGE" => once(&mut purge, ())?,
                _ => return Err(LockError::Syntax),
            }
        }
        acl::may_break(ctx, name)?;
        let request = lock::Break {
            token,
            purge: purge.is_some(),
        };
        let key = LockKey::open(ctx, name);
        let now = ctx.now();
        let state = key.read();
        read_write::may_break(ctx, name, &state, now)?;
        let view = match request.purge {
            // All who wait get the error of the purge; the lock is handed to none of them.
            true => view::plain_view(&key, state),
            false => view::handing_view(&key, state, &Ending::Break(request)),
        };
        let (broken, fx) = decide(|locks, fx| locks.break_lock(&view, request, now, fx));
        apply(key, &fx)?;
        alarm::rearm(ctx);
        ctx.reply_integer(broken?.into());
        Ok(())
    }
}
