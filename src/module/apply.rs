//! The two steps of every event: the core decides, then the shell carries out the effects.

use std::ffi::CStr;

use redis_module::raw;
use smallvec::SmallVec;

use crate::lock::{
    CountChange, Cx, Effect, Effects, Event, KeyRef, KeyWrite, LockError, Locks, Message, Mode, Now,
};
use crate::module::answers::{self, Pending};
use crate::module::ffi::api::{Refused, Written};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::horizon;
use crate::module::keyspace::key::Key;
use crate::module::keyspace::replication::Replication;
use crate::module::state::constants::{constants, is_cluster};
use crate::module::state::settings;
use crate::module::state::shell;
use crate::module::subscribers::{self, LOCK_CHANNEL, READ_WRITE_CHANNEL, SEMAPHORE_CHANNEL};

/// Lets the core decide.
#[must_use = "the effects are to be carried out: waiters are among them"]
pub fn decide<T>(now: Now, body: impl FnOnce(&mut Locks, &mut Cx<'_>) -> T) -> (T, Effects) {
    let mut fx = Effects::new();
    let result = shell::with(|shell| body(&mut shell.locks, &mut Cx::new(now, &mut fx)));
    (result, fx)
}

/// [`decide`] about several keys, with a list of effects for each.
#[must_use = "the effects are to be carried out: waiters are among them"]
pub fn decide_all<T>(
    keys: usize,
    now: Now,
    body: impl FnOnce(&mut Locks, &mut [Effects]) -> T,
) -> (T, Vec<Effects>) {
    let mut all = vec![Effects::new(); keys];
    let (result, _) = decide(now, |locks, _| body(locks, &mut all));
    (result, all)
}

/// Carries out a command's decision about these keys, with as many lists of effects, in the order of the keys: first
/// the changes, then, with the keys closed, the answers, events and messages. Receivers of events run at once and may
/// change the keys.
///
/// # Errors
/// When the server refuses a change: see [`refused`].
pub fn apply<'a, K: Key<'a>>(keys: impl AsMut<[K]>, fx: &[Effects]) -> Result<(), LockError> {
    match fx.iter().all(|fx| fx.is_empty()) {
        true => Ok(()),
        false => carry_out(keys, fx, Replication::of_command),
    }
}

/// [`apply`] for a decision that no command requested.
pub fn apply_for_event<'a, K: Key<'a>>(keys: impl AsMut<[K]>, fx: &[Effects]) {
    // A refusal is counted and logged; no client waits for a reply.
    let _ = carry_out(keys, fx, Replication::of_event);
}

fn carry_out<'a, K: Key<'a>>(
    mut keys: impl AsMut<[K]>,
    fx: &[Effects],
    replication_in: fn(Ctx<'a>) -> Replication<'a>,
) -> Result<(), LockError> {
    let open = keys.as_mut();
    let Some((ctx, db)) = open.first().map(|key| (key.ctx(), key.id().db)) else {
        return Ok(());
    };
    let replication = replication_in(ctx);
    let names: SmallVec<[Str<'a>; 1]> = open.iter().map(K::name).collect();
    let pending = Pending::new(ctx, fx);
    if fault::is_on("waiter-told-before-the-write") {
        fx.iter().for_each(|fx| answers::note_all(ctx, fx));
    }
    let changed = change_all(open, fx, replication);
    drop(keys);
    if let Err(what) = changed {
        let error = refused(ctx, db, &names, what);
        pending.fail(&error);
        return Err(error);
    }
    pending.note();
    for (name, fx) in names.into_iter().zip(fx) {
        if fx.iter().any(Effect::is_news) {
            announce(ctx, name, fx, replication);
        }
    }
    Ok(())
}

/// Makes the changes of each key. If the server refuses one, those of the keys before are undone too.
fn change_all<'a>(
    keys: &mut [impl Key<'a>],
    fx: &[Effects],
    replication: Replication<'_>,
) -> Written {
    for at in 0..keys.len().min(fx.len()) {
        let (done, rest) = keys.split_at_mut(at);
        let (Some(key), Some(own)) = (rest.first_mut(), fx.get(at)) else {
            break;
        };
        if let Err(what) = change(key, own, replication) {
            let stays = fault::is_on("half-of-a-macquire-stays");
            for (key, fx) in done.iter_mut().zip(fx).filter(|_| !stays) {
                roll_back(key, fx, replication);
            }
            return Err(what);
        }
    }
    Ok(())
}

/// Makes the changes in order. If the server refuses one, the earlier ones are undone, so that no hold of them stays.
fn change<'a>(key: &mut impl Key<'a>, fx: &[Effect], replication: Replication<'_>) -> Written {
    fault::trip("apply");
    let ctx = key.ctx();
    for (at, effect) in fx.iter().enumerate() {
        let written = match effect {
            Effect::Horizon(domain, horizon) => {
                horizon::write_horizon(ctx, *domain, *horizon, replication)
            }
            Effect::Counter(token) => horizon::write_counter(ctx, key.name(), *token, replication),
            Effect::Write(change) => key.write(change, replication),
            _ => continue,
        };
        if written.is_err() {
            roll_back(key, fx.get(..at).unwrap_or_default(), replication);
            return written;
        }
    }
    Ok(())
}

/// Undoes the changes before a refused one, the last one first.
#[cold]
fn roll_back<'a>(key: &mut impl Key<'a>, fx: &[Effect], replication: Replication<'_>) {
    let change_at = |at: usize| match fx.get(at) {
        Some(Effect::Write(change)) => Some(change),
        _ => None,
    };
    for at in (0..fx.len()).rev() {
        if let Some(change) = change_at(at) {
            let before = at.checked_sub(1).and_then(change_at);
            key.roll_back(change, before, replication);
        }
    }
}

/// Handles a refused write, which no server is known to cause: the key was opened and read before. The keys are the
/// truth: the caller gets the returned error, and so do the waiters that have left the queue with this decision; all
/// keys with waiters are read again. For a horizon of another type, which the module itself refuses, the error says so.
#[cold]
pub fn refused(ctx: Ctx<'_>, db: i32, names: &[Str<'_>], what: Refused) -> LockError {
    let error = match what == horizon::FOREIGN_HORIZON {
        true => LockError::HorizonForeign,
        false => {
            shell::note_refusal(what);
            LockError::NotWritten
        }
    };
    shell::with(|shell| {
        for name in names {
            let name = name.bytes();
            shell.locks.schedule_recheck(KeyRef::lock(db, name));
        }
    });
    shell::recover(ctx.now(), &error);
    error
}

/// Sends the events and messages of a decision.
fn announce(ctx: Ctx<'_>, name: Str<'_>, fx: &[Effect], replication: Replication<'_>) {
    // A key whose TTL was over has an event `expired`, and not `del` as well.
    let has_run_out = || fx.contains(&Effect::Notify(Event::KeyExpired));
    for effect in fx {
        match effect {
            Effect::Write(KeyWrite::Delete) if !has_run_out() => {
                notify_deletion(ctx, name);
            }
            Effect::Write(KeyWrite::Count(CountChange::Delete)) => {
                ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"del", name);
            }
            Effect::Notify(Event::KeyExpired) => notify_expiry(ctx, name),
            Effect::Notify(event) => {
                ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, event.name(), name);
            }
            Effect::Redisson(message) if settings::publish() => {
                publish(ctx, name, *message, replication);
            }
            _ => {}
        }
    }
}

/// Publishes a message to Redisson's clients.
fn publish(ctx: Ctx<'_>, name: Str<'_>, message: Message, replication: Replication<'_>) {
    if fault::is_on("redisson-not-told") {
        return;
    }
    let number;
    let constants = constants();
    let (released, one) = (constants.released.as_str(), constants.one.as_str());
    let of = |prefix| subscribers::channel_of(prefix, name.bytes());
    let (channel, message) = match message {
        Message::Free(mode) | Message::Shorter(mode) => match mode {
            // Redisson's waiters subscribe to the lock's channel and expect `0`.
            Mode::Exclusive => (of(LOCK_CHANNEL), released),
            // After readers `0`, after a writer `1`.
            Mode::Read => (of(READ_WRITE_CHANNEL), released),
            Mode::Write => (of(READ_WRITE_CHANNEL), one),
        },
        Message::Permits(free) => {
            number = OwnedStr::of_number(free.unwrap_or(1));
            (of(SEMAPHORE_CHANNEL), number.as_str())
        }
        Message::Latch { is_open } => {
            let text = if is_open { released } else { one };
            (subscribers::latch_channel(name.bytes()), text)
        }
    };
    let channel = channel.as_str();
    if is_cluster() {
        ctx.publish_in_cluster(channel, message);
    } else {
        ctx.publish(channel, message);
        replication.publish(channel, message);
    }
}

/// Sends the event that the module has deleted a key. The module receives it too, and does not count the lock as lost,
/// even if it has a waiter that could not be granted it yet.
fn notify_deletion(ctx: Ctx<'_>, key: Str<'_>) {
    notify_own(ctx, raw::REDISMODULE_NOTIFY_GENERIC, c"del", key);
}

/// Sends the event that a key's TTL was over, for a key that the module has deleted before the server did. When the
/// module receives it too, the lock is held again.
fn notify_expiry(ctx: Ctx<'_>, key: Str<'_>) {
    let event = Event::KeyExpired.name();
    notify_own(ctx, raw::REDISMODULE_NOTIFY_EXPIRED, event, key);
}

fn notify_own(ctx: Ctx<'_>, class: i32, event: &CStr, key: Str<'_>) {
    shell::with(|shell| shell.notifies_own = true);
    ctx.notify(class, event, key);
    shell::with(|shell| shell.notifies_own = false);
}
