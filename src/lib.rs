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

use std::ffi::CStr;

use module::ctx::Ctx;
use module::register::register;

/// Registers one command, in the module's own ACL category if there is one.
pub type Register = fn(Ctx, Option<&CStr>) -> Option<()>;

/// Every command: how each is registered when the module is loaded.
pub const COMMANDS: &[Register] = &[
    register::<commands::lock::acquire::Acquire>,
    register::<commands::lock::release::Release>,
    register::<commands::lock::renew::Renew>,
    register::<commands::lock::macquire::AcquireMany>,
    register::<commands::lock::mrelease::ReleaseMany>,
    register::<commands::lock::mrenew::RenewMany>,
    register::<commands::lock::break_lock::Break>,
    register::<commands::lock::info::Info>,
    register::<commands::lock::scan::Scan>,
    register::<commands::sem::set::Set>,
    register::<commands::sem::acquire::Acquire>,
    register::<commands::sem::release::Release>,
    register::<commands::sem::renew::Renew>,
    register::<commands::sem::info::Info>,
    register::<commands::latch::set::Set>,
    register::<commands::latch::down::Down>,
    register::<commands::latch::wait::Wait>,
    register::<commands::lock::redisson::Redisson>,
    register::<commands::lock::owner::Owner>,
    register::<commands::lock::help::Help>,
    #[cfg(feature = "fault-injection")]
    register::<commands::lock::fault::Fault>,
];
