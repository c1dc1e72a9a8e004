//! Locks that are bound to a connection: when that ends, the server releases them.
//!
//! Each has a connection of its own, on which it is asked for and waited for, and which its guard keeps. The server renews
//! the lease while the connection lives. The guard asks on it whether that is so, because a server that stands still keeps
//! its connections, and not its leases. What was given up needs no undo: with the connection the server forgets the
//! wait, and releases what was granted.

use std::slice;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{sleep, Instant};

use crate::attempt::observed;
use crate::call::Caller;
use crate::clock::Moment;
use crate::command::{self, Claim};
use crate::error::{Error, Result};
use crate::events;
use crate::guard::{Guard, Leftovers};
use crate::inspect::lock_info;
use crate::runtime::within;
use crate::terms::Terms;
use crate::turn::Turn;
use crate::wait::bounded;

/// Between two attempts to reach a server: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A lock whose holds are bound to a connection: made by [`Lock::session`](crate::Lock::session).
///
/// ```no_run
/// # async fn example(server: redis_lock_client::Server) -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::Lock;
///
/// let leader = Lock::new(&server, "leader").session();
/// let guard = leader.acquire().await?;
/// // When this program ends, however it ends, the next one has the lock at once.
/// eprintln!("no longer the leader: {}", guard.lost().await);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SessionLock {
    terms: Terms,
}

impl SessionLock {
    pub(crate) fn new(terms: Terms) -> SessionLock {
        SessionLock { terms }
    }

    /// Takes the lock if it is free; see [`Lock::try_acquire`](crate::Lock::try_acquire).
    ///
    /// # Errors
    /// When the server cannot be reached, does not answer within 0.3 s, or refuses.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        within(self.wait(Some(Duration::ZERO))).await
    }

    /// Waits for the lock, in its turn, for at most so long; see [`Lock::acquire_within`](crate::Lock::acquire_within).
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

    async fn wait(&self, wait: Option<Duration>) -> Result<Option<Guard>> {
        let terms = &self.terms;
        let asked = async { Ok(self.ask(wait).await?.map(|guard| vec![guard])) };
        let acquired = observed(slice::from_ref(terms), terms, asked).await?;
        Ok(acquired.and_then(|mut guards| guards.pop()))
    }

    async fn ask(&self, wait: Option<Duration>) -> Result<Option<Guard>> {
        // A wait beyond all clocks is one without end.
        let end = wait.and_then(|wait| Instant::now().checked_add(wait));
        match self.terms.next_turn(end).await {
            Some(turn) => bounded(&self.terms.server, end, self.run(turn, end)).await,
            None => Ok(None),
        }
    }

    /// Asks until the lock is granted, or the end has come.
    async fn run(&self, turn: Turn, end: Option<Instant>) -> Result<Option<Guard>> {
        let claim = self.terms.claim_by(&self.terms.fresh_owner());
        let mut caller = Caller::waiting(&self.terms.server, &claim.key);
        let mut slice = Duration::ZERO;
        let mut pause = FIRST_PAUSE;
        let mut failures = 0;
        let mut waiting = None;
        loop {
            let asked = Instant::now();
            match self.request(&mut caller, &claim, slice).await {
                Ok(Some((token, terms, sent))) => {
                    let leftovers = Leftovers {
                        acquires_until: None,
                        releases_until: None,
                        turn,
                    };
                    let bound = Some(caller);
                    return Ok(Some(Guard::new(
                        &terms, claim, token, sent, leftovers, bound,
                    )));
                }
                // Sent away before its time, by another process that asks in the same owner's name: not at once again.
                Ok(None) if asked.elapsed() < slice / 2 => {
                    sleep(pause.min(left(end))).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
                Ok(None) => pause = FIRST_PAUSE,
                Err(error) if !error.is_passing() => return Err(error),
                // A connection that breaks is worth a second attempt, however short the wait.
                Err(error) if failures > 0 && left(end).is_zero() => return Err(error),
                Err(_) => {
                    failures += 1;
                    sleep(pause.min(left(end).max(FIRST_PAUSE))).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    slice = Duration::ZERO;
                    continue;
                }
            }
            if left(end).is_zero() {
                caller.keep_open();
                return Ok(None);
            }
            // The place in the queue is kept from one slice to the next.
            slice = left(end).min(self.terms.server.patience() / 2);
            waiting.get_or_insert_with(|| {
                events::parked(&self.terms.server, &claim.key, Some(&claim.owner))
            });
        }
    }

    /// One request; granted, with the lease that the server has given it, and a moment before that was asked.
    async fn request(
        &self,
        caller: &mut Caller,
        claim: &Claim,
        slice: Duration,
    ) -> Result<Option<(u64, Terms, Moment)>> {
        let command = command::acquire_bound(claim, slice);
        let patience = slice + self.terms.server.patience() / 2;
        let reply = caller.call(&command, patience).await?;
        let granted = command::granted(&reply, self.terms.server.name())?;
        let Some(token) = granted.and_then(|tokens| tokens.first().copied()) else {
            return Ok(None);
        };
        let sent = Moment::now();
        let mut terms = self.terms.clone();
        terms.set_lease(self.lease(caller, claim, &command::info(claim)).await?);
        terms.check()?;
        Ok(Some((token, terms, sent)))
    }

    /// What is left of the lease, which is a setting of the server (`lock.session-lease`).
    async fn lease(&self, caller: &mut Caller, claim: &Claim, info: &Cmd) -> Result<Duration> {
        let reply = caller.call(info, self.terms.server.patience() / 2).await?;
        let holders = match &reply {
            Value::Nil => Vec::new(),
            reply => lock_info(reply).holders,
        };
        let own = holders
            .into_iter()
            .find(|holder| holder.owner == claim.owner);
        // Gone already, by a force.
        let lease = own.and_then(|holder| holder.lease);
        lease.ok_or_else(|| Error::reply(self.terms.server.name()))
    }
}

fn left(end: Option<Instant>) -> Duration {
    end.map_or(Duration::MAX, |end| {
        end.saturating_duration_since(Instant::now())
    })
}
