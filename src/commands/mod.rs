//! The commands. Each is a struct of its parsed words with its description beside it
//! ([`Spec`](crate::module::entry::command::Spec)): `parse` reads the words and needs no server, `apply` opens the keys,
//! has the core decide, and replies. No rules of locking are here.
//!
//! [`parser`] reads the words, [`arg_specs`] describes them, [`skeleton`] has the steps that commands have in common.
//! The root of the crate lists all commands.

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

#[cfg(test)]
#[allow(clippy::indexing_slicing, clippy::unwrap_used)]
mod tests;
