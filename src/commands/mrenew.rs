//! `LOCK.MRENEW numkeys key [key ...] owner [EX s | PX ms]`

use crate::commands::args::{default_lease, once, Args, KEYS, LEASE, NUMKEYS, OWNER};
use crate::commands::read_write;
use crate::lock::{self, LockError};
use crate::module::apply::{apply_all, decide_all};
use crate::module::entry::alarm;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::sessions;
use crate::module::view;

/// Sets the leases of those of several locks that the owner still holds.
pub struct RenewMany;

impl Command for RenewMany {
    const SPEC: Spec = Spec {
        name: c"lock.mrenew",
        flags: c"write getkeys-api",
        acl: c"write",
        key: Some(access::UPDATE),
        arity: -4,
        summary: c"Sets the leases of those of several locks that the owner still holds, and returns how many",
        complexity: c"O(N) in the number of keys",
        args: &[NUMKEYS, KEYS, OWNER, LEASE],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let names = args.keys()?;
        let owner = args.owner()?;
        let mut lease = None;
        while let Some(option) = args.option() {
            match &option[..] {
                b"EX" => once(&mut lease, args.lease(1_000, "lock.mrenew")?)?,
                b"PX" => once(&mut lease, args.lease(1, "lock.mrenew")?)?,
                _ => return Err(LockError::Syntax),
            }
        }
        let request = lock::Renew {
            owner: owner.bytes(),
            names_lease: lease.is_some(),
            lease: lease.map_or_else(default_lease, Ok)?,
            mode: None,
            token: None,
        };
        for name in names {
            sessions::end_first(ctx, *name, owner);
        }
        let keys = LockKey::open_all(ctx, names, owner);
        let now = ctx.now();
        let mut views = Vec::with_capacity(keys.len());
        for key in &keys {
            let state = read_write::depth_to_renew(key, request.lease, now);
            read_write::may_change(key, owner, (None, &state))?;
            views.push(match read_write::renewal_needs_token(&state, now) {
                true => view::minting_view(key, state),
                false => view::plain_view(key, state),
            });
        }
        let (renewed, fx) = decide_all(keys.len(), |locks, fx| {
            locks.renew_many(&views, &request, now, fx)
        });
        apply_all(keys, &fx)?;
        alarm::rearm(ctx);
        ctx.reply_integer(renewed? as i64);
        Ok(())
    }
}
