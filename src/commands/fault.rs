//! `LOCK.FAULT name`: the entry of that name panics once. Only in builds for the tests.

use crate::lock::LockError;
use crate::module::ctx::Ctx;
use crate::module::register::{Command, Spec};
use crate::module::strings::Str;

/// Arms an injected panic.
pub struct Fault;

impl Command for Fault {
    const SPEC: Spec = Spec {
        name: c"lock.fault",
        flags: c"",
        acl: c"dangerous",
        key: None,
        arity: 2,
        summary: c"Makes an entry of the module panic once, for its tests",
        complexity: c"O(1)",
        args: &[],
    };

    fn run(ctx: Ctx, words: &[Str<'_>]) -> Result<(), LockError> {
        let name = words.get(1).ok_or(LockError::Syntax)?;
        crate::module::arm_fault(name.bytes());
        ctx.reply_bytes(b"OK");
        Ok(())
    }
}
