//! Locks on many keys at once: all of them, or none.
//!
//! Every rule about one key is that of a request for one key. Nothing is granted before it is known that
//! everything can be: what would be an error at one key is found first, and then all are entered in one
//! event.
//!
//! Who waits holds nothing. The request stands in the queue of each of its keys
//! ([`crate::lock::wait::multi_key`]). A key that becomes free while it stands first there stays free for it:
//! the hand-off *reserves* it, newcomers are refused or queue up behind, and the request is marked. At
//! the end of the turn the shell reads all keys of a marked request, and [`Locks::settle_many`] grants
//! them all or leaves everything as it is. At a key that its owner holds already the request need not
//! be first.

pub(crate) mod acquire;
pub(crate) mod release;
pub(crate) mod settle;
