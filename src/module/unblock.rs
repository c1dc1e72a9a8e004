//! The end of a block.
//!
//! `RedisModule_UnblockClient` leaves the client blocked until the server is about to sleep. What the server does
//! between the alarm and that moment may find the client blocked, reply to it and end its block. Three kinds of servers
//! do such work:
//!
//! * a cluster node: its cron redirects the clients blocked on slots that have moved (`-MOVED`, `-CLUSTERDOWN`);
//! * a server with I/O threads executes the commands that these have read, `CLIENT UNBLOCK` among them;
//! * a server with a TLS port executes the commands whose bytes OpenSSL had read ahead.
//!
//! Redis 7.4 and newer write the answer when they end the block. Redict and Valkey write it at once, but into a buffer
//! that they discard if other work has ended the block. So their clients get one reply. Redis 7.0 and 7.2 have sent the
//! answer then, and the client gets two replies: each later reply on the connection seems to belong to the request
//! before. There the answer is delivered by `CLIENT UNBLOCK id TIMEOUT`: the same callback writes it, and the block
//! ends in the call.
//!
//! That has a price for grants. Only at the end of a block by `RedisModule_UnblockClient` does the server note the
//! replication offset for which the client's next `WAIT` or `WAITAOF` waits (`woff` in its module.c). After the command
//! that offset is the one at which the client was blocked: before the grant. So a cluster node, where a grant and the
//! redirect hardly ever meet, delivers grants by the API.

use std::ptr::null_mut;

use crate::lock::{Outcome, WaiterId};
use crate::module::ffi::api::api;
use crate::module::ffi::call_reply::Reply;
use crate::module::ffi::ctx::{server_version, Ctx};
use crate::module::ffi::strings::OwnedStr;
use crate::module::state::parked::ByCommand;
use crate::module::state::shell;

/// From this version on a client gets one reply (Redict has 7.3, Valkey 8.0 and newer).
const ONE_REPLY_SINCE: i32 = 0x07_03_00;

/// Unblocks the client of this parked request, whose answer is noted. Does nothing if it is no longer parked.
pub fn client(ctx: Ctx<'_>, id: WaiterId) {
    let by = shell::with(|shell| {
        let parked = shell.parked.get(&id)?;
        let is_by_command = match shell.by_command {
            ByCommand::None => false,
            ByCommand::Refusals => {
                matches!(parked.outcome, Some(Outcome::Nil | Outcome::Failed(_)))
            }
            ByCommand::All => true,
        };
        is_by_command.then_some(parked.client)
    });
    if let Some(client) = by {
        by_command(ctx, client);
    }
    // After the command the client is still parked only if the server has refused it: `CLIENT` has another name.
    let Some(handle) = shell::with(|shell| shell.parked.get(&id)?.handle) else {
        return;
    };
    // SAFETY: the handle is live: `on_answer` or `on_disconnect` removes its entry from `parked` before the server
    // frees it. The server ignores the call if it has ended the block already, and refuses only a client without a
    // timeout callback.
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

/// Reads in which cases the server may reply a second time before a block ends. If it does not list its settings, it
/// may in all.
pub fn follow_settings(ctx: Ctx<'_>) {
    let by_command = match () {
        () if server_version() >= ONE_REPLY_SINCE => ByCommand::None,
        () if has_threads_or_tls(ctx) != Some(false) => ByCommand::All,
        () if ctx.is_cluster() => ByCommand::Refusals,
        () => ByCommand::None,
    };
    shell::with(|shell| shell.by_command = by_command);
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
