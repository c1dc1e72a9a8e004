//! The commands. Each is a struct of its parsed words with its description beside it
//! ([`Spec`](crate::module::entry::command::Spec)): `parse` reads the words and needs no server, `apply` opens the
//! keys, has the core decide, and replies. No rules of locking are here.
//!
//! [`parser`] reads the words, [`arg_specs`] describes them, [`skeleton`] has the steps that commands have in common.
//! [`ALL`] lists the commands.

#![forbid(unsafe_code)]

mod acquire_options;
mod arg_specs;
pub mod error;
mod glob;
pub mod latch;
pub mod lock;
pub mod parser;
pub mod sem;
mod skeleton;

use crate::module::entry::command::{register, Register};

/// Every command: how each is registered when the module is loaded.
pub const ALL: &[Register] = &[
    register::<lock::acquire::Acquire>,
    register::<lock::release::Release>,
    register::<lock::renew::Renew>,
    register::<lock::macquire::AcquireMany>,
    register::<lock::mrelease::ReleaseMany>,
    register::<lock::mrenew::RenewMany>,
    register::<lock::break_lock::Break>,
    register::<lock::info::Info>,
    register::<lock::scan::Scan>,
    register::<lock::top::Top>,
    register::<sem::set::Set>,
    register::<sem::acquire::Acquire>,
    register::<sem::release::Release>,
    register::<sem::renew::Renew>,
    register::<sem::info::Info>,
    register::<latch::set::Set>,
    register::<latch::down::Down>,
    register::<latch::wait::Wait>,
    register::<lock::redisson::Redisson>,
    register::<lock::owner::Owner>,
    register::<lock::help::Help>,
    #[cfg(feature = "fault-injection")]
    register::<lock::fault::Fault>,
];

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod pages;
#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests;
