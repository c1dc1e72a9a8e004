//! `LOCK.RENEW key owner [READ | WRITE] [EX s | PX ms] [TOKEN t]`

use crate::commands::arg_specs::{KEY, LEASE, MODE, OWNER, TOKEN};
use crate::commands::error::CommandError;
use crate::commands::lock::read_write;
use crate::commands::parser::{once, Found, ParseSettings, Parser, Word};
use crate::commands::skeleton::{change_lock, may_count};
use crate::lock::{self, Lease, Mode, Planned};
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::sessions;
use crate::module::view::view_for;

/// Sets the lease of a lock that the owner still holds. Replies 1, or 0 when the owner holds it no more.
#[derive(Debug, PartialEq, Eq)]
pub struct Renew<W = Str<'static>> {
    pub(crate) key: W,
    pub(crate) owner: W,
    pub(crate) mode: Option<Mode>,
    pub(crate) lease: Lease,
    pub(crate) names_lease: bool,
    pub(crate) token: Option<u64>,
}

impl<W: Word> Renew<W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the key, the owner, and the options, in this order.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Renew<W>, CommandError> {
        let mut parser = Parser::new::<Renew>(words, settings);
        let (key, owner) = (parser.key()?, parser.owner()?);
        let (mut mode, mut lease, mut token) = (None, None, None);
        parser.options(|parser, option| {
            Ok(match option {
                b"READ" => once(&mut mode, Mode::Read),
                b"WRITE" => once(&mut mode, Mode::Write),
                b"EX" => once(&mut lease, parser.lease("EX", 1_000)?),
                b"PX" => once(&mut lease, parser.lease("PX", 1)?),
                b"TOKEN" => once(&mut token, parser.token()?),
                _ => Found::Unknown,
            })
        })?;
        Ok(Renew {
            key,
            owner,
            mode,
            lease: parser.or_default(lease),
            names_lease: lease.is_some(),
            token,
        })
    }
}

impl Renew<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        let request = lock::Renew {
            owner: self.owner.bytes(),
            mode: self.mode,
            lease: self.lease,
            names_lease: self.names_lease,
            token: self.token,
        };
        sessions::end_first(ctx, self.key, self.owner);
        let key = LockKey::open_for(ctx, self.key, self.owner);
        let now = ctx.now();
        let state = read_write::read_to_renew(&key, request.lease, now);
        read_write::may_change(&key, self.owner, (self.mode, &state))?;
        let view = view_for(&key, state, &Planned::Renew, now);
        may_count(ctx, &key, &view, false)?;
        let renewed = change_lock(ctx, key, now, |locks, cx| locks.renew(&view, &request, cx))?;
        ctx.reply_integer(renewed.into());
        Ok(())
    }
}

impl Command for Renew {
    type Error = CommandError;

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

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Renew::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
