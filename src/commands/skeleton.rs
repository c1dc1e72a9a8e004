//! The steps that commands have in common.
//!
//! Every command runs in the same order: parse, check permissions, open the key, make the view, *decide* (the core),
//! *apply* (the shell), *rearm* the timer, reply. These functions do the steps from *decide* on:
//!
//! | Function | For a command that | Used by |
//! |---|---|---|
//! | [`acquire`], [`end_acquire`] | may wait | `LOCK.ACQUIRE`, `SEM.ACQUIRE`, `LATCH.WAIT`; `LOCK.MACQUIRE` |
//! | [`change_key`] | changes one key | `RELEASE`, `LOCK.BREAK`, `SEM.RENEW`, `LATCH.*` |
//! | [`change_confirmed`] | may succeed without a write | `LOCK.RENEW`, `LOCK.BREAK ... TO`, `SEM.SET` |
//! | [`change_locks`] | changes several locks | `LOCK.MRELEASE`, `LOCK.MRENEW` |
//! | [`end_waits`] | ends waits, and writes nothing | `FINAL`, `LOCK.BREAK ... PURGE` |
//!
//! The others are the steps before: [`request`], [`is_given_up`], [`end_first`], [`open_lock`], [`view_to_grant`].

use std::slice;

use smallvec::SmallVec;

use crate::commands::options::{NotifyWords, Options};
use crate::lock::{
    Acquire, Answer, Cx, Effect, Effects, KeyRef, KeyState, LockError, Locks, Mode, Now, Planned,
    Resource, View, Wait, WaiterId,
};
use crate::module::acl;
use crate::module::answers;
use crate::module::apply::{apply, decide, decide_all};
use crate::module::entry::alarm;
use crate::module::entry::clients;
use crate::module::entry::events;
use crate::module::entry::parked;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::horizon;
use crate::module::keyspace::key::Key;
use crate::module::keyspace::lock_key::LockKey;
use crate::module::keyspace::replication;
use crate::module::reply::Got;
use crate::module::sessions;
use crate::module::state::shell;
use crate::module::state::shell::Shape;
use crate::module::tickets;
use crate::module::users;
use crate::module::view::view_for;

/// Decides about one key, applies the effects, and rearms. Effects of a refused request are applied too.
///
/// # Errors
/// The error of a refused write, then that of the decision.
#[inline]
pub fn change_key<'a, T>(
    ctx: Ctx<'a>,
    key: impl Key<'a>,
    now: Now,
    decision: impl FnOnce(&mut Locks, &mut Cx<'_>) -> Result<T, LockError>,
) -> Result<T, LockError> {
    change_confirmed(ctx, key, now, |_| false, decision)
}

/// [`change_key`] for a request that may succeed (`succeeds`) without a write, because what it asks for was so before.
/// A `WAIT` after it then waits until the replicas have that.
///
/// # Errors
/// See [`change_key`].
#[inline]
pub fn change_confirmed<'a, T>(
    ctx: Ctx<'a>,
    key: impl Key<'a>,
    now: Now,
    succeeds: impl FnOnce(&T) -> bool,
    decision: impl FnOnce(&mut Locks, &mut Cx<'_>) -> Result<T, LockError>,
) -> Result<T, LockError> {
    let (decided, fx) = decide(now, decision);
    end_change(ctx, [key], slice::from_ref(&fx), decided, succeeds)
}

/// [`change_confirmed`] for several locks, with one list of effects a key.
///
/// # Errors
/// See [`change_key`].
pub fn change_locks<T>(
    ctx: Ctx<'_>,
    keys: Vec<LockKey<'_>>,
    now: Now,
    succeeds: impl FnOnce(&T) -> bool,
    decision: impl FnOnce(&mut Locks, &mut [Effects]) -> Result<T, LockError>,
) -> Result<T, LockError> {
    let (decided, fx) = decide_all(keys.len(), now, decision);
    end_change(ctx, keys, &fx, decided, succeeds)
}

#[inline]
fn end_change<'a, K: Key<'a>, T>(
    ctx: Ctx<'a>,
    mut keys: impl AsMut<[K]>,
    fx: &[Effects],
    decided: Result<T, LockError>,
    succeeds: impl FnOnce(&T) -> bool,
) -> Result<T, LockError> {
    let name = keys.as_mut().first().map(K::name);
    apply(keys, fx)?;
    alarm::rearm(ctx);
    let decided = decided?;
    if succeeds(&decided) {
        confirm_unless_written(ctx, name, fx);
    }
    Ok(decided)
}

/// For a request that has succeeded, without a write: a `WAIT` after it waits for what was so before. One key is
/// enough, because replication keeps the order.
fn confirm_unless_written(ctx: Ctx<'_>, name: Option<Str<'_>>, fx: &[Effects]) {
    let is_unchanged = !fx.iter().flatten().any(Effect::is_write);
    if let Some(name) = name.filter(|_| is_unchanged) {
        replication::confirm(ctx, name);
    }
}

/// Decides about waits alone: nothing is written. Answers them, and rearms.
pub fn end_waits<T>(
    ctx: Ctx<'_>,
    now: Now,
    decision: impl FnOnce(&mut Locks, &mut Cx<'_>) -> T,
) -> T {
    let (ended, fx) = decide(now, decision);
    answers::note_all(ctx, &fx);
    alarm::rearm(ctx);
    ended
}

/// The end of a command whose request waits: a ticket's reply is `QUEUED`, and a client is blocked as the last step
/// (`None`: the reply comes later). Where the server refuses to block it, the request is withdrawn.
///
/// # Errors
/// [`LockError::Internal`] when the request was given up meanwhile.
fn wait<T>(
    ctx: Ctx<'_>,
    keys: &[Str<'_>],
    id: WaiterId,
    is_ticket: bool,
) -> Result<Option<Got<T>>, LockError> {
    events::watch(ctx);
    events::see(ctx, id);
    if is_ticket {
        return Ok(Some(Got::Queued));
    }
    Ok(match parked::block_on(ctx, keys, id)? {
        true => None,
        false => Some(Got::Nothing),
    })
}

/// How a request that may wait is answered.
#[derive(Clone, Copy)]
pub struct How {
    shape: Shape,
    is_ticket: bool,
}

impl How {
    /// With a reply of this shape.
    pub fn of(shape: Shape, request: &Acquire<'_>) -> How {
        let is_ticket = request.notify.is_some();
        How { shape, is_ticket }
    }
}

/// The last steps of an acquire of one key: decides, applies the effects, rearms, and replies or blocks the client.
///
/// # Errors
/// As [`end_acquire`].
#[inline]
pub fn acquire<'a, T>(
    ctx: Ctx<'a>,
    key: impl Key<'a>,
    how: How,
    now: Now,
    decision: impl FnOnce(&mut Locks, &mut Cx<'_>) -> Result<Answer<T>, LockError>,
    reply: impl FnOnce(Got<T>),
) -> Result<(), LockError> {
    let (answer, fx) = decide(now, decision);
    let decided = (answer, slice::from_ref(&fx));
    end_acquire(ctx, [key], decided, how, reply)
}

/// The end of a request to acquire these keys: makes the changes of the decision and replies, unless the client is
/// blocked.
///
/// # Errors
/// That of a refused change, that of the decision, then as [`wait`].
#[inline]
pub fn end_acquire<'a, K: Key<'a>, T>(
    ctx: Ctx<'a>,
    mut keys: impl AsMut<[K]>,
    (answer, fx): (Result<Answer<T>, LockError>, &[Effects]),
    how: How,
    reply: impl FnOnce(Got<T>),
) -> Result<(), LockError> {
    let new = NewWaiter::expect(ctx, &answer, how);
    let names: SmallVec<[Str<'a>; 1]> = keys.as_mut().iter().map(K::name).collect();
    apply(keys, fx)?;
    new.finish();
    alarm::rearm(ctx);
    let got = match answer? {
        Answer::Waits(id) => wait(ctx, &names, id, how.is_ticket)?,
        Answer::Refused => Some(Got::Nothing),
        Answer::Granted(granted) => {
            // To find a latch open is no grant.
            if how.shape != Shape::Latch {
                confirm_unless_written(ctx, names.first().copied(), fx);
            }
            Some(Got::Granted(granted))
        }
    };
    if let Some(got) = got {
        reply(got);
    }
    Ok(())
}

/// Whether the owner has given up this acquisition (`SEQ`) at any of these keys: a request for it grants nothing. To be
/// called for a request that is valid and permitted, because the reply may tell who holds the lock, and before the
/// first step that changes a key.
pub fn is_given_up<'k>(
    ctx: Ctx<'_>,
    keys: impl IntoIterator<Item = KeyRef<'k>>,
    owner: Str<'_>,
    seq: Option<u64>,
) -> bool {
    let Some(seq) = seq else {
        return false;
    };
    let (owner, now) = (owner.bytes(), ctx.now());
    let is_given_up = shell::with(|shell| {
        let finals = &mut shell.locks.shared.finals;
        keys.into_iter()
            .any(|key| finals.refuses(key, owner, seq, now))
    });
    is_given_up && !fault::is_on("late-request-served")
}

/// `FINAL`: notes that the owner gives up its acquisitions of this key up to this number, and ends its wait. Returns
/// whether there was one; `None`: nothing of the owner is to end.
pub fn give_up(ctx: Ctx<'_>, key: KeyRef<'_>, owner: Str<'_>, number: u64) -> Option<bool> {
    let user = users::who_gives_up(ctx);
    end_waits(ctx, ctx.now(), |locks, cx| {
        let whose = (key, owner.bytes());
        locks.shared.give_up(whose, (number, user), cx)
    })
}

/// What [`give_up`] noted has been carried out.
pub fn has_given_up(key: KeyRef<'_>, owner: Str<'_>) {
    shell::with(|shell| shell.locks.shared.finals.done(key, owner.bytes()));
}

/// A new waiter, if the request waits, whose changes are not carried out yet. If this value is dropped, by a refused
/// change or a panic, a ticket waits no more: its client reads an error. (The reply to a parked client is left to its
/// own callbacks.)
struct NewWaiter<'a> {
    ctx: Ctx<'a>,
    ticket: Option<WaiterId>,
}

impl<'a> NewWaiter<'a> {
    /// Notes that the calling client will be blocked for this request, unless it is a ticket.
    fn expect<T>(ctx: Ctx<'a>, answer: &Result<Answer<T>, LockError>, how: How) -> NewWaiter<'a> {
        let waiter = match answer {
            Ok(Answer::Waits(id)) => Some(*id),
            _ => None,
        };
        if let Some(id) = waiter.filter(|_| !how.is_ticket) {
            parked::expect(id, how.shape);
        }
        let ticket = waiter.filter(|_| how.is_ticket);
        NewWaiter { ctx, ticket }
    }

    /// The changes are made.
    fn finish(mut self) {
        self.ticket = None;
    }
}

impl Drop for NewWaiter<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.ticket {
            let now = self.ctx.now();
            shell::with(|shell| shell.locks.not_waiting(id, now));
        }
    }
}

/// The wait asked for, or none where the calling client cannot be parked. A ticket can wait everywhere but on a
/// replica, which grants nothing.
fn possible_wait(ctx: Ctx<'_>, wait: Wait, is_ticket: bool) -> Wait {
    match wait {
        Wait::No => Wait::No,
        wait if is_ticket && !ctx.is_replica() => wait,
        wait if !is_ticket && parked::is_possible(ctx) => wait,
        _ => Wait::No,
    }
}

/// The request of a command for these keys that may wait, or bind its hold. It does not wait if its client can neither
/// be parked nor names a channel.
///
/// # Errors
/// Those of [`prepare_session`] and [`tickets::check`].
pub fn request<'a>(
    ctx: Ctx<'_>,
    names: &[Str<'_>],
    owner: &'a [u8],
    options: &'a Options<Str<'_>>,
) -> Result<Acquire<'a>, LockError> {
    if options.session {
        prepare_session(ctx)?;
    }
    if let (Some(notify), [first, ..]) = (&options.notify, names) {
        tickets::check(ctx, *first, notify.channel)?;
    }
    let wait = possible_wait(ctx, options.wait, options.notify.is_some());
    Ok(Acquire {
        owner,
        mode: options.mode.unwrap_or(Mode::Exclusive),
        lease: options.lease,
        names_lease: options.names_lease,
        session: options.session,
        once: options.once,
        note: options.note_text(),
        count: options.permits,
        limit: options.limit,
        wait,
        queue: options.queue,
        notify: options.notify.as_ref().map(NotifyWords::request),
        client: ctx.client_id(),
        user: users::of_caller(ctx, wait, options.session),
    })
}

/// The view of a lock for a command that may make a token ([`view_for`]). The caller's user has to be permitted to
/// write Redisson's counter of the lock, if there is one: a grant does so, now or, where the request `waits`, later.
///
/// # Errors
/// [`LockError::MayNotWriteCounter`].
#[inline]
pub fn view_to_grant<'a>(
    key: &LockKey<'a>,
    state: KeyState,
    planned: &Planned<'_>,
    waits: bool,
    now: Now,
) -> Result<View<'a>, LockError> {
    let (ctx, name) = (key.ctx(), key.name().bytes());
    let view = view_for(key, state, planned, now);
    let is_there = match &view.fence {
        Some(fence) => fence.counter.is_some(),
        None => waits && horizon::read_counter(ctx, name).is_some(),
    };
    let counter = is_there.then(|| horizon::counter_name(name)).flatten();
    match counter.is_none_or(|counter| acl::may_write(ctx, &[counter.as_str()])) {
        true => Ok(view),
        false => {
            // The view may have passed over waiters.
            alarm::rearm(ctx);
            Err(LockError::MayNotWriteCounter)
        }
    }
}

/// Opens a lock for a command of this owner, and reads it. The owner's holds of connections that have ended are
/// released first.
///
/// # Errors
/// Those of `read`.
#[inline]
pub fn open_lock<'a>(
    ctx: Ctx<'a>,
    name: Str<'a>,
    owner: Str<'a>,
    read: impl FnOnce(&mut LockKey<'a>, Now) -> Result<KeyState, LockError>,
) -> Result<(LockKey<'a>, KeyState, Now), LockError> {
    end_first(ctx, Resource::Lock, name, owner);
    let mut key = LockKey::open_for(ctx, name, owner);
    let now = ctx.now();
    let state = read(&mut key, now)?;
    Ok((key, state, now))
}

/// Before a command of this owner: releases its holds whose connection has ended.
pub fn end_first(ctx: Ctx<'_>, resource: Resource, name: Str<'_>, owner: Str<'_>) {
    if sessions::end_first(ctx, resource, name, owner) {
        // The command itself may be refused before it changes anything.
        alarm::rearm(ctx);
    }
}

/// Prepares for `SESSION`: from now on the module watches the ends of connections.
///
/// # Errors
/// [`LockError::NoSession`] in a call without a connection.
fn prepare_session(ctx: Ctx<'_>) -> Result<(), LockError> {
    if !ctx.has_connection() {
        return Err(LockError::NoSession);
    }
    clients::prepare(ctx)
}

/// Whether a key that looks absent may be created. Within the transaction that paused writes an expired key is
/// hidden, not deleted: writing it ends the server (a plain `SET` does so too).
///
/// # Errors
/// [`LockError::TryAgain`].
pub fn may_create(ctx: Ctx<'_>) -> Result<(), LockError> {
    match ctx.is_paused() {
        true => Err(LockError::TryAgain),
        false => Ok(()),
    }
}
