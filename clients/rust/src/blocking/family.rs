//! Semaphores and latches, for threads.

use std::time::Duration;

use super::lost::Lost;
use super::server::Server;
use super::wrapper::{acquisitions, around, block_on, holds, options};
use crate::error::Result;
use crate::family::semaphore::SemaphoreInfo;
use crate::outcome::Released;

/// A semaphore on a key of a server: [`crate::Semaphore`] for threads.
///
/// ```no_run
/// # fn main() -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::blocking::{Semaphore, Server};
///
/// let server = Server::open("redis://127.0.0.1:6379")?;
/// let permit = Semaphore::new(&server, "exports").limit(3).acquire()?;
/// // At most three exports run at a time, on all machines together.
/// assert_eq!(permit.release()?, redis_lock_client::Released::Yes);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore {
    inner: crate::Semaphore,
}

/// A permit that is held: [`crate::Permit`] for threads. Dropping it releases the permit in the background.
///
/// ```no_run
/// # fn example(permit: redis_lock_client::blocking::Permit) {
/// if let Some(why) = permit.lost().reason() {
///     eprintln!("stopped: {why}");
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropped, the permit is given back"]
pub struct Permit {
    inner: crate::Permit,
}

/// A latch on a key of a server: [`crate::Latch`] for threads.
///
/// ```no_run
/// # fn main() -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::blocking::{Latch, Server};
///
/// let server = Server::open("redis://127.0.0.1:6379")?;
/// let loaded = Latch::new(&server, "import:42:loaded");
/// loaded.set(3)?; // three parts
/// // Each of the three workers, when its part is loaded:
/// loaded.count_down()?;
/// // What needs all three:
/// loaded.wait()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Latch {
    inner: crate::Latch,
}

around!(Semaphore Permit Latch);

impl Semaphore {
    /// The semaphore of this key, with a lease of 30 s for each permit. Nothing is sent yet.
    pub fn new(server: &Server, key: impl AsRef<[u8]>) -> Semaphore {
        crate::Semaphore::new(&server.inner, key).into()
    }

    options! {
        Semaphore:
        /// The lease: how long the server keeps a permit without a renewal.
        lease(lease: Duration);
        /// How long before the end of the lease a loss is reported when no renewal is confirmed.
        margin(margin: Duration);
        /// The owner of all acquisitions, instead of a fresh one for each.
        owner(owner: impl AsRef<[u8]>);
        /// An acquisition creates a missing semaphore with this number of permits.
        limit(permits: u32);
    }

    acquisitions!(Semaphore, Permit);

    /// Creates the semaphore with this number of permits, or changes the number. See
    /// [`Semaphore::set`](crate::Semaphore::set).
    ///
    /// # Errors
    /// As there.
    pub fn set(&self, permits: u32) -> Result<()> {
        block_on(self.inner.set(permits))
    }

    /// The numbers of permits and of waiters. See [`Semaphore::info`](crate::Semaphore::info).
    ///
    /// # Errors
    /// As there.
    pub fn info(&self) -> Result<Option<SemaphoreInfo>> {
        block_on(self.inner.info())
    }
}

impl Permit {
    /// The number of this grant. See [`Permit::token`](crate::Permit::token).
    pub fn token(&self) -> u64 {
        self.inner.token()
    }

    /// The owner that holds the permit.
    pub fn owner(&self) -> &[u8] {
        self.inner.owner()
    }

    holds!(Permit);
}

impl Latch {
    /// The latch of this key. Nothing is sent yet.
    pub fn new(server: &Server, key: impl AsRef<[u8]>) -> Latch {
        crate::Latch::new(&server.inner, key).into()
    }

    /// Sets the count. See [`Latch::set`](crate::Latch::set).
    ///
    /// # Errors
    /// As there.
    pub fn set(&self, count: u64) -> Result<()> {
        block_on(self.inner.set(count))
    }

    /// Counts down by one; the request is served at most once. See [`Latch::count_down`](crate::Latch::count_down).
    ///
    /// # Errors
    /// As there.
    pub fn count_down(&self) -> Result<u64> {
        block_on(self.inner.count_down())
    }

    /// Counts down by `count`; the request is served at most once. See
    /// [`Latch::count_down_by`](crate::Latch::count_down_by).
    ///
    /// # Errors
    /// As there.
    pub fn count_down_by(&self, count: u64) -> Result<u64> {
        block_on(self.inner.count_down_by(count))
    }

    /// The count; 0 when the latch is open. See [`Latch::count`](crate::Latch::count).
    ///
    /// # Errors
    /// As there.
    pub fn count(&self) -> Result<u64> {
        block_on(self.inner.count())
    }

    /// Whether the latch is open. See [`Latch::try_wait`](crate::Latch::try_wait).
    ///
    /// # Errors
    /// As there.
    pub fn try_wait(&self) -> Result<bool> {
        block_on(self.inner.try_wait())
    }

    /// Waits until the latch is open, for at most `wait`. See [`Latch::wait_within`](crate::Latch::wait_within).
    ///
    /// # Errors
    /// As there.
    pub fn wait_within(&self, wait: Duration) -> Result<bool> {
        block_on(self.inner.wait_within(wait))
    }

    /// Waits until the latch is open, without a limit. See [`Latch::wait`](crate::Latch::wait).
    ///
    /// # Errors
    /// As there.
    pub fn wait(&self) -> Result<()> {
        block_on(self.inner.wait())
    }
}
