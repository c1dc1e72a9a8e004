//! A lock on a key, and how to get it.
//!
//! A wait is parked in the server, in slices that end before the connection would be given up. The place
//! in the queue is kept between them (`lock.queue-grace`), also when a connection breaks: the request is
//! sent again, with `ONCE`, by the same owner. A wait that is given up is withdrawn.

use std::time::Duration;

use redis::Value;
use tokio::time::Instant;
use uuid::Uuid;

use crate::call::Caller;
use crate::command::{self, Claim, Mode};
use crate::guard::Guard;
use crate::server::Server;
use crate::{Error, Result};

/// The lease where none is named, as the server's own.
const DEFAULT_LEASE: Duration = Duration::from_secs(30);
/// Between two attempts to reach a server: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

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

    /// How long the server keeps the lock for a holder of whom it hears nothing. Renewed every third of it.
    #[must_use]
    pub fn lease(self, lease: Duration) -> Lock {
        Lock { lease, ..self }
    }

    /// The owner of all acquisitions, instead of a fresh one for each: any bytes unique to one flow of
    /// control. It is the credential too; and two acquisitions by one owner do not exclude each other.
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

    /// Takes the lock if it is free. None when somebody else holds it, or waits for it.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        self.wait(Some(Duration::ZERO)).await
    }

    /// Waits for the lock, in its turn, for at most so long. None when that was not enough.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses.
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

    async fn wait(&self, wait: Option<Duration>) -> Result<Option<Guard>> {
        if self.lease < Duration::from_millis(1) {
            return Err(Error::Config("a lease lasts at least a millisecond".into()));
        }
        let mut attempt = Attempt::new(self);
        let end = wait.map(|wait| Instant::now() + wait);
        // A connection that breaks is worth a second attempt, however short the wait.
        let trying = end.map(|end| end.max(Instant::now() + self.server.patience()));
        let mut pause = FIRST_PAUSE;
        loop {
            let sent = Instant::now();
            let slice = attempt.slice(end.map(|end| end.saturating_duration_since(sent)));
            match attempt.ask(slice).await {
                Ok(Some(token)) => return Ok(Some(attempt.granted(token, sent))),
                Ok(None) if end.is_some_and(|end| Instant::now() >= end) => return Ok(None),
                Ok(None) => pause = FIRST_PAUSE,
                Err(error) if !error.is_passing() => return Err(error),
                Err(error) if trying.is_some_and(|end| Instant::now() + pause >= end) => {
                    return Err(error)
                }
                Err(_) => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }
}

/// A request for a lock that is under way. Dropped before the grant, it withdraws the wait, and gives back
/// what may have been granted to it meanwhile.
struct Attempt<'a> {
    lock: &'a Lock,
    claim: Claim,
    caller: Caller,
    asked: bool,
    is_over: bool,
}

impl Attempt<'_> {
    fn new(lock: &Lock) -> Attempt<'_> {
        Attempt {
            claim: lock.claim(),
            caller: Caller::waiting(&lock.server, &lock.key),
            lock,
            asked: false,
            is_over: false,
        }
    }

    /// How long to be parked at once: a slice ends before the connection is given up, and leaves most of
    /// the lease to a grant that comes at its end.
    fn slice(&self, left: Option<Duration>) -> Duration {
        let longest = (self.lock.server.patience() / 2).min(self.lock.lease / 3);
        left.map_or(longest, |left| left.min(longest))
    }

    async fn ask(&mut self, slice: Duration) -> Result<Option<u64>> {
        let command = command::acquire(&self.claim, self.lock.lease, slice);
        self.asked = true;
        let reply = self
            .caller
            .call(&command, slice + self.lock.server.patience() / 2)
            .await;
        match reply? {
            Value::Nil => Ok(None),
            Value::Int(token) => Ok(u64::try_from(token).ok()),
            _ => Err(Error::reply(self.lock.server.name())),
        }
    }

    fn granted(mut self, token: u64, sent: Instant) -> Guard {
        self.is_over = true;
        Guard::new(self.lock, self.claim.clone(), token, sent)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.asked && !self.is_over {
            crate::guard::release_later(
                &self.lock.server,
                self.claim.clone(),
                None,
                self.lock.lease,
            );
        }
    }
}
