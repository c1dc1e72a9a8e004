//! The two steps of every event: let the core decide, then carry out what it decided.

use redis_module::raw;

use super::ctx::Ctx;
use super::events;
use super::fence;
use super::guard;
use super::key::LockKey;
use super::listeners;
use super::parked::Parked;
use super::replication::Replication;
use super::settings;
use super::shell;
use super::strings::{Constants, OwnedStr, Str};
use crate::lock::{prefixed, Effect, Effects, Event, KeyWrite, Locks, Mode};

/// Lets the core decide, under the settings in force.
pub fn decide<T>(body: impl FnOnce(&mut Locks, &mut Effects) -> T) -> (T, Effects) {
    let mut fx = Effects::new();
    let result = shell::with(|shell| {
        shell.locks.limits = settings::limits();
        shell.locks.set_grace(settings::grace());
        shell.locks.set_turns(settings::turns());
        shell.locks.sessions.rule = settings::sessions();
        shell.locks.detects_deadlocks = settings::deadlock_detect();
        body(&mut shell.locks, &mut fx)
    });
    (result, fx)
}

/// The same for a decision about so many keys: each has its list of effects.
pub fn decide_all<T>(
    keys: usize,
    body: impl FnOnce(&mut Locks, &mut [Effects]) -> T,
) -> (T, Vec<Effects>) {
    let mut all = vec![Effects::new(); keys];
    let (result, _) = decide(|locks, _| body(locks, &mut all));
    (result, all)
}

/// Carries out what the core decided in a command about this key: first the changes, in order, then,
/// with the key closed, the news of them. Others hear the news at once and may touch the key themselves.
pub fn apply(key: LockKey<'_>, fx: &[Effect]) {
    if !fx.is_empty() {
        let replication = Replication::of_command(key.ctx());
        carry_out(key, fx, replication);
    }
}

/// The same for what no command asked for.
pub fn apply_unasked(key: LockKey<'_>, fx: &[Effect]) {
    let replication = Replication::of_event(key.ctx());
    carry_out(key, fx, replication);
}

/// The same for a command about several keys: all of them are changed before the news of the first.
pub fn apply_all(keys: Vec<LockKey<'_>>, fx: &[Effects]) {
    let ctx = keys.first().map(LockKey::ctx);
    if let Some(ctx) = ctx.filter(|_| fx.iter().any(|fx| !fx.is_empty())) {
        carry_out_all(keys, fx, Replication::of_command(ctx));
    }
}

/// The same for several keys and what no command asked for.
pub fn apply_all_unasked(keys: Vec<LockKey<'_>>, fx: &[Effects]) {
    if let Some(ctx) = keys.first().map(LockKey::ctx) {
        carry_out_all(keys, fx, Replication::of_event(ctx));
    }
}

fn carry_out_all(mut keys: Vec<LockKey<'_>>, fx: &[Effects], replication: Replication) {
    for (key, fx) in keys.iter_mut().zip(fx) {
        change(key, fx, replication);
    }
    let names: Vec<_> = keys.iter().map(|key| (key.ctx(), key.name())).collect();
    drop(keys);
    for ((ctx, name), fx) in names.into_iter().zip(fx) {
        tell(ctx, name, fx, replication);
    }
}

fn carry_out(mut key: LockKey<'_>, fx: &[Effect], replication: Replication) {
    change(&mut key, fx, replication);
    let (ctx, name) = (key.ctx(), key.name());
    drop(key);
    tell(ctx, name, fx, replication);
}

fn change(key: &mut LockKey<'_>, fx: &[Effect], replication: Replication) {
    guard::weak_spot("apply");
    let ctx = key.ctx();
    for effect in fx {
        match effect {
            Effect::Horizon(domain, horizon) => {
                fence::write_horizon(ctx, *domain, *horizon, replication);
            }
            Effect::Counter(token) => fence::write_counter(key, *token, replication),
            Effect::Write(change) => key.write(change, replication),
            Effect::Answer(waiter, outcome) => Parked::answer(*waiter, outcome.clone()),
            Effect::Notify(_) | Effect::Publish | Effect::PublishReadWrite(_) => {}
        }
    }
}

fn tell(ctx: Ctx, name: Str<'_>, fx: &[Effect], replication: Replication) {
    // What had run out is told of as expired, and not as deleted as well.
    let has_run_out = || fx.contains(&Effect::Notify(Event::KeyExpired));
    for effect in fx {
        match effect {
            Effect::Write(KeyWrite::Delete) if !has_run_out() => {
                events::tell_of_deletion(ctx, name);
            }
            Effect::Notify(Event::KeyExpired) => events::tell_of_expiry(ctx, name),
            Effect::Notify(event) => {
                ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, event.name(), name);
            }
            Effect::Publish if settings::publish() => {
                // Redisson's waiters listen on the lock's channel for `0`.
                let channel = listeners::channel_of(name.bytes());
                publish_to(ctx, channel.as_str(), Constants::released(), replication);
            }
            Effect::PublishReadWrite(ended) if settings::publish() => {
                // After readers `0`, after a writer `1`.
                let channel = prefixed("redisson_rwlock", name.bytes());
                let message = match ended {
                    Mode::Write => Constants::one(),
                    _ => Constants::released(),
                };
                publish_string(ctx, &channel, message, replication);
            }
            _ => {}
        }
    }
}

/// Publishes a message of Redisson's to its clients.
pub fn publish(ctx: Ctx, channel: &[u8], message: &[u8], replication: Replication) {
    let message = OwnedStr::new(message);
    publish_string(ctx, channel, message.as_str(), replication);
}

fn publish_string(ctx: Ctx, channel: &[u8], message: Str<'_>, replication: Replication) {
    publish_to(ctx, OwnedStr::new(channel).as_str(), message, replication);
}

fn publish_to(ctx: Ctx, channel: Str<'_>, message: Str<'_>, replication: Replication) {
    if shell::is_cluster() {
        ctx.publish_in_cluster(channel, message);
    } else {
        ctx.publish(channel, message);
        replication.publish(channel, message);
    }
}
