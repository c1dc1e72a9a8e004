//! `MultiLock` and `RedLock`, for threads.

use std::time::Duration;

use super::lock::Lock;
use super::lost::Lost;
use super::server::Server;
use super::wrapper::{acquisitions, around, block_on, holds, options};
use crate::error::Result;
use crate::mode::Mode;
use crate::outcome::Released;

/// Several locks that are acquired together or not at all: [`crate::MultiLock`] for threads.
///
/// ```no_run
/// # fn example(server: redis_lock_client::blocking::Server) -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::blocking::{Lock, MultiLock};
///
/// let accounts = ["account:1", "account:2"].map(|key| Lock::new(&server, key));
/// let guard = MultiLock::new(accounts)?.acquire()?;
/// println!("the fencing tokens are {:?}", guard.tokens());
/// assert_eq!(guard.release()?, redis_lock_client::Released::Yes);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MultiLock {
    inner: crate::MultiLock,
}

/// Locks that are held together: [`crate::MultiGuard`] for threads. Dropping it releases all of them in the background.
///
/// ```no_run
/// # fn example(guard: redis_lock_client::blocking::MultiGuard) {
/// for member in guard.members() {
///     println!("token {}, for {:?} more", member.token(), member.valid_for());
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropped, the locks are given back"]
pub struct MultiGuard {
    inner: crate::MultiGuard,
}

/// A lock on a key of three or more independent servers: [`crate::RedLock`] for threads.
///
/// ```no_run
/// # fn main() -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::blocking::{RedLock, Server};
///
/// let urls = ["redis://a", "redis://b", "redis://c"];
/// let servers = urls.map(Server::open).into_iter().collect::<Result<Vec<_>, _>>()?;
/// let guard = RedLock::new(&servers, "invoices:42")?.acquire()?;
/// println!("on {} servers", guard.tokens().len());
/// assert_eq!(guard.release()?, redis_lock_client::Released::Yes);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RedLock {
    inner: crate::RedLock,
}

/// A RedLock that is held: [`crate::RedGuard`] for threads. Dropping it releases the lock in the background.
///
/// ```no_run
/// # fn example(guard: redis_lock_client::blocking::RedGuard) {
/// for (server, token) in guard.tokens() {
///     println!("{server}: {token}");
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropped, the lock is given back"]
pub struct RedGuard {
    inner: crate::RedGuard,
}

around!(MultiLock MultiGuard RedLock RedGuard);

impl MultiLock {
    /// Combines these locks. See [`MultiLock::new`](crate::MultiLock::new).
    ///
    /// # Errors
    /// When the list is empty or names a lock twice.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<MultiLock> {
        let locks = locks.into_iter().map(|lock| lock.inner);
        crate::MultiLock::new(locks).map(MultiLock::from)
    }

    options! {
        MultiLock:
        /// How long some of the locks may be held while the others are waited for.
        round(round: Duration);
    }

    acquisitions!(MultiLock, MultiGuard);
}

impl MultiGuard {
    /// The guard of each lock, in the caller's order, with its token, owner and validity.
    pub fn members(&self) -> &[crate::Guard] {
        self.inner.members()
    }

    /// The fencing token of each lock, in the same order.
    pub fn tokens(&self) -> Vec<u64> {
        self.inner.tokens()
    }

    holds!(MultiGuard);

    /// The same, with the result for each lock, in the caller's order.
    pub fn release_each(self) -> Vec<Result<Released>> {
        block_on(self.inner.release_each())
    }
}

impl RedLock {
    /// The exclusive lock of this key on these servers, with a lease of 30 s.
    ///
    /// # Errors
    /// When there are fewer than three servers, when one is named twice, or when one is a cluster.
    pub fn new<'a>(
        servers: impl IntoIterator<Item = &'a Server>,
        key: impl AsRef<[u8]>,
    ) -> Result<RedLock> {
        let servers = servers.into_iter().map(|server| &server.inner);
        crate::RedLock::new(servers, key).map(RedLock::from)
    }

    options! {
        RedLock:
        /// The lease: how long each server keeps the lock without a renewal.
        lease(lease: Duration);
        /// How long before the end of the leases a loss is reported when no majority confirms a renewal.
        margin(margin: Duration);
        /// The mode.
        mode(mode: Mode);
    }

    acquisitions!(RedLock, RedGuard);
}

impl RedGuard {
    /// The owner that holds the lock on every server.
    pub fn owner(&self) -> &[u8] {
        self.inner.owner()
    }

    /// The highest of the servers' tokens. See [`RedGuard::token`](crate::RedGuard::token).
    pub fn token(&self) -> u64 {
        self.inner.token()
    }

    /// The fencing token on each server where the lock is held, by the server's name.
    pub fn tokens(&self) -> Vec<(String, u64)> {
        self.inner.tokens()
    }

    holds!(RedGuard);

    /// The same, with the result for each server, by its name.
    pub fn release_each(self) -> Vec<(String, Result<Released>)> {
        block_on(self.inner.release_each())
    }
}
