//! A semaphore on a key: its number of permits and their acquisition.
//!
//! A permit is acquired, waited for, renewed and released as a lock is. Only the commands differ ([`Kind::Permit`]).

use std::time::Duration;

use redis::{cmd, Cmd, Value};

use crate::error::{Error, Result};
use crate::lock::guard::Guard;
use crate::lock::terms::check_permits;
use crate::lock::Lock;
use crate::net::command::Kind;
use crate::net::reply::{count, field, number, span};
use crate::net::retry::repeatable;
use crate::net::server::Server;

/// A permit that is held. It has the methods of a lock's [`Guard`] but those for a lock alone: `execute`, `set_note`.
pub type Permit = Guard<Semaphore>;

/// A semaphore on a key of a server, which limits how many owners hold a [`Permit`] at a time. Each acquisition has an
/// owner of its own, and takes one permit, or [`count`](Semaphore::count) of them.
///
/// Permits are granted in the order of requests, among all programs that use the module's `SEM.*` commands. Clients of
/// Redisson's `RPermitExpirableSemaphore` may share it.
///
/// A semaphore has no permits until [`set`](Semaphore::set) or [`limit`](Semaphore::limit) creates it. Until then an
/// acquisition is [`Error::NoSemaphore`], unless the user lacks the permission `+exists`.
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
///     permit.run(export()).await?;
/// }
/// # Ok(())
/// # }
/// # async fn export() {}
/// ```
#[derive(Debug, Clone)]
pub struct Semaphore(pub(crate) Lock);

/// The state of a semaphore, as `SEM.INFO` returns it.
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
    /// The number of permits, held and free.
    pub permits: u64,
    /// The number of free permits. Negative after [`Semaphore::set`] to fewer than are held: that many have to be
    /// released before the next grant.
    pub free: i64,
    /// The number of held permits. A permit whose lease is over is free.
    pub held: u64,
    /// The time until the next lease ends, unless it is renewed. None when no permit is held, or no lease ends.
    pub next_end: Option<Duration>,
    /// The number of waiting acquisitions.
    pub waiters: u64,
    /// How long the first of them has waited. Zero without waiters.
    pub longest_wait: Duration,
}

impl Semaphore {
    /// The semaphore of this key, with a lease of 30 s for each permit. Nothing is sent yet.
    pub fn new(server: &Server, key: impl AsRef<[u8]>) -> Semaphore {
        Semaphore(Lock::new(server, key).of(Kind::Permit {
            limit: None,
            count: 1,
        }))
    }

    /// The lease: how long the server keeps a permit without a renewal, in whole milliseconds. It is renewed every
    /// third of that time.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Semaphore {
        Semaphore(self.0.lease(lease))
    }

    /// When the server confirms no renewal, [`lost`](Guard::lost) completes this long before the end of the lease; see
    /// [`Lock::margin`]. A sixth of the lease by default, at most half of it.
    #[must_use]
    pub fn margin(self, margin: Duration) -> Semaphore {
        Semaphore(self.0.margin(margin))
    }

    /// The owner of all acquisitions, instead of a fresh one for each: the permit's id in `SEM.*`. An owner has one
    /// permit at most. See [`Lock::owner`] for what the name of several flows of control means.
    #[must_use]
    pub fn owner(self, owner: impl AsRef<[u8]>) -> Semaphore {
        Semaphore(self.0.owner(owner))
    }

    /// What the fresh owner of each acquisition begins with; see [`Lock::owner_prefix`].
    #[must_use]
    pub fn owner_prefix(self, prefix: impl AsRef<[u8]>) -> Semaphore {
        Semaphore(self.0.owner_prefix(prefix))
    }

    /// How many requests of others may wait already; see [`Lock::queue`].
    #[must_use]
    pub fn queue(self, others: u32) -> Semaphore {
        Semaphore(self.0.queue(others))
    }

    /// The number of replicas that have to have a grant; see [`Lock::replicas`].
    #[must_use]
    pub fn replicas(self, wanted: u32) -> Semaphore {
        Semaphore(self.0.replicas(wanted))
    }

    /// How long they may take to confirm it; see [`Lock::replicas_within`].
    #[must_use]
    pub fn replicas_within(self, within: Duration) -> Semaphore {
        Semaphore(self.0.replicas_within(within))
    }

    /// An acquisition creates a missing semaphore with this number of permits (1 to 2,147,483,647), also when the
    /// semaphore is deleted during the wait. An existing semaphore keeps its number: [`set`](Semaphore::set) changes
    /// it.
    #[must_use]
    pub fn limit(mut self, permits: u32) -> Semaphore {
        if let Kind::Permit { limit, .. } = &mut self.0.terms.kind {
            *limit = Some(permits);
        }
        self
    }

    /// An acquisition takes this number of permits in one step, all or none, in the order of requests: 1 to 64. More
    /// than the semaphore has are waited for until [`set`](Semaphore::set) raises the number. `SEM.ACQUIRE ... COUNT`.
    #[must_use]
    pub fn count(mut self, permits: u32) -> Semaphore {
        if let Kind::Permit { count, .. } = &mut self.0.terms.kind {
            *count = permits;
        }
        self
    }

    /// Takes a permit if one is free. None when no permit is free, or other owners wait for one. If the connection
    /// breaks meanwhile, the attempt is repeated once. `SEM.ACQUIRE`.
    ///
    /// # Errors
    /// When the server cannot be reached, does not answer within 0.3 s, or refuses; [`Error::NoSemaphore`].
    pub async fn try_acquire(&self) -> Result<Option<Permit>> {
        self.0.wait(Some(Duration::ZERO)).await
    }

    /// Waits for a permit in the server's queue, for at most `wait`. None when no permit was granted in that time. The
    /// wait survives what [`Lock::acquire_within`] survives, and continues when the semaphore is deleted meanwhile,
    /// until it is created again. Dropping the future withdraws it. `SEM.ACQUIRE ... BLOCK`.
    ///
    /// It returns 0.3 s after that time at the latest, as [`Lock::acquire_within`] does.
    ///
    /// # Errors
    /// When the server refuses, or could not be reached at the end of the wait; [`Error::NoSemaphore`].
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<Permit>> {
        self.0.wait(Some(wait)).await
    }

    /// Waits for a permit in the server's queue without a limit; see [`Lock::acquire`].
    ///
    /// # Errors
    /// When the server refuses, or cannot be reached at first; [`Error::NoSemaphore`].
    pub async fn acquire(&self) -> Result<Permit> {
        self.0.wait_endlessly().await
    }

    /// Takes over a permit that another process has acquired under this owner, as [`Lock::resume`] does for a lock. The
    /// token is the caller's word: a permit is renewed and released by its owner alone. `SEM.RENEW`.
    ///
    /// # Errors
    /// Those of [`Lock::resume`].
    pub async fn resume(&self, owner: impl AsRef<[u8]>, token: u64) -> Result<Permit> {
        self.0.take_over(owner.as_ref(), token).await
    }

    /// Creates the semaphore with this number of permits, or changes the number: 0 to 2,147,483,647. Held permits stay
    /// held, also when there are more of them. `SEM.SET`.
    ///
    /// A request without a reply is repeated. Served late, it would overwrite a number that was set after it.
    ///
    /// # Errors
    /// When the server refuses, or did not answer within the [response
    /// timeout](crate::ServerBuilder::response_timeout): then the number may have been set.
    pub async fn set(&self, permits: u32) -> Result<()> {
        check_permits(permits, 0)?;
        let command = cmd("SEM.SET").arg(&self.0.terms.key).arg(permits).take();
        self.ask(&command).await?;
        Ok(())
    }

    /// The numbers of permits, held and free, and of waiters. None when the semaphore does not exist and has no
    /// waiters. `SEM.INFO`.
    ///
    /// # Errors
    /// When the server refuses, or did not answer within the [response
    /// timeout](crate::ServerBuilder::response_timeout).
    pub async fn info(&self) -> Result<Option<SemaphoreInfo>> {
        match self.ask(cmd("SEM.INFO").arg(&self.0.terms.key)).await? {
            Value::Nil => Ok(None),
            reply => read(&reply)
                .map(Some)
                .ok_or_else(|| Error::reply(self.0.terms.server.name())),
        }
    }

    pub(crate) async fn ask(&self, command: &Cmd) -> Result<Value> {
        repeatable(&self.0.terms.server, &self.0.terms.key, command).await
    }
}

impl Permit {
    /// The number of permits that it holds; see [`Semaphore::count`].
    pub fn count(&self) -> u32 {
        match self.hold.claim.kind {
            Kind::Permit { count, .. } => count,
            Kind::Lock(_) => 1,
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
