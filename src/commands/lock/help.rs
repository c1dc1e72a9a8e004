//! `LOCK.HELP [command]`

use crate::commands::arg_specs::optional;
use crate::commands::error::CommandError;
use crate::commands::parser::{shown, syntax, ParseSettings, Parser};
use crate::module::entry::command::{ArgKind, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;

const LINES: [&str; 46] = [
    "LOCK.ACQUIRE <key> <owner> [READ | WRITE] [EX <s> | PX <ms> | SESSION] [BLOCK <ms> [NOTIFY <channel> <tag>]] [ONCE] [WITHHOLDER]",
    "    Take the lock, or wait for it (BLOCK 0: for ever). Returns the fencing token, or nil.",
    "    NOTIFY: wait without a parked client. Returns QUEUED; the outcome is a message on the channel.",
    "    READ, WRITE: a lock of many readers or one writer, as Redisson's RReadWriteLock.",
    "    SESSION: the server keeps the lease while this connection lives, and releases when it ends.",
    "LOCK.RELEASE <key> <owner> [READ | WRITE] [ALL] [TOKEN <token>]",
    "    Drop one hold, or all. Returns 1 (freed), 0 (still held), nil (not held by this owner).",
    "LOCK.RENEW <key> <owner> [READ | WRITE] [EX <s> | PX <ms>] [TOKEN <token>]",
    "    Set the lease anew. Returns 1, or 0 when the lock is lost.",
    "LOCK.MACQUIRE <numkeys> <key> [<key> ...] <owner> [READ | WRITE] [EX <s> | PX <ms> | SESSION] [BLOCK <ms> [NOTIFY <channel> <tag>]] [ONCE] [WITHHOLDER]",
    "    Take all of these locks or none, or wait for them. Returns one token a key, or nil.",
    "LOCK.MRELEASE <numkeys> <key> [<key> ...] <owner> [ALL]",
    "    Drop a hold on each. Returns on how many.",
    "LOCK.MRENEW <numkeys> <key> [<key> ...] <owner> [EX <s> | PX <ms>]",
    "    Set the leases anew. Returns how many are held still.",
    "LOCK.BREAK <key> [TOKEN <token>] [PURGE]",
    "    End a hold by force; with PURGE send the waiters away. Returns 1, or 0 when not held.",
    "LOCK.INFO <key> [WAITERS [COUNT <count>]]",
    "    Who holds, who waits, since when.",
    "LOCK.SCAN <cursor> [MATCH <pattern>] [COUNT <count>] [OWNER <owner>] [WAITED]",
    "    The locks held, step by step; of one owner; or the keys that somebody waits for.",
    "LOCK.TOP [WAITS | HANDOFFS] [COUNT <count>]",
    "    The names that wait longest, or are handed off most (lock.top-names).",
    "SEM.SET <key> <permits> [NX | XX]",
    "    Make a semaphore, or change how many permits it has. Returns them, or nil.",
    "SEM.ACQUIRE <key> <id> [LIMIT <permits>] [EX <s> | PX <ms> | SESSION] [BLOCK <ms> [NOTIFY <channel> <tag>]]",
    "    Take a permit, or wait for one. LIMIT makes the semaphore if it does not exist.",
    "    Returns the token, or nil: no permit was free, or no such semaphore.",
    "SEM.RELEASE <key> <id>",
    "    Give the permit back. Returns 1, or nil when the id holds none.",
    "SEM.RENEW <key> <id> [EX <s> | PX <ms>]",
    "    Set the lease of the permit anew. Returns 1, or 0 when the permit is lost.",
    "SEM.INFO <key> [WAITERS [COUNT <count>]]",
    "    How many permits there are, how many are free, who waits.",
    "LATCH.SET <key> <count> [NX | XX]",
    "    Close a latch for so many counts. Returns them, or nil.",
    "LATCH.DOWN <key> [<n>]",
    "    Count it down; at 0 it opens. Returns what is left.",
    "LATCH.WAIT <key> [BLOCK <ms> [NOTIFY <channel> <tag>]]",
    "    Wait until it is open. Returns 1, or 0 when it is still closed.",
    "LOCK.OWNER",
    "    A fresh unique owner id.",
    "LOCK.REDISSON <script> <numkeys> <key> [<key> ...] <arg> [<arg> ...]",
    "    Internal: what EVAL of a Redisson script becomes with lock.redisson-scripts.",
    "LOCK.HELP [<command>]",
    "    Print this help, or the lines of a command (ACQUIRE, SEM.ACQUIRE) or of a kind (LOCK, SEM, LATCH).",
];

/// Replies a short description of every command, or of those with this name.
pub struct Help;

/// The lines of one command (`LOCK.` may be left out), or of all that begin with this word and a dot.
fn lines_of(name: &[u8]) -> Vec<&'static str> {
    let name = name.to_ascii_uppercase();
    let is_named = |command: &[u8]| {
        let behind = command.strip_prefix(&name[..]);
        behind.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
    };
    let mut is_shown = false;
    let lines = LINES.into_iter().filter(|line| {
        if !line.starts_with(' ') {
            let command = line.split(' ').next().unwrap_or_default();
            let short = command.strip_prefix("LOCK.").map(str::as_bytes);
            is_shown = is_named(command.as_bytes()) || short == Some(&name[..]);
        }
        is_shown
    });
    lines.collect()
}

impl Command for Help {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"lock.help",
        flags: c"allow-loading allow-stale",
        acl: c"slow",
        key: None,
        arity: -1,
        summary: c"Returns the commands of this module in a few lines",
        complexity: c"O(1)",
        args: &[optional(c"command", ArgKind::String)],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        let settings = ParseSettings::current();
        let mut parser = Parser::new::<Help>(words, &settings);
        let lines = match parser.has_more() {
            false => LINES.to_vec(),
            true => {
                let name = parser.any("the command")?.bytes();
                let lines = lines_of(name);
                if lines.is_empty() {
                    let name = shown(name);
                    return Err(syntax(format!("unknown command '{name}', see LOCK.HELP")));
                }
                lines
            }
        };
        parser.end()?;
        ctx.reply_array(lines.len());
        for line in lines {
            ctx.reply_bytes(line.as_bytes());
        }
        Ok(())
    }
}
