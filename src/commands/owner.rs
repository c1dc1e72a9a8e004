//! `LOCK.OWNER`

use uuid::Uuid;

use crate::lock::LockError;
use crate::module::entry::command::{Command, Spec};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;

/// A fresh unique owner, for clients that cannot make one.
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
    };

    fn run(ctx: Ctx, _words: &[Str<'_>]) -> Result<(), LockError> {
        ctx.reply_bytes(Uuid::new_v4().to_string().as_bytes());
        Ok(())
    }
}
