//! Connections and requests: which server serves a key, how it is reached, and how the module's commands are sent.
//!
//! [`server::Server`] knows the nodes and owns the connections; [`caller::Caller`] sends the requests about one key.

pub(crate) mod address;
pub(crate) mod background;
pub(crate) mod caller;
pub(crate) mod command;
pub(crate) mod connection;
pub(crate) mod invalidation;
pub(crate) mod leases;
pub(crate) mod replicas;
pub(crate) mod reply;
pub(crate) mod retry;
pub(crate) mod sentinel;
pub(crate) mod server;
pub(crate) mod slot;
pub(crate) mod tickets;
#[cfg(feature = "tls")]
pub(crate) mod tls;
