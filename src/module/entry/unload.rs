//! Checks that an unload is safe, and refuses it otherwise.
//!
//! The server keeps pointers to the descriptions of commands, and follows them after an unload: to freed memory, or to
//! the command that has this address then. It keeps them for queued commands (`MULTI`), for postponed ones (`CLIENT
//! PAUSE`), for the last one of each connection (`CLIENT LIST` reads it, Redis 8 uses it for the next command), and for
//! those that it has parsed ahead (Redis 8.6 and Valkey 9.1; Valkey with I/O threads). No function tells which commands
//! these are. So no connection may execute another command after the unload, and what is left of the transaction that
//! unloads must be known:
//!
//! * *No connection goes on.* All are closed before, in the same transaction: `CLIENT KILL TYPE normal SKIPME no`. That
//!   of the caller is closed after its reply, and the server executes nothing that was sent behind the `EXEC`. Only
//!   links of replication may stay: no command of the module comes over them.
//! * *The rest of the transaction has no command of the module.* A command filter sees each command when it is queued.
//!   It is registered while `lock.drain` is on. The caller's connection is newer than the filter, so the filter has
//!   seen all that it sent. Exactly one `MODULE UNLOAD` was seen, so that is the caller's, and after it no command of
//!   the module from any connection. (Redis 7.0 does not say which connection sends a command.)
//! * *Rules of users.* From Redis 7.2 on, and in Valkey, the server reads the rules of all users again when a module is
//!   loaded or unloaded (`ACLRecomputeCommandBitsFromCommandRulesAllUsers` in its acl.c), and ends itself at a rule
//!   that names a removed command. Redis 7.0 survives the unload, and ends itself when such a user is described (`ACL
//!   GETUSER`, `ACL SAVE`). Valkey refuses from 9.1 on to unload a module whose commands are named.

use std::ffi::CString;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use redis_module::raw;

use crate::lock::shown;
use crate::module::ffi::api::api;
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::{fresh_client_id, server_version, Ctx};
use crate::module::ffi::fault;
use crate::module::ffi::filter::{Filter, Words};
use crate::module::ffi::guard;
use crate::module::ffi::main_thread::MainThread;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::state::settings;

/// The most bytes of a user's name, or of a rule, in the log.
const MOST_LOGGED: usize = 64;

/// From this version on Valkey itself checks for such rules.
const VALKEY_CHECKS_RULES: i32 = 0x09_01_00;

/// The beginnings of the names of the module's commands, and of the calls that may become one
/// (`lock.redisson-scripts`).
const OWN: [&[u8]; 4] = [b"lock.", b"sem.", b"latch.", b"eval"];

/// What was seen since `lock.drain` was turned on.
struct Watch {
    filter: Filter,
    /// Every connection that was opened later has a higher id.
    since: u64,
    /// The number of `MODULE UNLOAD`.
    unloads: u32,
    /// Whether a command of the module came after one.
    is_followed: bool,
}

// SAFETY: the module has no threads, and the server calls it on its main thread only.
static WATCH: MainThread<Watch> = unsafe { MainThread::empty() };

/// Whether no connection has sent a command since the load.
static IS_NEW: AtomicBool = AtomicBool::new(false);

/// The filter that sees the first command after the load.
// SAFETY: the module has no threads, and the server calls it on its main thread only.
static FIRST: MainThread<Filter> = unsafe { MainThread::empty() };

/// Called when the module is loaded, at the end. If a setting of `MODULE LOADEX` is unknown, the server unloads the
/// module within this command. Until a connection sends a command, the server has looked up none of the module's. (The
/// filter does not see the rest of a transaction, but its commands were looked up before the load.)
pub fn loaded(ctx: Ctx<'_>) {
    let filter = Filter::register(ctx, Some(on_first));
    IS_NEW.store(filter.is_some(), Ordering::Relaxed);
    FIRST.set(filter);
}

unsafe extern "C" fn on_first(_: *mut raw::RedisModuleCommandFilterCtx) {
    IS_NEW.store(false, Ordering::Relaxed);
}

/// Called by the server's cron, so after the command that has loaded the module.
pub fn used(ctx: Ctx<'_>) {
    if let Some(filter) = FIRST.take() {
        filter.unregister(ctx);
    }
    IS_NEW.store(false, Ordering::Relaxed);
}

/// Begins or ends to watch, according to `lock.drain`.
pub fn follow_setting(ctx: Ctx<'_>) {
    let is_watching = WATCH.try_with(|_| ()).is_some();
    match (settings::drain(), is_watching) {
        (true, false) => WATCH.set(Watch::begin(ctx)),
        (false, true) => {
            if let Some(watch) = WATCH.take() {
                watch.filter.unregister(ctx);
            }
        }
        _ => {}
    }
}

/// Called when the module is unloaded.
pub fn stop() {
    WATCH.set(None);
    FIRST.set(None);
}

unsafe extern "C" fn on_command(filter: *mut raw::RedisModuleCommandFilterCtx) {
    guard::entry("filter", || {
        // SAFETY: the server's filter context for this callback; the local value ends with it.
        let words = unsafe { Words::of(filter) };
        WATCH.try_with(|watch| watch.see(&words));
    });
}

impl Watch {
    /// `None` if the server refuses: then the module stays.
    fn begin(ctx: Ctx<'_>) -> Option<Watch> {
        let since = fresh_client_id(ctx)?;
        Some(Watch {
            filter: Filter::register(ctx, Some(on_command))?,
            since,
            unloads: 0,
            is_followed: false,
        })
    }

    fn see(&mut self, words: &Words) {
        // The name of `MODULE` may be another (`rename-command`).
        let word = |at| words.word(at).map(Str::bytes).unwrap_or_default();
        let names_us = word(1).eq_ignore_ascii_case(b"unload") && word(2) == b"lock";
        if words.count() == 3 && names_us {
            self.unloads = self.unloads.saturating_add(1);
        } else if self.unloads > 0 {
            let name = word(0);
            let begins_with = |own: &&[u8]| {
                let beginning = name.get(..own.len());
                beginning.is_some_and(|beginning| beginning.eq_ignore_ascii_case(own))
            };
            self.is_followed |= OWN.iter().any(begins_with)
                && !fault::is_on("command-behind-the-unload-overlooked");
        }
    }
}

/// Why the module stays, for the log; `None` if it may be unloaded.
pub fn reason_to_stay(ctx: Ctx<'_>) -> Option<String> {
    // The server ends if the module refuses to go within `MODULE LOADEX`. No rule can name a command of it there; in a
    // `MULTI`, after the load, one can.
    let reason = match IS_NEW.load(Ordering::Relaxed) {
        true => first_naming_rule(ctx).ok()??.to_string(),
        false => why_unsafe(ctx)?,
    };
    Some(format!(
        "{reason}. scripts/upgrade.sh exchanges the module, or unloads it, in the way that is safe"
    ))
}

fn why_unsafe(ctx: Ctx<'_>) -> Option<String> {
    let Some((since, unloads, is_followed)) =
        WATCH.try_with(|watch| (watch.since, watch.unloads, watch.is_followed))
    else {
        return Some("lock.drain is off".into());
    };
    if unloads != 1 || is_followed {
        return Some(
            "since lock.drain was turned on, another MODULE UNLOAD was sent, or a command of this module after this \
             one: turn it off and on, and try again"
                .into(),
        );
    }
    connection_that_stays(ctx, since)
        .filter(|_| !fault::is_on("connection-that-goes-on-overlooked"))
        .or_else(|| rule_with_own_command(ctx))
}

/// A connection that may send or execute a command after the unload.
fn connection_that_stays(ctx: Ctx<'_>, since: u64) -> Option<String> {
    let list = OwnedStr::new(b"LIST");
    let reply = Reply::of(ctx, c"CLIENT", How::AsModule, &[list.as_str()]);
    let Some(clients) = reply.as_ref().and_then(|reply| reply.whole().bytes()) else {
        return Some("CLIENT LIST is refused (renamed or disabled?): restart the server".into());
    };
    let client = clients
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| ListedClient { line })
        .find(|client| !(client.is_closing(since) || client.is_link(|name| is_own(ctx, name))))?;
    Some(format!(
        "client {} stays connected, or was connected before lock.drain was turned on",
        shown(client.field(b"id"), MOST_LOGGED)
    ))
}

/// A line of `CLIENT LIST`.
struct ListedClient<'a> {
    line: &'a [u8],
}

impl<'a> ListedClient<'a> {
    fn field(&self, name: &[u8]) -> &'a [u8] {
        let mut words = self.line.split(|byte| *byte == b' ');
        words
            .find_map(|word| word.strip_prefix(name)?.strip_prefix(b"="))
            .unwrap_or_default()
    }

    fn has_flag(&self, flag: u8) -> bool {
        self.field(b"flags").contains(&flag)
    }

    /// Whether it is blocked or has a postponed command (the flags `b` and `u`).
    fn is_postponed(&self) -> bool {
        self.has_flag(b'b') || self.has_flag(b'u')
    }

    /// Whether it executes nothing after this command or transaction, being closed after its reply (the flag `c`), and
    /// was opened since then.
    fn is_closing(&self, since: u64) -> bool {
        let id = std::str::from_utf8(self.field(b"id")).unwrap_or_default();
        let is_newer = id.parse().is_ok_and(|id: u64| id > since);
        is_newer && self.has_flag(b'c') && !self.is_postponed()
    }

    /// Whether it is a link of replication: to the master (`M`), or to a replica (`S`) that sends only what replicas
    /// send. (`MONITOR` has `S` as well, and so has a client that has sent `PSYNC`. It may be the caller.)
    fn is_link(&self, is_own: impl Fn(&[u8]) -> bool) -> bool {
        let cmd = self.field(b"cmd");
        let of_replica = matches!(cmd, b"replconf" | b"psync" | b"sync");
        let is_link = match self.has_flag(b'M') {
            true => !is_own(cmd),
            false => self.has_flag(b'S') && of_replica,
        };
        let has_queued = !matches!(self.field(b"multi"), b"-1" | b"0");
        is_link && !self.is_postponed() && !has_queued
    }
}

/// A rule that names a command of this module.
fn rule_with_own_command(ctx: Ctx<'_>) -> Option<String> {
    match first_naming_rule(ctx) {
        Ok(None) => None,
        Ok(Some(rule)) => Some(rule.to_string()),
        Err(Unreadable) if ctx.is_valkey() && server_version() >= VALKEY_CHECKS_RULES => None,
        Err(Unreadable) => Some(
            "ACL LIST is refused (renamed or disabled?), so rules of users may name commands of this module: restart \
             the server"
                .into(),
        ),
    }
}

/// A rule and its user, as they are logged.
struct NamingRule {
    user: String,
    rule: String,
}

impl fmt::Display for NamingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NamingRule { user, rule } = self;
        write!(
            f,
            "the ACL rules of user '{user}' have '{rule}', which the server cannot read without this module, and then \
             it ends"
        )
    }
}

/// The server does not list the rules.
struct Unreadable;

fn first_naming_rule(ctx: Ctx<'_>) -> Result<Option<NamingRule>, Unreadable> {
    let list = OwnedStr::new(b"LIST");
    let reply = Reply::of(ctx, c"ACL", How::AsModule, &[list.as_str()]).ok_or(Unreadable)?;
    for user in reply.whole().elements().ok_or(Unreadable)? {
        // `user NAME on #hash ~key &channel -@all +command (~key +command)`: no name and no pattern has a space.
        let mut words = user.bytes().ok_or(Unreadable)?.split(|byte| *byte == b' ');
        let name = words.nth(1).unwrap_or_default();
        if let Some(rule) = words
            .map(without_parentheses)
            .find(|word| command_of(word).is_some_and(|name| is_own(ctx, name)))
        {
            return Ok(Some(NamingRule {
                user: shown(name, MOST_LOGGED),
                rule: shown(rule, MOST_LOGGED),
            }));
        }
    }
    Ok(None)
}

fn without_parentheses(word: &[u8]) -> &[u8] {
    let word = word.strip_prefix(b"(").unwrap_or(word);
    word.strip_suffix(b")").unwrap_or(word)
}

/// The command of `+command`, `-command` or `+command|word`.
fn command_of(word: &[u8]) -> Option<&[u8]> {
    let (sign, command) = word.split_first()?;
    let is_rule = matches!(sign, b'+' | b'-') && !command.starts_with(b"@");
    is_rule.then(|| command.split(|byte| *byte == b'|').next())?
}

/// Whether this is the name of a command of this module. (The server's lookup of an empty name reads memory that it has
/// not set: lookupCommandBySdsLogic in its server.c.)
fn is_own(ctx: Ctx<'_>, name: &[u8]) -> bool {
    let Some(command) = CString::new(name).ok().filter(|name| !name.is_empty()) else {
        return false;
    };
    // SAFETY: context and name are live. The result is NULL for every command that is not of this module, and is only
    // compared.
    let found = unsafe { api!(RedisModule_GetCommand)(ctx.as_ptr(), command.as_ptr()) };
    !found.is_null()
}
