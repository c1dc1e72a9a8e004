//! `LOCK.OWNER`

use uuid::Uuid;

use crate::commands::error::CommandError;
use crate::module::entry::command::{Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;

/// Replies a random unique owner, for clients that cannot generate one.
pub struct Owner;

impl Command for Owner {
    type Error = CommandError;

    const SPEC: Spec = Spec {
        name: c"lock.owner",
        flags: c"fast allow-loading allow-stale",
        acl: c"fast",
        key: None,
        arity: 1,
        summary: c"Returns a fresh unique owner id",
        complexity: c"O(1)",
        args: &[],
    };

    fn run(ctx: Ctx<'_>, _words: &[Str<'_>]) -> Result<(), CommandError> {
        ctx.reply_bytes(Uuid::new_v4().to_string().as_bytes());
        Ok(())
    }
}
