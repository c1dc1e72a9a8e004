//! The guard of a semaphore's permit.

use std::future::Future;
use std::time::Duration;

use crate::error::Result;
use crate::lock::guard::Guard;
use crate::lock::loss::Lost;
use crate::outcome::Released;

/// A held permit of a [`Semaphore`](crate::Semaphore), renewed every third of its lease (`SEM.RENEW`). Dropping it, in
/// any thread or runtime, releases it in the background. A program that is about to end calls
/// [`release`](Permit::release) or waits for [`Server::settled`](crate::Server::settled); otherwise the permit may stay
/// held until its lease ends.
///
/// ```no_run
/// # async fn example(semaphore: redis_lock_client::Semaphore) -> Result<(), redis_lock_client::Error> {
/// semaphore.acquire().await?.run(work()).await
/// # }
/// # async fn work() {}
/// ```
#[derive(Debug)]
#[must_use = "dropped, the permit is given back"]
pub struct Permit {
    guard: Guard,
}

impl Permit {
    pub(crate) fn new(guard: Guard) -> Permit {
        Permit { guard }
    }

    /// The number of this grant, unique among the grants of this semaphore. It is not a fencing token, because several
    /// permits are valid at a time.
    pub fn token(&self) -> u64 {
        self.guard.token()
    }

    /// The owner that holds the permit: its id in `SEM.*`.
    pub fn owner(&self) -> &[u8] {
        self.guard.owner()
    }

    /// A future that completes when the permit is lost: at the next renewal when the server reports it (the lease ran
    /// out, the semaphore was deleted), and at the [margin](crate::Semaphore::margin) before the end of the lease when
    /// no renewal is confirmed. It can be created any number of times and outlives the permit; after a release it
    /// completes with None.
    pub fn lost(&self) -> Lost {
        self.guard.lost()
    }

    /// How long the permit is certainly still held; see [`Guard::valid_for`](crate::Guard::valid_for).
    pub fn valid_for(&self) -> Duration {
        self.guard.valid_for()
    }

    /// Runs the work and releases the permit. A loss stops the work; see [`Guard::run`](crate::Guard::run).
    ///
    /// # Errors
    /// As there.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Result<T> {
        self.guard.run(work).await
    }

    /// Leaves the permit held for this time from now on; see [`Guard::leave`](crate::Guard::leave).
    ///
    /// # Errors
    /// As there.
    pub async fn leave(self, rest: Duration) -> Result<Released> {
        self.guard.leave(rest).await
    }

    /// Releases the permit and waits for the reply of the server; see [`Guard::release`](crate::Guard::release).
    /// `SEM.RELEASE`.
    ///
    /// # Errors
    /// As there.
    pub async fn release(self) -> Result<Released> {
        self.guard.release().await
    }
}
