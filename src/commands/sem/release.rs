//! `SEM.RELEASE key id`

use crate::commands::arg_specs::{ID, KEY};
use crate::commands::error::CommandError;
use crate::commands::parser::{ParseSettings, Parser, Word};
use crate::commands::sem::open_permit;
use crate::commands::skeleton::change_semaphore;
use crate::module::entry::command::{access, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::sem_key::SemKey;

/// Returns a permit, which goes to the next waiter if there is one. Replies 1, or nil when the id holds none.
#[derive(Debug, PartialEq, Eq)]
pub struct Release<W = Str<'static>> {
    pub(crate) key: W,
    pub(crate) id: W,
}

impl<W: Word> Release<W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the key and the id, in this order.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Release<W>, CommandError> {
        let mut parser = Parser::new::<Release>(words, settings);
        Ok(Release {
            key: parser.key()?,
            id: parser.owner()?,
        })
    }
}

impl Release<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        let (key, view, now) = open_permit(ctx, self.key, self.id, SemKey::hand_off_view)?;
        let released = change_semaphore(ctx, key, now, |locks, cx| {
            locks
                .sems
                .release(&mut locks.shared, &view, self.id.bytes(), cx)
        })?;
        ctx.reply_maybe(released.then_some(1));
        Ok(())
    }
}

impl Command for Release {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"sem.release",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: 3,
        summary: c"Gives a permit back, to the next waiter if there is one",
        complexity: c"O(log(N)) with N permits held, however many wait",
        args: &[KEY, ID],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Release::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
