//! The notification of a loss, for threads.

use std::time::Duration;

use tokio::time::timeout_at;

use super::wrapper::block_on;
use crate::backoff::after;
use crate::outcome::LostReason;
use crate::runtime::within;

/// Reports when a lock is lost, and why. It outlives its guard and can be sent to another thread; each waiting thread
/// needs a clone.
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
    /// The reason of the loss, if the lock was lost. Returns at once, without a request.
    pub fn reason(&self) -> Option<LostReason> {
        self.inner.reason()
    }

    /// Waits for the loss, for at most `timeout`. None when the lock was not lost in that time, and at once when the
    /// guard is released or dropped.
    pub fn wait(&self, timeout: Duration) -> Option<LostReason> {
        let told = within(async {
            let told = timeout_at(after(timeout), self.inner.clone()).await;
            Ok(told.ok().flatten())
        });
        // A guard exists only after the thread that `within` needs was started.
        block_on(told).ok().flatten()
    }
}
