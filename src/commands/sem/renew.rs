//! `SEM.RENEW key id [EX s | PX ms]`

use crate::commands::arg_specs::{ID, KEY, LEASE};
use crate::commands::error::CommandError;
use crate::commands::parser::{once, Found, ParseSettings, Parser, Word};
use crate::commands::sem::open_permit;
use crate::commands::skeleton::change_semaphore;
use crate::lock::Lease;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::sem_key::SemKey;

/// Sets the lease of a permit that the id still holds. Replies 1, or 0 when the id holds it no more.
#[derive(Debug, PartialEq, Eq)]
pub struct Renew<W = Str<'static>> {
    pub(crate) key: W,
    pub(crate) id: W,
    pub(crate) lease: Lease,
    pub(crate) names_lease: bool,
}

impl<W: Word> Renew<W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the key, the id, and the options, in this order.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Renew<W>, CommandError> {
        let mut parser = Parser::new::<Renew>(words, settings);
        let (key, id) = (parser.key()?, parser.owner()?);
        let mut lease = None;
        parser.options(|parser, option| {
            Ok(match option {
                b"EX" => once(&mut lease, parser.lease("EX", 1_000)?),
                b"PX" => once(&mut lease, parser.lease("PX", 1)?),
                _ => Found::Unknown,
            })
        })?;
        Ok(Renew {
            key,
            id,
            lease: parser.or_default(lease),
            names_lease: lease.is_some(),
        })
    }
}

impl Renew<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        let (key, view, now) = open_permit(ctx, self.key, self.id, SemKey::plain_view)?;
        let lease = (self.lease, self.names_lease);
        let renewed = change_semaphore(ctx, key, now, |locks, cx| {
            locks
                .sems
                .renew(&mut locks.shared, &view, self.id.bytes(), lease, cx)
        })?;
        ctx.reply_integer(renewed.into());
        Ok(())
    }
}

impl Command for Renew {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"sem.renew",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Sets the lease of a permit that the id still holds",
        complexity: c"O(log(N)) with N permits held",
        args: &[KEY, ID, LEASE],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Renew::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
