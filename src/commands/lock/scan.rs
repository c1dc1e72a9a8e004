//! `LOCK.SCAN cursor [MATCH p] [COUNT n] [OWNER o] [WAITED]`
//!
//! Locks are found by the server's own `SCAN` and read one by one, so the guarantees are those of `SCAN`. Keys with
//! waiters are few and in memory, and may be absent from the key space: `WAITED` steps through that table.

use crate::commands::arg_specs::{option, required, text, word};
use crate::commands::error::CommandError;
use crate::commands::glob;
use crate::commands::parser::{once, Found, ParseSettings, Parser, Word};
use crate::lock::{is_held, ReadDepth};
use crate::module::entry::command::{ArgKind, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::lock_key::LockKey;
use crate::module::scan::{self, Page};
use crate::module::state::shell;

/// Keys that one step visits without `COUNT`, as in `SCAN`.
const DEFAULT_COUNT: usize = 10;

/// Lists the locks of a database, step by step. Replies the next cursor and the names.
#[derive(Debug, PartialEq, Eq)]
pub struct Scan<W = Str<'static>> {
    pub(crate) cursor: u64,
    pub(crate) pattern: Option<W>,
    pub(crate) count: usize,
    pub(crate) owner: Option<W>,
    pub(crate) waited: bool,
}

impl<W: Word> Scan<W> {
    /// Parses the command.
    ///
    /// # Errors
    /// Those of the cursor and the options, in this order.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Scan<W>, CommandError> {
        let mut parser = Parser::new::<Scan>(words, settings);
        let cursor = parser.cursor()?;
        let (mut pattern, mut count, mut owner, mut waited) = (None, None, None, None);
        parser.options(|parser, option| {
            Ok(match option {
                b"MATCH" => once(&mut pattern, parser.any("MATCH")?),
                b"COUNT" => once(&mut count, parser.count()?),
                b"OWNER" => once(&mut owner, parser.any("OWNER")?),
                b"WAITED" => once(&mut waited, ()),
                _ => Found::Unknown,
            })
        })?;
        Ok(Scan {
            cursor,
            pattern,
            count: count.unwrap_or(DEFAULT_COUNT),
            owner,
            waited: waited.is_some(),
        })
    }
}

impl Scan<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        let page = match self.waited {
            true => self.waited_page(ctx)?,
            false => self.held_page(ctx)?,
        };
        ctx.reply_array(2);
        ctx.reply_bytes(page.cursor.to_string().as_bytes());
        ctx.reply_array(page.keys.len());
        for key in &page.keys {
            ctx.reply_bytes(key.as_str().bytes());
        }
        Ok(())
    }

    fn held_page(&self, ctx: Ctx<'_>) -> Result<Page, CommandError> {
        let mut page = scan::hashes(ctx, self.cursor, self.pattern, self.count)?;
        page.keys.retain(|key| self.admits(ctx, key.as_str()));
        Ok(page)
    }

    fn waited_page(&self, ctx: Ctx<'_>) -> Result<Page, CommandError> {
        scan::may_scan(ctx)?;
        let (db, pattern) = (ctx.db(), self.pattern.map(Str::bytes));
        let (cursor, names) = shell::with(|shell| {
            let waiters = &shell.locks.shared.waiters;
            let (next, keys) = waiters.keys_below(self.cursor, self.count);
            let ours = keys.filter(|key| {
                key.db == db && pattern.is_none_or(|pattern| glob::matches(pattern, key.name))
            });
            (next, ours.map(|key| key.name.to_vec()).collect::<Vec<_>>())
        });
        let mut keys: Vec<OwnedStr> = names.iter().map(|name| OwnedStr::new(name)).collect();
        if self.owner.is_some() {
            keys.retain(|key| self.admits(ctx, key.as_str()));
        }
        Ok(Page { cursor, keys })
    }

    /// Whether the key is a lock that is held now, by the owner asked for if one is named.
    fn admits(&self, ctx: Ctx<'_>, key: Str<'_>) -> bool {
        let now = ctx.now();
        let depth = match self.owner {
            Some(_) => ReadDepth::Own,
            None => ReadDepth::Two,
        };
        let key = LockKey::peek(ctx, key, self.owner).one_of(self.count);
        let state = key.read_to(depth, now);
        is_held(&state, self.owner.map(Str::bytes), now)
    }
}

impl Command for Scan {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"lock.scan",
        flags: c"readonly",
        acl: c"read",
        key: None,
        arity: -2,
        summary: c"Lists the locks of the database step by step, or those that one owner holds",
        complexity: c"O(1) for every call, O(N) for a whole scan of a database of N keys",
        args: &[
            required(c"cursor", ArgKind::Integer),
            text(c"pattern", c"MATCH"),
            option(c"count", c"COUNT", true),
            text(c"owner", c"OWNER"),
            word(c"waited", c"WAITED"),
        ],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Scan::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
