//! The shell: the only home of `unsafe` and of the server's own types.
//!
//! Commands come in through [`register`], time through [`alarm`], news about keys and roles through
//! [`events`], and dead connections through [`parked`]. Each of these entries catches panics
//! ([`guard`]), reads what the key holds ([`key`]), asks the core, and carries out the effects
//! ([`apply`]). No call into the server is made while the core is borrowed: the server may call back.
//!
//! Everything runs on the server's main thread.

pub mod acl;
pub mod alarm;
pub(crate) mod api;
pub mod apply;
pub mod beside;
pub(crate) mod call_reply;
mod condemned;
pub mod count_key;
pub mod ctx;
pub mod events;
pub mod fence;
pub(crate) mod guard;
mod info;
pub mod key;
mod load;
pub(crate) mod log;
mod needed;
pub mod parked;
pub mod register;
pub mod replication;
pub mod reply;
mod rw_key;
pub mod scan;
pub mod sem_key;
pub mod sem_sessions;
pub mod sessions;
pub mod settings;
pub mod shell;
pub mod siblings;
mod slots;
pub mod strings;
mod subscribers;
mod unload;

#[cfg(feature = "fault-injection")]
pub use guard::fault::arm as arm_fault;

/// Memory comes from the server, so that its accounting and limits see it. Unit tests and the
/// fuzz targets (`cfg(fuzzing)`) have no server.
#[cfg(not(any(test, fuzzing)))]
#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;
