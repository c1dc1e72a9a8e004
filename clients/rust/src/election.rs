//! Leader election: the leader is the holder of a lock, and the text beside the hold says where it is.

use std::time::Duration;

use tokio::time::timeout;

use crate::error::Result;
use crate::lock::guard::Guard;
use crate::lock::Lock;
use crate::net::invalidation::KeyWatch;
use crate::net::server::Server;
use crate::runtime::within;

/// An election on a key of a server: one of the candidates is the leader, until it resigns, ends, or loses its lease;
/// then the candidate that has waited longest is.
///
/// ```no_run
/// use redis_lock_client::{Election, Server};
///
/// # async fn lead() {}
/// # async fn example() -> Result<(), redis_lock_client::Error> {
/// let server = Server::open("redis://127.0.0.1:6379")?;
/// let election = Election::new(&server, "scheduler");
/// let leadership = election.campaign("10.0.0.7:8080").await?; // waits
/// leadership.run(lead()).await // stops the work when the leadership is lost, and resigns at its end
/// # }
/// ```
///
/// The leadership is a [`Guard`]: [`lost`](Guard::lost) completes at its loss, [`set_note`](Guard::set_note) proclaims
/// another text, [`release`](Guard::release) resigns, and with [`execute`](Guard::execute) a former leader changes
/// nothing more.
#[derive(Debug, Clone)]
pub struct Election(Lock);

/// The leader of an [`Election`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// What it said of itself: its address, for example. Empty if it said nothing.
    pub note: Vec<u8>,
    /// The fencing token of its leadership.
    pub token: u64,
}

impl Election {
    /// The election on this key, with a lease of 30 s.
    pub fn new(server: &Server, key: impl AsRef<[u8]>) -> Election {
        Election(Lock::new(server, key))
    }

    /// How long the server keeps a leader that sends no renewal; see [`Lock::lease`].
    #[must_use]
    pub fn lease(self, lease: Duration) -> Election {
        Election(self.0.lease(lease))
    }

    /// Becomes the leader; waits until the former ones are none. `note` is shown to those who ask for the leader:
    /// at most 256 bytes.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`].
    pub async fn campaign(&self, note: impl AsRef<[u8]>) -> Result<Guard> {
        self.0.clone().note(note).acquire().await
    }

    /// The present leader; None if there is none.
    ///
    /// # Errors
    /// When the server refuses, or has not answered within the [response
    /// timeout](crate::ServerBuilder::response_timeout).
    pub async fn leader(&self) -> Result<Option<Leader>> {
        let info = self.0.info().await?;
        Ok(info.holders.into_iter().next().map(|holder| Leader {
            note: holder.note.unwrap_or_default(),
            token: holder.token.unwrap_or_default(),
        }))
    }

    /// The leaders from now on, beginning with the present one.
    pub fn observe(&self) -> Observer {
        let terms = &self.0.terms;
        Observer {
            watch: terms.server.inner.invalidations.watch(&terms.key),
            election: self.clone(),
            last: None,
            rests: false,
        }
    }
}

/// The leaders of an [`Election`], one after another.
pub struct Observer {
    election: Election,
    watch: KeyWatch,
    /// The last one that was returned; None at first.
    last: Option<Option<Leader>>,
    /// Whether a change, or a third of the lease, is waited for before the next look.
    rests: bool,
}

impl Observer {
    /// The present leader at first, and then each other one, None while there is none, also when the same leader says
    /// something else. The server tells of changes where it has RESP3 and the user may `CLIENT TRACKING`; otherwise,
    /// and in case that a message is lost, it is asked every third of the lease. A leadership that was shorter than
    /// this takes may be left out. Cancel-safe.
    ///
    /// # Errors
    /// Those of [`Election::leader`]; the next call tries again after a third of the lease.
    pub async fn next(&mut self) -> Result<Option<Leader>> {
        loop {
            if std::mem::take(&mut self.rests) {
                self.change().await?;
            }
            let leader = self.election.leader().await;
            match leader {
                Ok(leader) if self.last.as_ref() != Some(&leader) => {
                    self.last = Some(leader.clone());
                    return Ok(leader);
                }
                Ok(_) => self.rests = true,
                Err(error) => {
                    self.rests = true;
                    return Err(error);
                }
            }
        }
    }

    /// Whether the server tells of a change in time or not, the leader is read then.
    async fn change(&mut self) -> Result<()> {
        let interval = self.election.0.terms.lease / 3;
        within(async {
            let _ = timeout(interval, self.watch.change()).await;
            Ok(())
        })
        .await
    }
}
