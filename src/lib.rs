//! Distributed locks inside Redis and Valkey.
//!
//! The house has three floors. [`lock`] is the core: the rules of locking as pure functions, told once
//! at the top of that module. [`commands`] has one file per command: parse, ask the core, reply.
//! [`module`] is the shell around both, the only place that talks to the server and the only one with
//! `unsafe`. Commands may use the core and the shell, the shell may use the core, the core uses
//! neither; `make lint` sees to it.

pub mod commands;
pub mod lock;
pub mod module;
