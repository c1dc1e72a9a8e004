//! A semaphore on a key: so many permits, and who asks for one.
//!
//! A permit is claimed, waited for, renewed and given back as a lock is. Only the commands differ
//! ([`Kind::Permit`]).

use std::time::Duration;

use redis::{cmd, Value};

use crate::error::{Error, Result};
use crate::family::permit::Permit;
use crate::lock::Lock;
use crate::net::command::Kind;
use crate::net::reply::{count, field, number, span};
use crate::net::retry::repeatable;
use crate::net::server::Server;
use crate::runtime::within;

/// A semaphore on a key of a server: as many may hold a [`Permit`] at a time as it has permits. Each acquisition has an
/// owner of its own, and takes one permit.
///
/// First come, first served, among all programs that use the module's `SEM.*` commands. Clients of Redisson's
/// `RPermitExpirableSemaphore` may share it.
///
/// A semaphore has no permits until it is made, by [`set`](Semaphore::set) or [`limit`](Semaphore::limit). Until
/// then nothing is acquired, and waits go on.
///
/// ```no_run
/// use std::time::Duration;
/// use redis_lock_client::{Semaphore, Server};
///
/// # async fn example() -> Result<(), redis_lock_client::Error> {
/// let server = Server::open("redis://127.0.0.1:6379")?;
/// let exports = Semaphore::new(&server, "exports").limit(3);
/// if let Some(permit) = exports.acquire_within(Duration::from_secs(60)).await? {
///     // At most three exports run at a time, on all machines together.
///     permit.release().await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore {
    /// What an acquisition asks for.
    lock: Lock,
}

/// The state of a semaphore, as `SEM.INFO` tells it.
///
/// ```no_run
/// # async fn example(semaphore: redis_lock_client::Semaphore) -> Result<(), redis_lock_client::Error> {
/// if let Some(info) = semaphore.info().await? {
///     println!("{} of {} permits are held, {} wait", info.held, info.permits, info.waiters);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SemaphoreInfo {
    /// How many permits it has, held and free together.
    pub permits: u64,
    /// How many are free. Negative after [`Semaphore::set`] to fewer than are held: so many are given back before
    /// one is granted again.
    pub free: i64,
    /// How many are held. A permit whose lease is over is free.
    pub held: u64,
    /// How long it takes until the next lease ends, unless it is renewed. None when none is held, or none ends.
    pub next_end: Option<Duration>,
    /// How many acquisitions wait.
    pub waiters: u64,
    /// How long the first of them has waited. Zero when none waits.
    pub longest_wait: Duration,
}

impl Semaphore {
    /// The semaphore of this key, with a lease of 30 s for each permit. Nothing is sent yet.
    pub fn new(server: &Server, key: impl AsRef<[u8]>) -> Semaphore {
        let lock = Lock::new(server, key).of(Kind::Permit { limit: None });
        Semaphore { lock }
    }

    /// How long the server keeps a permit for a holder of whom it hears nothing, in whole milliseconds.
    /// Renewed every third of it.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Semaphore {
        let lock = self.lock.lease(lease);
        Semaphore { lock }
    }

    /// When the server confirms no renewal, [`lost`](Permit::lost) ends this long before the lease does; see
    /// [`Lock::margin`]. A sixth of the lease by default, at most half of it.
    #[must_use]
    pub fn margin(self, margin: Duration) -> Semaphore {
        let lock = self.lock.margin(margin);
        Semaphore { lock }
    }

    /// The owner of all acquisitions, instead of a fresh one for each: the permit's id in `SEM.*`. It has one permit at most.
    /// As with [`Lock::owner`], an acquisition waits until the former one under this name in this process has been
    /// released and settled; that another process does not use it is the caller's care.
    #[must_use]
    pub fn owner(self, owner: impl AsRef<[u8]>) -> Semaphore {
        let lock = self.lock.owner(owner);
        Semaphore { lock }
    }

    /// An acquisition makes the semaphore, with so many permits, if there is none; also one that waits when the
    /// semaphore is deleted. One to 2,147,483,647. A semaphore that exists keeps its number: [`set`](Semaphore::set)
    /// changes it.
    #[must_use]
    pub fn limit(self, permits: u32) -> Semaphore {
        let limit = Some(permits);
        let lock = self.lock.of(Kind::Permit { limit });
        Semaphore { lock }
    }

    /// Takes a permit if one is free. None when there is none, or others wait for it, or the semaphore does not exist.
    /// A connection that breaks meanwhile is worth one more attempt. `SEM.ACQUIRE`.
    ///
    /// # Errors
    /// When the server cannot be reached, does not answer within 0.3 s, or refuses.
    pub async fn try_acquire(&self) -> Result<Option<Permit>> {
        Ok(self.lock.try_acquire().await?.map(Permit::new))
    }

    /// Waits for a permit, in its turn, for at most so long. None when that was not enough. The wait goes on where
    /// connections break, servers start again, and primaries change, and while the semaphore does not exist.
    /// Dropped, it is withdrawn. `SEM.ACQUIRE ... BLOCK`.
    ///
    /// It ends 0.3 s after that time at the latest, as [`Lock::acquire_within`] does.
    ///
    /// # Errors
    /// When the server refuses, or could not be reached at the end of the wait.
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<Permit>> {
        Ok(self.lock.acquire_within(wait).await?.map(Permit::new))
    }

    /// Waits for a permit, in its turn, for as long as it takes; also through the death of a server.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn acquire(&self) -> Result<Permit> {
        self.lock.acquire().await.map(Permit::new)
    }

    /// Makes the semaphore with so many permits, or changes how many it has: 0 to 2,147,483,647. Permits that are held stay
    /// held, also where there are more of them. `SEM.SET`.
    ///
    /// It is sent again where no answer came. Served late, it would undo a number that was set after it.
    ///
    /// # Errors
    /// When the server refuses, or did not answer within the [response timeout](Server::response_timeout): then the
    /// number may have been set all the same.
    pub async fn set(&self, permits: u32) -> Result<()> {
        let mut command = cmd("SEM.SET");
        command.arg(&self.lock.terms.key).arg(permits);
        let server = &self.lock.terms.server;
        within(repeatable(server, &self.lock.terms.key, &command)).await?;
        Ok(())
    }

    /// How many permits there are, held and free, and how many wait. None when the semaphore does not exist and is not
    /// waited for. `SEM.INFO`.
    ///
    /// # Errors
    /// When the server refuses, or did not answer within the [response timeout](Server::response_timeout).
    pub async fn info(&self) -> Result<Option<SemaphoreInfo>> {
        let mut command = cmd("SEM.INFO");
        command.arg(&self.lock.terms.key);
        let server = &self.lock.terms.server;
        match within(repeatable(server, &self.lock.terms.key, &command)).await? {
            Value::Nil => Ok(None),
            reply => match read(&reply) {
                Some(info) => Ok(Some(info)),
                None => Err(Error::reply(server.name())),
            },
        }
    }
}

fn read(reply: &Value) -> Option<SemaphoreInfo> {
    Some(SemaphoreInfo {
        permits: count(reply, "permits")?,
        free: field(reply, "free").and_then(number)?,
        held: count(reply, "held")?,
        next_end: span(reply, "next-end-ms"),
        waiters: count(reply, "waiters")?,
        longest_wait: span(reply, "longest-wait-ms")?,
    })
}
