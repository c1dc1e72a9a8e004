//! A lock on a key of a server: its options and its acquisition.

pub(crate) mod acquire;
pub(crate) mod events;
pub(crate) mod execute;
pub(crate) mod guard;
pub(crate) mod loss;
pub(crate) mod release;
pub(crate) mod renewal;
pub(crate) mod start;
pub(crate) mod terms;
pub(crate) mod wait;

use std::time::Duration;

use crate::error::{Error, Result};
use crate::info::{lock_info, LockInfo};
#[cfg(feature = "admin")]
use crate::inspect::BreakTarget;
use crate::lock::acquire::acquire;
use crate::lock::guard::Guard;
use crate::lock::renewal::{renew_once, Hold};
use crate::lock::terms::{Terms, DEFAULT_LEASE};
use crate::mode::Mode;
use crate::moment::now;
use crate::net::command::{self, Kind};
use crate::net::retry::repeatable;
use crate::net::server::Server;
use crate::observer::Asked;
use crate::outcome::LostReason;

/// A lock on a key of a server, which can be acquired any number of times. Each acquisition has an owner of its own, so
/// two tasks that share a `Lock` exclude each other.
///
/// ```no_run
/// # async fn example() -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::{Lock, Server};
///
/// let server = Server::open("redis://127.0.0.1:6379")?;
/// let guard = Lock::new(&server, "invoices:42").acquire().await?;
/// println!("the fencing token is {}", guard.token());
/// assert_eq!(guard.release().await?, redis_lock_client::Released::Yes);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Lock {
    pub(crate) terms: Terms,
}

impl Lock {
    /// The exclusive lock of this key, with a lease of 30 s.
    pub fn new(server: &Server, key: impl AsRef<[u8]>) -> Lock {
        Lock {
            terms: Terms::new(server, key.as_ref()),
        }
    }

    /// The lease: how long the server keeps the lock without a renewal, in whole milliseconds. The guard renews it
    /// every third of that time.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Lock {
        self.terms.set_lease(lease);
        self
    }

    /// When the server confirms no renewal, [`lost`](crate::Guard::lost) completes this long before the end of the
    /// lease: the time to stop the work before another owner can get the lock. A sixth of the lease by default, at most
    /// half of it. (It corresponds to the renew deadline of Kubernetes' leader election.)
    ///
    /// A renewal is due when a third of the lease has passed. With a lease of 30 s and a margin of 10 s, renewals are
    /// tried from second 10 on, the loss is reported in second 20, and the next owner gets the lock in second 30 at the
    /// earliest.
    #[must_use]
    pub fn margin(mut self, margin: Duration) -> Lock {
        self.terms.margin = Some(margin);
        self
    }

    /// The owner of all acquisitions, instead of a fresh one for each: any bytes that are unique to one flow of
    /// control, for a program that acquires in one process and releases in another. The owner is also the credential:
    /// the server takes all that use the name for one. So a lock that its owner holds already is granted again, tasks
    /// that share a name do not exclude each other, and those that hold and wait for several keys under it may be
    /// refused with `DEADLOCK`. The holds of [`Mode::Read`] and [`Mode::Write`] are independent.
    ///
    /// A request of a named owner that got no answer may be granted late, and then lasts for its lease. (Under a fresh
    /// owner it grants nothing.)
    #[must_use]
    pub fn owner(mut self, owner: impl AsRef<[u8]>) -> Lock {
        self.terms.owner = Some(owner.as_ref().to_vec());
        self
    }

    /// What the fresh owner of each acquisition begins with, for people who look at the holders: at most 200 bytes.
    pub fn owner_prefix(mut self, prefix: impl AsRef<[u8]>) -> Lock {
        self.terms.owner_prefix = prefix.as_ref().to_vec();
        self
    }

    /// A text beside the hold, and beside its wait, for people who look: at most 256 bytes. Of exclusive locks only,
    /// and not of a [`MultiLock`](crate::MultiLock).
    #[must_use]
    pub fn note(mut self, note: impl AsRef<[u8]>) -> Lock {
        self.terms.note = Some(note.as_ref().to_vec());
        self
    }

    /// Does not join a long queue: when the request would have to wait, and this number of requests of others waits for
    /// the key already (0 to 1,000,000), it is refused at once, with [`Error::QueueFull`]. A grant at once is never
    /// refused, nor does a request lose its place that is in the queue. `QUEUE`.
    #[must_use]
    pub fn queue(mut self, others: u32) -> Lock {
        self.terms.queue = Some(others);
        self
    }

    /// A grant counts only when this number of replicas has it, 1 to 100; otherwise it is given up, and the acquisition
    /// is [`Error::NotReplicated`]. A fail-over to any of them finds the lock held; the holder keeps it if its next
    /// renewal reaches the new primary before the end of the lease. Each grant costs one more request (`WAIT`) and the
    /// acknowledgement of the replicas; renewals do not wait for it. Not for the hold of a [session](Lock::session).
    #[must_use]
    pub fn replicas(mut self, wanted: u32) -> Lock {
        self.terms.replicas().wanted = wanted;
        self
    }

    /// How long the replicas of [`replicas`](Lock::replicas) may take to confirm a grant, in whole milliseconds: 100 ms
    /// by default. They are asked at once, so that is many times a round trip within a data centre.
    #[must_use]
    pub fn replicas_within(mut self, within: Duration) -> Lock {
        self.terms.replicas().within = within;
        self
    }

    /// The mode, [`Mode::Exclusive`] by default. [`Mode::Read`] shares a read-write lock with other readers,
    /// [`Mode::Write`] excludes all others.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Lock {
        self.of(Kind::Lock(mode))
    }

    /// Who holds the lock, and how many wait for it (`LOCK.INFO`, for which the user needs a permission of its own). Of
    /// a free lock there are no holders and no waiters.
    ///
    /// # Errors
    /// When the server refuses, also because the key is no lock, or has not answered within the [response
    /// timeout](crate::ServerBuilder::response_timeout).
    pub async fn info(&self) -> Result<LockInfo> {
        let Terms { server, key, .. } = &self.terms;
        let reply = repeatable(server, key, &command::info(key, 0)).await?;
        Ok(lock_info(&reply))
    }

    /// Binds each hold to a connection of its own: the server renews the lease, and releases the lock when the
    /// connection ends, so at once when this program ends for any reason. `LOCK.ACQUIRE ... SESSION`. (A
    /// [`MultiLock`](crate::MultiLock) has no such locks.)
    ///
    /// ```no_run
    /// # async fn example(server: redis_lock_client::Server) -> Result<(), redis_lock_client::Error> {
    /// let leader = redis_lock_client::Lock::new(&server, "leader").session();
    /// let guard = leader.acquire().await?;
    /// // When this program ends, for any reason, the next waiter gets the lock at once.
    /// eprintln!("no longer the leader: {:?}", guard.lost().await);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The lease is the server's setting `lock.session-lease` (10 s); that of [`lease`](Lock::lease) is not used, and a
    /// [margin](Lock::margin) is cut to half of it. When the setting changes, the guard counts by the new lease from
    /// its next renewal on, a reader perhaps one renewal later: the readers of a program read it together. A broken
    /// connection is a loss ([`LostReason::Disconnected`]), where a lease would have outlived it. A client machine that
    /// fails without closing its connection (power, network) keeps the lock until the server's TCP keepalive detects
    /// the failure, by default after up to ten minutes. The user needs `+lock.info` as well.
    #[must_use]
    pub fn session(mut self) -> Lock {
        // Until the server's lease is known, this bounds the release of what was given up.
        self.terms.set_lease(DEFAULT_LEASE);
        self.terms.is_session = true;
        self
    }

    /// Takes the lock if it is free. None when another owner holds it, or waits for it. If the connection breaks
    /// meanwhile, the attempt is repeated once.
    ///
    /// # Errors
    /// When the server cannot be reached, does not answer within 0.3 s, or refuses.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.wait(Some(Duration::ZERO)).await
    }

    /// Waits for the lock in the server's queue, for at most `wait`. None when the lock was not granted in that time.
    /// Once the server has answered, the wait survives broken connections, restarts and failovers; while it does, there
    /// is a warning in the log after 3 s and then every 30 s. Dropping the future withdraws it. A lock that was granted
    /// is held for a future that is not polled for one lease; polled later, it begins anew.
    ///
    /// It returns 0.3 s after that time at the latest, also when the server or the network does not respond: a pending
    /// request is withdrawn in the background. If opening a connection takes longer than that, add the time to the
    /// wait.
    ///
    /// # Errors
    /// When the server refuses, cannot be reached at first, or could not be reached at the end of the wait. (A replica,
    /// `READONLY`, is asked again until the end: it may become the primary.)
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<Guard>> {
        self.wait(Some(wait)).await
    }

    /// Waits for the lock in the server's queue without a limit, once the server has answered also through its failure.
    ///
    /// # Errors
    /// When the server refuses, or cannot be reached at first.
    pub async fn acquire(&self) -> Result<Guard> {
        self.wait_endlessly().await
    }

    /// With the feature `admin`: breaks the hold of another owner, if there is one, and takes the lock in the same
    /// step, before all waiters. None when the lock is not held under the token of [`BreakTarget::Token`]. Exclusive
    /// locks only, and not that of a [session](Lock::session). `LOCK.BREAK ... TO`, for which an operator is permitted.
    ///
    /// ```no_run
    /// # async fn example(server: redis_lock_client::Server) -> Result<(), redis_lock_client::Error> {
    /// use redis_lock_client::{BreakTarget, Lock};
    ///
    /// let repair = Lock::new(&server, "invoices:42").note("repair");
    /// if let Some(guard) = repair.steal(BreakTarget::Token(1_795_215_970_798_000)).await? {
    ///     println!("taken over, token {}", guard.token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the server refuses, or has not answered within the [response
    /// timeout](crate::ServerBuilder::response_timeout).
    #[cfg(feature = "admin")]
    pub async fn steal(&self, grant: BreakTarget) -> Result<Option<Guard>> {
        if self.terms.is_session || self.terms.kind != Kind::Lock(Mode::Exclusive) {
            let why = "only an exclusive lock can be taken over, with a lease";
            return Err(Error::config(why));
        }
        let mut lock = self.clone();
        lock.terms.steals = Some(match grant {
            BreakTarget::Any => None,
            BreakTarget::Token(token) => Some(token),
        });
        lock.wait(Some(Duration::ZERO)).await
    }

    /// Takes over a hold that another process has acquired, or an earlier life of this one, under this owner and token:
    /// its lease begins anew, and from now on this process renews and releases it. `LOCK.RENEW`.
    ///
    /// ```no_run
    /// # async fn example(lock: redis_lock_client::Lock) -> Result<(), redis_lock_client::Error> {
    /// use std::time::Duration;
    ///
    /// // One process begins the work, and leaves the lock held for half a minute:
    /// let guard = lock.acquire().await?;
    /// let (owner, token) = (guard.owner().to_vec(), guard.token());
    /// assert_eq!(guard.leave(Duration::from_secs(30)).await?, redis_lock_client::Released::Yes);
    ///
    /// // Another one, which was given both, ends it:
    /// let guard = lock.resume(&owner, token).await?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] when the owner does not hold the lock under that token, also where the key holds something else.
    /// [`Error::Unheard`] when the request was sent and has no answer within the [response
    /// timeout](crate::ServerBuilder::response_timeout): the hold is as it was, or has the lease of this lock. When the
    /// server refuses, or cannot be reached; when this lock is that of a [session](Lock::session).
    pub async fn resume(&self, owner: impl AsRef<[u8]>, token: u64) -> Result<Guard> {
        self.take_over(owner.as_ref(), token).await
    }

    /// The same for a hold of this kind.
    pub(crate) fn of(mut self, kind: Kind) -> Lock {
        self.terms.kind = kind;
        self
    }

    /// See [`acquire_within`](Lock::acquire_within); None: without a limit.
    pub(crate) async fn wait<Of: 'static>(
        &self,
        wait: Option<Duration>,
    ) -> Result<Option<Guard<Of>>> {
        let granted = acquire(std::slice::from_ref(&self.terms), wait, None).await?;
        Ok(granted.and_then(|mut guards| guards.pop()))
    }

    /// See [`acquire`](Lock::acquire).
    pub(crate) async fn wait_endlessly<Of: 'static>(&self) -> Result<Guard<Of>> {
        let guard = self.wait(None).await?;
        // Without an end it is granted or fails.
        guard.ok_or_else(|| Error::no_answer(self.terms.server.name()))
    }

    /// See [`resume`](Lock::resume).
    pub(crate) async fn take_over<Of>(&self, owner: &[u8], token: u64) -> Result<Guard<Of>> {
        let terms = Lock::owner(self.clone(), owner).terms;
        terms.check()?;
        if terms.is_session {
            let why = "a hold of a session ends with its connection, and cannot be resumed";
            return Err(Error::config(why));
        }
        let began = now();
        let asked = Asked::of(std::slice::from_ref(&terms), began);
        let (lease, margin, claim) = (terms.lease, terms.margin, terms.claim_by(owner));
        let renewed = renew_once(&claim, Some(lease), token, None).await;
        let renewed = renewed.and_then(|sent| sent.ok_or(Error::Lost(LostReason::Taken)));
        asked.answered(renewed.is_ok(), renewed.as_ref().err());
        match renewed {
            Ok(sent) => {
                let hold = Hold::new(claim, token, lease, margin, sent);
                let guard = Guard::new(hold, false, None);
                guard.hold.record_grant(now() - began);
                Ok(guard)
            }
            Err(error) => {
                events::not_acquired(&terms, Some(&error), now() - began);
                Err(error)
            }
        }
    }
}
