//! `LOCK.FAULT entry` and `LOCK.FAULT API function [pass]`. Only in builds for the tests.

use crate::commands::error::CommandError;
use crate::commands::parser::{ParseSettings, Parser, Word};
use crate::module::entry::command::{Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;

/// Arms an injected fault: the entry of that name panics once, or a call of that function of the server fails once,
/// after `pass` calls that do not.
#[derive(Debug, PartialEq, Eq)]
pub struct Fault<W = Str<'static>> {
    pub(crate) name: W,
    pub(crate) pass: u64,
}

impl<W: Word> Fault<W> {
    /// Parses the command. Words behind `pass` are ignored.
    ///
    /// # Errors
    /// That of `pass`.
    pub fn parse(words: &[W], settings: &ParseSettings) -> Result<Fault<W>, CommandError> {
        let mut parser = Parser::new::<Fault>(words, settings);
        let (mut name, mut pass) = (parser.any("the command")?, 0);
        if parser.has_more() {
            name = parser.any("the command")?;
        }
        if parser.has_more() {
            pass = parser.number("pass", 0)?.unsigned_abs();
        }
        Ok(Fault { name, pass })
    }
}

impl Fault<Str<'_>> {
    fn apply(self, ctx: Ctx<'_>) -> Result<(), CommandError> {
        crate::module::ffi::fault::arm(self.name.bytes(), self.pass);
        ctx.reply_bytes(b"OK");
        Ok(())
    }
}

impl Command for Fault {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"lock.fault",
        flags: c"",
        acl: c"dangerous",
        key: None,
        arity: -2,
        summary: c"Makes an entry of the module panic once, or a call of the server fail once, for the tests",
        complexity: c"O(1)",
        args: &[],
    };

    fn run(ctx: Ctx<'_>, words: &[Str<'_>]) -> Result<(), CommandError> {
        Fault::parse(words, &ParseSettings::current())?.apply(ctx)
    }
}
