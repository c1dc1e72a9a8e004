//! Reasons why unloading the module is unsafe at the moment, although the server would do it.
//!
//! *Rules of users.* From Redis 7.2 on, and in Valkey, the server reads the rules of all users again when a module is
//! loaded or unloaded (`ACLRecomputeCommandBitsFromCommandRulesAllUsers` in its acl.c), and ends itself at a rule that
//! names a removed command. Redis 7.0 survives the unload, and ends itself when such a user is described (`ACL
//! GETUSER`, `ACL SAVE`). Valkey refuses from 9.1 on to unload a module whose commands are named.
//!
//! *Queued commands.* The server keeps a command of a transaction, or one that a pause postpones, with a pointer to its
//! description. After an unload it runs the command that has this address then, or ends itself.
//!
//! *Last commands.* The server keeps the last command of each connection in the same way (`lastcmd`). After an unload
//! `CLIENT LIST` reads freed memory, and ends the server.

use std::ffi::CString;

use crate::module::ffi::api::api;
use crate::module::ffi::call_reply::Reply;
use crate::module::ffi::ctx::{server_version, Ctx};
use crate::module::ffi::strings::OwnedStr;
use crate::module::state::shell;

/// The most bytes of a user's name, or of a rule, in the log.
const MOST_LOGGED: usize = 64;

/// From this version on Valkey itself checks for such rules.
const VALKEY_CHECKS_RULES: i32 = 0x09_01_00;

/// The reason, for the log; `None` if the module may be unloaded.
pub fn reason_to_stay(ctx: Ctx<'_>) -> Option<String> {
    if ctx.is_paused() {
        return Some(
            "clients are paused, and a command of this module may wait for the end of that".into(),
        );
    }
    if let Some(reason) = shell::hooks().and_then(|hooks| (hooks.reason_to_stay)()) {
        return Some(reason.into());
    }
    if shell::with(|shell| shell.locks.tickets()) > 0 {
        return Some("requests with NOTIFY wait: CONFIG SET lock.drain yes ends them".into());
    }
    client_with_kept_command(ctx).or_else(|| rule_with_own_command(ctx))
}

/// A client with a queued command (the server does not say which command it is), or whose last command is the module's.
fn client_with_kept_command(ctx: Ctx<'_>) -> Option<String> {
    if ctx.is_threaded_redis() {
        return None;
    }
    let list = OwnedStr::new(b"LIST");
    let reply = Reply::of(ctx, c"CLIENT", c"v", &[list.as_str()]);
    let Some(clients) = reply.as_ref().and_then(|reply| reply.whole().bytes()) else {
        return Some(
            "CLIENT LIST is refused (renamed or disabled?), so a transaction may have a command of this module queued, \
             and then the server ends when it is unloaded. Restart the server with the other module instead"
                .into(),
        );
    };
    let clients = || {
        let lines = clients.split(|byte| *byte == b'\n');
        lines.map(|line| ListedClient { line })
    };
    if let Some(id) = clients().find(ListedClient::has_queued).map(|c| c.id()) {
        return Some(format!(
            "client {id} has a transaction open, or its command was postponed by a pause, and that may be a command of \
             this module. Try again, or end it with CLIENT KILL ID {id}"
        ));
    }
    let is_kept = |client: &ListedClient<'_>| client.last_command_is(|name| is_own(ctx, name));
    let id = clients().find(is_kept)?.id();
    let kept = clients().filter(is_kept).count();
    Some(format!(
        "the last command of {kept} connections is one of this module, the first of them is client {id}: CLIENT LIST \
         would read it after the unload and end the server. Put CLIENT KILL TYPE normal and CLIENT KILL TYPE pubsub \
         before MODULE UNLOAD in a MULTI: scripts/upgrade.sh does it"
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

    fn id(&self) -> &'a str {
        std::str::from_utf8(self.field(b"id")).unwrap_or_default()
    }

    /// Whether it has queued commands, which `multi` counts (not of the client whose transaction runs, perhaps the one
    /// that unloads: its last command is `EXEC`), or a postponed command that runs at the end of this tick (the flag
    /// `u`).
    fn has_queued(&self) -> bool {
        let is_open = !matches!(self.field(b"multi"), b"" | b"-1" | b"0");
        let is_postponed = self.field(b"flags").contains(&b'u');
        (is_open && self.field(b"cmd") != b"exec") || is_postponed
    }

    /// Whether it stays connected (without the flag `A`, of a client that the server is about to close), and its last
    /// command is one of these.
    fn last_command_is(&self, is_sought: impl Fn(&[u8]) -> bool) -> bool {
        !self.field(b"flags").contains(&b'A') && is_sought(self.field(b"cmd"))
    }
}

/// A rule that names a command of this module.
fn rule_with_own_command(ctx: Ctx<'_>) -> Option<String> {
    match first_naming_rule(ctx) {
        Ok(None) => None,
        Ok(Some(NamingRule { user, rule })) => Some(format!(
            "the ACL rules of user '{user}' have '{rule}', which the server cannot read without this module, \
             and then it ends. Take rules that name a command of this module back before the unload, and set \
             them again behind the load: scripts/upgrade.sh does it"
        )),
        Err(Unreadable) if ctx.is_valkey() && server_version() >= VALKEY_CHECKS_RULES => None,
        Err(Unreadable) => Some(
            "ACL LIST is refused (renamed or disabled?), so the rules of users may name commands of this module, \
             and then the server ends when it is unloaded. Restart the server with the other module instead"
                .into(),
        ),
    }
}

/// A rule and its user, as they are logged.
struct NamingRule {
    user: String,
    rule: String,
}

/// The server does not list the rules.
struct Unreadable;

fn first_naming_rule(ctx: Ctx<'_>) -> Result<Option<NamingRule>, Unreadable> {
    let list = OwnedStr::new(b"LIST");
    let reply = Reply::of(ctx, c"ACL", c"v", &[list.as_str()]).ok_or(Unreadable)?;
    for user in reply.whole().elements().ok_or(Unreadable)? {
        // `user NAME on #hash ~key &channel -@all +command (~key +command)`: no name and no pattern has a space.
        let mut words = user.bytes().ok_or(Unreadable)?.split(|byte| *byte == b' ');
        let name = words.nth(1).unwrap_or_default();
        if let Some(rule) = words
            .map(without_parentheses)
            .find(|word| command_of(word).is_some_and(|name| is_own(ctx, name)))
        {
            return Ok(Some(NamingRule {
                user: printable(name),
                rule: printable(rule),
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

fn printable(bytes: &[u8]) -> String {
    let shown = bytes.get(..MOST_LOGGED).unwrap_or(bytes);
    let dots = if shown.len() < bytes.len() { "..." } else { "" };
    format!("{}{dots}", shown.escape_ascii())
}
