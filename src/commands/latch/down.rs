//! `LATCH.DOWN key [n]`

use crate::commands::arg_specs::{optional, KEY};
use crate::commands::error::CommandError;
use crate::commands::latch::is_no_semaphore;
use crate::commands::parser::{ParseSettings, Parser, Word};
use crate::lock::{Count, Latches};
use crate::module::entry::alarm;
use crate::module::entry::command::{access, ArgKind, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::count_key::CountKey;

/// Counts a latch down; at 0 it opens. Replies what is left.
#[derive(Debug, PartialEq, Eq)]
pub struct Down<W = Str<'static>> {
    pub(crate) key: W,
    pub(crate) by: i64,
}

impl<W: Word> Down<W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the key and the number, in this order.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Down<W>, CommandError> {
        let mut parser = Parser::new::<Down>(words, settings);
        let key = parser.key()?;
        let by = match parser.has_more() {
            true => parser.number("n", 1)?,
            false => 1,
        };
        parser.end()?;
        Ok(Down { key, by })
    }
}

impl Down<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        let key = CountKey::open(ctx, self.key);
        let (now, id, state) = (ctx.now(), key.id(), key.read());
        if state != Count::Absent {
            is_no_semaphore(ctx, self.key)?;
        }
        let left = key.decide(now, |locks, cx| {
            Latches::down(&mut locks.shared, id, state, self.by, cx)
        })?;
        alarm::rearm(ctx);
        ctx.reply_integer(left);
        Ok(())
    }
}

impl Command for Down {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"latch.down",
        flags: c"write fast",
        acl: c"write fast",
        key: Some(access::DELETE),
        arity: -2,
        summary: c"Counts a latch down and lets everybody in when nothing is left",
        complexity: c"O(1), O(N) in the number of waiters when it opens",
        args: &[KEY, optional(c"n", ArgKind::Integer)],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Down::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
