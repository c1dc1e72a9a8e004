//! A lock on a key: who asks for it, how, and for how long.

pub(crate) mod attempt;
pub(crate) mod events;
pub(crate) mod guard;
pub(crate) mod hold;
pub(crate) mod loss;
pub(crate) mod release;
pub(crate) mod renewal;
pub(crate) mod reservation;
pub(crate) mod session;
pub(crate) mod slices;
pub(crate) mod terms;
pub(crate) mod wait;

use std::time::Duration;

use crate::error::Result;
use crate::inspect::LockInfo;
use crate::lock::attempt::acquire;
use crate::lock::guard::Guard;
use crate::lock::session::SessionLock;
use crate::lock::terms::Terms;
use crate::mode::Mode;
use crate::net::command::Kind;
use crate::net::server::Server;
use crate::runtime::within;

/// A lock on a key of a server, to be acquired as often as one likes. Each acquisition has an owner of
/// its own, so that two tasks that share a `Lock` exclude each other.
///
/// ```no_run
/// # async fn example() -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::{Lock, Server};
///
/// let server = Server::open("redis://127.0.0.1:6379")?;
/// let guard = Lock::new(&server, "invoices:42").acquire().await?;
/// println!("the fencing token is {}", guard.token());
/// guard.release().await?;
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

    /// How long the server keeps the lock for a holder of whom it hears nothing, in whole milliseconds.
    /// Renewed every third of it.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Lock {
        self.terms.set_lease(lease);
        self
    }

    /// When the server confirms no renewal, [`lost`](crate::Guard::lost) ends this long before the lease does: the time
    /// to stop in, before another owner can have the lock. A sixth of the lease by default, at most half of it. (The renew
    /// deadline of Kubernetes' leader election.)
    ///
    /// A renewal is due when a third of the lease has passed. With a lease of 30 s and a margin of 10 s, the server is
    /// asked from second 10 on, the loss is told in second 20, and the lock is the next owner's in second 30 at the
    /// earliest.
    #[must_use]
    pub fn margin(mut self, margin: Duration) -> Lock {
        self.terms.margin = Some(margin);
        self
    }

    /// The owner of all acquisitions, instead of a fresh one for each: any bytes unique to one flow of
    /// control. It is the credential too: to the server, two that use one name are one. In this process
    /// an acquisition waits until the former one under this name has been released and settled; that
    /// another process does not use it is the caller's care. Tasks that hold and wait for several keys under one name may be refused
    /// with `DEADLOCK`: to the server the name waits for itself. The holds of [`Mode::Read`] and
    /// [`Mode::Write`] are apart: an owner that writes may read as well, so tasks that share a name for both do
    /// not exclude each other.
    #[must_use]
    pub fn owner(mut self, owner: impl AsRef<[u8]>) -> Lock {
        self.terms.owner = Some(owner.as_ref().to_vec());
        self
    }

    /// How it is to be held: exclusively, where nothing else is said. [`Mode::Read`] is beside other readers of a read-write lock,
    /// [`Mode::Write`] is alone.
    #[must_use]
    pub fn mode(self, mode: Mode) -> Lock {
        self.of(Kind::Lock(mode))
    }

    /// Who holds the lock, and who waits for it; see [`Server::info`].
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub async fn info(&self, max_waiters: u64) -> Result<Option<LockInfo>> {
        self.terms.server.info(&self.terms.key, max_waiters).await
    }

    /// Bound to a connection of its own: the server renews the lease, and releases the lock when the connection ends, so at
    /// once when this program ends, however it ends. `LOCK.ACQUIRE ... SESSION`.
    ///
    /// The lease is the server's, `lock.session-lease` (10 s); that of [`lease`](Lock::lease) is not used, and a
    /// [margin](Lock::margin) counts up to half of it. A connection that
    /// breaks is a loss ([`LostReason::Disconnected`](crate::LostReason::Disconnected)), where a lease would have outlived
    /// it. A machine that vanishes without a word (power, network) keeps the lock until the server's TCP keepalive has noticed, by
    /// default after up to ten minutes. The user needs `+lock.info` as well.
    #[must_use]
    pub fn session(self) -> SessionLock {
        SessionLock::new(self.terms)
    }

    /// Takes the lock if it is free. None when another owner holds it, or waits for it. A connection that
    /// breaks meanwhile is worth one more attempt.
    ///
    /// # Errors
    /// When the server cannot be reached, does not answer within 0.3 s, or refuses.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        within(self.wait(Some(Duration::ZERO))).await
    }

    /// Waits for the lock, in its turn, for at most so long. None when that was not enough. The wait goes
    /// on where connections break, servers start again, and primaries change. Dropped, it is withdrawn.
    ///
    /// It ends 0.3 s after that time at the latest, whatever the server and the network do: what is under way then
    /// is withdrawn in the background. Where a server is so far away that a connection takes longer, give the wait
    /// the time for it.
    ///
    /// # Errors
    /// When the server refuses, or could not be reached at the end of the wait.
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<Guard>> {
        within(self.wait(Some(wait))).await
    }

    /// Waits for the lock, in its turn, for as long as it takes; also through the death of a server.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn acquire(&self) -> Result<Guard> {
        loop {
            if let Some(guard) = within(self.wait(None)).await? {
                return Ok(guard);
            }
        }
    }

    /// For a hold of this kind.
    pub(crate) fn of(mut self, kind: Kind) -> Lock {
        self.terms.kind = kind;
        self
    }

    async fn wait(&self, wait: Option<Duration>) -> Result<Option<Guard>> {
        let granted = acquire(std::slice::from_ref(&self.terms), wait).await?;
        Ok(granted.and_then(|mut guards| guards.pop()))
    }
}
