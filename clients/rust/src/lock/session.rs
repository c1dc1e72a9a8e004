//! Locks that are bound to a connection: the server releases them when it ends.
//!
//! Each has a connection of its own, which carries its requests and which its guard keeps. The server renews the lease
//! while the connection lives. The guard renews it as well, because a paused server keeps its connections open while
//! the leases end. An acquisition that is given up is released as any other, because the server may not notice the end
//! of its connection.

use std::time::Duration;

use crate::error::Result;
use crate::lock::guard::Guard;
use crate::lock::terms::{Terms, DEFAULT_LEASE};
use crate::lock::Lock;

/// A lock whose holds are bound to a connection: made by [`Lock::session`](crate::Lock::session).
///
/// ```no_run
/// # async fn example(server: redis_lock_client::Server) -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::Lock;
///
/// let leader = Lock::new(&server, "leader").session();
/// let guard = leader.acquire().await?;
/// // When this program ends, for any reason, the next waiter gets the lock at once.
/// eprintln!("no longer the leader: {:?}", guard.lost().await);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SessionLock(Lock);

impl SessionLock {
    pub(crate) fn new(mut terms: Terms) -> SessionLock {
        // The server decides how long the lease is. Until it is known, this bounds the release of what was given up.
        terms.set_lease(DEFAULT_LEASE);
        terms.is_session = true;
        SessionLock(Lock { terms })
    }

    /// Takes the lock if it is free; see [`Lock::try_acquire`](crate::Lock::try_acquire).
    ///
    /// # Errors
    /// When the server cannot be reached, does not answer within 0.3 s, or refuses.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.0.try_acquire().await
    }

    /// Waits for the lock in the server's queue, for at most `wait`; see
    /// [`Lock::acquire_within`](crate::Lock::acquire_within).
    ///
    /// # Errors
    /// As there.
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<Guard>> {
        self.0.acquire_within(wait).await
    }

    /// Waits for the lock in the server's queue without a limit; see [`Lock::acquire`](crate::Lock::acquire).
    ///
    /// # Errors
    /// As there.
    pub async fn acquire(&self) -> Result<Guard> {
        self.0.acquire().await
    }
}
