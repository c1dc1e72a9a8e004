//! `LOCK.TOP [WAITS | HANDOFFS] [COUNT n]`

use crate::commands::arg_specs::{option, TOP_ORDER};
use crate::commands::error::CommandError;
use crate::commands::parser::{once, Found, ParseSettings, Parser, Word};
use crate::lock::{Resource, TopName, TopOrder};
use crate::module::entry::command::{Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;
use crate::module::scan;
use crate::module::state::shell;

/// Names in the reply without `COUNT`.
const DEFAULT_COUNT: usize = 10;

/// Lists the names that wait longest, or that are handed off most.
#[derive(Debug, PartialEq, Eq)]
pub struct Top {
    pub(crate) order: TopOrder,
    pub(crate) count: usize,
}

impl Top {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the options, in this order.
    pub fn parse<W: Word>(words: &[W], settings: &ParseSettings) -> Result<Top, CommandError> {
        let mut parser = Parser::new::<Top>(words, settings);
        let (mut order, mut count) = (None, None);
        parser.options(|parser, option| {
            Ok(match option {
                b"WAITS" => once(&mut order, TopOrder::Waits),
                b"HANDOFFS" => once(&mut order, TopOrder::HandOffs),
                b"COUNT" => once(&mut count, parser.count()?),
                _ => Found::Unknown,
            })
        })?;
        Ok(Top {
            order: order.unwrap_or(TopOrder::Waits),
            count: count.unwrap_or(DEFAULT_COUNT),
        })
    }

    fn apply(&self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        scan::may_scan(ctx)?;
        let (db, now) = (ctx.db(), ctx.now());
        let list = shell::with(|shell| {
            shell
                .locks
                .shared
                .waiters
                .top_names(self.order, db, self.count, now)
        });
        let list = list.ok_or(CommandError::TopOff)?;
        ctx.reply_map(3);
        ctx.reply_bytes(b"counted-ms");
        reply_number(ctx, list.counted_ms);
        ctx.reply_bytes(b"total");
        reply_number(ctx, list.total);
        ctx.reply_bytes(b"names");
        ctx.reply_array(list.names.len());
        for name in &list.names {
            self.reply_name(ctx, name);
        }
        Ok(())
    }

    fn reply_name(&self, ctx: Ctx<'_>, name: &TopName) {
        ctx.reply_map(4);
        ctx.reply_bytes(b"key");
        ctx.reply_bytes(&name.name);
        ctx.reply_bytes(b"kind");
        ctx.reply_bytes(match name.resource {
            Resource::Lock => b"lock".as_slice(),
            Resource::Semaphore => b"semaphore",
            Resource::Latch => b"latch",
        });
        ctx.reply_bytes(match self.order {
            TopOrder::Waits => b"wait-ms".as_slice(),
            TopOrder::HandOffs => b"hand-offs",
        });
        reply_number(ctx, name.sum);
        ctx.reply_bytes(b"error");
        reply_number(ctx, name.error);
    }
}

/// A sum above the range of integers, after 290 million years of waits, is its end.
fn reply_number(ctx: Ctx<'_>, number: u64) {
    ctx.reply_integer(i64::try_from(number).unwrap_or(i64::MAX));
}

impl Command for Top {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"lock.top",
        flags: c"readonly",
        acl: c"read",
        key: None,
        arity: -1,
        summary: c"Lists the names of the database that wait longest, or that are handed off most",
        complexity: c"O(N) in the number of names that are counted",
        args: &[TOP_ORDER, option(c"count", c"COUNT", true)],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Top::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: ParseSettings = ParseSettings {
        max_owner_len: 8,
        max_lease_ms: 60_000,
        max_wait_ms: 5_000,
        default_lease_ms: 30_000,
    };

    fn parse(line: &str) -> Result<Top, CommandError> {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        Top::parse(&words, &SETTINGS)
    }

    #[test]
    fn options_are_read_in_any_order_and_case() {
        for (line, order, count) in [
            ("c", TopOrder::Waits, 10),
            ("c waits", TopOrder::Waits, 10),
            ("c count 3 handoffs", TopOrder::HandOffs, 3),
            ("c HANDOFFS COUNT 100000", TopOrder::HandOffs, 100_000),
        ] {
            assert_eq!(parse(line), Ok(Top { order, count }));
        }
        for (line, error) in [
            (
                "c WAITS HANDOFFS",
                "syntax error: more than one of WAITS, HANDOFFS",
            ),
            (
                "c WAITS WAITS",
                "syntax error: more than one of WAITS, HANDOFFS",
            ),
            ("c COUNT", "syntax error: a value is missing after COUNT"),
            (
                "c COUNT 0",
                "value is out of range, must be positive: COUNT '0'",
            ),
            (
                "c COUNT x",
                "value is not an integer or out of range: COUNT 'x'",
            ),
            ("c COUNT 1 COUNT 1", "syntax error: more than one COUNT"),
            (
                "c 10",
                "syntax error: unknown option '10', expected WAITS, HANDOFFS, COUNT",
            ),
        ] {
            let text = parse(line).err().map(|error| error.to_string());
            assert_eq!(text, Some(format!("ERR {error}")), "{line}");
        }
    }
}
