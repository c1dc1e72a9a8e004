//! `LOCK.FAULT entry` and `LOCK.FAULT API function [pass]`. Only in builds for the tests.

use crate::commands::args::Args;
use crate::lock::LockError;
use crate::module::entry::command::{Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;

/// Arms an injected fault: the entry of that name panics once, or a call of that function of the server fails once,
/// after `pass` calls that do not.
pub struct Fault;

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
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let mut args = Args::new(words);
        let (mut name, mut pass) = (args.bytes()?, 0);
        if words.len() > 2 {
            name = args.bytes()?;
        }
        if words.len() > 3 {
            pass = args.number(0)?.unsigned_abs();
        }
        crate::module::ffi::fault::arm(name.bytes(), pass);
        ctx.reply_bytes(b"OK");
        Ok(())
    }
}
