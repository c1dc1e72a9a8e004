//! Outcomes of waits. The answer to a parked request is first noted, and delivered at the end of the tick. The message
//! of a ticket is published at once: `granted <token> <tag>`, `timeout <tag>`, `failed <CODE> <tag>`. In a cluster it
//! is a message of a shard channel: the channel is in the slot of the key. Replicas do not get it from the module: a
//! client that waits is subscribed on the server that has the queue.
//!
//! # The end of a block
//!
//! `RedisModule_UnblockClient` leaves the client blocked until the server is about to sleep. What the server does
//! between the alarm and that moment may find the client blocked, reply to it and end its block. Three kinds of servers
//! do such work:
//!
//! * a cluster node: its cron redirects the clients blocked on slots that have moved (`-MOVED`, `-CLUSTERDOWN`);
//! * a server with I/O threads executes the commands that these have read, `CLIENT UNBLOCK` among them;
//! * a server with a TLS port executes the commands whose bytes OpenSSL had read ahead.
//!
//! Redis 7.4 and newer call the timeout callback, which writes the answer, when they end the block. Redict and Valkey
//! call it at once, but discard what it has written if other work has ended the block. So their clients get one reply.
//! Redis 7.0 and 7.2 would have sent the answer then, and the client would get two. There the answer is *late*: the
//! timeout callback keeps the key of the command, and the reply is written when the server frees the private data.
//! That is the end of the block; the server then notes the replication offset for which the client's next `WAIT` waits.
//! If other work has ended the block before, the answer is not written, and the connection is closed: after `CLIENT
//! UNBLOCK ... TIMEOUT` its client would wait for a reply that is never written. A cluster's cron does such work often
//! while slots move. So on these nodes an answer that is no grant is delivered by `CLIENT UNBLOCK id TIMEOUT`: the
//! timeout callback writes it, and the block ends in the call.

use std::ptr::null_mut;

use crate::lock::{Effect, Effects, LockError, Outcome, Ticket, WaiterId};
use crate::module::ffi::api::api;
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::{server_version, Ctx};
use crate::module::ffi::fault;
use crate::module::ffi::strings::OwnedStr;
use crate::module::state::constants::is_cluster;
use crate::module::state::shell;

/// Notes an answer; the alarm delivers it at the end of the tick.
fn note(id: WaiterId, outcome: Outcome) {
    shell::with(|shell| {
        if let Some(parked) = shell.parked.get_mut(&id) {
            parked.outcome = Some(outcome);
            shell.answered.push(id);
        }
    });
}

/// Notes the answers of a decision and publishes its messages, after its writes have succeeded.
pub fn note_all(ctx: Ctx<'_>, fx: &[Effect]) {
    for effect in fx {
        match effect {
            Effect::Answer(waiter, outcome) => note(*waiter, outcome.clone()),
            Effect::Tell(ticket, outcome) => tell(ctx, ticket, outcome),
            _ => {}
        }
    }
}

/// Unblocks the clients whose answers are noted.
pub fn deliver_all(ctx: Ctx<'_>) {
    for id in shell::with(|shell| std::mem::take(&mut shell.answered)) {
        unblock(ctx, id);
    }
}

/// The outcomes of a decision whose changes are not made yet. If this value is dropped, by a panic, its tickets fail:
/// they have left their queues. (`shell::recover` answers the parked requests.)
pub struct Pending<'a> {
    ctx: Ctx<'a>,
    fx: &'a [Effects],
}

impl<'a> Pending<'a> {
    /// The outcomes among these effects.
    pub fn new(ctx: Ctx<'a>, fx: &'a [Effects]) -> Pending<'a> {
        Pending { ctx, fx }
    }

    /// The changes are made: the outcomes are noted.
    pub fn note(mut self) {
        for fx in std::mem::take(&mut self.fx) {
            note_all(self.ctx, fx);
        }
    }

    /// The changes were refused: the tickets fail with this error.
    pub fn fail(mut self, error: &LockError) {
        self.fail_tickets(error);
    }

    fn fail_tickets(&mut self, error: &LockError) {
        for effect in std::mem::take(&mut self.fx).iter().flatten() {
            if let Effect::Tell(ticket, _) = effect {
                tell(self.ctx, ticket, &Outcome::Failed(error.clone()));
            }
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.fail_tickets(&LockError::Internal);
    }
}

/// Publishes the outcome of a ticket.
pub fn tell(ctx: Ctx<'_>, ticket: &Ticket, outcome: &Outcome) {
    if fault::is_on("ticket-not-told") {
        return;
    }
    let channel = OwnedStr::new(ticket.channel());
    let message = OwnedStr::new(&message_of(outcome, ticket.tag()));
    match is_cluster() {
        true => ctx.publish_in_shard(channel.as_str(), message.as_str()),
        false => ctx.publish(channel.as_str(), message.as_str()),
    }
}

/// One line of words, and then the tag up to the end.
fn message_of(outcome: &Outcome, tag: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(40 + tag.len());
    match outcome {
        Outcome::Granted(token) => {
            message.extend(b"granted ");
            message.extend(itoa::Buffer::new().format(token.get()).bytes());
        }
        Outcome::GrantedAll(tokens) => {
            message.extend(b"granted ");
            for (at, token) in tokens.iter().enumerate() {
                message.extend((at > 0).then_some(b','));
                message.extend(itoa::Buffer::new().format(token.get()).bytes());
            }
        }
        Outcome::Open => message.extend(b"granted 1"),
        Outcome::Nil => message.extend(b"timeout"),
        Outcome::Failed(error) => {
            message.extend(b"failed ");
            message.extend(error.code().bytes());
        }
    }
    message.push(b' ');
    message.extend(tag);
    message
}

/// From this version on a client gets one reply (Redict has 7.3, Valkey 8.0 and newer).
const ONE_REPLY_SINCE: i32 = 0x07_03_00;

/// Whether answers are late on this server.
pub fn is_late() -> bool {
    server_version() < ONE_REPLY_SINCE
}

/// Unblocks the client of this parked request, whose answer is noted. Does nothing if it is no longer parked.
fn unblock(ctx: Ctx<'_>, id: WaiterId) {
    if is_late() && is_cluster() {
        refuse_by_command(ctx, id);
    }
    // After the command the client is still parked only if the server has refused it: `CLIENT` has another name.
    let handle = shell::with(|shell| {
        let parked = shell.parked.get_mut(&id)?;
        parked.is_ending = true;
        parked.handle
    });
    let Some(handle) = handle else {
        return;
    };
    // SAFETY: the handle is live: `on_answer`, `on_end` or `on_disconnect` removes its entry from `parked` before the
    // server frees it. The server ignores the call if it has ended the block already, and refuses only a client without
    // a timeout callback.
    unsafe { api!(RedisModule_UnblockClient)(handle.as_ptr(), null_mut()) };
}

/// Lets the server unblock the client, unless the answer is a grant. If the server refuses, the client is still parked.
fn refuse_by_command(ctx: Ctx<'_>, id: WaiterId) {
    let client = shell::with(|shell| {
        let parked = shell.parked.get(&id)?;
        let is_refusal = matches!(parked.outcome, Some(Outcome::Nil | Outcome::Failed(_)));
        is_refusal.then_some(parked.client)
    });
    let Some(client) = client else {
        return;
    };
    let words = [
        OwnedStr::new(b"UNBLOCK"),
        OwnedStr::of_number(client),
        OwnedStr::new(b"TIMEOUT"),
    ];
    let words = words.each_ref().map(OwnedStr::as_str);
    Reply::of(ctx, c"CLIENT", How::AsModule, &words);
}
