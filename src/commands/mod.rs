//! The commands: each file parses one, asks the core, and replies. No rules of locking live here.
//!
//! A command is its description ([`Spec`](crate::module::register::Spec)) and its `run`; the table of
//! them stands in the root of the crate. `READ` and `WRITE` will join the options in
//! [`args`], the many-key commands will stand in files of their own beside these; until then their
//! words are a syntax error.

#![forbid(unsafe_code)]

pub mod acquire;
mod args;
pub mod break_lock;
#[cfg(feature = "fault-injection")]
pub mod fault;
pub mod help;
pub mod info;
pub mod latch;
pub mod owner;
pub mod release;
pub mod renew;
pub mod scan;
pub mod sem;
