//! The two steps of every event: let the core decide, then carry out what it decided.

use redis_module::raw;

use super::fence;
use super::key::LockKey;
use super::parked::Parked;
use super::settings;
use super::shell;
use super::strings::{OwnedStr, Str};
use crate::lock::{prefixed, Effect, KeyWrite, Locks};

/// Lets the core decide, under the settings in force.
pub fn decide<T>(body: impl FnOnce(&mut Locks, &mut Vec<Effect>) -> T) -> (T, Vec<Effect>) {
    shell::with(|shell| {
        shell.locks.limits = settings::limits();
        shell.locks.waiters.grace = settings::grace();
        let mut fx = Vec::new();
        let result = body(&mut shell.locks, &mut fx);
        (result, fx)
    })
}

/// Carries out what the core decided about this key: first the changes, in order, then, with the key
/// closed, the news of them. Others hear the news at once and may touch the key themselves.
pub fn apply(mut key: LockKey<'_>, fx: &[Effect]) {
    let (ctx, name) = (key.ctx(), key.name());
    for effect in fx {
        match effect {
            Effect::Horizon(domain, horizon) => fence::write_horizon(ctx, *domain, *horizon),
            Effect::Counter(token) => fence::write_counter(&key, *token),
            Effect::Write(change) => key.write(change),
            Effect::Answer(waiter, outcome) => Parked::answer(*waiter, outcome.clone()),
            Effect::Notify(_) | Effect::Publish => {}
        }
    }
    drop(key);
    for effect in fx {
        match effect {
            Effect::Write(KeyWrite::Delete) => {
                ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"del", name);
            }
            Effect::Notify(event) => {
                ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, event.name(), name);
            }
            Effect::Publish if settings::publish() => {
                let (channel, message) = release_message(name);
                let (channel, message) = (channel.as_str(), message.as_str());
                if shell::is_cluster() {
                    ctx.publish_in_cluster(channel, message);
                } else {
                    ctx.publish(channel, message);
                }
            }
            _ => {}
        }
    }
}

/// Redisson's waiters listen on the lock's channel for `0`.
fn release_message(lock: Str<'_>) -> (OwnedStr, OwnedStr) {
    let channel = prefixed("redisson_lock__channel", lock.bytes());
    (OwnedStr::new(&channel), OwnedStr::new(b"0"))
}
