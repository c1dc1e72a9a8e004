//! A permit that is held: renewed in the background, and given back.

use std::time::Duration;

use crate::error::Result;
use crate::lock::guard::Guard;
use crate::lock::loss::Lost;
use crate::outcome::Released;

/// A permit of a [`Semaphore`](crate::Semaphore) that is held, and renewed every third of its lease (`SEM.RENEW`).
/// Dropped, it is given back in the background, wherever it is dropped. A program that is about to end calls
/// [`release`](Permit::release) or waits for [`Server::settled`](crate::Server::settled); otherwise the lease has to
/// end the permit.
///
/// ```no_run
/// # async fn example(semaphore: redis_lock_client::Semaphore) -> Result<(), redis_lock_client::Error> {
/// let permit = semaphore.acquire().await?;
/// tokio::select! {
///     () = work() => { permit.release().await?; }
///     why = permit.lost() => eprintln!("stopped: {why}"),
/// }
/// # Ok(())
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

    /// The number of this grant, which is that of no other grant of this semaphore. It is no fencing token: several permits
    /// are valid at a time.
    pub fn token(&self) -> u64 {
        self.guard.token()
    }

    /// The owner that holds the permit: its id in `SEM.*`.
    pub fn owner(&self) -> &[u8] {
        self.guard.owner()
    }

    /// A future that ends when the permit is lost: at the next renewal when the server says so (the lease ran out, the
    /// semaphore was deleted), and at the [margin](crate::Semaphore::margin) before the lease's end when the server says
    /// nothing. It may be had as often as one likes, and outlives the permit; after a release it never ends.
    pub fn lost(&self) -> Lost {
        self.guard.lost()
    }

    /// How long the permit is certainly still ours; see [`Guard::valid_for`](crate::Guard::valid_for).
    pub fn valid_for(&self) -> Duration {
        self.guard.valid_for()
    }

    /// Gives the permit back, and waits for the server's word. `SEM.RELEASE`.
    ///
    /// # Errors
    /// When the server could not be reached until the lease was over, or refuses.
    pub async fn release(self) -> Result<Released> {
        self.guard.release().await
    }
}
