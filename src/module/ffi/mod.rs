//! The server's functions and types, wrapped: the lowest layer of the shell.

pub(crate) mod api;
pub mod call_reply;
pub mod ctx;
pub mod fault;
pub(crate) mod filter;
pub(crate) mod guard;
pub mod in_script;
pub(crate) mod log;
pub mod main_thread;
pub(crate) mod raw_key;
pub mod strings;
