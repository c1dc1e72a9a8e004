//! The subscribers of the channels of locks and semaphores, Redisson's waiters, and those of the channels of tickets.
//! They are counted only if a decision depends on it (see `lock::window` and `lock::wait::hearing`); each count is a
//! `pubsub` in `INFO commandstats`.

use crate::lock::{parse_decimal, prefixed, KeyRef, Mode, Now, Resource};
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::state::constants::{constants, is_cluster};
use crate::module::state::shell;

/// The channels of Redisson's exclusive locks, read-write locks and semaphores, before the name.
pub const LOCK_CHANNEL: &str = "redisson_lock__channel";
pub const READ_WRITE_CHANNEL: &str = "redisson_rwlock";
pub const SEMAPHORE_CHANNEL: &str = "redisson_sc";

/// The channel on which Redisson's clients wait for a lock or a permit of this name.
pub fn channel_of(prefix: &str, name: &[u8]) -> OwnedStr {
    OwnedStr::new(&prefixed(prefix, name))
}

/// The channel on which Redisson's clients wait for a latch of this name.
pub fn latch_channel(name: &[u8]) -> OwnedStr {
    OwnedStr::new(&[b"redisson_countdownlatch__channel__{", name, b"}"].concat())
}

/// Whether the decision about this key depends on subscribers to its channel, and there is one.
pub fn has_relevant_subscriber(ctx: Ctx<'_>, key: KeyRef<'_>, now: Now) -> bool {
    let wanted = shell::with(|shell| shell.locks.shared.waiters.depends_on_subscribers(key, now));
    wanted.is_some_and(|mode| {
        let prefix = match (key.resource, mode) {
            (Resource::Lock, Mode::Exclusive) => LOCK_CHANNEL,
            (Resource::Lock, _) => READ_WRITE_CHANNEL,
            _ => SEMAPHORE_CHANNEL,
        };
        any_subscriber(ctx, channel_of(prefix, key.name).as_str())
    })
}

/// In a cluster Redisson subscribes to the shard channel of that name; older versions subscribe to the plain channel,
/// on the node that has the key. False as well if `PUBSUB` has another name (a warning at load says so).
fn any_subscriber(ctx: Ctx<'_>, channel: Str<'_>) -> bool {
    let plain = || ask(ctx, OwnedStr::new(b"NUMSUB").as_str(), channel);
    ask(ctx, constants().numsub.as_str(), channel).is_some_and(|number| number > 0)
        || (is_cluster() && plain().is_some_and(|number| number > 0))
}

/// The subscribers of the channel of a ticket on this node: of the shard channel in a cluster. 1 if `PUBSUB` has
/// another name: then the message of a grant may reach no client, and the lease ends it.
pub fn count(ctx: Ctx<'_>, channel: Str<'_>) -> usize {
    ask(ctx, constants().numsub.as_str(), channel).unwrap_or(1)
}

/// [`count`] for each of these channels.
pub fn count_all(ctx: Ctx<'_>, channels: &[Str<'_>]) -> Vec<usize> {
    let constants = constants();
    let words: Vec<Str<'_>> = [&[constants.numsub.as_str()], channels].concat();
    let reply = Reply::of(ctx, c"PUBSUB", How::AsModule, &words);
    let number = |at: usize| reply.as_ref()?.whole().element(2 * at + 1)?.number();
    let subscribers = (0..channels.len()).map(number);
    subscribers
        .map(|number| number.map_or(1, |number| usize::try_from(number).unwrap_or(0)))
        .collect()
}

/// The number of subscribers; `None` if `PUBSUB` has another name. The reply is an array of the channel and the number,
/// and is not parsed, which would take a fifth of the call.
fn ask(ctx: Ctx<'_>, question: Str<'_>, channel: Str<'_>) -> Option<usize> {
    let reply = Reply::of(ctx, c"PUBSUB", How::AsModule, &[question, channel])?;
    let number = reply.protocol().rsplit(|byte| *byte == b':').next()?;
    usize::try_from(parse_decimal(number.strip_suffix(b"\r\n")?)?).ok()
}
