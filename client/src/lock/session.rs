//! Locks that are bound to a connection: the server releases them when it ends.
//!
//! Each has a connection of its own, which carries the acquisition and the wait and which its guard keeps. The server
//! renews the lease while the connection lives. The guard renews it as well, because a paused server keeps its
//! connections open while the leases end. An abandoned acquisition is undone as any other, because the server may not
//! notice the end of its connection.

use std::slice;
use std::time::Duration;

use redis::Value;
use tokio::time::{sleep_until, Instant};

use crate::backoff::{left, Pause};
use crate::error::{Error, Result};
use crate::lock::attempt::observed;
use crate::lock::events;
use crate::lock::guard::{Guard, Leftovers};
use crate::lock::release::{First, Undo};
use crate::lock::renewal::lease_left;
use crate::lock::reservation::Reservation;
use crate::lock::slices::ParkedSlices;
use crate::lock::terms::{Terms, DEFAULT_LEASE};
use crate::lock::wait::bounded;
use crate::moment::Moment;
use crate::net::caller::Caller;
use crate::net::command::{self, Claim};
use crate::runtime::within;
use crate::statistics::Counted;

/// A lock whose holds are bound to a connection: made by [`Lock::session`](crate::Lock::session).
///
/// ```no_run
/// # async fn example(server: redis_lock_client::Server) -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::Lock;
///
/// let leader = Lock::new(&server, "leader").session();
/// let guard = leader.acquire().await?;
/// // When this program ends, for any reason, the next waiter gets the lock at once.
/// eprintln!("no longer the leader: {}", guard.lost().await);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct SessionLock {
    terms: Terms,
}

impl SessionLock {
    pub(crate) fn new(mut terms: Terms) -> SessionLock {
        // The server decides how long the lease is. Until it is known, this bounds the release of what was abandoned.
        terms.set_lease(DEFAULT_LEASE);
        SessionLock { terms }
    }

    /// Takes the lock if it is free; see [`Lock::try_acquire`](crate::Lock::try_acquire).
    ///
    /// # Errors
    /// When the server cannot be reached, does not answer within 0.3 s, or refuses.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        within(self.wait(Some(Duration::ZERO))).await
    }

    /// Waits for the lock in the server's queue, for at most `wait`; see
    /// [`Lock::acquire_within`](crate::Lock::acquire_within).
    ///
    /// # Errors
    /// When the server refuses, or could not be reached at the end of the wait.
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<Guard>> {
        within(self.wait(Some(wait))).await
    }

    /// Waits for the lock in the server's queue without a limit, also through the failure of a server.
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
        let asked = Box::pin(async { Ok(self.ask(wait).await?.map(|guard| vec![guard])) });
        let acquired = observed(slice::from_ref(terms), terms, asked).await?;
        Ok(acquired.and_then(|mut guards| guards.pop()))
    }

    async fn ask(&self, wait: Option<Duration>) -> Result<Option<Guard>> {
        // An end that the clock cannot represent is no limit.
        let end = wait.and_then(|wait| Instant::now().checked_add(wait));
        match self.terms.reserve_owner(end).await? {
            Some(reservation) => bounded(&self.terms.server, end, self.run(reservation, end)).await,
            None => Ok(None),
        }
    }

    /// Sends the request until it is granted or `end` has come.
    async fn run(&self, reservation: Reservation, end: Option<Instant>) -> Result<Option<Guard>> {
        let mut attempt = Attempt::new(&self.terms, reservation);
        let mut slice = Duration::ZERO;
        let mut pause = Pause::new();
        let mut failures = 0;
        loop {
            let asked = Instant::now();
            match attempt.ask(slice).await {
                Ok(Some((lease, token, sent))) => {
                    return Ok(Some(attempt.granted(lease, token, sent)))
                }
                Ok(None) if left(end).is_zero() => return Ok(None),
                // Ended early, because another process waits under the same owner name: pause before the next request.
                Ok(None) if asked.elapsed() < slice / 2 => {
                    pause.sleep(left(end)).await;
                }
                Ok(None) => pause = Pause::new(),
                Err(error) if !error.is_passing() => return Err(error),
                // After a broken connection there is a second attempt, however short the wait.
                Err(error) if failures > 0 && left(end).is_zero() => return Err(error),
                Err(error) => {
                    failures += 1;
                    pause.sleep(left(end).max(Pause::FIRST)).await;
                    attempt = attempt.again(end).await.ok_or(error)?;
                    slice = Duration::ZERO;
                    continue;
                }
            }
            // The server keeps the place in the queue from one slice to the next.
            slice = left(end).min(self.terms.server.patience() / 2);
            attempt.park();
        }
    }
}

/// An acquisition by one owner. Dropped before the grant, it withdraws the wait and releases what may have been granted
/// meanwhile.
struct Attempt<'a> {
    terms: &'a Terms,
    claim: Claim,
    caller: Caller,
    reservation: Reservation,
    /// The time until which an abandoned request may still be served.
    under_way_until: Option<Instant>,
    waiting: Option<Counted>,
    /// Whether the server has granted it, confirmed or not.
    was_granted: bool,
    /// Whether a guard has taken it over.
    is_granted: bool,
}

impl<'a> Attempt<'a> {
    fn new(terms: &'a Terms, reservation: Reservation) -> Attempt<'a> {
        let claim = terms.claim_by(&terms.fresh_owner());
        Attempt {
            caller: Caller::waiting(&terms.server, &claim.key),
            terms,
            claim,
            reservation,
            under_way_until: None,
            waiting: None,
            was_granted: false,
            is_granted: false,
        }
    }

    /// The next attempt after a failure. An abandoned request may be served late and would bind the hold of its owner
    /// to a closed connection. So the next attempt has another owner; a named owner waits until the last request can no
    /// longer be served. None when that is after `end`.
    async fn again(mut self, end: Option<Instant>) -> Option<Attempt<'a>> {
        let until = self.under_way_until();
        if !self.caller.is_bound() {
            self.caller = Caller::waiting(&self.terms.server, &self.claim.key);
        }
        let Some(until) = until else {
            return Some(self);
        };
        if self.reservation.is_named() {
            if end.is_some_and(|end| end < until) {
                return None;
            }
            sleep_until(until).await;
            return Some(self);
        }
        Some(Attempt::new(self.terms, Reservation::default()))
    }

    /// Sends one request. Granted, it returns the lease that the server has set, the token, and a moment before the
    /// lease was read.
    async fn ask(&mut self, slice: Duration) -> Result<Option<(Duration, u64, Moment)>> {
        let server = &self.terms.server;
        let patience = server.patience() / 2;
        let command = command::acquire_bound(&self.claim, slice);
        let reply = self.caller.call(&command, slice + patience).await?;
        let granted = command::granted(&reply, server.name())?;
        let Some(token) = granted.and_then(|tokens| tokens.first().copied()) else {
            return Ok(None);
        };
        self.was_granted = true;
        self.caller.pin();
        // An owner that held the lock before may have a longer lease, which the first renewal shortens.
        let renew = command::renew(&self.claim, None, token);
        let sent = Moment::now();
        let renewed = self.caller.call(&renew, patience).await?;
        let lease = match renewed {
            Value::Int(1) => {
                lease_left(server, &mut self.caller, &self.claim, sent, patience).await?
            }
            _ => None,
        };
        // The lock has been broken meanwhile.
        let (lease, sent) = lease.ok_or_else(|| Error::reply(server.name()))?;
        Ok(Some((lease, token, sent)))
    }

    /// Counts the acquisition as parked.
    fn park(&mut self) {
        let (server, claim) = (&self.terms.server, &self.claim);
        self.waiting
            .get_or_insert_with(|| events::parked(server, &claim.key, Some(&claim.owner)));
    }

    fn granted(mut self, lease: Duration, token: u64, sent: Moment) -> Guard {
        self.is_granted = true;
        let mut terms = self.terms.clone();
        terms.set_lease(lease);
        let leftovers = Leftovers {
            acquires_until: self.under_way_until(),
            releases_until: None,
            reservation: std::mem::take(&mut self.reservation),
        };
        let next = Caller::waiting(&terms.server, &self.claim.key);
        let bound = std::mem::replace(&mut self.caller, next);
        Guard::new(
            &terms,
            self.claim.clone(),
            token,
            sent,
            leftovers,
            Some(bound),
        )
    }

    fn under_way_until(&mut self) -> Option<Instant> {
        if self.caller.was_unanswered() {
            self.under_way_until = Some(Instant::now() + self.terms.server.patience());
        }
        self.under_way_until
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.is_granted {
            return;
        }
        let under_way = self.under_way_until();
        let was_unanswered = under_way.is_some();
        let under_way = under_way.filter(|until| Instant::now() < *until);
        let keeps_place = self.waiting.is_some() && !self.reservation.is_named();
        let undo = Undo {
            server: self.terms.server.clone(),
            claim: self.claim.clone(),
            lease: self.terms.lease,
            is_bound: true,
            // A grant whose lease could not be read has to be released as well.
            first: match self.was_granted || keeps_place || was_unanswered {
                true => First::Everything,
                false => First::Nothing,
            },
            acquires_until: under_way,
            releases_until: None,
            reservation: std::mem::take(&mut self.reservation),
            parked: ParkedSlices::default(),
        };
        undo.start();
    }
}
