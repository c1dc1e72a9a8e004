//! The server's own commands, called as a script calls them: the server sends their events, replicates them and counts
//! their changes.

use std::ffi::CStr;

use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::Str;

/// Runs a command that cannot fail with an error reply. Returns its number, or 0 if the reply is none. `None`: the
/// server refused the call itself.
pub fn run(ctx: Ctx<'_>, command: &CStr, words: &[Str<'_>]) -> Option<i64> {
    let reply = Reply::of(ctx, command, How::Replicated, words)?;
    Some(reply.whole().number().unwrap_or(0))
}
