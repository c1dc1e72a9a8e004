//! The keys of a request for several: in a cluster all are in one slot, and on this node.
//!
//! The server itself looks at the first key only (see `command::routing_spec`). While the slot moves key by key, the
//! first key may be here and another one on the other node; it would be taken for free.

use crate::lock::slot_of;
use crate::lock::LockError;
use crate::module::ffi::call_reply::{How, Reply};
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::strings::{number_of_keys, Str};
use crate::module::state::shell;

/// Checks the keys behind the word at `numkeys_at`. A wrong number of keys is left to the command.
///
/// # Errors
/// As the server's own for such keys: `CrossSlot`, and `Rehashing` while some of them are on the other node.
pub fn check(ctx: Ctx<'_>, words: &[Str<'_>], numkeys_at: usize) -> Result<(), LockError> {
    if !shell::is_cluster() {
        return Ok(());
    }
    let count = number_of_keys(words, numkeys_at).unwrap_or(0);
    let keys = words
        .get(numkeys_at + 1..)
        .and_then(|rest| rest.get(..count));
    let Some(keys @ [first, _, ..]) = keys else {
        return Ok(());
    };
    let slot = slot_of(first.bytes());
    if keys.iter().any(|key| slot_of(key.bytes()) != slot) {
        return Err(LockError::CrossSlot);
    }
    // The server refuses the call if it would redirect a client that sends it, or answer it `TRYAGAIN`.
    match Reply::of(ctx, c"EXISTS", How::AsModule, keys) {
        Some(_) => Ok(()),
        None => Err(LockError::Rehashing),
    }
}
