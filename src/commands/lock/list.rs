//! `LOCK.SCAN`: the names of the locks of a database, or of its keys with waiters.
//!
//! Locks are found by the server's own `SCAN` and read one by one, so the guarantees are those of `SCAN`. Keys with
//! waiters are few and in memory, and may be absent from the key space: `WAITED` steps through that table.

use crate::commands::glob;
use crate::commands::options::{option, required, text, word, Options, USER};
use crate::commands::parser::{Parser, Word};
use crate::lock::{is_held, LockError, ReadDepth};
use crate::module::entry::command::{ArgKind, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::lock_key::LockKey;
use crate::module::scan::{self, Page};
use crate::module::state::shell;

/// Keys that one step visits without `COUNT`, as in `SCAN`.
const DEFAULT_COUNT: usize = 10;

/// Lists the locks of a database, step by step. Replies the next cursor and the names.
pub struct Scan;

impl Scan {
    /// Parses the command: the cursor and the options.
    ///
    /// # Errors
    /// Those of the cursor and the options, in this order.
    pub fn parse<W: Word>(mut parser: Parser<'_, W>) -> Result<(u64, Options<W>), LockError> {
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
    fn held_page(&self, ctx: Ctx<'_>) -> Result<Page, LockError> {
        let mut page = scan::hashes(ctx, self.cursor, self.pattern, self.count)?;
        page.keys.retain(|key| self.admits(ctx, key.as_str()));
        Ok(page)
    }

    fn waited_page(&self, ctx: Ctx<'_>) -> Result<Page, LockError> {
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

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
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
