//! The shell: the only home of `unsafe` and of the server's own types. Everything runs on the server's main thread.
//!
//! Its layers, each using those above it in this list only:
//!
//! * [`ffi`]: the server's functions and types, and the guard that catches panics;
//! * [`state`]: what is kept between calls, and the settings;
//! * [`keyspace`]: reading and writing keys, replication;
//! * the files of this folder: the view for a decision ([`view`]), its effects ([`apply`], [`answers`]), what tickets
//!   ask the server ([`tickets`]), the users of requests ([`users`]), what the server says of its commands
//!   ([`known_commands`]), and the decisions that no command causes ([`settle`], [`sessions`]);
//! * [`entry`]: the functions that the server calls: for commands [`entry::command`], for the timer [`entry::alarm`],
//!   for changes of keys and roles [`entry::events`], for ended connections [`entry::clients`] and [`entry::parked`].
//!
//! An entry catches panics, reads the key, lets the core decide, and carries out the effects. No call into the server
//! is made while the core is borrowed: the server may call back.

pub mod acl;
pub mod answers;
pub mod apply;
pub mod entry;
pub mod ffi;
pub mod keyspace;
pub mod known_commands;
pub mod reply;
pub mod scan;
pub mod sessions;
pub mod settle;
pub mod state;
mod subscribers;
pub mod tickets;
pub mod users;
pub mod view;

/// Memory comes from the server, so that its accounting and limits see it. Unit tests and the
/// fuzz targets (`cfg(fuzzing)`) have no server.
#[cfg(not(any(test, fuzzing)))]
#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;
