//! `LOCK.MRENEW numkeys key [key ...] owner [EX s | PX ms]`

use crate::commands::arg_specs::{KEYS, LEASE, NUMKEYS, OWNER};
use crate::commands::error::CommandError;
use crate::commands::lock::read_write;
use crate::commands::parser::{once, Found, ParseSettings, Parser, Word};
use crate::commands::skeleton::{change_locks, may_count};
use crate::lock::{self, Lease, Planned};
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::sessions;
use crate::module::view::view_for;

/// Sets the leases of those of several locks that the owner still holds. Replies their number.
#[derive(Debug, PartialEq, Eq)]
pub struct RenewMany<'a, W = Str<'a>> {
    pub(crate) keys: &'a [W],
    pub(crate) owner: W,
    pub(crate) lease: Lease,
    pub(crate) names_lease: bool,
}

impl<'a, W: Word> RenewMany<'a, W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the keys, the owner, and the options, in this order.
    pub fn parse(
        words: &'a [W],
        settings: &'a ParseSettings,
    ) -> Result<RenewMany<'a, W>, CommandError> {
        let mut parser = Parser::new::<RenewMany>(words, settings);
        let (keys, owner) = (parser.keys()?, parser.owner()?);
        let mut lease = None;
        parser.options(|parser, option| {
            Ok(match option {
                b"EX" => once(&mut lease, parser.lease("EX", 1_000)?),
                b"PX" => once(&mut lease, parser.lease("PX", 1)?),
                _ => Found::Unknown,
            })
        })?;
        Ok(RenewMany {
            keys,
            owner,
            lease: parser.or_default(lease),
            names_lease: lease.is_some(),
        })
    }
}

impl<'a> RenewMany<'a, Str<'a>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        let request = lock::Renew {
            owner: self.owner.bytes(),
            mode: None,
            lease: self.lease,
            names_lease: self.names_lease,
            token: None,
        };
        for name in self.keys {
            sessions::end_first(ctx, *name, self.owner);
        }
        let keys = LockKey::open_all(ctx, self.keys, self.owner);
        let now = ctx.now();
        let mut views = Vec::with_capacity(keys.len());
        for key in &keys {
            let state = read_write::read_to_renew(key, request.lease, now);
            read_write::may_change(key, self.owner, (None, &state))?;
            let view = view_for(key, state, &Planned::Renew, now);
            may_count(ctx, key, &view, false)?;
            views.push(view);
        }
        let renewed = change_locks(ctx, keys, now, |locks, fx| {
            locks.renew_many(&views, &request, now, fx)
        })?;
        ctx.reply_integer(renewed as i64);
        Ok(())
    }
}

impl Command for RenewMany<'_> {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"lock.mrenew",
        flags: c"write",
        acl: c"write",
        key: Some(access::UPDATE),
        arity: -4,
        summary: c"Sets the leases of those of several locks that the owner still holds, and returns how many",
        complexity: c"O(N) in the number of keys",
        args: &[NUMKEYS, KEYS, OWNER, LEASE],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        RenewMany::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
