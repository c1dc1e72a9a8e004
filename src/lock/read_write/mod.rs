//! The read-write lock, in the layout of Redisson's `RReadWriteLock`.
//!
//! The hash is `name {mode: read | write, <owner>: read count, <owner>:write: write count}`, and its TTL
//! reaches to the end of the longest lease. In mode `write` that TTL is the writer's lease. A reader has
//! a lease of its own: for its n-th hold there is a string `{name}:<owner>:rwlock_timeout:<n>`, and a
//! reader *lives* while the TTL of one of them does. So leases of readers end one by one, though the
//! hash stays: a dead reader may still have its field, which the next of our writes that comes by takes
//! out. Redisson's scripts count the fields of the hash and loop over its numbers, so the fencing token
//! cannot stand there: it has a string beside it, `{name}:rwlock_token`.
//!
//! All readers of one phase of reading share its token. Who holds already may come past the queue: a
//! reader that reads again, a writer that writes again or reads too (and is a reader when it gives WRITE
//! back: the *downgrade*), and the only living reader that asks for WRITE (the *upgrade*, with a token
//! of its own). An upgrader that has to wait for other readers stands first in the queue.
//!
//! What is read of a hash with many readers is only as much as the question needs ([`ReadDepth`]): a reader
//! that joins costs the same however many there are.

mod change;
mod enter;
mod leave;
mod names;
mod next;
mod readers;
mod settle;
mod state;

pub use change::RwWrite;
pub use enter::upgrades;
pub use leave::WroteBeside;
pub use names::{
    any_with_same_timeouts, is_beside_a_lock, is_reserved, siblings_stay, timeout_name,
    timeout_prefix, token_name, twin_of, write_field, Name, MODE_FIELD,
};
pub use next::Ending;
pub use readers::Reader;
pub use settle::may_enter;
pub use state::{is_read_write, ReadDepth, ReadWrite, RwFields, TokenRecord, Writer, MOST_READS};
