//! Holds that are bound to a connection: which they are, and what happens when the connection ends.

pub(crate) mod bindings;
pub(crate) mod expiry;
