//! `LOCK.IF`: a command that runs only while the lock is held under a token.
//!
//! The check and the command are one step of the server, so a holder whose lease is over, or a request that comes late,
//! changes nothing. The command runs as a script's `redis.call` would run it, with the rights of the caller; its
//! effects are replicated, `LOCK.IF` is not.
//!
//! Scripts do not run inside: a slow one, in a call of a module, can end the server. They call `LOCK.IF` themselves,
//! and end where it replies an error. Commands without a key have nothing to do with a lock, and most of them concern
//! the connection or the server; the two that publish are the exception.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::iter::once;

use smallvec::SmallVec;

use crate::commands::lock::read_write;
use crate::commands::options::{required, KEY};
use crate::commands::parser::{shown, Parser};
use crate::commands::ALL;
use crate::lock::{slot_of, LockError, ReadDepth};
use crate::module::acl;
use crate::module::entry::command::{access, ArgKind, Command, Register, Spec};
use crate::module::entry::slots;
use crate::module::ffi::call_reply::{keys_of, How, Part, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::in_script;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::lock_key::LockKey;
use crate::module::known_commands::{self, Found};
use crate::module::state::constants::is_cluster;
use crate::module::state::shell;

/// Runs a command if the lock is held under this token, and replies what it replies.
pub struct If;

/// The script in which the commands of other modules run: it calls this command again, which then makes that call.
const SCRIPT: &[u8] = b"return redis.call('LOCK.IF', KEYS[1], '0', '', '')";

impl Command for If {
    const SPEC: Spec = Spec {
        name: c"lock.if",
        // As EVAL: the checks of a write are made for the command inside.
        flags: c"may-replicate",
        acl: c"write",
        key: Some(access::READ),
        arity: -5,
        summary: c"Runs a command if the lock is held under this token",
        complexity: c"O(1) and that of the command",
        args: &[
            KEY,
            required(c"token", ArgKind::Integer),
            required(c"command", ArgKind::String),
            required(c"arg", ArgKind::Strings),
        ],
        help: &[
            "Run the command, with the caller's rights, if the lock is held under this token, else -FENCED.",
            "A command with a key, PUBLISH or SPUBLISH; a script calls LOCK.IF itself.",
        ],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        if in_script::resume(ctx) {
            ctx.reply_nil();
            return Ok(());
        }
        let mut parser = Parser::of::<If>(words);
        let name = parser.key()?;
        let token = parser.number("token", 0)?.unsigned_abs();
        // First: what follows costs time for each word.
        check(ctx, name, token)?;
        let inner = words.get(3..).unwrap_or_default();
        let (command, needs_script) = command_of(ctx, inner)?;
        if is_cluster() {
            check_slots(ctx, name, &command, inner)?;
        }
        let mut reply = None;
        let mut call = || reply = call(ctx, &command, inner.get(1..).unwrap_or_default());
        match needs_script {
            false => call(),
            true if in_script::run(ctx, SCRIPT, name, &mut call) => {}
            true => return Err(LockError::NoScript(shown(command.to_bytes()).into())),
        }
        let reply: Reply = reply.ok_or(LockError::Internal)?;
        match of_the_call(ctx, name, &command, reply.protocol()) {
            Some(error) => Err(error),
            None => {
                reply.forward(ctx);
                Ok(())
            }
        }
    }
}

/// Calls the command as the caller; `None`: the server refuses.
fn call(ctx: Ctx<'_>, command: &CStr, args: &[Str<'_>]) -> Option<Reply> {
    let reply = Reply::of(ctx, command, How::CommandAsUser, args)?;
    match reply.protocol().starts_with(b"-ERR cannot run as user") {
        // Another module's call, which may run any command.
        true => Reply::of(ctx, command, How::CommandWithoutUser, args),
        false => Some(reply),
    }
}

/// The error for the client where the server has refused the call of the module in other words than the command of a
/// client.
fn of_the_call(ctx: Ctx<'_>, lock: Str<'_>, command: &CStr, protocol: &[u8]) -> Option<LockError> {
    const READ_ONLY: &[u8] = b"-READONLY ";
    const ELSEWHERE: &[u8] = b"-ERR Attempted to access a non local key";
    let is = |error| protocol.starts_with(error);
    let is_refused =
        (is(READ_ONLY) || is(ELSEWHERE)) && !fault::is_on("replica-redirects-no-write");
    if is_refused && is_cluster() && ctx.is_replica() {
        // A write on a replica of the slot: a client is redirected, a script is not.
        let redirection = (!ctx.is_in_script()).then(|| slots::redirection(ctx, lock));
        let text = redirection.flatten();
        let text =
            text.unwrap_or_else(|| "READONLY You can't write against a read only replica.".into());
        return Some(LockError::Plain(text.into()));
    }
    match protocol {
        b"" => Some(late_error(ctx)),
        _ if is(ELSEWHERE) => Some(LockError::Rehashing),
        _ if is(b"-ERR acl verification failed") => {
            Some(LockError::MayNotRun(shown(command.to_bytes()).into()))
        }
        _ => None,
    }
}

/// The name of the command inside, if it may run there, and whether it runs in a script: one of a module that would
/// block its client would end the server elsewhere.
fn command_of(ctx: Ctx<'_>, inner: &[Str<'_>]) -> Result<(CString, bool), LockError> {
    let name = inner.first().map_or(&b""[..], |word| word.bytes());
    let refused = || LockError::NotFenced(shown(name).into());
    let command = CString::new(name).map_err(|_| refused())?;
    // The module's own would call each other without an end. (No command of the server has a dot.)
    let is_it = |own: &Register| own().spec.name.to_bytes().eq_ignore_ascii_case(name);
    if name.contains(&b'.') && ALL.iter().any(is_it) {
        return Err(refused());
    }
    let known = match known_commands::of(ctx, inner) {
        Found::Known(known) => Some(known),
        Found::Untold => None,
        // The server says so.
        Found::Absent => return Ok((command, false)),
    };
    let has_keys = known.is_some_and(|known| known.has_keys)
        // Those of some modules' commands only their functions know. (Of a wrong number of words the server says so.)
        || keys_of(ctx, inner).is_none_or(|keys| !keys.is_empty());
    if !has_keys && !publishes(name) {
        return Err(refused());
    }
    let is_of_module = known.is_none_or(|known| known.is_of_module);
    let needs_script = is_of_module && !ctx.is_in_unit();
    Ok((
        command,
        needs_script && !fault::is_on("module-command-outside-a-script"),
    ))
}

fn publishes(command: &[u8]) -> bool {
    command.eq_ignore_ascii_case(b"PUBLISH") || has_shard_channel(command)
}

fn has_shard_channel(command: &[u8]) -> bool {
    command.eq_ignore_ascii_case(b"SPUBLISH")
}

/// Checks that the lock and the keys of the command are on this node, in one slot. The server looks at the keys of the
/// call alone: it would run it on those of every slot of this node, and while the slot moves beside a lock that is here
/// and data that is not.
fn check_slots(
    ctx: Ctx<'_>,
    lock: Str<'_>,
    command: &CStr,
    inner: &[Str<'_>],
) -> Result<(), LockError> {
    let Some(mut keys) = keys_of(ctx, inner) else {
        return Ok(());
    };
    if !acl::may_run(ctx, command, inner) {
        return Err(LockError::MayNotRun(shown(command.to_bytes()).into()));
    }
    if keys.is_empty() && !publishes(command.to_bytes()) {
        keys = keys_as_told(ctx, inner);
    }
    let together: SmallVec<[Str<'_>; 4]> = once(lock).chain(keys).collect();
    slots::check_together(ctx, &together)?;
    let is_elsewhere = |word: &Str<'_>| slot_of(word.bytes()) != slot_of(lock.bytes());
    if has_shard_channel(command.to_bytes()) && inner.get(1).is_some_and(is_elsewhere) {
        return Err(LockError::CrossSlot);
    }
    Ok(())
}

/// The keys of a command of which the function for them finds none (MSETEX), though `COMMAND GETKEYS` does.
fn keys_as_told<'w>(ctx: Ctx<'_>, words: &[Str<'w>]) -> SmallVec<[Str<'w>; 4]> {
    let getkeys = OwnedStr::new(b"GETKEYS");
    let asked: Vec<Str<'_>> = once(getkeys.as_str())
        .chain(words.iter().copied())
        .collect();
    let told = Reply::of(ctx, c"COMMAND", How::AsModule, &asked);
    let told = told.as_ref().map(Reply::whole);
    let keys = told.and_then(Part::elements).into_iter().flatten();
    let keys: HashSet<&[u8]> = keys.filter_map(Part::bytes).collect();
    let is_key = |word: &&Str<'_>| keys.contains(word.bytes());
    words.iter().filter(is_key).copied().collect()
}

/// Valkey 8.1 and 9.1 keep the error of a `GETDEL` of another type in the client that they make for calls of modules,
/// and put it before the reply to the next call of any module. This next call fetches it.
fn late_error(ctx: Ctx<'_>) -> LockError {
    let next = Reply::of(ctx, c"PING", How::AsModule, &[]);
    let text = next.as_ref().and_then(|next| {
        let text = next.protocol().strip_prefix(b"-")?;
        let end = text.iter().position(|byte| *byte == b'\r')?;
        Some(String::from_utf8_lossy(text.get(..end)?).into())
    });
    text.map_or(LockError::Internal, LockError::Plain)
}

/// Whether the lock is held under this token at this moment.
fn check(ctx: Ctx<'_>, name: Str<'_>, token: u64) -> Result<(), LockError> {
    let now = ctx.now();
    let state = LockKey::open_read(ctx, name).read_to(ReadDepth::Two, now);
    read_write::may_read(ctx, name, &state)?;
    let passes = shell::with(|shell| shell.locks.passes_fence(&state, token, now));
    match passes || fault::is_on("old-token-passes-the-fence") {
        true => Ok(()),
        false => Err(LockError::Fenced),
    }
}
