//! A lock on a key: who asks for it, how, and for how long.

use std::time::Duration;

use tokio::time::{timeout_at, Instant};
use uuid::Uuid;

use crate::attempt::Attempt;
use crate::command::{Claim, Mode};
use crate::guard::Guard;
use crate::server::Server;
use crate::turn::{self, Turn};
use crate::{Error, Result};

/// The lease where none is named, as the server's own.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// A lock on a key of a server, to be acquired as often as one likes. Each acquisition has an owner of
/// its own, so that two tasks that share a `Lock` exclude each other.
#[derive(Debug, Clone)]
pub struct Lock {
    pub(crate) server: Server,
    pub(crate) key: Vec<u8>,
    owner: Option<Vec<u8>>,
    mode: Mode,
    pub(crate) lease: Duration,
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

    /// Takes the lock if it is free. None when somebody else holds it, or waits for it. A connection that
    /// breaks meanwhile is worth one more attempt.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.wait(Some(Duration::ZERO)).await
    }

    /// Waits for the lock, in its turn, for at most so long. None when that was not enough. The wait goes
    /// on where connections break, servers start again, and primaries change. Dropped, it is withdrawn.
    ///
    /// # Errors
    /// When the server refuses, or could not be reached at the end of the wait.
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<Guard>> {
        self.wait(Some(wait)).await
    }

    /// Waits for the lock, in its turn, for as long as it takes; also through the death of a server.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn acquire(&self) -> Result<Guard> {
        loop {
            if let Some(guard) = self.wait(None).await? {
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
        match turn {
            Some(turn) => Attempt::new(self, turn).run(end).await,
            None => Ok(None),
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
