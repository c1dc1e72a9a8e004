//! Requests of operators, for threads.

use std::collections::BTreeMap;

use super::server::Server;
use super::wrapper::{around, block_on};
use crate::error::Result;
use crate::inspect::{BreakTarget, BreakWaiters, LockInfo, Readiness, Search};
use crate::key_events::KeyEvent;

/// An iteration over the locks of a server: [`crate::Scan`] for threads.
///
/// ```no_run
/// # fn example(server: redis_lock_client::blocking::Server) -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::Search;
///
/// let mut scan = server.scan(Search::held())?;
/// while let Some(keys) = scan.step()? {
///     println!("{} more", keys.len());
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "a walk that takes no step finds nothing"]
pub struct Scan {
    inner: crate::Scan,
}

/// The events of a key: [`crate::KeyEvents`] for threads.
///
/// ```no_run
/// # fn example(server: redis_lock_client::blocking::Server) -> Result<(), redis_lock_client::Error> {
/// let mut events = server.key_events("invoices:42")?;
/// println!("{:?}: {:?}", events.next()?, events.info(10)?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct KeyEvents {
    inner: crate::KeyEvents,
}

around!(Scan KeyEvents);

/// With the feature `admin`.
impl Server {
    /// The holders and the waiters of this lock. See [`Server::info`](crate::Server::info).
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub fn info(&self, key: impl AsRef<[u8]>, queue: u64) -> Result<Option<LockInfo>> {
        block_on(self.inner.info(key, queue))
    }

    /// Breaks a lock, whichever owner holds it. See [`Server::break_lock`](crate::Server::break_lock).
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub fn break_lock(
        &self,
        key: impl AsRef<[u8]>,
        grant: BreakTarget,
        waiters: BreakWaiters,
    ) -> Result<bool> {
        block_on(self.inner.break_lock(key, grant, waiters))
    }

    /// Lists the locks of the database step by step.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub fn scan(&self, search: Search) -> Result<Scan> {
        block_on(self.inner.scan(search)).map(Scan::from)
    }

    /// Subscribes to the events of a key. See [`Server::key_events`](crate::Server::key_events).
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses `LOCK.INFO`.
    pub fn key_events(&self, key: impl AsRef<[u8]>) -> Result<KeyEvents> {
        block_on(self.inner.key_events(key)).map(KeyEvents::from)
    }

    /// Whether this user can acquire this lock. See [`Server::readiness`](crate::Server::readiness).
    ///
    /// # Errors
    /// When the server cannot serve it.
    pub fn readiness(&self, key: impl AsRef<[u8]>) -> Result<Readiness> {
        block_on(self.inner.readiness(key))
    }

    /// The module's counters of `INFO lock`. See [`Server::module_counters`](crate::Server::module_counters).
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub fn module_counters(&self) -> Result<BTreeMap<String, u64>> {
        block_on(self.inner.module_counters())
    }
}

impl Scan {
    /// The next keys, possibly an empty list; None at the end.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub fn step(&mut self) -> Result<Option<Vec<Vec<u8>>>> {
        block_on(self.inner.step())
    }
}

impl KeyEvents {
    /// The node, as `host:port/db`.
    pub fn node(&self) -> &str {
        self.inner.node()
    }

    /// The node's `notify-keyspace-events`. See [`KeyEvents::setting`](crate::KeyEvents::setting).
    pub fn setting(&self) -> Option<&str> {
        self.inner.setting()
    }

    /// Whether key events are subscribed to.
    pub fn has_key_events(&self) -> bool {
        self.inner.has_key_events()
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// When the connection has ended.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<KeyEvent> {
        block_on(self.inner.next())
    }

    /// The next event that has arrived already.
    pub fn arrived(&mut self) -> Option<KeyEvent> {
        self.inner.arrived()
    }

    /// The state of the lock. See [`KeyEvents::info`](crate::KeyEvents::info).
    ///
    /// # Errors
    /// As there.
    pub fn info(&mut self, max_waiters: u64) -> Result<Option<LockInfo>> {
        block_on(self.inner.info(max_waiters))
    }
}
