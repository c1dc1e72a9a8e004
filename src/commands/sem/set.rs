//! `SEM.SET key permits [NX | XX]`

use crate::commands::arg_specs::{required, CONDITION, KEY};
use crate::commands::error::CommandError;
use crate::commands::parser::{ParseSettings, Parser, Word};
use crate::commands::sem::permits_to_write;
use crate::commands::skeleton::{change_semaphore, may_create};
use crate::lock::{LockError, SemState, SetIf};
use crate::module::entry::command::{access, ArgKind, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::sem_key::SemKey;

/// Creates a semaphore, or changes its number of permits. Replies that number, or nil when `NX` or `XX` excludes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Set<W = Str<'static>> {
    pub(crate) key: W,
    pub(crate) permits: u32,
    pub(crate) set_if: SetIf,
}

impl<W: Word> Set<W> {
    /// Parses the command. The core refuses more than 2^31-1 permits.
    ///
    /// # Errors
    /// Those of the key, the number, and the options, in this order.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Set<W>, CommandError> {
        let mut parser = Parser::new::<Set>(words, settings);
        Ok(Set {
            key: parser.key()?,
            permits: u32::try_from(parser.number("permits", 0)?)
                .map_err(|_| LockError::TooManyPermits)?,
            set_if: parser.condition()?,
        })
    }
}

impl Set<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        let permits = permits_to_write(ctx, self.key)?;
        let key = SemKey::open_with(ctx, self.key, permits)?;
        if key.probe_twin() {
            return Err(LockError::SiblingsTaken.into());
        }
        let now = ctx.now();
        let view = key.hand_off_view(None, now);
        if view.state == SemState::Absent {
            may_create(ctx)?;
        }
        let set = change_semaphore(ctx, key, now, |locks, cx| {
            locks
                .sems
                .set(&mut locks.shared, &view, self.permits, self.set_if, cx)
        })?;
        ctx.reply_maybe(set.map(i64::from));
        Ok(())
    }
}

impl Command for Set {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"sem.set",
        flags: c"write deny-oom fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Makes a semaphore with so many permits, or changes how many it has",
        complexity: c"O(log(N)+M) with N permits held and M waiters that are granted one",
        args: &[KEY, required(c"permits", ArgKind::Integer), CONDITION],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Set::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
