//! The subscribers of a lock's channel, Redisson's waiters, and those of the channels of tickets. They are counted only
//! if a decision depends on it (see `lock::window` and `lock::wait::hearing`); each count is a `pubsub` in `INFO
//! commandstats`.

use crate::lock::{prefixed, KeyRef};
use crate::module::ffi::call_reply::Reply;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::state::shell;

const CHANNEL: &str = "redisson_lock__channel";

/// The channel on which Redisson's clients wait for the release of a lock.
pub fn channel_of(lock: &[u8]) -> OwnedStr {
    OwnedStr::new(&prefixed(CHANNEL, lock))
}

/// Whether the decision about this lock depends on subscribers to its channel, and there is one.
pub fn has_relevant_subscriber(ctx: Ctx<'_>, lock: KeyRef<'_>) -> bool {
    shell::with(|shell| shell.locks.depends_on_subscribers(lock)) && any_subscriber(ctx, lock.name)
}

/// In a cluster Redisson subscribes to the shard channel of that name; older versions subscribe to the plain channel,
/// on the node that has the lock.
fn any_subscriber(ctx: Ctx<'_>, lock: &[u8]) -> bool {
    let channel = channel_of(lock);
    let channel = channel.as_str();
    subscribers(ctx, b"NUMSUB", channel) > 0
        || (shell::is_cluster() && subscribers(ctx, b"SHARDNUMSUB", channel) > 0)
}

/// Whether the channel of a ticket has a subscriber on this node: of the shard channel in a cluster. True as well if
/// `PUBSUB` has another name: then the message of a grant may reach no client, and the lease ends it.
pub fn are_subscribed(ctx: Ctx<'_>, channel: Str<'_>) -> bool {
    let question: &[u8] = match shell::is_cluster() {
        true => b"SHARDNUMSUB",
        false => b"NUMSUB",
    };
    count(ctx, question, channel).is_none_or(|subscribers| subscribers > 0)
}

/// The number of subscribers; 0 as well if `PUBSUB` has another name (`needed` warns of that).
fn subscribers(ctx: Ctx<'_>, question: &[u8], channel: Str<'_>) -> i64 {
    count(ctx, question, channel).unwrap_or(0)
}

/// The number of subscribers; `None` if `PUBSUB` has another name.
fn count(ctx: Ctx<'_>, question: &[u8], channel: Str<'_>) -> Option<i64> {
    let question = OwnedStr::new(question);
    let reply = Reply::of(ctx, c"PUBSUB", c"v", &[question.as_str(), channel])?;
    reply.whole().element(1)?.number()
}
