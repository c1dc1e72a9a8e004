//! What nearly every grant and release needs, made once: when the module is loaded.

use std::cell::Ref;

use crate::lock::TOKEN_FIELD;
use crate::module::ffi::ctx::Ctx;
use crate::module::ffi::main_thread::MainThread;
use crate::module::ffi::strings::OwnedStr;

/// The constants.
pub struct Constants {
    is_cluster: bool,
    /// The hold count 1.
    pub one: OwnedStr,
    /// The name of the token's field.
    pub token_field: OwnedStr,
    /// Redisson's release message.
    pub released: OwnedStr,
    /// The name of the command that nearly every waiter has sent.
    pub acquire: OwnedStr,
    /// The command that publishes to the channel of a ticket.
    pub publish: OwnedStr,
    /// The word of `PUBSUB` that counts the subscribers of such a channel.
    pub numsub: OwnedStr,
}

impl Constants {
    fn make(ctx: Ctx<'_>) -> Constants {
        let is_cluster = ctx.is_cluster();
        let (publish, numsub) = match is_cluster {
            true => ("SPUBLISH", "SHARDNUMSUB"),
            false => ("PUBLISH", "NUMSUB"),
        };
        Constants {
            is_cluster,
            one: OwnedStr::of_number(1u32),
            token_field: OwnedStr::new(TOKEN_FIELD),
            released: OwnedStr::new(b"0"),
            acquire: OwnedStr::new(b"lock.acquire"),
            publish: OwnedStr::new(publish.as_bytes()),
            numsub: OwnedStr::new(numsub.as_bytes()),
        }
    }
}

// SAFETY: the module has no threads, and the server calls it on its main thread only.
static CONSTANTS: MainThread<Constants> = unsafe { MainThread::empty() };

/// The constants, borrowed: [`stop`] panics while the borrow lives, and frees nothing.
///
/// # Panics
/// When the module is not loaded: a bug, caught by the guard.
#[inline]
pub fn constants() -> Ref<'static, Constants> {
    CONSTANTS.borrow()
}

/// Whether this node is part of a cluster.
#[inline]
pub fn is_cluster() -> bool {
    constants().is_cluster
}

/// Makes the constants: the module is loaded.
pub fn start(ctx: Ctx<'_>) {
    CONSTANTS.set(Some(Constants::make(ctx)));
}

/// Frees them: the server unloads the module, after a `MODULE LOADEX` that has failed.
pub fn stop() {
    CONSTANTS.set(None);
}
