//! What the server says of its commands (`COMMAND INFO`).

use smallvec::SmallVec;

use crate::module::ffi::call_reply::{How, Part, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::state::shell::{self, KnownCommand};

/// What is known of the command that a client names.
pub enum Found {
    /// The server has it.
    Known(KnownCommand),
    /// The server has no such command.
    Absent,
    /// The server does not tell: `COMMAND` has another name (`rename-command`), or the name is longer than any.
    Untold,
}

/// The length up to which the server is asked for a name.
const LONGEST_NAME: usize = 128;

/// The command of these words, with its subcommand if it has some. A command of the server itself stays what it is, so
/// it is asked for once; one of a module may be replaced.
pub fn of(ctx: Ctx<'_>, words: &[Str<'_>]) -> Found {
    let word = |at: usize| words.get(at).map_or(&b""[..], |word| word.bytes());
    let found = named(ctx, word(0), None);
    match found {
        Found::Known(known) if known.has_subcommands => named(ctx, word(0), Some(word(1))),
        found => found,
    }
}

fn named(ctx: Ctx<'_>, command: &[u8], subcommand: Option<&[u8]>) -> Found {
    let len = command.len() + subcommand.map_or(0, |name| name.len() + 1);
    if len > LONGEST_NAME {
        return Found::Untold;
    }
    let mut name: SmallVec<[u8; LONGEST_NAME]> = command.into();
    if let Some(subcommand) = subcommand {
        name.push(b'|');
        name.extend_from_slice(subcommand);
    }
    name.make_ascii_lowercase();
    if let Some(known) = shell::with(|shell| shell.known_commands.get(&name[..]).copied()) {
        return Found::Known(known);
    }
    let words = [b"INFO", &name[..]].map(OwnedStr::new);
    let words = words.each_ref().map(OwnedStr::as_str);
    let reply = Reply::of(ctx, c"COMMAND", How::AsModule, &words);
    let Some(info) = reply.as_ref().and_then(|reply| reply.whole().element(0)) else {
        return Found::Untold;
    };
    let Some(known) = read(info) else {
        return Found::Absent;
    };
    if !known.is_of_module {
        shell::with(|shell| shell.known_commands.insert(name[..].into(), known));
    }
    Found::Known(known)
}

/// Reads `[name, arity, flags, first key, last key, step, categories, tips, key specifications, subcommands]`; `None`
/// for nil.
fn read(info: Part<'_>) -> Option<KnownCommand> {
    let has = |part: Option<Part<'_>>, word: &[u8]| {
        let mut words = part.and_then(Part::elements).into_iter().flatten();
        words.any(|part| part.bytes() == Some(word))
    };
    let flags = info.element(2)?;
    // A specification is a list of names, each with its value. One that is not of a key is that of a shard channel.
    let is_of_key = |spec: Part<'_>| {
        let mut parts = spec.elements().into_iter().flatten();
        parts.find(|part| part.bytes() == Some(b"flags"));
        !has(parts.next(), b"not_key")
    };
    let mut specs = info
        .element(8)
        .and_then(Part::elements)
        .into_iter()
        .flatten();
    let mut subcommands = info
        .element(9)
        .and_then(Part::elements)
        .into_iter()
        .flatten();
    Some(KnownCommand {
        has_keys: specs.any(is_of_key),
        has_subcommands: subcommands.next().is_some(),
        is_of_module: has(Some(flags), b"module"),
    })
}
