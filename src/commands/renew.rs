//! `LOCK.RENEW key owner [EX s | PX ms] [TOKEN t]`

use super::args::{default_lease, once, Args, KEY, LEASE, OWNER, TOKEN};
use crate::lock::{self, LockError};
use crate::module::alarm;
use crate::module::apply::{apply, decide};
use crate::module::ctx::Ctx;
use crate::module::fence;
use crate::module::key::LockKey;
use crate::module::register::{access, Command, Spec};
use crate::module::sessions;
use crate::module::strings::Str;

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
        complexity: c"O(1)",
        args: &[KEY, OWNER, LEASE, TOKEN],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let name = args.key()?;
        let owner = args.owner()?;
        let (mut lease, mut token) = (None, None);
        while let Some(option) = args.option() {
            match &option[..] {
                b"EX" => once(&mut lease, args.lease(1_000, "lock.renew")?)?,
                b"PX" => once(&mut lease, args.lease(1, "lock.renew")?)?,
                b"TOKEN" => once(&mut token, args.token()?)?,
                _ => return Err(LockError::Syntax),
            }
        }
        let request = lock::Renew {
            owner: owner.bytes(),
            names_lease: lease.is_some(),
            lease: lease.map_or_else(default_lease, Ok)?,
            token,
        };
        sessions::end_first(ctx, name, owner);
        let key = LockKey::open_for(ctx, name, owner);
        let now = ctx.now();
        let state = key.read();
        let view = match state.hold(now) {
            Some(hold) if hold.token.is_none() => fence::minting_view(&key, state),
            _ => fence::plain_view(&key, state),
        };
        let (renewed, fx) = decide(|locks, fx| locks.renew(&view, &request, now, fx));
        apply(key, &fx);
        alarm::rearm(ctx);
        ctx.reply_integer(renewed?.into());
        Ok(())
    }
}
