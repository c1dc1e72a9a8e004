//! Redisson's scripts without Lua: what they decide, and how the decision is carried out on a server.
//!
//! A reader who does not use the setting `lock.redisson-scripts` may skip this folder: nothing in the core depends on
//! it.

pub mod scripts;
pub mod server;
