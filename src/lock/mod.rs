//! The core: what a lock, a semaphore and a latch do.
//!
//! A lock is a hash in the key space: `key {owner: hold count, #token: t<token>}`. The TTL of the key is the lease. The
//! hash alone states the holder; memory has the waiters, the grants in flight and tracked, the bindings of sessions,
//! the Redisson windows and statistics. Semaphores and latches have other keys and the same queues: `semaphore`
//! and `latch.rs` describe them.
//!
//! `LOCK.ACQUIRE` on an absent key writes the hash and replies a fencing token. A request of the holder raises the hold
//! count. Any other request gets nil or, with `BLOCK`, is *parked*: its client is blocked and its request joins the
//! queue of the key. With `NOTIFY` it waits in that queue as a *ticket*: no client is blocked, the reply is `QUEUED`,
//! and the outcome is a message on a channel.
//!
//! A release does not free a lock that has waiters: it *hands off*. In the same event the hash is written for the first
//! waiter, with a new token and a lease that starts now, and both replies are sent. The same happens when a lease runs
//! out (a timer is armed for it) and when an operator breaks the lock. When the key changes by other means (`DEL`, a
//! release by a Redisson client, `FLUSHALL`), the key is only noted; at the end of the tick it is *settled*: read again
//! and brought to a decision.
//!
//! A grant is *in flight* until its reply is written. If the connection closes before that, the grant is undone,
//! provided that its token is still the current one, and the lock goes to the next waiter. After a disconnect or a
//! timeout the owner keeps its place in the queue for the grace time, without a request: a client that asks again
//! continues at the same place.
//!
//! Redisson's clients wait on a channel and try only after a message that the lock is free. Therefore, after a number
//! of consecutive hand-offs, a lock with a subscriber on that channel is left free for a short time, the *Redisson
//! window*: no request of this module is granted during it. Of a semaphore one permit is left free.
//!
//! `SESSION` binds a hold to a connection: the server renews the lease while the connection lives, and releases the
//! hold when it closes.
//!
//! With `READ` many owners hold a lock together, with `WRITE` one owner alone. The lease of each reader and the token
//! are then in *sibling keys*, beside the hash.
//!
//! A request may name several keys, all or none. It takes a place in the queue of each key and holds nothing while it
//! waits. A key that becomes free when this request is first in its queue stays free for it; when the last key has
//! become free, the request gets all of them at the end of that tick. A request that would wait for its own owner (a
//! deadlock) is refused.
//!
//! # Glossary
//!
//! | Word | Meaning |
//! |---|---|
//! | owner | the identity that a request acts for; a request of the same owner enters a lock again |
//! | holder | an owner that holds the lock |
//! | hold, hold count | one successful acquire that is not released yet; the number of them |
//! | lease | the time for which a hold is valid without renewal |
//! | deadline | the moment at which a lease or a wait ends |
//! | resource | what a client waits for under one key: a lock, a semaphore or a latch |
//! | permit | one of the holds that a semaphore has to give, each with a lease; its owner is called *id* |
//! | latch | a count that requests wait to see at zero |
//! | waiter | a request in a queue, parked or a ticket (INFO: `waiters` counts the parked ones) |
//! | queue | the waiters of one key in order |
//! | live | of a place: with a request that has no answer yet, also after its `BLOCK` is over |
//! | place | the position of an owner in a queue, kept for a grace time after a disconnect (INFO: `places_kept`) |
//! | park | to wait with a blocked client (INFO: `waits_parked`) |
//! | ticket | a waiter without a blocked client; its outcome is a message on a channel |
//! | heard | of a ticket: its channel has a subscriber; for `SESSION`, its connection is open too |
//! | pass over | to take a ticket that is not heard from the queue, without a message; its owner keeps the place |
//! | grant | a waiter or a caller becomes holder |
//! | hand off | to grant as part of the end of a hold |
//! | in flight | granted, and the reply not written yet; may still be undone (INFO: `grants_undone`) |
//! | settle | to decide about a key whose state changed by other means than a command (INFO: `foreign_wakeups`) |
//! | tick | one cycle of the server's event loop |
//! | view | what the shell has read for one decision: the content of the key, and the keys that a token depends on |
//! | planned | the decision that the shell is about to ask for; need and rest follow from it and the content of the key |
//! | need | what a planned decision reads beside the key: nothing, the horizon, or all that a token depends on |
//! | rest | what remains of a lock without the holds that the decision ends; waiters are granted beside it |
//! | draft | the permits of a semaphore during one decision; its changes are written at once |
//! | Redisson window | the time a lock or a permit is left free for Redisson's waiters (settings `free-after`, `free-window`) |
//! | token | the fencing token: a number that rises with every grant of a key |
//! | sibling key | a key beside the key of a read-write lock or a semaphore that stores a part of it |
//! | token record | the sibling key of a read-write lock that stores its token |
//! | domain | the keys whose tokens share a horizon: those of one server, in a cluster those of one slot |
//! | horizon | a stored number above every token that a domain has handed out |
//! | compatibility | which holds exclude which |
//! | upgrade, downgrade | a reader takes WRITE too; a writer that also reads releases WRITE |
//! | subscriber | a client that is subscribed to the channel of a lock or a semaphore |
//! | startup delay | the time after a start or a promotion during which no lock is granted |
//! | tracked grant | an entry of the bounded table of grants (INFO: one that is pushed out is `grants_unwatched`) |
//!
//! # Border
//!
//! The code of this folder depends on its arguments only: no Redis types, no clock, no I/O, no `unsafe`. Time comes in
//! as [`Now`], the content of a key as [`View`]; the changes to make go out as [`Effect`]s.

#![forbid(unsafe_code)]

mod compatibility;
mod effect;
mod error;
mod exclusive;
mod finals;
mod grant;
mod latch;
mod locks;
mod multi;
mod name;
mod planned;
mod read_write;
mod request;
mod semaphore;
mod server_events;
mod session;
mod settle;
mod shared;
mod slot;
mod state;
mod stats;
mod table;
mod time;
mod token;
mod wait;
mod window;

#[cfg(test)]
mod tests;

pub use compatibility::is_blocked;
pub use compatibility::Mode;
pub use effect::{Cx, Effect, Effects, Event, KeyWrite, Message, Outcome};
pub use error::LockError;
pub use finals::FinalRule;
pub use latch::{Count, CountChange, Latches};
pub use locks::{Locks, Settings};
pub use multi::acquire::MAX_KEYS;
pub use multi::may_release_many;
pub use name::{may_be_in_memory, of_names, shown, KeyId, KeyRef};
pub use name::{Each, Resource};
pub use planned::{Need, Planned};
pub use read_write::{
    any_with_same_timeouts, is_beside_a_lock, is_read_write, is_reserved, most_reads, most_renewed,
    siblings_stay, timeout_name, timeout_prefix, token_name, write_field, Name, PendingRequest,
    ReadDepth, ReadWrite, Reader, Readers, RwFields, RwWrite, TokenRecord, Writer, MODE_FIELD,
    MOST_OTHERS, MOST_READS, READERS_AT_ONCE,
};
pub use request::{Acquire, Answer, Break, Release, Released, Renew, SetIf, UserId, Wait};
pub use semaphore::state::{
    nth_permit, own_permits, Held, OwnPermits, PermitChange, Permits, SemState, SemView,
    FIRST_END_MS, MOST_AT_ONCE, MOST_ENDED, NO_END_MS,
};
pub use semaphore::Semaphores;
pub use session::bindings::SessionRule;
pub use session::bindings::{Bound, BoundRef, Sessions};
pub use shared::Shared;
pub use slot::{is_braced, permits_of, prefixed, slot_of, slot_tags};
pub use state::{
    is_held, is_marked, may_be_of_a_lock, note_field, parse_counter, parse_decimal, parse_integer,
    HashReader, Hold, Holder, KeyState, OwnerId, Text, LONGEST_NUMBER, MAX_NOTE, TOKEN_FIELD,
};
pub use state::{Fence, View, HORIZON_DB};
pub use stats::Histogram;
pub use table::{give_back, step_below};
pub use time::StartupDelay;
pub use time::{Lease, Now};
pub use token::{Domain, Token, COUNTER};
pub use wait::due::Due;
pub use wait::hearing::{Asked, Hearing};
pub use wait::holders::MOST_READERS;
pub use wait::limits::Limits;
pub use wait::request::{Waiter, WaiterId, WaiterMap};
pub use wait::ticket::{Notify, Ticket};
pub use wait::waiters::Grace;
pub use window::WindowRule;
