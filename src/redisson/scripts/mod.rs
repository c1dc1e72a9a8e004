//! Redisson's own scripts, told apart and decided about without Lua.
//!
//! A Redisson client sends its locks' work as scripts, each release of it exactly the same few texts. A
//! text is known by its SHA1 ([`table`]), and what the script would do to plain data is decided here, one
//! file for each kind of lock: hold counts that are numbers, leases that are sensible, hashes where a hash
//! belongs. For anything else there is no decision (`None`), and the script itself is run by the server:
//! its errors, its half-done effects and its oddities stay its own.

#![forbid(unsafe_code)]

mod fenced;
pub mod read_write;
mod read_write_table;
pub mod readers;
mod rlock;
mod script;
mod spin;
pub mod steps;
mod table;

pub use fenced::next_token;
pub use rlock::{
    acquire, lease_end, own_count, time_to_live, unlock, Acquire, Held, RLock, Unlock,
};
pub use script::{Fenced, Inner, InnerCall, KeyOf, Native, Script, Spin};
pub use table::{recognise, recognise_text, SCRIPTS};
