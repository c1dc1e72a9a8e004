//! `LATCH.SET key count [NX | XX]`

use crate::commands::arg_specs::{required, CONDITION, KEY};
use crate::commands::error::CommandError;
use crate::commands::latch::is_no_semaphore;
use crate::commands::parser::{ParseSettings, Parser, Word};
use crate::commands::skeleton::may_create;
use crate::lock::{Count, Latches, SetIf};
use crate::module::entry::alarm;
use crate::module::entry::command::{access, ArgKind, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::count_key::CountKey;

/// Closes a latch for a number of counts; 0 opens it. Replies that number, or nil when `NX` or `XX` excludes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Set<W = Str<'static>> {
    pub(crate) key: W,
    pub(crate) count: i64,
    pub(crate) set_if: SetIf,
}

impl<W: Word> Set<W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the key, the number, and the options, in this order.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Set<W>, CommandError> {
        let mut parser = Parser::new::<Set>(words, settings);
        Ok(Set {
            key: parser.key()?,
            count: parser.number("count", 0)?,
            set_if: parser.condition()?,
        })
    }
}

impl Set<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        is_no_semaphore(ctx, self.key)?;
        let key = CountKey::open(ctx, self.key);
        let (now, id, state) = (ctx.now(), key.id(), key.read());
        if state == Count::Absent {
            may_create(ctx)?;
        }
        let (count, set_if) = (self.count, self.set_if);
        let set = key.decide(now, |locks, cx| {
            Latches::set(&mut locks.shared, id, state, (count, set_if), cx)
        })?;
        alarm::rearm(ctx);
        ctx.reply_maybe(set);
        Ok(())
    }
}

impl Command for Set {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"latch.set",
        flags: c"write deny-oom fast",
        acl: c"write fast",
        key: Some(access::UPDATE),
        arity: -3,
        summary: c"Closes a latch until it has been counted down so many times",
        complexity: c"O(1), with a count of 0 O(N) in the number of waiters",
        args: &[KEY, required(c"count", ArgKind::Integer), CONDITION],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Set::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
