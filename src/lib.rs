//! Distributed locks inside Redis and Valkey.
//!
//! The house has three floors:
//!
//! * [`lock`] is the core: the rules of locking as pure functions. The story of how a lock works is
//!   told once, at the top of that module.
//! * [`commands`] has one file per command: parse, ask the core, reply.
//! * [`module`] is the shell around both, the only part that talks to the server and the only one
//!   with `unsafe`.
//!
//! Commands use the core and the shell, the shell uses the core, the core uses neither; `make lint`
//! sees to it. The settings stand in `module/settings.rs`, the counters in `lock/stats.rs`.

pub mod commands;
pub mod lock;
pub mod module;
pub mod redisson;

use std::ffi::c_int;

use redis_module::raw;

use crate::module::entry::command::{register, Register};
use crate::module::entry::load::{self, Parts};
use crate::redisson::server::HOOKS;

/// What the shell is loaded with.
const PARTS: Parts = Parts {
    commands: COMMANDS,
    hooks: &HOOKS,
};

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
    unsafe { load::on_load(ctx, argc, &PARTS) }
}

/// The server unloads the module. It refuses by itself while clients are parked or a timer is armed.
///
/// # Safety
/// Called by the server only, on its main thread.
#[no_mangle]
pub unsafe extern "C" fn RedisModule_OnUnload(ctx: *mut raw::RedisModuleCtx) -> c_int {
    // SAFETY: the server calls this function on its main thread, with its context for this callback.
    unsafe { load::on_unload(ctx) }
}

/// Every command: how each is registered when the module is loaded.
pub const COMMANDS: &[Register] = &[
    register::<commands::acquire::Acquire>,
    register::<commands::release::Release>,
    register::<commands::renew::Renew>,
    register::<commands::macquire::AcquireMany>,
    register::<commands::mrelease::ReleaseMany>,
    register::<commands::mrenew::RenewMany>,
    register::<commands::break_lock::Break>,
    register::<commands::info::Info>,
    register::<commands::scan::Scan>,
    register::<commands::sem::set::Set>,
    register::<commands::sem::acquire::Acquire>,
    register::<commands::sem::release::Release>,
    register::<commands::sem::renew::Renew>,
    register::<commands::sem::info::Info>,
    register::<commands::latch::set::Set>,
    register::<commands::latch::down::Down>,
    register::<commands::latch::wait::Wait>,
    register::<commands::redisson::Redisson>,
    register::<commands::owner::Owner>,
    register::<commands::help::Help>,
    #[cfg(feature = "fault-injection")]
    register::<commands::fault::Fault>,
];
