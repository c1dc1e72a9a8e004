//! Locks on several keys at once, all or none.
//!
//! The rules at each key are those of a request for one key. Every possible error is found before the first grant; then
//! all keys are granted in one event.
//!
//! A waiter holds nothing. The request has a place in the queue of each of its keys ([`crate::lock::wait::multi_key`]).
//! A key that becomes free while the request is first in its queue stays free for it: the hand-off *reserves* the key,
//! new requests are refused or join the queue, and the request is scheduled. At the end of the tick the shell reads all
//! keys of a scheduled request, and [`crate::lock::Locks::settle_many`] grants them all or changes nothing. At a key
//! that its owner holds already the request need not be first.

pub(crate) mod acquire;
pub(crate) mod release;
pub(crate) mod settle;
