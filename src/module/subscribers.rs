//! Who listens on a lock's channel: Redisson's waiters. The server is asked only where the answer decides
//! something (see `lock::turns`), and each question counts as a `pubsub` in `INFO commandstats`.

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

/// Whether somebody listens for the release of this lock, if it depends on that what becomes of it.
pub fn has_relevant_subscriber(ctx: Ctx<'_>, lock: KeyRef<'_>) -> bool {
    shell::with(|shell| shell.locks.depends_on_subscribers(lock)) && any_subscriber(ctx, lock.name)
}

/// In a cluster Redisson listens on the shard channel of that name, or, in older versions, on the plain one by way
/// of the node that has the lock.
fn any_subscriber(ctx: Ctx<'_>, lock: &[u8]) -> bool {
    let channel = channel_of(lock);
    let channel = channel.as_str();
    subscribers(ctx, b"NUMSUB", channel) > 0
        || (shell::is_cluster() && subscribers(ctx, b"SHARDNUMSUB", channel) > 0)
}

/// 0 as well where the server does not say, since the command has another name (`needed` warns of that).
fn subscribers(ctx: Ctx<'_>, question: &[u8], channel: Str<'_>) -> i64 {
    let question = OwnedStr::new(question);
    let count = || {
        let reply = Reply::of(ctx, c"PUBSUB", c"v", &[question.as_str(), channel])?;
        reply.whole().element(1)?.number()
    };
    count().unwrap_or(0)
}
