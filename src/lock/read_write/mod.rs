//! The read-write lock, in the layout of Redisson's `RReadWriteLock`.
//!
//! The hash is `name {mode: read | write, <owner>: read count, <owner>:write: write count}`, and its TTL reaches to the
//! end of the longest lease. In mode `write` that TTL is the lease of the writer. A reader has a lease of its own: for
//! its n-th hold there is a string `{name}:<owner>:rwlock_timeout:<n>`, and the reader holds the lock while one of them
//! exists. So leases of readers end one by one while the hash stays: the field of an expired reader stays until the
//! next write of this module removes it. Redisson's scripts count the fields of the hash and loop over its numbers, so
//! the fencing token cannot be a field: the *token record* is a sibling string, `{name}:rwlock_token`.
//!
//! All readers of one reading phase share its token. A holder passes the queue: a reader that reads again, a writer
//! that writes again or also reads (and is a reader when it releases WRITE: the *downgrade*), and the only remaining
//! reader that asks for WRITE (the *upgrade*, with a token of its own). An upgrade that has to wait for other readers
//! is first in the queue.
//!
//! Of a hash with many readers only as much is read as the decision needs ([`ReadDepth`]): a reader that joins costs
//! the same for any number of readers.

mod change;
mod enter;
mod leave;
mod names;
mod readers;
mod settle;
mod state;

pub use change::RwWrite;
pub use enter::upgrades;
pub use names::{
    any_with_same_timeouts, is_beside_a_lock, is_reserved, siblings_stay, timeout_name,
    timeout_prefix, token_name, write_field, Name, MODE_FIELD,
};
pub use readers::{Reader, Readers};
pub use settle::may_enter;
pub use settle::{PendingRequest, READERS_AT_ONCE};
pub use state::{
    is_read_write, most_reads, most_renewed, ReadDepth, ReadWrite, RwFields, TokenRecord, Writer,
    MOST_OTHERS, MOST_READS,
};
