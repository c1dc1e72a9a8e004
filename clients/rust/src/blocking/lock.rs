//! Locks of one server, for threads.

use std::time::Duration;

use super::lost::Lost;
use super::server::Server;
use super::wrapper::{acquisitions, around, block_on, holds, options};
use crate::error::Result;
use crate::mode::Mode;
use crate::outcome::Released;

/// A lock on a key of a server: [`crate::Lock`] for threads. Two threads that share it exclude each other.
///
/// ```no_run
/// # fn main() -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::blocking::{Lock, Server};
///
/// let server = Server::open("redis://127.0.0.1:6379")?;
/// let guard = Lock::new(&server, "invoices:42").acquire()?;
/// println!("the fencing token is {}", guard.token());
/// assert_eq!(guard.release()?, redis_lock_client::Released::Yes);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Lock {
    pub(super) inner: crate::Lock,
}

/// A lock whose holds are bound to a connection: [`crate::SessionLock`] for threads, made by
/// [`Lock::session`].
///
/// ```no_run
/// # fn main() -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::blocking::{Lock, Server};
///
/// let server = Server::open("redis://127.0.0.1:6379")?;
/// let guard = Lock::new(&server, "leader").session().acquire()?;
/// println!("leads until this program ends: {}", guard.token());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SessionLock {
    inner: crate::SessionLock,
}

/// A lock that is held: [`crate::Guard`] for threads. The thread of this crate renews it, also while its holder
/// computes or sleeps. Dropping it releases the lock in the background; before a program ends, call
/// [`release`](Guard::release) or [`Server::settled`].
///
/// ```no_run
/// # fn example(guard: redis_lock_client::blocking::Guard) -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::Released;
///
/// match guard.lost().reason() {
///     Some(why) => eprintln!("stop within {:?}: {why}", guard.valid_for()),
///     None => assert_eq!(guard.release()?, Released::Yes),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropped, the lock is given back"]
pub struct Guard {
    inner: crate::Guard,
}

around!(Lock SessionLock Guard);

impl Lock {
    /// The exclusive lock of this key, with a lease of 30 s.
    pub fn new(server: &Server, key: impl AsRef<[u8]>) -> Lock {
        crate::Lock::new(&server.inner, key).into()
    }

    options! {
        Lock:
        /// The lease: how long the server keeps the lock without a renewal.
        lease(lease: Duration);
        /// How long before the end of the lease a loss is reported when no renewal is confirmed.
        margin(margin: Duration);
        /// The owner of all acquisitions, instead of a fresh one for each.
        owner(owner: impl AsRef<[u8]>);
        /// What the fresh owner of each acquisition begins with.
        owner_prefix(prefix: impl AsRef<[u8]>);
        /// The mode.
        mode(mode: Mode);
    }

    /// The guard of a hold that was taken elsewhere. See [`Lock::adopt`](crate::Lock::adopt).
    ///
    /// # Errors
    /// As there.
    pub fn adopt(&self, token: u64) -> Result<Option<Guard>> {
        Ok(block_on(self.inner.adopt(token))?.map(Guard::from))
    }

    acquisitions!(Lock, Guard);

    /// A lock whose holds are bound to a connection: the server releases the lock when it ends. See
    /// [`Lock::session`](crate::Lock::session).
    #[must_use]
    pub fn session(self) -> SessionLock {
        self.inner.session().into()
    }
}

impl SessionLock {
    acquisitions!(SessionLock, Guard);
}

impl Guard {
    /// The fencing token of this grant. See [`Guard::token`](crate::Guard::token).
    pub fn token(&self) -> u64 {
        self.inner.token()
    }

    /// The key of the lock.
    pub fn key(&self) -> &[u8] {
        self.inner.key()
    }

    /// The owner that holds the lock.
    pub fn owner(&self) -> &[u8] {
        self.inner.owner()
    }

    /// Leaves the lock held for this time. See [`Guard::leave`](crate::Guard::leave).
    ///
    /// # Errors
    /// As there.
    pub fn leave(self, rest: Duration) -> Result<Released> {
        block_on(self.inner.leave(rest))
    }

    holds!(Guard);
}
