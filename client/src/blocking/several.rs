//! Several locks as one, and one lock on several servers.

use std::time::Duration;

use super::lock::Lock;
use super::lost::Lost;
use super::server::Server;
use super::wrapper::{acquisitions, around, block_on, holds, options};
use crate::error::Result;
use crate::mode::Mode;
use crate::outcome::Released;

/// Several locks that are had together, or not at all: [`crate::MultiLock`] for threads.
///
/// ```no_run
/// # fn example(server: redis_lock_client::blocking::Server) -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::blocking::{Lock, MultiLock};
///
/// let accounts = ["account:1", "account:2"].map(|key| Lock::new(&server, key));
/// let guard = MultiLock::new(accounts)?.acquire()?;
/// println!("the fencing tokens are {:?}", guard.tokens());
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MultiLock {
    inner: crate::MultiLock,
}

/// Locks that are held together: [`crate::MultiGuard`] for threads. Dropped, all are given back in the background.
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
/// guard.release()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RedLock {
    inner: crate::RedLock,
}

/// A RedLock that is held: [`crate::RedGuard`] for threads. Dropped, it is given back in the background.
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
    /// Of these locks. See [`MultiLock::new`](crate::MultiLock::new).
    ///
    /// # Errors
    /// When none is named, or one twice.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<MultiLock> {
        let locks = locks.into_iter().map(|lock| lock.inner);
        crate::MultiLock::new(locks).map(MultiLock::from)
    }

    options! {
        MultiLock:
        /// How long a part of the locks may be held while the others are waited for.
        round(round: Duration);
    }

    acquisitions!(MultiLock, MultiGuard);
}

impl MultiGuard {
    /// Each lock's own guard, in the order in which the caller has named them: for its token, its owner and its time.
    pub fn members(&self) -> &[crate::Guard] {
        self.inner.members()
    }

    /// Each lock's fencing token, in the same order.
    pub fn tokens(&self) -> Vec<u64> {
        self.inner.tokens()
    }

    holds!(MultiGuard);

    /// The same, and what was found of each lock, in the caller's order.
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
        /// How long each server keeps the lock for a holder of whom it hears nothing.
        lease(lease: Duration);
        /// How long before the leases' end a loss is told that no majority tells.
        margin(margin: Duration);
        /// How it is to be held.
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

    /// The same, and what was found on each server, by its name.
    pub fn release_each(self) -> Vec<(String, Result<Released>)> {
        block_on(self.inner.release_each())
    }
}
