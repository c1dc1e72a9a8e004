//! `LOCK.SCAN cursor [MATCH p] [COUNT n] [OWNER o] [WAITED]`
//!
//! Locks are found by the server's own `SCAN`, and looked at one by one: what it guarantees, we do. Keys
//! that somebody waits for are few and in memory, some of them with nothing in the key space; they are
//! listed from there, and a step of a scan is one of that table.

use crate::commands::args::{once, option, text, word, Args};
use crate::commands::glob;
use crate::lock::{is_held, LockError, ReadDepth};
use crate::module::entry::command::{Arg, ArgKind, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::lock_key::LockKey;
use crate::module::scan;
use crate::module::state::shell;

/// Keys looked at when `COUNT` is not given, as in `SCAN`.
const DEFAULT_COUNT: usize = 10;

/// The locks of a database, step by step.
pub struct Scan;

/// Which keys are listed.
#[derive(Default)]
struct Filter<'a> {
    pattern: Option<Str<'a>>,
    owner: Option<Str<'a>>,
    waited: Option<()>,
}

impl Command for Scan {
    const SPEC: Spec = Spec {
        name: c"lock.scan",
        flags: c"readonly",
        acl: c"read",
        key: None,
        arity: -2,
        summary: c"Lists the locks of the database step by step, or those that one owner holds",
        complexity: c"O(1) for every call, O(N) for a whole scan of a database of N keys",
        args: &[
            Arg {
                name: c"cursor",
                kind: ArgKind::Integer,
                token: None,
                optional: false,
            },
            text(c"pattern", c"MATCH"),
            option(c"count", c"COUNT", true),
            text(c"owner", c"OWNER"),
            word(c"waited", c"WAITED"),
        ],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let cursor = args.cursor()?;
        let (mut filter, mut count) = (Filter::default(), None);
        while let Some(option) = args.option() {
            match &option[..] {
                b"MATCH" => once(&mut filter.pattern, args.bytes()?)?,
                b"COUNT" => once(&mut count, args.count()?)?,
                b"OWNER" => once(&mut filter.owner, args.bytes()?)?,
                b"WAITED" => once(&mut filter.waited, ())?,
                _ => return Err(LockError::Syntax),
            }
        }
        let count = count.unwrap_or(DEFAULT_COUNT);
        let page = match filter.waited {
            Some(()) => waited(ctx, cursor, &filter, count)?,
            None => held(ctx, cursor, &filter, count)?,
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

fn held(ctx: Ctx, cursor: u64, filter: &Filter<'_>, count: usize) -> Result<scan::Page, LockError> {
    let mut page = scan::hashes(ctx, cursor, filter.pattern, count)?;
    page.keys.retain(|key| filter.admits(ctx, key.as_str()));
    Ok(page)
}

fn waited(
    ctx: Ctx,
    cursor: u64,
    filter: &Filter<'_>,
    count: usize,
) -> Result<scan::Page, LockError> {
    scan::may_scan(ctx)?;
    let (db, pattern) = (ctx.db(), filter.pattern.map(Str::bytes));
    let (cursor, names) = shell::with(|shell| {
        let (next, keys) = shell.locks.waiters.keys_below(cursor, count);
        let ours = keys.filter(|key| {
            key.db == db && pattern.is_none_or(|pattern| glob::matches(pattern, key.name))
        });
        (next, ours.map(|key| key.name.to_vec()).collect::<Vec<_>>())
    });
    let mut keys: Vec<OwnedStr> = names.iter().map(|name| OwnedStr::new(name)).collect();
    if filter.owner.is_some() {
        keys.retain(|key| filter.admits(ctx, key.as_str()));
    }
    Ok(scan::Page { cursor, keys })
}

impl Filter<'_> {
    /// Whether the key is a lock that is held now, by the owner asked for.
    fn admits(&self, ctx: Ctx, key: Str<'_>) -> bool {
        let now = ctx.now();
        let depth = match self.owner {
            Some(_) => ReadDepth::Own,
            None => ReadDepth::Two,
        };
        let state = LockKey::peek(ctx, key, self.owner).read_to(depth, now);
        is_held(&state, self.owner.map(Str::bytes), now)
    }
}
