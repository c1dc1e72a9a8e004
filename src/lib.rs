//! Distributed locks inside Redis and Valkey.
//!
//! * [`lock`] is the core: the rules of locking as pure functions. The top of that module tells how a lock works and
//!   defines the terms.
//! * [`commands`] has one struct per command: parse, ask the core, apply, reply.
//! * [`module`] is the shell: it calls the server, and has `unsafe`.
//!
//! Imports run in one direction: the commands use the shell, the shell uses the core, the core uses none of them. `make
//! lint` checks this. The settings are in `module/state/settings.rs`, the counters in
//! `lock/stats.rs`.

pub mod commands;
pub mod lock;
pub mod module;

use std::ffi::c_int;

use redis_module::raw;

use crate::module::entry::load;

/// The server loads the module.
///
/// # Safety
/// Called by the server only, once, on its main thread.
#[no_mangle]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut raw::RedisModuleCtx,
    _argv: *mut *mut raw::RedisModuleString,
    argc: c_int,
) -> c_int {
    // SAFETY: the server calls this function once, on its main thread, with its context for this callback.
    unsafe { load::on_load(ctx, argc, commands::ALL) }
}

/// The server asks whether the module may be unloaded.
///
/// # Safety
/// Called by the server only, on its main thread.
#[no_mangle]
pub unsafe extern "C" fn RedisModule_OnUnload(ctx: *mut raw::RedisModuleCtx) -> c_int {
    // SAFETY: the server calls this function on its main thread, with its context for this callback.
    unsafe { load::on_unload(ctx) }
}
