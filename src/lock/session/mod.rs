//! Holds that are bound to a connection (`SESSION`): the bindings, their renewals, and their ends.

pub(crate) mod bindings;
pub(crate) mod expiry;
mod renewals;
