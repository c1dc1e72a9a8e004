//! The two steps of every event: the core decides, then the shell carries out the effects.

use std::ffi::CStr;

use redis_module::raw;

use crate::lock::{
    CountChange, Cx, Effect, Effects, Event, KeyRef, KeyWrite, LockError, Locks, Mode, Now,
    PermitChange, SemState, SemView,
};
use crate::module::answers::{self, Pending};
use crate::module::ffi::api::{Refused, Written};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::keyspace::count_key::CountKey;
use crate::module::keyspace::horizon;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::replication::Replication;
use crate::module::keyspace::sem_key::SemKey;
use crate::module::state::constants::{constants, is_cluster};
use crate::module::state::settings;
use crate::module::state::shell;
use crate::module::subscribers::{self, LOCK_CHANNEL, READ_WRITE_CHANNEL, SEMAPHORE_CHANNEL};
use crate::module::tickets;

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

/// Carries out a command's decision about this key: first the changes, in order, then, with the key closed, the
/// answers, events and messages. Receivers of events run at once and may change the key.
///
/// # Errors
/// When the server refuses a change: see [`refused`].
pub fn apply(key: LockKey<'_>, fx: &[Effect]) -> Result<(), LockError> {
    if fx.is_empty() {
        return Ok(());
    }
    let replication = Replication::of_command(key.ctx());
    carry_out(key, fx, replication)
}

/// [`apply`] for a decision that no command requested.
pub fn apply_for_event(key: LockKey<'_>, fx: &[Effect]) {
    let replication = Replication::of_event(key.ctx());
    // A refusal is counted and logged; no client waits for a reply.
    let _ = carry_out(key, fx, replication);
}

/// [`apply`] for a command about several keys: all of them are changed before the first event is sent.
///
/// # Errors
/// When the server refuses a change: see [`refused`].
pub fn apply_all(keys: Vec<LockKey<'_>>, fx: &[Effects]) -> Result<(), LockError> {
    let ctx = keys.first().map(LockKey::ctx);
    match ctx.filter(|_| fx.iter().any(|fx| !fx.is_empty())) {
        Some(ctx) => carry_out_all(keys, fx, Replication::of_command(ctx)),
        None => Ok(()),
    }
}

/// [`apply_all`] for a decision that no command requested.
pub fn apply_all_for_event(keys: Vec<LockKey<'_>>, fx: &[Effects]) {
    if let Some(ctx) = keys.first().map(LockKey::ctx) {
        let _ = carry_out_all(keys, fx, Replication::of_event(ctx));
    }
}

fn carry_out_all(
    mut keys: Vec<LockKey<'_>>,
    fx: &[Effects],
    replication: Replication<'_>,
) -> Result<(), LockError> {
    let Some((ctx, db)) = keys.first().map(|key| (key.ctx(), key.id().db)) else {
        return Ok(());
    };
    let names: Vec<_> = keys.iter().map(LockKey::name).collect();
    let pending: Vec<_> = fx.iter().map(|fx| Pending::new(ctx, fx)).collect();
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
            drop(keys);
            let error = refused(ctx, db, &names, what);
            pending.into_iter().for_each(|pending| pending.fail(&error));
            return Err(error);
        }
    }
    pending.into_iter().for_each(Pending::note);
    drop(keys);
    for (name, fx) in names.into_iter().zip(fx) {
        announce(ctx, name, fx, replication);
    }
    Ok(())
}

fn carry_out(
    mut key: LockKey<'_>,
    fx: &[Effect],
    replication: Replication<'_>,
) -> Result<(), LockError> {
    let (ctx, name, db) = (key.ctx(), key.name(), key.id().db);
    let pending = Pending::new(ctx, fx);
    if fault::is_on("waiter-told-before-the-write") {
        answers::note_all(ctx, fx);
    }
    let changed = change(&mut key, fx, replication);
    drop(key);
    if let Err(what) = changed {
        let error = refused(ctx, db, &[name], what);
        pending.fail(&error);
        return Err(error);
    }
    pending.note();
    if fx.iter().any(Effect::is_news) {
        announce(ctx, name, fx, replication);
    }
    Ok(())
}

/// Makes the changes in order. If the server refuses one, the earlier ones are undone, so that no hold of them stays.
fn change(key: &mut LockKey<'_>, fx: &[Effect], replication: Replication<'_>) -> Written {
    fault::trip("apply");
    let ctx = key.ctx();
    for (at, effect) in fx.iter().enumerate() {
        let written = match effect {
            Effect::Horizon(domain, horizon) => {
                horizon::write_horizon(ctx, *domain, *horizon, replication)
            }
            Effect::Counter(token) => horizon::write_counter(key, *token, replication),
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
fn roll_back(key: &mut LockKey<'_>, fx: &[Effect], replication: Replication<'_>) {
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
            Effect::Notify(Event::KeyExpired) => notify_expiry(ctx, name),
            Effect::Notify(event) => {
                ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, event.name(), name);
            }
            Effect::Publish | Effect::PublishShorter(Mode::Exclusive) if settings::publish() => {
                // Redisson's waiters subscribe to the lock's channel and expect `0`.
                let channel = subscribers::channel_of(LOCK_CHANNEL, name.bytes());
                publish_to(ctx, channel.as_str(), constants().released(), replication);
            }
            Effect::PublishReadWrite(ended) | Effect::PublishShorter(ended)
                if settings::publish() =>
            {
                // After readers `0`, after a writer `1`.
                let channel = subscribers::channel_of(READ_WRITE_CHANNEL, name.bytes());
                let constants = constants();
                let message = match ended {
                    Mode::Write => constants.one(),
                    _ => constants.released(),
                };
                publish_to(ctx, channel.as_str(), message, replication);
            }
            _ => {}
        }
    }
}

/// Publishes one of Redisson's messages to its clients.
pub fn publish(ctx: Ctx<'_>, channel: &[u8], message: &[u8], replication: Replication<'_>) {
    let (channel, message) = (OwnedStr::new(channel), OwnedStr::new(message));
    publish_to(ctx, channel.as_str(), message.as_str(), replication);
}

/// The same, with the server's strings.
pub fn publish_to(ctx: Ctx<'_>, channel: Str<'_>, message: Str<'_>, replication: Replication<'_>) {
    if fault::is_on("redisson-not-told") {
        return;
    }
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

impl<'a> SemKey<'a> {
    /// The view for a decision that may grant a permit.
    pub fn minting_view(&self, own: Option<Str<'_>>, now: Now) -> SemView<'a> {
        tickets::ask(self.ctx(), self.id(), 1, now);
        let mut view = self.plain_view(own, now);
        let both_there = matches!(&view.state, SemState::There(permits) if permits.taken > 0);
        let may_grant = horizon::may_mint(self.ctx(), view.domain, both_there);
        view.may_grant = Some(may_grant);
        view.has_subscriber = subscribers::has_relevant_subscriber(self.ctx(), view.key, now);
        view
    }

    /// The view for a decision that may hand off permits: with what a token needs if there is a waiter.
    pub fn hand_off_view(&self, own: Option<Str<'_>>, now: Now) -> SemView<'a> {
        if shell::with(|shell| shell.locks.shared.waiters.live_queue(self.id()).is_some()) {
            self.minting_view(own, now)
        } else {
            self.plain_view(own, now)
        }
    }

    /// Makes a change, replicates it, and then, with the keys closed, sends its events and message.
    ///
    /// # Errors
    /// When the server refuses the change: see [`refused`].
    pub fn apply(
        mut self,
        change: &PermitChange,
        fx: &[Effect],
        replication: Replication<'_>,
    ) -> Result<(), LockError> {
        if change.is_empty() && fx.is_empty() {
            return Ok(());
        }
        let pending = Pending::new(self.ctx(), fx);
        fault::trip("apply");
        let (ctx, db, name) = (self.ctx(), self.id().db, self.name());
        if let Err(what) = self.carry_out(change, fx, replication) {
            drop(self);
            let error = refused(ctx, db, &[name], what);
            pending.fail(&error);
            return Err(error);
        }
        pending.note();
        drop(self);
        for effect in fx {
            if let Effect::Notify(event) = effect {
                ctx.notify(raw::REDISMODULE_NOTIFY_MODULE, event.name(), name);
            }
        }
        let published = change.publish.or(change.is_shorter.then_some(1));
        if let Some(free) = published.filter(|_| settings::publish()) {
            let channel = subscribers::channel_of(SEMAPHORE_CHANNEL, name.bytes());
            let message = OwnedStr::of_number(free);
            publish_to(ctx, channel.as_str(), message.as_str(), replication);
        }
        Ok(())
    }
}

/// The prefix of the name of a latch's channel.
const LATCH_CHANNEL: &[u8] = b"redisson_countdownlatch__channel__";

impl CountKey<'_> {
    /// Lets the core decide about a latch, and carries out the effects.
    ///
    /// # Errors
    /// Those of the core; then nothing was changed. When the server refuses the change: see [`refused`].
    pub fn decide<T>(
        self,
        now: Now,
        body: impl FnOnce(&mut Locks, &mut Cx<'_>) -> Result<(T, CountChange), LockError>,
    ) -> Result<T, LockError> {
        let replication = Replication::of_command(self.ctx());
        let (decided, fx) = decide(now, body);
        let (answer, change) = decided?;
        let pending = Pending::new(self.ctx(), &fx);
        fault::trip("apply");
        let (ctx, db, name) = (self.ctx(), self.id().db, self.name());
        let written = self.change(change, replication);
        if let Err(what) = written {
            let error = refused(ctx, db, &[name], what);
            pending.fail(&error);
            return Err(error);
        }
        pending.note();
        Ok(answer)
    }

    /// Makes the change of a latch's key, and then, with the key closed, sends its event and message.
    fn change(mut self, change: CountChange, replication: Replication<'_>) -> Written {
        let message = match change {
            CountChange::None => return Ok(()),
            CountChange::Set(count) => return self.set(count, false, replication),
            CountChange::Make(count) => {
                self.set(count, true, replication)?;
                b"1"
            }
            CountChange::Open => {
                self.delete(replication)?;
                b"0"
            }
        };
        let (ctx, name) = (self.ctx(), self.name());
        drop(self);
        if change == CountChange::Open {
            ctx.notify(raw::REDISMODULE_NOTIFY_GENERIC, c"del", name);
        }
        if settings::publish() {
            let channel = [LATCH_CHANNEL, b"{", name.bytes(), b"}"].concat();
            publish(ctx, &channel, message, replication);
        }
        Ok(())
    }
}
