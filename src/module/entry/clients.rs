//! Holds that are bound to connections: their release when the connection ends.
//!
//! The server sends an event for every connection that ends, whatever the reason: closed or reset by the client,
//! killed, timed out, its output buffer full. It sends it at the beginning of `freeClient`, before it unblocks the
//! client. The first hundred holds of a tick are released at that event, the rest by the alarm, some in every tick.
//!
//! The callback itself does not release: a change in it counts as a change by the command that runs. A `CLIENT KILL`
//! with a change is replicated like a write, and on replicas and in the AOF it kills the client that has that id there.
//! Redis has a hook for such work from 7.2 on: a job that it runs as soon as the present unit of execution is over. If
//! no command ends the connection, the job runs before `freeClient` goes on, else after that command, its transaction
//! or its script. A job has a context of its own, and its changes are replicated by themselves. Redis 7.0 has no such
//! hook. Valkey 8.1 leaves the client whose command runs in the database of the last key event that was sent meanwhile.
//! On both the alarm does all releases, at the end of the tick; it also does those that a server postpones because it
//! refuses writes.

use std::cell::Cell;
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
use crate::module::state::shell::Alarm;

/// The most holds that jobs release in one tick, when connections end; more wait for the alarm.
const AT_ONCE: usize = 100;

/// Prepares for `SESSION`: subscribes to the ends of connections.
///
/// # Errors
/// [`LockError::Internal`] where the server refuses.
pub fn prepare(ctx: Ctx<'_>) -> Result<(), LockError> {
    if fault::is_on("session-in-a-transaction-not-watched") && !ctx.may_block() {
        return Ok(());
    }
    watch_clients(ctx).ok_or(LockError::Internal)
}

/// Subscribes, once, to the events of clients. They cost time for every connection, so not before the first `SESSION`.
fn watch_clients(ctx: Ctx<'_>) -> Option<()> {
    if !shell::with(|shell| shell.watching_clients) {
        let id = raw::REDISMODULE_EVENT_CLIENT_CHANGE;
        events::subscribe_with(ctx, id, Some(on_client_event))?;
        let has_jobs = has_jobs(ctx);
        shell::with(|shell| (shell.watching_clients, shell.has_jobs) = (true, has_jobs));
        events::warn_of_idle_limit(ctx);
    }
    Some(())
}

/// The server's event of a client that connects or disconnects.
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
        // Holds of a connection that has ended must not be renewed for ever.
        guard::entry("client-gone-again", || {
            shell::with(|shell| shell.locks.disconnected(client, ctx.now()));
        });
    }
}

/// A connection has ended; the context is that of its client.
fn disconnected(ctx: Ctx<'_>, client: u64) {
    if shell::with(|shell| shell.locks.shared.sessions.clients() == 0) {
        return;
    }
    let now = ctx.now();
    if shell::with(|shell| shell.locks.disconnected(client, now)) {
        fault::trip("session-end");
        alarm::rearm(ctx);
        schedule(ctx);
    }
}

/// Whether the server runs jobs at the end of a unit of execution, in a way that suits (see the top of this file).
fn has_jobs(ctx: Ctx<'_>) -> bool {
    has!(RedisModule_AddPostNotificationJob) && !ctx.is_valkey()
}

/// Registers the job that releases the first holds at the end of the present unit of execution, if the server has jobs.
fn schedule(ctx: Ctx<'_>) {
    let is_left_to_alarm = |alarm: &Alarm| alarm.job || alarm.released_by_jobs >= AT_ONCE;
    if shell::with(|shell| is_left_to_alarm(&shell.alarm) || !shell.has_jobs) {
        return;
    }
    // SAFETY: a pointer that is written once, at load.
    let Some(add) = (unsafe { raw::RedisModule_AddPostNotificationJob }) else {
        return;
    };
    // SAFETY: the context is live and of this module; the callback uses no data.
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
            let left = AT_ONCE - shell::with(|shell| shell.alarm.released_by_jobs.min(AT_ONCE));
            let released = Cell::new(0);
            sessions::release_ended(ctx, left, || {
                released.set(released.get() + 1);
                false
            });
            shell::with(|shell| shell.alarm.released_by_jobs += released.get());
        }
        alarm::rearm(ctx);
    });
}
