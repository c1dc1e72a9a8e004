//! `LOCK.MRELEASE numkeys key [key ...] owner [ALL]`

use crate::commands::args::{once, word, Args, KEYS, NUMKEYS, OWNER};
use crate::commands::read_write;
use crate::lock::{self, Ending, LockError, ReadDepth};
use crate::module::apply::{apply_all, decide_all};
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::sessions;
use crate::module::view;

/// Drops one hold on each of several locks, or all; each last one hands its lock on or frees it.
pub struct ReleaseMany;

impl Command for ReleaseMany {
    const SPEC: Spec = Spec {
        name: c"lock.mrelease",
        flags: c"write getkeys-api",
        acl: c"write",
        key: Some(access::DELETE),
        arity: -4,
        summary: c"Drops a hold on each of several locks, and returns on how many",
        complexity: c"O(N) in the number of keys, however many wait",
        args: &[NUMKEYS, KEYS, OWNER, word(c"all", c"ALL")],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let names = args.keys()?;
        let owner = args.owner()?;
        let mut all = None;
        while let Some(option) = args.option() {
            match &option[..] {
                b"ALL" => once(&mut all, ())?,
                _ => return Err(LockError::Syntax),
            }
        }
        let request = lock::Release {
            owner: owner.bytes(),
            mode: None,
            all: all.is_some(),
            token: None,
        };
        for name in names {
            sessions::end_first(ctx, *name, owner);
        }
        let keys = LockKey::open_all(ctx, names, owner);
        let now = ctx.now();
        let mut states = Vec::with_capacity(keys.len());
        for key in &keys {
            let state = key.read_to(ReadDepth::Two, now);
            read_write::may_change(key, owner, (None, &state))?;
            states.push(state);
        }
        // A request that will be refused at one key ends no hold at the others, so no wait there either.
        lock::may_release_many(&states, &request, now)?;
        let view = |(key, state)| view::handing_view(key, state, &Ending::Release(&request));
        let views: Vec<_> = keys.iter().zip(states).map(view).collect();
        let (dropped, fx) = decide_all(keys.len(), |locks, fx| {
            locks.release_many(&views, &request, now, fx)
        });
        apply_all(keys, &fx)?;
        alarm::rearm(ctx);
        ctx.reply_integer(dropped? as i64);
        Ok(())
    }
}
