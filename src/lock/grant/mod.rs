//! How a lock is granted: to a newcomer, or handed off to who waits; and how the books of grants are
//! closed.
//!
//! A grant to a parked client is *on its way* until its reply is written. Who shows meanwhile that it knows
//! of its grant, by asking or releasing through another connection, has claimed it.

pub(crate) mod delivery;
pub(crate) mod ending;
pub(crate) mod fresh;
pub(crate) mod hand_off;
pub(crate) mod in_flight;
pub(crate) mod tracked;
