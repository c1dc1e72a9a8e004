//! A lock on a key: who asks for it, how, and for how long.

use std::time::Duration;

use tokio::time::{timeout_at, Instant};
use uuid::Uuid;

use crate::attempt::Attempt;
use crate::command::{Claim, Mode};
use crate::guard::{certain, Guard};
use crate::runtime::within;
use crate::server::Server;
use crate::turn::{self, Turn};
use crate::{Error, Result};

/// The lease where none is named, as the server's own.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// How much longer than its bound a wait may last, for an answer that is owed.
pub(crate) const OVERTIME: Duration = Duration::from_millis(250);

/// A lock on a key of a server, to be acquired as often as one likes. Each acquisition has an owner of
/// its own, so that two tasks that share a `Lock` exclude each other.
#[derive(Debug, Clone)]
pub struct Lock {
    pub(crate) server: Server,
    pub(crate) key: Vec<u8>,
    owner: Option<Vec<u8>>,
    mode: Mode,
    pub(crate) lease: Duration,
    margin: Option<Duration>,
}

impl Lock {
    /// The exclusive lock of this key, with a lease of 30 s.
    pub fn new(server: &Server, key: impl AsRef<[u8]>) -> Lock {
        Lock {
            server: server.clone(),
            key: key.as_ref().to_vec(),
            owner: None,
            mode: Mode::Exclusive,
            lease: DEFAULT_LEASE,
            margin: None,
        }
    }

    /// How long the server keeps the lock for a holder of whom it hears nothing, in whole milliseconds.
    /// Renewed every third of it.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Lock {
        // The server is told no fractions: to count them would be to hold longer than it says.
        let lease = lease - Duration::from_nanos(u64::from(lease.subsec_nanos() % 1_000_000));
        Lock { lease, ..self }
    }

    /// When the server confirms no renewal, [`lost`](crate::Guard::lost) ends this long before the lease does: the time
    /// to stop in, before another owner can have the lock. A sixth of the lease by default, at most half of it. (The renew
    /// deadline of Kubernetes' leader election.)
    ///
    /// A renewal is due when a third of the lease has passed. With a lease of 30 s and a margin of 10 s, the server is
    /// asked from second 10 on, the loss is told in second 20, and the lock is the next owner's in second 30 at the
    /// earliest.
    #[must_use]
    pub fn margin(self, margin: Duration) -> Lock {
        let margin = Some(margin);
        Lock { margin, ..self }
    }

    /// The owner of all acquisitions, instead of a fresh one for each: any bytes unique to one flow of
    /// control. It is the credential too: to the server, two that use one name are one. In this process
    /// an acquisition waits until the former one under this name has been released and settled; that
    /// another process does not use it is the caller's care.
    #[must_use]
    pub fn owner(self, owner: impl AsRef<[u8]>) -> Lock {
        let owner = Some(owner.as_ref().to_vec());
        Lock { owner, ..self }
    }

    /// As a reader of a read-write lock, beside other readers.
    #[must_use]
    pub fn read(self) -> Lock {
        let mode = Mode::Read;
        Lock { mode, ..self }
    }

    /// As the writer of a read-write lock.
    #[must_use]
    pub fn write(self) -> Lock {
        let mode = Mode::Write;
        Lock { mode, ..self }
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

    /// What an acquisition by a fresh owner (or the fixed one) claims.
    pub(crate) fn claim(&self) -> Claim {
        let fresh = || Uuid::new_v4().to_string().into_bytes();
        Claim {
            key: self.key.clone(),
            owner: self.owner.clone().unwrap_or_else(fresh),
            mode: self.mode,
        }
    }

    pub(crate) fn check_margin(&self) -> Result<()> {
        if self.margin_of_lease() > self.lease / 2 {
            let why = "a margin is at most half of the lease: before it the lock is renewed";
            return Err(Error::Config(why.into()));
        }
        Ok(())
    }

    pub(crate) fn margin_of_lease(&self) -> Duration {
        self.margin.unwrap_or(self.lease / 6)
    }

    /// How long after its request a grant is of use; then its loss is told.
    pub(crate) fn certain(&self) -> Duration {
        certain(self.lease).saturating_sub(self.margin_of_lease())
    }

    /// How long one request of a wait may be parked: it ends before its connection is given up, and leaves most
    /// of the lease to a grant that comes at its end.
    pub(crate) fn longest_slice(&self) -> Duration {
        (self.server.patience() / 2).min(self.lease / 3)
    }

    async fn wait(&self, wait: Option<Duration>) -> Result<Option<Guard>> {
        // One of them is lost to rounding.
        if self.lease < Duration::from_millis(2) {
            let why = "a lease lasts at least two milliseconds";
            return Err(Error::Config(why.into()));
        }
        self.check_margin()?;
        // A wait beyond all clocks is one without end.
        let end = wait.and_then(|wait| Instant::now().checked_add(wait));
        let name = self.name();
        let turn = match end {
            None => Some(Turn::wait(name).await),
            Some(end) => match Turn::take(name.clone()) {
                None => timeout_at(end, Turn::wait(name)).await.ok(),
                turn => turn,
            },
        };
        let Some(turn) = turn else {
            return Ok(None);
        };
        let attempt = Attempt::new(self, turn).run(end);
        match end.and_then(|end| end.checked_add(OVERTIME)) {
            None => attempt.await,
            Some(end) => {
                let acquired = timeout_at(end, attempt).await;
                acquired.unwrap_or_else(|_| Err(Error::no_answer(self.server.name())))
            }
        }
    }

    /// What others who use the same owner's name must not do at the same time.
    fn name(&self) -> Option<turn::Name> {
        let server = self.server.name().to_string();
        let word = self.mode.word().unwrap_or_default();
        Some((server, self.key.clone(), self.owner.clone()?, word))
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_what_the_server_is_told() {
        let server = Server::open("redis://a").expect("a URL");
        let lease = |micros| {
            Lock::new(&server, "k")
                .lease(Duration::from_micros(micros))
                .lease
        };
        assert_eq!(lease(1_999), Duration::from_millis(1));
        assert_eq!(lease(30_000_000), DEFAULT_LEASE);
        assert_eq!(lease(999), Duration::ZERO, "which no acquisition accepts");
    }
}
