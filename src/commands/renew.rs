//! `LOCK.RENEW key owner [READ | WRITE] [EX s | PX ms] [TOKEN t]`

use crate::commands::args::{default_lease, once, Args, KEY, LEASE, MODE, OWNER, TOKEN};
use crate::commands::read_write;
use crate::lock::{self, LockError, Mode};
use crate::module::apply::{apply, decide};
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::sessions;
use crate::module::view;

/// Sets the lease of a lock that the owner still holds.
pub struct Renew;

impl Command for Renew {
    const SPEC: Spec = Spec {
        name: c"lock.renew",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Sets the lease of a lock that the owner still holds",
        complexity: c"O(1), READ O(N) in the number of holds",
        args: &[KEY, OWNER, MODE, LEASE, TOKEN],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let name = args.key()?;
        let owner = args.owner()?;
        let (mut lease, mut token) = (None, None);
        let mut mode = None;
        while let Some(option) = args.option() {
            match &option[..] {
                b"READ" => once(&mut mode, Mode::Read)?,
                b"WRITE" => once(&mut mode, Mode::Write)?,
                b"EX" => once(&mut lease, args.lease(1_000, "lock.renew")?)?,
                b"PX" => once(&mut lease, args.lease(1, "lock.renew")?)?,
                b"TOKEN" => once(&mut token, args.token()?)?,
                _ => return Err(LockError::Syntax),
            }
        }
        let request = lock::Renew {
            owner: owner.bytes(),
            names_lease: lease.is_some(),
            mode,
            lease: lease.map_or_else(default_lease, Ok)?,
            token,
        };
        sessions::end_first(ctx, name, owner);
        let key = LockKey::open_for(ctx, name, owner);
        let now = ctx.now();
        let state = read_write::depth_to_renew(&key, request.lease, now);
        read_write::may_change(&key, owner, (mode, &state))?;
        let view = match read_write::renewal_needs_token(&state, now) {
            true => view::minting_view(&key, state),
            false => view::plain_view(&key, state),
        };
        let (renewed, fx) = decide(|locks, fx| locks.renew(&view, &request, now, fx));
        apply(key, &fx)?;
        alarm::rearm(ctx);
        ctx.reply_integer(renewed?.into());
        Ok(())
    }
}
