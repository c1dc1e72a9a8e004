//! The notice of a loss, for threads.

use std::time::Duration;

use tokio::time::timeout_at;

use super::wrapper::block_on;
use crate::backoff::after;
use crate::outcome::LostReason;
use crate::runtime::within;

/// Tells when a lock is lost, and why. It outlives its guard, and can be sent to another thread: a clone each for as many
/// as wait.
///
/// ```no_run
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::thread;
/// use std::time::Duration;
///
/// # fn example(guard: redis_lock_client::blocking::Guard) -> Result<(), redis_lock_client::Error> {
/// let stop = AtomicBool::new(false);
/// let lost = guard.lost();
/// thread::scope(|scope| {
///     scope.spawn(|| {
///         if let Some(why) = lost.wait(Duration::MAX) {
///             eprintln!("stop: {why}");
///             stop.store(true, Ordering::Relaxed);
///         }
///     });
///     work(guard.token(), &stop);
///     guard.release() // which ends the wait of the other thread
/// })?;
/// # Ok(())
/// # }
/// # fn work(_token: u64, _stop: &AtomicBool) {}
/// ```
#[derive(Debug, Clone)]
pub struct Lost {
    pub(super) inner: crate::Lost,
}

impl Lost {
    /// Why the lock was lost, if it was. Answers at once, and asks no server.
    pub fn reason(&self) -> Option<LostReason> {
        self.inner.reason()
    }

    /// Waits for the loss, for at most so long. None when the lock was not lost until then; and at once when the guard is
    /// released or dropped, because then no loss is told any more.
    pub fn wait(&self, timeout: Duration) -> Option<LostReason> {
        let told = within(async {
            let told = timeout_at(after(timeout), self.inner.ended()).await;
            Ok(told.ok().flatten())
        });
        // There is no guard without the thread that `within` wants.
        block_on(told).ok().flatten()
    }
}
