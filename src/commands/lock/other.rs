//! `LOCK.OWNER`, `LOCK.HELP`, and in builds for the tests `LOCK.FAULT`.

use uuid::Uuid;

use crate::commands::options::optional;
use crate::commands::parser::{shown, syntax, Parser};
use crate::commands::ALL;
use crate::lock::LockError;
use crate::module::entry::command::{Arg, ArgKind, Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;

/// Replies a random unique owner, for clients that cannot generate one.
pub struct Owner;

impl Command for Owner {
    const SPEC: Spec = Spec {
        name: c"lock.owner",
        flags: c"fast allow-loading allow-stale",
        acl: c"fast",
        key: None,
        arity: 1,
        summary: c"Returns a fresh unique owner id",
        complexity: c"O(1)",
        args: &[],
        help: &["A fresh unique owner id."],
    };

    fn run(ctx: Ctx<'_>, _words: &[Str<'_>]) -> Result<(), LockError> {
        ctx.reply_bytes(Uuid::new_v4().to_string().as_bytes());
        Ok(())
    }
}

/// Replies a short description of every command, or of those with this name.
pub struct Help;

impl Command for Help {
    const SPEC: Spec = Spec {
        name: c"lock.help",
        flags: c"allow-loading allow-stale",
        acl: c"slow",
        key: None,
        arity: -1,
        summary: c"Returns the commands of this module in a few lines",
        complexity: c"O(1)",
        args: &[optional(c"command", ArgKind::String)],
        help: &["Print this help, or the lines of a command (ACQUIRE, SEM.ACQUIRE) or of a kind (LOCK, SEM, LATCH)."],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut parser = Parser::of::<Help>(words);
        let name = match parser.has_more() {
            true => Some(parser.any("the command")?.bytes()),
            false => None,
        };
        let lines = lines_of(name);
        if lines.is_empty() {
            let name = shown(name.unwrap_or_default());
            return Err(syntax(format!("unknown command '{name}', see LOCK.HELP")));
        }
        parser.end()?;
        ctx.reply_array(lines.len());
        for line in lines {
            ctx.reply_bytes(line.as_bytes());
        }
        Ok(())
    }
}

/// The lines of all commands, or with a name: of this command (`LOCK.` may be left out), or of all that begin with this
/// word and a dot.
fn lines_of(name: Option<&[u8]>) -> Vec<String> {
    let name = name.map(<[u8]>::to_ascii_uppercase);
    let is_named = |command: &str| {
        name.as_ref().is_none_or(|name| {
            let behind = command.as_bytes().strip_prefix(&name[..]);
            let short = command.strip_prefix("LOCK.").map(str::as_bytes);
            short == Some(&name[..])
                || behind.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
        })
    };
    let mut lines = Vec::new();
    for spec in ALL.iter().map(|command| command().spec) {
        let command = spec.name.to_string_lossy().to_uppercase();
        if is_named(&command) && !spec.help.is_empty() {
            let syntax = format!("{command} {}", syntax_of(spec.args, " "));
            lines.push(syntax.trim_end().to_owned());
            lines.extend(spec.help.iter().map(|line| format!("    {line}")));
        }
    }
    lines
}

/// The syntax of these arguments.
fn syntax_of(args: &'static [Arg], between: &str) -> String {
    let args: Vec<String> = args.iter().map(syntax_of_one).collect();
    args.join(between)
}

fn syntax_of_one(arg: &'static Arg) -> String {
    let name = match &*arg.name.to_string_lossy() {
        "seconds" => "<s>".to_owned(),
        "milliseconds" => "<ms>".to_owned(),
        name => format!("<{name}>"),
    };
    let value = match arg.kind {
        ArgKind::Word => String::new(),
        ArgKind::Keys | ArgKind::Strings => format!("{name} [{name} ...]"),
        ArgKind::Key | ArgKind::String | ArgKind::Integer => name,
        ArgKind::OneOf(parts) => syntax_of(parts, " | "),
        ArgKind::Block(parts) => syntax_of(parts, " "),
    };
    let token = arg.token.unwrap_or_default().to_string_lossy();
    let syntax = format!("{token} {value}").trim().to_owned();
    match arg.optional {
        true => format!("[{syntax}]"),
        false => syntax,
    }
}

/// Arms an injected fault: the entry of that name panics once, or a call of that function of the server fails once,
/// after `pass` calls that do not. (`LOCK.FAULT entry`, `LOCK.FAULT API function [pass]`; words behind `pass` are
/// ignored.)
#[cfg(feature = "fault-injection")]
pub struct Fault;

#[cfg(feature = "fault-injection")]
impl Command for Fault {
    const SPEC: Spec = Spec {
        name: c"lock.fault",
        flags: c"",
        acl: c"dangerous",
        key: None,
        arity: -2,
        summary: c"Makes an entry of the module panic once, or a call of the server fail once, for the tests",
        complexity: c"O(1)",
        args: &[],
        help: &[],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut parser = Parser::of::<Fault>(words);
        let (mut name, mut pass) = (parser.any("the command")?, 0);
        if parser.has_more() {
            name = parser.any("the command")?;
        }
        if parser.has_more() {
            pass = parser.number("pass", 0)?.unsigned_abs();
        }
        crate::module::ffi::fault::arm(name.bytes(), pass);
        ctx.reply_bytes(b"OK");
        Ok(())
    }
}
