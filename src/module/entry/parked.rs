//! A parked client: blocked on the lock's key, answered from its timeout callback.
//!
//! The client is blocked *on the key* (so that a cluster redirects it when the slot moves) and without a native
//! timeout. An answer is first noted; the alarm unblocks the client at the end of the tick, the server then calls the
//! timeout callback, and that writes the reply (on Redis 7.0 and 7.2 the end of the block does: see `answers`). A
//! disconnect before that (connection closed, `CLIENT KILL`, `CLIENT UNBLOCK ... ERROR`, demotion) calls the disconnect
//! callback, and a grant in flight is undone. When the timeout callback has run, the grant is delivered.
//!
//! Other forms failed when several of these events came in one tick; this one passed all such tests on nine server
//! versions. A native timeout that is due in the tick of an unblock ends Redis 7.2, and loses the reply on 7.0. An
//! unblock in the event that grants is too early: Redis 7.0 and 7.2, Redict and Valkey then call the timeout callback
//! at once and forget the disconnect callback, so a client that is killed later in the tick keeps the lock, and `CLIENT
//! UNBLOCK ... ERROR` gives a second reply.
//!
//! The server frees the handle itself at each of these ends. The module forgets the handle before, and never uses it
//! again.

use std::ffi::{c_int, c_void};
use std::ptr::{null_mut, NonNull};

use redis_module::raw;
use smallvec::SmallVec;

use crate::lock::{LockError, Outcome, WaiterId};
use crate::module::answers;
use crate::module::entry::alarm;
use crate::module::entry::condemned;
use crate::module::ffi::api::api;
use crate::module::ffi::api::fallible;
use crate::module::ffi::ctx::{Callback, Ctx};
use crate::module::ffi::fault;
use crate::module::ffi::guard;
use crate::module::ffi::strings::{OwnedStr, Str};
use crate::module::reply;
use crate::module::state::shell;
use crate::module::state::shell::{Parked, Shape};

/// Notes that the calling client will be blocked for this request.
pub fn expect(id: WaiterId, shape: Shape) {
    shell::with(|shell| shell.parked.insert(id, Parked::expected(shape)));
}

/// Whether the calling client can be parked. Checked before the core parks its request; if not, `BLOCK` is ignored.
pub fn is_possible(ctx: Ctx<'_>) -> bool {
    ctx.may_block() && (shell::with(|shell| shell.parks_subscribers) || !ctx.is_subscribed())
}

/// Blocks the calling client on these keys. No step that can fail may follow: an error reply to a blocked client would
/// be one reply too many. False when the server refuses: then the request is withdrawn, and the reply is that of a
/// request without `BLOCK`.
///
/// # Errors
/// When the request was dropped meanwhile: the client is not blocked then.
pub fn block_on(ctx: Ctx<'_>, keys: &[Str<'_>], id: WaiterId) -> Result<bool, LockError> {
    if !shell::with(|shell| shell.parked.contains_key(&id)) {
        // A panic in a callback meanwhile has dropped the request.
        return Err(LockError::Internal);
    }
    let mut keys: SmallVec<[_; 1]> = keys.iter().map(|key| key.as_ptr()).collect();
    // SAFETY: context and keys are live, as many keys as stated; no native timeout (together with an unblock in the
    // same tick it aborts some versions). The private data is a number that is never dereferenced. `is_possible` has
    // excluded the callers for which the server replies an error itself and returns a handle that blocks no client.
    let handle = unsafe {
        fallible!(
            RedisModule_BlockClientOnKeys(
                ctx.as_ptr(),
                Some(on_key_ready),
                Some(on_answer),
                answers::is_late().then_some(on_end as unsafe extern "C" fn(_, _)),
                0,
                keys.as_mut_ptr(),
                keys.len() as c_int,
                id.0 as *mut c_void,
            ),
            null_mut()
        )
    };
    // Valkey returns NULL, without a reply, for a client that another module has blocked meanwhile.
    let Some(handle) = NonNull::new(handle) else {
        if !fault::is_on("refused-client-stays-in-line") {
            withdraw(ctx, id);
        }
        return Ok(false);
    };
    // SAFETY: the client was just blocked under this handle.
    unsafe { api!(RedisModule_SetDisconnectCallback)(handle.as_ptr(), Some(on_disconnect)) };
    let risks = condemned::risks_of(ctx, id);
    shell::with(|shell| {
        if let Some(parked) = shell.parked.get_mut(&id) {
            (parked.handle, parked.client) = (Some(handle), ctx.client_id());
            parked.risks = risks;
        }
    });
    Ok(true)
}

/// Removes the request without a trace.
fn withdraw(ctx: Ctx<'_>, id: WaiterId) {
    let now = ctx.now();
    shell::with(|shell| {
        shell.take_parked(id);
        shell.locks.not_waiting(id, now);
    });
    alarm::rearm(ctx);
}

/// Writes the reply; nil when the server unblocks a client without an answer.
fn reply(parked: Parked, ctx: Ctx<'_>, key: Str<'_>) {
    let granted = match parked.outcome {
        Some(Outcome::Failed(error)) => return ctx.reply_error(&error),
        _ if parked.shape == Shape::Tokens => {
            let tokens = match &parked.outcome {
                Some(Outcome::GrantedAll(tokens)) => Some(&tokens[..]),
                _ => None,
            };
            return reply::acquired_all(ctx, tokens.into());
        }
        _ if parked.shape == Shape::Latch => {
            let is_open = parked.outcome == Some(Outcome::Open);
            return reply::is_open(ctx, is_open.then_some(()).into());
        }
        Some(Outcome::Granted(token)) => Some(token),
        Some(Outcome::Nil | Outcome::Open | Outcome::GrantedAll(_)) | None => None,
    };
    reply::acquired(ctx, key, parked.shape, granted.into(), ctx.now());
}

/// The server calls this when a key becomes ready, to learn whether that serves the client. It never does; but the key
/// now has a value that is no lock, so the request is settled.
unsafe extern "C" fn on_key_ready(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    _argc: c_int,
) -> c_int {
    guard::entry("key-ready", || {
        // SAFETY: the server's context for this callback; the local value ends with it.
        let callback = unsafe { Callback::new(ctx) };
        // SAFETY: the callback is one of a blocked client: `block_on` has passed it.
        let id = unsafe { waiter_of(callback.ctx()) };
        shell::with(|shell| shell.locks.shared.waiters.schedule_settle_waiter(id));
        alarm::rearm(callback.ctx());
    });
    raw::REDISMODULE_ERR as c_int
}

/// The client was unblocked by the module or by `CLIENT UNBLOCK ... TIMEOUT`. A late answer is kept for [`on_end`].
unsafe extern "C" fn on_answer(
    raw_ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server's context for this callback; the local value ends with it.
    let callback = unsafe { Callback::new(raw_ctx) };
    let ctx = callback.ctx();
    let done = guard::entry("answer", || {
        // SAFETY: the callback is one of a blocked client: `block_on` has passed it.
        let id = unsafe { waiter_of(ctx) };
        // SAFETY: the words are those that the server passed to this callback: the parked command's, the second its
        // key.
        let key = unsafe { callback.words(argv, argc) }.get(1).copied();
        if !(answers::is_late() && keep_for_the_end(id, key)) {
            let parked = shell::with(|shell| shell.take_parked(id));
            answer(ctx, id, parked, key);
        }
    });
    if done.is_none() {
        // SAFETY: the callback is one of a blocked client: `block_on` has passed it.
        unsafe { fail(ctx) };
    }
    raw::REDISMODULE_OK as c_int
}

/// Keeps the key if the module itself has unblocked the client.
fn keep_for_the_end(id: WaiterId, key: Option<Str<'_>>) -> bool {
    shell::with(|shell| match shell.parked.get_mut(&id) {
        Some(parked) if parked.is_ending => {
            parked.key = key.map(|key| OwnedStr::new(key.bytes()));
            true
        }
        _ => false,
    })
}

/// The server frees the private data at the end of a block. Only a late answer is still in the table.
unsafe extern "C" fn on_end(raw_ctx: *mut raw::RedisModuleCtx, data: *mut c_void) {
    // SAFETY: the server's context for this callback; the local value ends with it.
    let callback = unsafe { Callback::new(raw_ctx) };
    let ctx = callback.ctx();
    let id = WaiterId(data as u64);
    let done = guard::entry("answer", || {
        let Some(mut parked) = shell::with(|shell| shell.take_parked(id)) else {
            return;
        };
        // SAFETY: the context is live, and that of a callback of a blocked client.
        if unsafe { api!(RedisModule_BlockedClientDisconnected)(ctx.as_ptr()) } != 0 {
            shell::with(|shell| shell.locks.gone(id, ctx.now()));
            alarm::rearm(ctx);
            // SAFETY: the context is live. An unknown id is refused: the connection has ended already.
            unsafe {
                api!(RedisModule_DeauthenticateAndCloseClient)(ctx.as_ptr(), parked.client);
            }
            return;
        }
        let key = parked.key.take();
        answer(ctx, id, Some(parked), key.as_ref().map(OwnedStr::as_str));
    });
    if done.is_none() {
        // SAFETY: the callback is one of a blocked client: `block_on` has passed it.
        unsafe { fail(ctx) };
    }
}

/// Replies to the client of a parked request, which has left the table, and has the grant delivered. This is the only
/// place that replies to a parked client.
fn answer(ctx: Ctx<'_>, id: WaiterId, parked: Option<Parked>, key: Option<Str<'_>>) {
    let now = ctx.now();
    if parked
        .as_ref()
        .is_some_and(|parked| parked.outcome.is_none())
    {
        shell::with(|shell| shell.locks.shared.waiters.unblocked(id, now));
    }
    let risks = parked.as_ref().filter(|parked| parked.is_granted());
    let risks = risks.map(|parked| parked.risks);
    match (parked, key) {
        (Some(parked), Some(key)) => reply(parked, ctx, key),
        _ => ctx.reply_nil(),
    }
    // After the reply, because the reply itself may overflow the client's buffer.
    let is_lost = risks.is_some_and(|risks| condemned::is_lost(risks, ctx));
    shell::with(|shell| match is_lost {
        true => shell.locks.gone(id, now),
        false => shell.locks.shared.delivered(id),
    });
    alarm::rearm(ctx);
}

/// Replies an error after a panic: the client holds nothing and waits no more.
///
/// # Safety
/// `ctx` is the context of a callback of a blocked client.
unsafe fn fail(ctx: Ctx<'_>) {
    ctx.reply_error(&LockError::Internal);
    // SAFETY: the caller passes the context of a callback of a blocked client.
    guard::entry("answer-again", || unsafe { forget(ctx) });
}

/// The connection has ended, or the server itself has replied to it.
unsafe extern "C" fn on_disconnect(
    raw_ctx: *mut raw::RedisModuleCtx,
    _handle: *mut raw::RedisModuleBlockedClient,
) {
    // SAFETY: the server's context for this callback; the local value ends with it.
    let callback = unsafe { Callback::new(raw_ctx) };
    // SAFETY: the callback is one of a blocked client: `block_on` has set it for its handle.
    let done = guard::entry("disconnect", || unsafe { forget(callback.ctx()) });
    if done.is_none() {
        // SAFETY: the callback is one of a blocked client: `block_on` has set it for its handle.
        guard::entry("disconnect-again", || unsafe { forget(callback.ctx()) });
    }
}

/// Forgets a client that is no longer parked, before the server frees its handle: the handle would be used again at the
/// next grant. A second call does nothing.
///
/// # Safety
/// `ctx` is the context of a callback of a blocked client.
unsafe fn forget(ctx: Ctx<'_>) {
    // SAFETY: the caller passes the context of a callback of a blocked client.
    let id = unsafe { waiter_of(ctx) };
    let now = ctx.now();
    shell::with(|shell| {
        shell.take_parked(id);
        if fault::is_on("killed-client-keeps-its-grant") {
            return shell.locks.shared.delivered(id);
        }
        shell.locks.gone(id, now);
    });
    alarm::rearm(ctx);
}

/// # Safety
/// `ctx` is the context of a callback of a blocked client.
unsafe fn waiter_of(ctx: Ctx<'_>) -> WaiterId {
    // SAFETY: the caller passes the context of a callback of a blocked client. The private data is the number that
    // `block_on` stored, and NULL, the number 0, is no request's.
    WaiterId(unsafe { api!(RedisModule_GetBlockedClientPrivateData)(ctx.as_ptr()) } as u64)
}
