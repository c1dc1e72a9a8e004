//! Locks inside Redis and Valkey.
pub mod lock;
