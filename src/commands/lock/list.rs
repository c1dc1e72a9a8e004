//! `LOCK.SCAN` and `LOCK.TOP`: names of the database.
//!
//! Locks are found by the server's own `SCAN` and read one by one, so the guarantees are those of `SCAN`. Keys with
//! waiters are few and in memory, and may be absent from the key space: `WAITED` steps through that table.

use crate::commands::error::CommandError;
use crate::commands::glob;
use crate::commands::options::{option, required, text, word, Options, TOP_ORDER, USER};
use crate::commands::parser::{Parser, Word};
use crate::lock::{is_held, ReadDepth, Resource, TopName, TopOrder};
use crate::module::entry::command::{ArgKind, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::lock_key::LockKey;
use crate::module::scan::{self, Page};
use crate::module::state::shell;

/// Keys that one step of `LOCK.SCAN` visits, as in `SCAN`, and names in the reply of `LOCK.TOP`, without `COUNT`.
const DEFAULT_COUNT: usize = 10;

/// Lists the locks of a database, step by step. Replies the next cursor and the names.
pub struct Scan;

impl Scan {
    /// Parses the command: the cursor and the options.
    ///
    /// # Errors
    /// Those of the cursor and the options, in this order.
    pub fn parse<W: Word>(mut parser: Parser<'_, W>) -> Result<(u64, Options<W>), CommandError> {
        Ok((parser.cursor()?, parser.options()?))
    }
}

/// What the command asks for.
struct Step<'a> {
    cursor: u64,
    pattern: Option<Str<'a>>,
    count: usize,
    owner: Option<Str<'a>>,
    user: Option<Str<'a>>,
}

impl Step<'_> {
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
            let user = self.user.map(|user| shell.users.number_of(user.bytes()));
            let (next, keys) = waiters.keys_below(self.cursor, self.count);
            let ours = keys.filter(|key| {
                key.db == db
                    && pattern.is_none_or(|pattern| glob::matches(pattern, key.name))
                    && user.is_none_or(|user| user.is_some_and(|user| waiters.has_user(*key, user)))
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
        complexity: c"O(1) for every call, O(N) for a whole scan of a database of N keys, with USER O(N) in the number of waiters too",
        args: &[
            required(c"cursor", ArgKind::Integer),
            text(c"pattern", c"MATCH"),
            option(c"count", c"COUNT", true),
            text(c"owner", c"OWNER"),
            word(c"waited", c"WAITED"),
            USER,
        ],
        help: &["The locks held, step by step; of one owner; or the keys with waiters, of one user."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        let (cursor, options) = Scan::parse(Parser::of::<Scan>(words))?;
        let step = Step {
            cursor,
            pattern: options.pattern,
            count: options.count.unwrap_or(DEFAULT_COUNT),
            owner: options.owner,
            user: options.user,
        };
        let page = match options.waited {
            true => step.waited_page(ctx)?,
            false => step.held_page(ctx)?,
        };
        ctx.reply_array(2);
        ctx.reply_bytes(page.cursor.to_string().as_bytes());
        ctx.reply_array(page.keys.len());
        for key in &page.keys {
            ctx.reply_bytes(key.as_str().bytes());
        }
        Ok(())
    }
}

/// Lists the names that wait longest, or that are handed off most.
pub struct Top;

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
        help: &["The names that wait longest, or are handed off most (lock.top-names)."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        let options = Parser::of::<Top>(words).options()?;
        scan::may_scan(ctx)?;
        let (db, now) = (ctx.db(), ctx.now());
        let (order, count) = (options.order, options.count.unwrap_or(DEFAULT_COUNT));
        let list = shell::with(|shell| shell.locks.shared.waiters.top_names(order, db, count, now));
        let list = list.ok_or(CommandError::TopOff)?;
        ctx.reply_map(3);
        ctx.reply_bytes(b"counted-ms");
        reply_number(ctx, list.counted_ms);
        ctx.reply_bytes(b"total");
        reply_number(ctx, list.total);
        ctx.reply_bytes(b"names");
        ctx.reply_array(list.names.len());
        for name in &list.names {
            reply_name(ctx, order, name);
        }
        Ok(())
    }
}

fn reply_name(ctx: Ctx<'_>, order: TopOrder, name: &TopName) {
    ctx.reply_map(4);
    ctx.reply_bytes(b"key");
    ctx.reply_bytes(&name.name);
    ctx.reply_bytes(b"kind");
    ctx.reply_bytes(match name.resource {
        Resource::Lock => b"lock".as_slice(),
        Resource::Semaphore => b"semaphore",
        Resource::Latch => b"latch",
    });
    ctx.reply_bytes(match order {
        TopOrder::Waits => b"wait-ms".as_slice(),
        TopOrder::HandOffs => b"hand-offs",
    });
    reply_number(ctx, name.sum);
    ctx.reply_bytes(b"error");
    reply_number(ctx, name.error);
}

/// A sum above the range of integers, after 290 million years of waits, is its end.
fn reply_number(ctx: Ctx<'_>, number: u64) {
    ctx.reply_integer(i64::try_from(number).unwrap_or(i64::MAX));
}
