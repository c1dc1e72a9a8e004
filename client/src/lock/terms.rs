//! What an acquisition asks for: which key of which server, in which owner's name, and for how long.

use std::time::Duration;

use tokio::time::{timeout_at, Instant};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::lock::hold::certain;
use crate::lock::reservation::{self, Turn};
use crate::mode::Mode;
use crate::net::command::{Claim, Kind};
use crate::net::server::Server;
use crate::net::slot::slot_of;

/// The lease where none is named, as the server's own.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// The longest lease: clocks do not count to the end of time.
const LONGEST_LEASE: Duration = Duration::from_secs(100 * 365 * 86_400);

/// How much longer than its bound a wait may last, for an answer that is owed.
pub(crate) const OVERTIME: Duration = Duration::from_millis(250);

/// What a lock asks the server for, each time that it is acquired.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub server: Server,
    pub key: Vec<u8>,
    /// A fresh one for each acquisition, where none is named.
    pub owner: Option<Vec<u8>>,
    pub kind: Kind,
    /// In whole milliseconds.
    pub lease: Duration,
    pub margin: Option<Duration>,
}

impl Terms {
    pub(crate) fn new(server: &Server, key: &[u8]) -> Terms {
        Terms {
            server: server.clone(),
            key: key.to_vec(),
            owner: None,
            kind: Kind::Lock(Mode::Exclusive),
            lease: DEFAULT_LEASE,
            margin: None,
        }
    }

    /// The server is told no fractions: to count them would be to hold longer than it says.
    pub(crate) fn set_lease(&mut self, lease: Duration) {
        self.lease = lease - Duration::from_nanos(u64::from(lease.subsec_nanos() % 1_000_000));
    }

    /// The owner of the next acquisition: the fixed one, or another each time.
    pub(crate) fn fresh_owner(&self) -> Vec<u8> {
        let fresh = || Uuid::new_v4().to_string().into_bytes();
        self.owner.clone().unwrap_or_else(fresh)
    }

    /// What an acquisition by this owner claims.
    pub(crate) fn claim_by(&self, owner: &[u8]) -> Claim {
        Claim {
            key: self.key.clone(),
            owner: owner.to_vec(),
            kind: self.kind,
        }
    }

    /// Whether one request can ask for both.
    pub(crate) fn agrees_with(&self, other: &Terms) -> bool {
        self.server.is_same(&other.server)
            && (self.lease, self.kind, &self.owner) == (other.lease, other.kind, &other.owner)
            && (!self.server.is_cluster() || slot_of(&self.key) == slot_of(&other.key))
    }

    /// Whether lease and margin make sense.
    pub(crate) fn check(&self) -> Result<()> {
        // One of them is lost to rounding.
        if self.lease < Duration::from_millis(2) {
            let why = "a lease lasts at least two milliseconds";
            return Err(Error::config(why));
        }
        if self.lease > LONGEST_LEASE {
            let why = "a lease lasts at most a hundred years";
            return Err(Error::config(why));
        }
        if self.margin() > self.lease / 2 {
            let why = "a margin is at most half of the lease: before it the lock is renewed";
            return Err(Error::config(why));
        }
        Ok(())
    }

    /// How long before the lease's end its loss is told.
    pub(crate) fn margin(&self) -> Duration {
        self.margin.unwrap_or(self.lease / 6)
    }

    /// How long after its request a grant is of use; then its loss is told.
    pub(crate) fn told_after(&self) -> Duration {
        certain(self.lease).saturating_sub(self.margin())
    }

    /// How long one request of a wait may be parked: it ends before its connection is given up, and leaves most
    /// of the lease to a grant that comes at its end.
    pub(crate) fn longest_slice(&self) -> Duration {
        (self.server.patience() / 2).min(self.lease / 3)
    }

    /// The turn of the owner's name; None when it did not come in time.
    pub(crate) async fn next_turn(&self, end: Option<Instant>) -> Option<Turn> {
        let name = self.turn();
        match end {
            None => Some(Turn::wait(name).await),
            Some(end) => match Turn::take(name.clone()) {
                None => timeout_at(end, Turn::wait(name)).await.ok(),
                turn => turn,
            },
        }
    }

    /// What others who use the same owner's name must not do at the same time.
    fn turn(&self) -> Option<reservation::Name> {
        let server = self.server.name().to_string();
        let word = self.kind.word();
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
            let mut terms = Terms::new(&server, b"k");
            terms.set_lease(Duration::from_micros(micros));
            terms.lease
        };
        assert_eq!(lease(1_999), Duration::from_millis(1));
        assert_eq!(lease(30_000_000), DEFAULT_LEASE);
        assert_eq!(lease(999), Duration::ZERO, "which no acquisition accepts");
    }
}
