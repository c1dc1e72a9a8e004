//! `LOCK.IF`: a command that runs only while the lock is held under a token.
//!
//! The check and the command are one step of the server, so a holder whose lease is over, or a request that comes late,
//! changes nothing. The command runs as a script's `redis.call` would run it, with the rights of the caller; its
//! effects are replicated, `LOCK.IF` is not.
//!
//! Scripts do not run inside: a slow one, in a call of a module, can end the server (`redisson/scripts/steps.rs`). They
//! call `LOCK.IF` themselves, and end where it replies an error. Commands without a key have nothing to do with a lock,
//! and most of them concern the connection or the server; the two that publish are the exception.

use std::ffi::CString;
use std::iter::once;

use smallvec::SmallVec;

use crate::commands::error::CommandError;
use crate::commands::lock::read_write;
use crate::commands::options::{required, KEY};
use crate::commands::parser::{shown, Parser};
use crate::lock::{slot_of, LockError, ReadDepth};
use crate::module::entry::command::{access, ArgKind, Command, Spec};
use crate::module::entry::slots;
use crate::module::ffi::call_reply::{keys_of, How, Part, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::lock_key::LockKey;
use crate::module::state::shell;

/// Runs a command if the lock is held under this token, and replies what it replies.
pub struct If;

impl Command for If {
    type Error = CommandError;

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

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        let mut parser = Parser::of::<If>(words);
        let name = parser.key()?;
        let token = parser.number("token", 0)?.unsigned_abs();
        let inner = words.get(3..).unwrap_or_default();
        let command = command_of(ctx, name, inner)?;
        check(ctx, name, token)?;
        let args = inner.get(1..).unwrap_or_default();
        let call = |how| Reply::of(ctx, &command, how, args).ok_or(LockError::Internal);
        let mut reply = call(How::CommandAsUser)?;
        if reply.protocol().starts_with(b"-ERR cannot run as user") {
            // Another module's call, which may run any command.
            reply = call(How::CommandWithoutUser)?;
        }
        // Two errors of a call by a module, in the words that clients know.
        match reply.protocol() {
            text if text.starts_with(b"-ERR acl verification failed") => {
                return Err(CommandError::MayNotRun(shown(command.to_bytes()).into()));
            }
            text if text.starts_with(b"-ERR Attempted to access a non local key") => {
                return Err(LockError::Rehashing.into());
            }
            b"" => return Err(late_error(ctx)),
            _ => {}
        }
        reply.forward(ctx);
        Ok(())
    }
}

/// The name of the command inside, if it may run there.
fn command_of(ctx: Ctx<'_>, lock: Str<'_>, inner: &[Str<'_>]) -> Result<CString, CommandError> {
    let name = inner.first().map_or(&b""[..], |word| word.bytes());
    let refused = || CommandError::NotFenced(shown(name).into());
    let command = CString::new(name).map_err(|_| refused())?;
    // The module's own would call each other without an end.
    let is_own = |prefix: &[u8]| {
        name.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    if is_own(b"LOCK.") || is_own(b"SEM.") || is_own(b"LATCH.") {
        return Err(refused());
    }
    // Of a command that does not exist, or not with so many arguments, the server says so.
    let Some(mut keys) = keys_of(ctx, inner) else {
        return Ok(command);
    };
    let has_shard_channel = name.eq_ignore_ascii_case(b"SPUBLISH");
    let publishes = has_shard_channel || name.eq_ignore_ascii_case(b"PUBLISH");
    if keys.is_empty() && !publishes {
        keys = keys_as_told(ctx, inner);
        if keys.is_empty() {
            return Err(refused());
        }
    }
    if shell::is_cluster() {
        // The server looks at the keys of the call alone: it would run it on those of every slot of this node, and
        // while the slot moves beside a lock that is here and data that is not.
        let together: SmallVec<[Str<'_>; 4]> = once(lock).chain(keys).collect();
        slots::check_together(ctx, &together)?;
        let is_elsewhere = |word: &Str<'_>| slot_of(word.bytes()) != slot_of(lock.bytes());
        if has_shard_channel && inner.get(1).is_some_and(is_elsewhere) {
            return Err(LockError::CrossSlot.into());
        }
    }
    Ok(command)
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
    let keys: Vec<&[u8]> = keys.filter_map(Part::bytes).collect();
    let is_key = |word: &&Str<'_>| keys.contains(&word.bytes());
    words.iter().filter(is_key).copied().collect()
}

/// Valkey 8.1 and 9.1 keep the error of a `GETDEL` of another type in the client that they make for calls of modules,
/// and put it before the reply to the next call of any module. This next call fetches it.
fn late_error(ctx: Ctx<'_>) -> CommandError {
    let next = Reply::of(ctx, c"PING", How::AsModule, &[]);
    let text = next.as_ref().and_then(|next| {
        let text = next.protocol().strip_prefix(b"-")?;
        let end = text.iter().position(|byte| *byte == b'\r')?;
        Some(String::from_utf8_lossy(text.get(..end)?).into())
    });
    text.map_or(LockError::Internal.into(), CommandError::Late)
}

/// Whether the lock is held under this token at this moment.
fn check(ctx: Ctx<'_>, name: Str<'_>, token: u64) -> Result<(), CommandError> {
    let now = ctx.now();
    let state = LockKey::open_read(ctx, name).read_to(ReadDepth::Two, now);
    read_write::may_read(ctx, name, &state)?;
    let passes = shell::with(|shell| shell.locks.passes_fence(&state, token, now));
    match passes || fault::is_on("old-token-passes-the-fence") {
        true => Ok(()),
        false => Err(CommandError::Fenced),
    }
}
