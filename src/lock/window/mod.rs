//! Turns for those who wait outside: Redisson's clients, which sleep until they are told that a lock is free.
//!
//! A hand-off never frees the key, so they would never be told while requests are parked here. After so many
//! hand-offs in a row ([`WindowRule::after`]) the lock is *left free* instead, if somebody listens on its channel:
//! the key is deleted, the message published, and a *window* begins in which nobody here is granted it. Those
//! in line keep their places. The window ends when somebody has taken the lock, and then the line waits for its
//! release; or when its time is over, and then the first in line has the lock.
//!
//! A turn that is *in vain* (nobody listened, or nobody came) doubles the hand-offs until the next, up to
//! [`MOST_DOUBLINGS`] times; one that is taken sets that back.

pub(crate) mod decide;
pub(crate) mod state;
