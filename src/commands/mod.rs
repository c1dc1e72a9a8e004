//! The commands: each file parses one, asks the core, and replies. No rules of locking live here.
//!
//! A command is its description ([`Spec`](crate::module::entry::command::Spec)) and its `run`; the table of
//! them stands in the root of the crate; the words that they share are in [`args`].

#![forbid(unsafe_code)]

pub mod acquire;
mod args;
pub mod break_lock;
#[cfg(feature = "fault-injection")]
pub mod fault;
mod glob;
pub mod help;
pub mod info;
pub mod latch;
pub mod macquire;
pub mod mrelease;
pub mod mrenew;
pub mod owner;
mod read_write;
pub mod redisson;
pub mod release;
pub mod renew;
mod request;
pub mod scan;
pub mod sem;
