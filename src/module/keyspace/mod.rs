//! The keys: reading and writing them through the server's low-level key API, and replicating what was written.

pub mod count_key;
pub mod horizon;
pub mod key;
pub mod lock_key;
mod lock_write;
pub mod replication;
pub(crate) mod rw_read;
mod rw_write;
pub mod sem_key;
pub mod siblings;
pub mod string_key;
