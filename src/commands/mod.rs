//! The commands. Each has a table ([`Spec`](crate::module::entry::command::Spec)), from which the server gets its
//! description, the parser its options, and `LOCK.HELP` its syntax; and a function, `run`, that parses the words, opens
//! the keys, has the core decide, and replies. No rules of locking are here.
//!
//! [`parser`] reads the words and needs no server, [`options`] has the arguments that tables are made of, [`skeleton`]
//! the steps that commands have in common. [`ALL`] lists the commands.

#![forbid(unsafe_code)]

mod glob;
pub mod latch;
pub mod lock;
pub mod options;
pub mod parser;
pub mod queue;
pub mod sem;
mod skeleton;

use crate::module::entry::command::{register, Register};

/// Every command: how each is registered when the module is loaded.
pub const ALL: &[Register] = &[
    register::<lock::acquire::Acquire>,
    register::<lock::release::Release>,
    register::<lock::release::Renew>,
    register::<lock::many::AcquireMany>,
    register::<lock::many::ReleaseMany>,
    register::<lock::many::RenewMany>,
    register::<lock::release::Break>,
    register::<lock::fenced::If>,
    register::<lock::info::Info>,
    register::<lock::list::Scan>,
    register::<sem::Set>,
    register::<sem::Acquire>,
    register::<sem::Release>,
    register::<sem::Renew>,
    register::<sem::Info>,
    register::<latch::Set>,
    register::<latch::Down>,
    register::<latch::Wait>,
    register::<lock::other::Owner>,
    register::<lock::other::Help>,
    #[cfg(feature = "fault-injection")]
    register::<lock::other::Fault>,
];

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod pages;
#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests;
