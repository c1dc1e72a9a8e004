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

use redis_module::raw;

use crate::lock::LockError;
use crate::module::entry::{alarm, events};
use crate::module::ffi::api::has;
use crate::module::ffi::ctx::{Callback, Ctx};
use crate::module::ffi::{fault, guard};
use crate::module::sessions;
use crate::module::state::shell;

/// Holds released at once when their connection ends; more wait for the alarm.
const AT_ONCE: usize = 100;

/// Prepares for `SESSION`: from now on the module watches the ends of connections.
///
/// # Errors
/// [`LockError::Internal`] where the server refuses.
pub fn prepare(ctx: Ctx<'_>) -> Result<(), LockError> {
    watch_clients(ctx).ok_or(LockError::Internal)
}

/// Subscribes, once, to clients that come and go: nobody pays for that before the first hold is bound to one.
fn watch_clients(ctx: Ctx<'_>) -> Option<()> {
    if !shell::with(|shell| shell.watching_clients) {
        let id = raw::REDISMODULE_EVENT_CLIENT_CHANGE;
        events::subscribe_with(ctx, id, Some(on_client_event))?;
        let has_jobs = has_jobs(ctx);
        shell::with(|shell| (shell.watching_clients, shell.has_jobs) = (true, has_jobs));
    }
    Some(())
}

/// The server's event of a client that comes or goes.
///
/// # Safety
/// Called by the server only, for that event, on its main thread.
unsafe extern "C" fn on_client_event(
    raw_ctx: *mut raw::RedisModuleCtx,
    _event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    if subevent != raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
        return;
    }
    // SAFETY: the server's context for this callback; the local value ends with it.
    let callback = unsafe { Callback::new(raw_ctx) };
    let ctx = callback.ctx();
    // SAFETY: for this event the data is a client's info, which lives through the callback.
    let client = unsafe { (*data.cast::<raw::RedisModuleClientInfo>()).id };
    if guard::entry("client-gone", || disconnected(ctx, client)).is_none() {
        // Holds of a connection that has gone must not be renewed for ever.
        guard::entry("client-gone-again", || {
            shell::with(|shell| shell.locks.disconnected(client, ctx.now()));
        });
    }
}

/// A connection has gone; the context is the dying client's own.
fn disconnected(ctx: Ctx<'_>, client: u64) {
    if shell::with(|shell| shell.locks.sessions.clients() == 0) {
        return;
    }
    let now = ctx.now();
    if shell::with(|shell| shell.locks.disconnected(client, now)) {
        fault::trip("session-end");
        // First the timer: see above.
        alarm::rearm(ctx);
        schedule(ctx);
    }
}

/// Whether work can be left for the end of the present unit of execution.
fn has_jobs(ctx: Ctx<'_>) -> bool {
    has!(RedisModule_AddPostNotificationJob) && !ctx.is_valkey()
}

/// Has the first holds released as soon as the present unit of execution is over, where the server can do
/// that.
fn schedule(ctx: Ctx<'_>) {
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
    // SAFETY: the server's context for this callback; the local value ends with it.
    let callback = unsafe { Callback::new(raw_ctx) };
    let ctx = callback.ctx();
    guard::entry("session-job", || {
        shell::with(|shell| shell.alarm.job = false);
        if ctx.may_write() {
            sessions::release_ended(ctx, AT_ONCE, || false);
        }
        alarm::rearm(ctx);
    });
}
