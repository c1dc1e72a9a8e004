//! How a lock works, told once.
//!
//! A lock is a hash in the key space: `key {owner: hold count, #token: t<token>}`, and its TTL is
//! the lease. The hash is the truth about who holds. What lives in memory is only who *waits*, and
//! some statistics.
//!
//! `LOCK.ACQUIRE` finds the key absent, writes the hash, and answers a fencing token. The owner that
//! already holds is let in again and counted. Anybody else is answered nil, or, with `BLOCK`, is
//! *parked*: its connection falls silent and its request joins the key's queue.
//!
//! When the holder releases, the lock is not freed but *handed off*: in the same event the hash comes
//! to belong to the first waiter, with a new token and with a lease that starts now. The waiter's
//! answer is on its way when the releaser's is. The same happens when a lease runs out (a timer is
//! armed for it), when an operator breaks the lock, and when the key goes away by other means (`DEL`,
//! a Redisson client's release, `FLUSHALL`): each of those only touches the key, and it is *settled*,
//! that is, read and decided about afresh, at the end of the turn.
//!
//! A grant counts as *delivered* once the reply is written. If the connection dies before that, the
//! grant is undone, provided that its token is still the current one, and passed on. An owner whose
//! connection died or whose wait ran out keeps its place in the queue for a moment, *empty*, so that a
//! client which asks again has its turn back.
//!
//! Redisson's clients wait outside and are told of a lock only when it is freed. So after some hand-offs in a row it
//! is *left free* for a moment, if somebody listens: nobody here is granted it in that *window*.
//!
//! A hold may be bound to a connection, by `SESSION`: then the server keeps its lease while that connection
//! lives, and releases it when the connection ends.
//!
//! A request may be for many keys, all or none. It stands in the queue of each and holds nothing; a key that is
//! free when it is first there stays free for it, and at the end of the turn in which the last one has come
//! free it gets them all. A request that would wait for itself, by way of others, is refused instead of parked.
//!
//! Words: *owner*, *holder* (owner, hold count, token), *lease* and its *deadline*, *renew*,
//! *waiter* (a parked request) and its wait deadline, *park*, *grant*, *hand-off*, *settle*.
//!
//! Everything in this folder is a function of its arguments: no Redis types, no clock, no I/O, no
//! `unsafe`. Time comes in ([`Now`]), what the key holds comes in ([`View`]), and what is to be done
//! goes out ([`Effect`]).

#![forbid(unsafe_code)]

mod compatibility;
mod each_resource;
mod effect;
mod error;
mod exclusive;
mod grant;
mod latch;
mod locks;
mod mode;
mod multi;
mod name;
mod read_write;
mod recheck;
mod resource;
mod semaphore;
mod server_events;
mod session;
mod settle;
mod slot;
mod startup_delay;
mod state;
mod stats;
mod table;
mod time;
mod token;
mod view;
mod wait;
mod window;

#[cfg(test)]
mod tests;

pub use compatibility::is_blocked;
pub use effect::{Effect, Effects, Event, KeyWrite, Outcome};
pub use error::LockError;
pub use exclusive::request::{Acquire, Answer, Break, Release, Released, Renew, Wait};
pub use latch::state::{Count, CountChange, Waited};
pub use locks::{Limits, Locks};
pub use mode::Mode;
pub use multi::acquire::{ManyAnswer, MAX_KEYS};
pub use multi::release::may_release_many;
pub use name::{KeyId, KeyRef};
#[cfg(test)]
pub(crate) use read_write::may_enter;
pub use read_write::{
    any_with_same_timeouts, is_beside_a_lock, is_read_write, is_reserved, siblings_stay,
    timeout_name, timeout_prefix, token_name, twin_of, write_field, Ending, Name, ReadDepth,
    ReadWrite, Reader, RwFields, RwWrite, TokenRecord, Writer, WroteBeside, MODE_FIELD, MOST_READS,
};
pub use resource::Resource;
pub use semaphore::commands::{SemAcquire, SetIf};
pub use semaphore::state::{PermitChange, Permits, SemState, SemView, FIRST_END_MS, NO_END_MS};
pub use session::bindings::{Bound, BoundKind, BoundRef, SessionRule, Sessions};
pub use slot::{permits_of, prefixed, slot_of, slot_tags};
pub use startup_delay::StartupDelay;
pub use state::{
    is_held, parse_counter, parse_decimal, parse_integer, HashReader, Hold, KeyState, OwnerId,
    TOKEN_FIELD,
};
pub use stats::RedissonStats;
pub use table::give_back;
pub use time::{Lease, Now};
pub use token::{Domain, Token};
pub use view::{Fence, View, HORIZON_DB};
pub use wait::due::Due;
pub use wait::request::{Waiter, WaiterId, WaiterMap};
pub use wait::waiters::Grace;
pub use window::state::WindowRule;
