//! The messages of tickets: `granted <token> <tag>`, `timeout <tag>`, `failed <CODE> <tag>`.
//!
//! In a cluster they are messages of shard channels: the channel is in the slot of the key. Replicas do not get them
//! from the module: a client that waits is subscribed on the server that has the queue.

use crate::lock::{Outcome, Ticket};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::OwnedStr;
use crate::module::state::shell;

/// Publishes the outcome of a ticket.
pub fn tell(ctx: Ctx<'_>, ticket: &Ticket, outcome: &Outcome) {
    let channel = OwnedStr::new(ticket.channel());
    let message = OwnedStr::new(&message_of(outcome, ticket.tag()));
    match shell::is_cluster() {
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
