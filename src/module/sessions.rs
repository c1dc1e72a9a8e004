//! Holds that are bound to connections: the end of a connection, and the renewals until then.
//!
//! The server tells of every connection that ends, whatever ended it: closed or reset by the client, killed,
//! timed out, its output buffer full. It does so at the beginning of `freeClient`, before it looks at what
//! the client is blocked on. The first hundred holds are released in that very event, the rest by the alarm,
//! a little in every turn.
//!
//! Not inside the callback itself, though: what changes there counts as a change by the command that is
//! under way, and a `CLIENT KILL` that has changed something is sent to replicas and the AOF as a write
//! would be, where it kills whoever has that id. Redis has a hook for such work from 7.2 on: a job that it does
//! as soon as the present unit of execution is over, before it looks at the dying client any further where
//! nobody's command ends it, else behind that command, its transaction or its script. It has a context of its
//! own, and what it changes is replicated by itself. Redis 7.0 has no such hook, and Valkey 8.1 leaves the
//! client whose command is under way in the database of the last key event that was sent meanwhile: there all
//! is left to the alarm, at the end of the turn. So is what a server that refuses writes puts off.
//!
//! The server does not know of jobs when a module is unloaded. It refuses while a timer is armed, so the alarm
//! stays armed as long as a job is to be done.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use redis_module::raw;
use smallvec::SmallVec;

use crate::lock::{
    Bound, BoundKind, BoundRef, Effects, Ending, LockError, Mode, Now, ReadDepth, View,
};
use crate::module::alarm::{self, RETRY_MS};
use crate::module::api::has;
use crate::module::apply::{apply, apply_unasked, decide};
use crate::module::ctx::Ctx;
use crate::module::events;
use crate::module::fence;
use crate::module::guard;
use crate::module::key::{name_of, LockKey};
use crate::module::sem_sessions;
use crate::module::shell;
use crate::module::strings::{OwnedStr, Str};

/// Holds released at once when their connection ends; more wait for the alarm.
const AT_ONCE: usize = 100;

/// How long one turn may be busy with holds that are bound, half of it with renewals.
const TICK_BUDGET: Duration = Duration::from_millis(2);

/// Renewals in one turn.
const RENEWALS_PER_TICK: usize = 500;

/// So many may be refused in one turn before all wait for the next.
const REFUSALS_PER_TICK: usize = 50;

/// What is to be done with a bound hold.
#[derive(Clone, Copy)]
pub enum Duty {
    /// Its connection has gone.
    Release,
    /// Its lease is to be renewed.
    Renew,
}

/// Prepares for `SESSION`: from now on the module watches the ends of connections.
///
/// # Errors
/// [`LockError::Internal`] where the server refuses.
pub fn prepare(ctx: Ctx) -> Result<(), LockError> {
    events::watch_clients(ctx).ok_or(LockError::Internal)
}

/// The server's event of a client that comes or goes.
///
/// # Safety
/// Called by the server only, for that event, on its main thread.
pub unsafe extern "C" fn on_client_event(
    raw_ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    if subevent != raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
        return;
    }
    // SAFETY: the server's context for this callback, and for this event the data is a client's info; both
    // live through the callback.
    let (ctx, client) = unsafe {
        let info = &*data.cast::<raw::RedisModuleClientInfo>();
        (Ctx::new(raw_ctx), info.id)
    };
    if guard::entry("client-gone", || disconnected(ctx, client)).is_none() {
        // Holds of a connection that has gone must not be renewed for ever.
        guard::entry("client-gone-again", || {
            shell::with(|shell| shell.locks.disconnected(client, ctx.now()));
        });
    }
}

/// A connection has gone; the context is the dying client's own.
fn disconnected(ctx: Ctx, client: u64) {
    if shell::with(|shell| shell.locks.sessions.clients() == 0) {
        return;
    }
    let now = ctx.now();
    if shell::with(|shell| shell.locks.disconnected(client, now)) {
        guard::weak_spot("session-end");
        // First the timer: see above.
        alarm::rearm(ctx);
        schedule(ctx);
    }
}

/// Whether work can be left for the end of the present unit of execution.
pub fn has_jobs(ctx: Ctx) -> bool {
    has!(RedisModule_AddPostNotificationJob) && !ctx.is_valkey()
}

/// Has the first holds released as soon as the present unit of execution is over, where the server can do
/// that.
fn schedule(ctx: Ctx) {
    if shell::with(|shell| shell.alarm.job || !shell.has_jobs) {
        return;
    }
    // SAFETY: a pointer that is written once, at load.
    let Some(add) = (unsafe { raw::RedisModule_AddPostNotificationJob }) else {
        return;
    };
    // SAFETY: the context is live and of this module; the callback takes no data.
    let added = unsafe { add(ctx.as_ptr(), Some(on_job), null_mut(), None) };
    shell::with(|shell| shell.alarm.job = added == raw::REDISMODULE_OK as c_int);
}

/// The present unit of execution is over.
unsafe extern "C" fn on_job(raw_ctx: *mut raw::RedisModuleCtx, _data: *mut c_void) {
    // SAFETY: the server's context for this callback.
    let ctx = unsafe { Ctx::new(raw_ctx) };
    guard::entry("session-job", || {
        shell::with(|shell| shell.alarm.job = false);
        if ctx.may_write() {
            release_ended(ctx, AT_ONCE, || false);
        }
        alarm::rearm(ctx);
    });
}

/// The owner asks about a hold whose connection has gone and that is still to be released: first it is.
pub fn end_first(ctx: Ctx, name: Str<'_>, owner: Str<'_>) {
    // Nearly always nothing is: every command comes by here.
    if !shell::with(|shell| shell.locks.sessions.has_ended()) {
        return;
    }
    let ended: SmallVec<[_; 1]> = shell::with(|shell| {
        let modes = [Mode::Exclusive, Mode::Read, Mode::Write].into_iter();
        modes
            .filter_map(|mode| {
                let what = BoundRef::lock(mode, events::id(ctx, name), owner.bytes());
                shell.locks.sessions.ended(what)
            })
            .collect()
    });
    for bound in ended.into_iter().filter(|_| ctx.may_write()) {
        // The server has let the command through, so it would take a write to this key.
        let key = LockKey::open(ctx, name);
        let view = fence::handing_view(&key, key.read(), &Ending::Session(&bound));
        let fx = decide_on(&bound, Duty::Release, &view, ctx.now());
        let _ = apply(key, &fx);
    }
}

/// A turn's work, on a server that may write.
pub fn work(ctx: Ctx) {
    let start = Instant::now();
    let renewed = renew_due(ctx, || start.elapsed() >= TICK_BUDGET / 2);
    let released = release_ended(ctx, usize::MAX, || start.elapsed() >= TICK_BUDGET);
    if !(renewed && released) {
        let now = ctx.now();
        shell::with(|shell| shell.alarm.sessions_at_ms = now.mono_ms + RETRY_MS);
    }
}

/// Renews what is due. False when the server refuses, and it is not worth asking again at once.
fn renew_due(ctx: Ctx, is_late: impl Fn() -> bool) -> bool {
    let mut refused = 0;
    for _ in 0..RENEWALS_PER_TICK {
        let now = ctx.now();
        let next = || shell::with(|shell| shell.locks.sessions.next_renewal(now));
        let Some(bound) = (refused < REFUSALS_PER_TICK && !is_late())
            .then(next)
            .flatten()
        else {
            break;
        };
        if !attend(ctx, &bound, Duty::Renew) {
            refused += 1;
            shell::with(|shell| {
                let sessions = &mut shell.locks.sessions;
                sessions.put_off_renewal(bound.as_ref().as_ref(), now, RETRY_MS);
            });
        }
    }
    refused < REFUSALS_PER_TICK
}

/// Releases what connections that have gone have left, so many at most. False as above.
fn release_ended(ctx: Ctx, at_most: usize, is_late: impl Fn() -> bool) -> bool {
    let mut refused = Vec::new();
    let mut others_left = true;
    for _ in 0..at_most {
        if is_late() || refused.len() >= REFUSALS_PER_TICK {
            break;
        }
        let Some(bound) = shell::with(|shell| shell.locks.sessions.next_ended()) else {
            others_left = false;
            break;
        };
        if !attend(ctx, &bound, Duty::Release) {
            refused.push(bound);
        }
    }
    let ask_again = refused.is_empty() || (others_left && refused.len() < REFUSALS_PER_TICK);
    shell::with(|shell| shell.locks.sessions.put_off_ended(&refused));
    ask_again
}

/// Does what is due with one hold. False when the server refuses writes to its key just now.
fn attend(ctx: Ctx, bound: &Bound, duty: Duty) -> bool {
    match bound.kind {
        BoundKind::Lock(_) => attend_lock(ctx, bound, duty),
        BoundKind::Permit => sem_sessions::attend(ctx, bound, duty),
    }
}

fn attend_lock(ctx: Ctx, bound: &Bound, duty: Duty) -> bool {
    let name = name_of(&bound.key);
    let name = name.as_str();
    ctx.select(bound.key.as_ref().db);
    let now = ctx.now();
    let owner = OwnedStr::new(&bound.owner);
    let open = || LockKey::open_for(ctx, name, owner.as_str());
    let depth = match duty {
        Duty::Release => ReadDepth::Two,
        Duty::Renew => ReadDepth::Own,
    };
    let mut key = open();
    let mut state = key.read_to(depth, now);
    if !fence::siblings_are_here(&key, &state) {
        return false;
    }
    if shell::with(|shell| shell.locks.is_bound_hold(bound, &state, now)) {
        // Asked with the key closed, as in the alarm.
        drop(key);
        if !ctx.probe_write(name) {
            return false;
        }
        key = open();
        state = key.read_to(depth, now);
    }
    let view = match duty {
        Duty::Release => fence::handing_view(&key, state, &Ending::Session(bound)),
        Duty::Renew => fence::plain_view(&key, state),
    };
    let fx = decide_on(bound, duty, &view, now);
    apply_unasked(key, &fx);
    true
}

fn decide_on(bound: &Bound, duty: Duty, view: &View<'_>, now: Now) -> Effects {
    let ((), fx) = decide(|locks, fx| match duty {
        Duty::Release => locks.end_session(view, bound, now, fx),
        Duty::Renew => locks.renew_session(view, bound, now, fx),
    });
    fx
}
