//! The server's own commands, as a script would call them: their events, their replication and their
//! count of changes are their own.

use std::ffi::CStr;

use crate::module::ffi::call_reply::Reply;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;

/// Runs a command whose success is not in doubt; its number, or 0 where it answers none. `None`: the server
/// refused even to try.
pub fn run(ctx: Ctx<'_>, command: &CStr, words: &[Str<'_>]) -> Option<i64> {
    let reply = Reply::of(ctx, command, c"!v", words)?;
    Some(reply.whole().number().unwrap_or(0))
}
