//! What the keys of all kinds of resource have in common for the shell, which carries out the decisions about them.

use crate::lock::{KeyRef, KeyWrite};
use crate::module::ffi::api::{Refused, Written};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::fault;
use crate::module::ffi::strings::Str;
use crate::module::keyspace::replication::Replication;

/// The refusal of a change that is one of another kind of key. The core makes none.
pub const OTHER_KIND: Refused = Refused("the change of another kind of key");

/// The key of a resource, with the keys beside it, open during one callback.
pub trait Key<'a> {
    /// The context that it was opened in.
    fn ctx(&self) -> Ctx<'a>;

    /// Its name as the server's string.
    fn name(&self) -> Str<'a>;

    /// Its name for the core.
    fn id(&self) -> KeyRef<'a>;

    /// Makes a change, replicates it, and marks the key as changed.
    ///
    /// # Errors
    /// When the server refuses. No hold stays of what was made in part then.
    fn write(&mut self, change: &KeyWrite, replication: Replication<'_>) -> Written;

    /// Undoes this change, because the server refused a later one of the same decision. `before` is the change before
    /// it. (A decision about a semaphore or a latch makes one change: there is nothing to undo.)
    fn roll_back(
        &mut self,
        _change: &KeyWrite,
        _before: Option<&KeyWrite>,
        _replication: Replication<'_>,
    ) {
    }
}

/// Before a decision that no command requested writes to a key: closes it, and asks the server whether it accepts a
/// write. Closed, because the server deletes a key whose TTL is over; the caller opens and reads it again.
pub fn close_and_probe<'a>(key: impl Key<'a>) -> bool {
    let (ctx, name) = (key.ctx(), key.name());
    drop(key);
    ctx.probe_write(name) || fault::is_on("alarm-writes-unasked")
}
