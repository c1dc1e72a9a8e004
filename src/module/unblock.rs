//! The end of a block.
//!
//! `RedisModule_UnblockClient` writes the answer at once (through the timeout callback), but the client stays blocked
//! until the server is about to sleep. What the server does between the alarm and that moment may find the client
//! blocked and give it a second reply: then each later reply on the connection seems to belong to the request before.
//! Three kinds of servers do such work:
//!
//! * a cluster node: its cron, and the messages of other nodes, redirect the clients blocked on slots that have moved
//!   (`-MOVED`, `-CLUSTERDOWN`);
//! * a server with I/O threads executes the commands that these have read, `CLIENT UNBLOCK` among them;
//! * a server with a TLS port executes the commands whose bytes OpenSSL had read ahead.
//!
//! There the client is unblocked by `CLIENT UNBLOCK id TIMEOUT`: the same callback writes the answer, and the block
//! ends in the call. Elsewhere the function of the API is cheaper.

use std::ptr::null_mut;

use crate::lock::WaiterId;
use crate::module::ffi::api::api;
use crate::module::ffi::call_reply::Reply;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::OwnedStr;
use crate::module::state::shell;

/// Unblocks the client of this parked request, whose answer is noted. Does nothing if it is parked no more.
pub fn client(ctx: Ctx<'_>, id: WaiterId) {
    let Some(client) = shell::with(|shell| Some(shell.parked.get(&id)?.client)) else {
        return;
    };
    if shell::with(|shell| shell.unblocks_by_command) {
        by_command(ctx, client);
    }
    // Still parked, if the command has another name.
    let Some(handle) = shell::with(|shell| shell.parked.get(&id)?.handle) else {
        return;
    };
    // SAFETY: the handle is live: `on_answer` or `on_disconnect` removes its entry from `parked` before the server
    // frees it. Each id is in `answered` once, so it is not unblocked twice. (The server refuses only a client without
    // a timeout callback.)
    unsafe { api!(RedisModule_UnblockClient)(handle.as_ptr(), null_mut()) };
}

/// Lets the server unblock the client. If it refuses, the client is still parked.
fn by_command(ctx: Ctx<'_>, client: u64) {
    let words = [
        OwnedStr::new(b"UNBLOCK"),
        OwnedStr::of_number(client),
        OwnedStr::new(b"TIMEOUT"),
    ];
    let words = words.each_ref().map(OwnedStr::as_str);
    Reply::of(ctx, c"CLIENT", c"v", &words);
}

/// Reads whether the server does other work before a block ends. If it refuses to say, it counts as such a server.
pub fn follow_settings(ctx: Ctx<'_>) {
    let by_command = ctx.is_cluster() || has_threads_or_tls(ctx) != Some(false);
    shell::with(|shell| shell.unblocks_by_command = by_command);
}

/// Whether the server has I/O threads or a TLS port.
fn has_threads_or_tls(ctx: Ctx<'_>) -> Option<bool> {
    let words = [&b"GET"[..], b"io-threads", b"tls-port"].map(OwnedStr::new);
    let words = words.each_ref().map(OwnedStr::as_str);
    let reply = Reply::of(ctx, c"CONFIG", c"v", &words)?;
    let words: Option<Vec<_>> = reply.whole().elements()?.map(|word| word.bytes()).collect();
    // A server that was built without TLS has no `tls-port`.
    Some(
        words?
            .chunks_exact(2)
            .any(|pair| !matches!(pair, [b"io-threads", b"1"] | [b"tls-port", b"0"])),
    )
}
