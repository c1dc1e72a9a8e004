//! Redisson's own scripts, recognised and decided without Lua.
//!
//! A Redisson client sends its lock operations as scripts; each release of Redisson sends the same few texts. A text is
//! recognised by its SHA1 ([`table`]). The effect of the script on plain data is decided here, one file for each kind
//! of lock. Plain data means: hold counts that are numbers, valid leases, hashes where a hash is expected. For any
//! other data there is no decision (`None`), and the server runs the script itself, with its own errors, partial
//! effects and peculiarities.

#![forbid(unsafe_code)]

pub mod read_write;
mod read_write_table;
mod rlock;
mod script;
pub mod steps;
mod table;

pub use rlock::{
    acquire, lease_end, next_token, own_count, time_to_live, unlock, Acquire, Held, RLock, Unlock,
};
pub use script::{Fenced, Inner, InnerCall, KeyOf, Native, Script, Spin};
pub use table::{recognise, recognise_text, SCRIPTS};
