//! `LOCK.RELEASE key owner [READ | WRITE] [ALL] [TOKEN t]`

use crate::commands::args::{once, word, Args, KEY, MODE, OWNER, TOKEN};
use crate::commands::read_write;
use crate::lock::{self, Ending, LockError, Mode, ReadDepth, Released};
use crate::module::apply::{apply, decide};
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::sessions;
use crate::module::view;

/// Drops one hold, or all; the last one hands the lock to the next waiter or frees it.
pub struct Release;

impl Command for Release {
    const SPEC: Spec = Spec {
        name: c"lock.release",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::DELETE),
        arity: -3,
        summary: c"Drops a hold; the last one hands the lock to the next waiter, or frees it",
        complexity: c"O(1), however many wait; READ O(N) in the number of the owner's holds",
        args: &[KEY, OWNER, MODE, word(c"all", c"ALL"), TOKEN],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let name = args.key()?;
        let owner = args.owner()?;
        let (mut all, mut token) = (None, None);
        let mut mode = None;
        while let Some(option) = args.option() {
            match &option[..] {
                b"READ" => once(&mut mode, Mode::Read)?,
                b"WRITE" => once(&mut mode, Mode::Write)?,
                b"ALL" => once(&mut all, ())?,
                b"TOKEN" => once(&mut token, args.token()?)?,
                _ => return Err(LockError::Syntax),
            }
        }
        let request = lock::Release {
            owner: owner.bytes(),
            mode,
            all: all.is_some(),
            token,
        };
        sessions::end_first(ctx, name, owner);
        let key = LockKey::open_for(ctx, name, owner);
        let now = ctx.now();
        let state = key.read_to(ReadDepth::Two, now);
        read_write::may_change(&key, owner, (mode, &state))?;
        let view = view::handing_view(&key, state, &Ending::Release(&request));
        let (released, fx) = decide(|locks, fx| locks.release(&view, &request, now, fx));
        apply(key, &fx)?;
        alarm::rearm(ctx);
        ctx.reply_maybe(match released? {
            Released::Freed => Some(1),
            Released::StillHeld => Some(0),
            Released::NotHeld => None,
        });
        Ok(())
    }
}
