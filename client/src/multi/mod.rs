//! Several locks, all or none, on servers that need not know of each other.
//!
//! The locks of one server are taken in one request (`LOCK.MACQUIRE`), which holds nothing while it waits. Server follows
//! server, in the order of their names whatever order the caller names the locks in, so that two who want the same locks
//! never wait for each other. (Where locks of one server differ in lease, mode or owner, or in a cluster in their slot, they are
//! taken one after another, in the order of their keys.) Waiting for the first request holds nothing. From then on a *round* may last so
//! long (1.5 s for each lock): what is not complete by then is given back as a whole, because others may want a part of it. A lock that
//! is had already renews itself meanwhile, and if it is lost the round is over.
//!
//! What has to be given back on a server that does not answer is asked for in the background, for as long
//! as its lease could last: no caller waits for a dead server.

mod guard;

use std::time::Duration;

use tokio::time::{timeout_at, Instant};

pub use self::guard::MultiGuard;

use self::guard::{first_lost, release_all, GRACE};
use crate::backoff::{after, Backoff};
use crate::error::{Error, Result};
use crate::lock::attempt::acquire;
use crate::lock::guard::Guard;
use crate::lock::terms::{Terms, OVERTIME};
use crate::lock::Lock;
use crate::runtime::within;

/// How long a round may last for each of its locks, as Redisson has it.
const ROUND_PER_LOCK: Duration = Duration::from_millis(1_500);
/// What is given back is answered a moment before the whole is over.
const A_MOMENT: Duration = Duration::from_millis(30);
/// The most keys that `LOCK.MACQUIRE` takes.
const MOST_KEYS: usize = 1_024;

/// Several locks that are had together, or not at all.
///
/// ```no_run
/// # async fn example(server: redis_lock_client::Server) -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::{Lock, MultiLock};
///
/// let accounts = ["account:1", "account:2"].map(|key| Lock::new(&server, key));
/// let guard = MultiLock::new(accounts)?.acquire().await?;
/// println!("the fencing tokens are {:?}", guard.tokens());
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MultiLock {
    /// In the order in which they are taken.
    requests: Vec<Request>,
    round: Duration,
}

/// Locks that are asked for in one request.
#[derive(Debug, Clone)]
struct Request {
    terms: Vec<Terms>,
    /// Where each is in the caller's list.
    places: Vec<usize>,
}

impl MultiLock {
    /// Of these locks, each with its own server, lease and mode. Their order says nothing. If all locks of one [`Server`](crate::Server)
    /// agree in lease, mode and owner (in a cluster also in their slot), they are asked for in one request, `LOCK.MACQUIRE`, and have
    /// one owner; else one after another.
    ///
    /// # Errors
    /// When none is named, or one twice. That `localhost` and `127.0.0.1` are one server is not seen.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<MultiLock> {
        let mut members: Vec<_> = locks.into_iter().enumerate().collect();
        members.sort_by(|(_, a), (_, b)| place_of(a).cmp(&place_of(b)));
        if members.is_empty() {
            return Err(Error::config("a MultiLock of no locks"));
        }
        for (one, next) in members.iter().zip(members.iter().skip(1)) {
            if place_of(&one.1) == place_of(&next.1) {
                let (server, key) = place_of(&one.1);
                let key = String::from_utf8_lossy(key);
                return Err(Error::config(format!("{server}: {key} is named twice")));
            }
        }
        let round = ROUND_PER_LOCK * u32::try_from(members.len()).unwrap_or(u32::MAX);
        Ok(MultiLock {
            requests: requests(members),
            round,
        })
    }

    /// How long a part of the locks may be held while the others are waited for: 1.5 s for each lock by default.
    #[must_use]
    pub fn round(self, round: Duration) -> MultiLock {
        MultiLock { round, ..self }
    }

    /// Takes all the locks if they are free. None when one of them is not.
    ///
    /// # Errors
    /// When a server cannot be reached, does not answer within 0.3 s, or refuses. Then nothing is held, as with None.
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>> {
        self.acquire_within(Duration::ZERO).await
    }

    /// Waits for all the locks for at most so long, and 0.3 s more where a server owes an answer. None when that was
    /// not enough. The wait goes on where connections break and servers start again.
    ///
    /// # Errors
    /// When a server refuses, or could not be reached at the end of the wait.
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<MultiGuard>> {
        let end = after(wait);
        // Each request keeps the bound by itself; several that are late, one after another, do not.
        let over = end + OVERTIME + A_MOMENT;
        within(async {
            let waited = timeout_at(over, self.rounds(end)).await;
            waited.unwrap_or_else(|_| Err(Error::no_answer(&self.names())))
        })
        .await
    }

    fn names(&self) -> String {
        let servers = self
            .requests
            .iter()
            .flat_map(|request| request.terms.first());
        let names: Vec<_> = servers.map(|terms| terms.server.name()).collect();
        names.join(",")
    }

    /// Waits for all the locks for as long as it takes, also for a server to come back.
    ///
    /// # Errors
    /// When a server refuses.
    pub async fn acquire(&self) -> Result<MultiGuard> {
        loop {
            if let Some(guard) = self.acquire_within(Duration::MAX).await? {
                return Ok(guard);
            }
        }
    }

    async fn rounds(&self, end: Instant) -> Result<Option<MultiGuard>> {
        let mut backoff = Backoff::new();
        loop {
            match self.one_round(end).await {
                Ok(Some(guard)) => return Ok(Some(guard)),
                Ok(None) if Instant::now() >= end => return Ok(None),
                Err(error) if !error.is_passing() || Instant::now() >= end => return Err(error),
                _ => backoff.pause(end).await,
            }
        }
    }

    async fn one_round(&self, end: Instant) -> Result<Option<MultiGuard>> {
        let mut held: Vec<(usize, Guard)> = Vec::new();
        let over = end + OVERTIME;
        let mut end = end;
        for request in &self.requests {
            let lost = held.iter().map(|(_, guard)| guard.lost()).collect();
            let got = tokio::select! {
                got = request.acquire(end) => got,
                _ = first_lost(lost) => Ok(None),
            };
            let is_first = held.is_empty();
            match got {
                Ok(Some(guards)) => held.extend(request.places.iter().copied().zip(guards)),
                Ok(None) => {
                    give_back(held, over).await;
                    return Ok(None);
                }
                Err(error) => {
                    give_back(held, over).await;
                    return Err(error);
                }
            }
            if is_first {
                end = end.min(after(self.round));
            }
        }
        held.sort_by_key(|(place, _)| *place);
        let guard = MultiGuard::new(held.into_iter().map(|(_, guard)| guard).collect());
        Ok((!guard.valid_for().is_zero()).then_some(guard))
    }
}

/// The order in which locks are taken, on which all programs must agree.
fn place_of(lock: &Lock) -> (&str, &[u8]) {
    (lock.terms.server.name(), &lock.terms.key)
}

/// The locks of one server are asked for in one request, where they agree in all that a request says once.
fn requests(locks: Vec<(usize, Lock)>) -> Vec<Request> {
    let mut requests = Vec::new();
    for of_server in locks.chunk_by(|(_, a), (_, b)| place_of(a).0 == place_of(b).0) {
        let agree = |pair: &[(usize, Lock)]| match pair {
            [(_, a), (_, b)] => a.terms.agrees_with(&b.terms),
            _ => true,
        };
        let in_one = of_server.len() <= MOST_KEYS && of_server.windows(2).all(agree);
        let size = if in_one { of_server.len() } else { 1 };
        for locks in of_server.chunks(size) {
            requests.push(Request {
                terms: locks.iter().map(|(_, lock)| lock.terms.clone()).collect(),
                places: locks.iter().map(|(place, _)| *place).collect(),
            });
        }
    }
    requests
}

impl Request {
    async fn acquire(&self, end: Instant) -> Result<Option<Vec<Guard>>> {
        let left = end.saturating_duration_since(Instant::now());
        acquire(&self.terms, Some(left)).await
    }
}

/// Gives all of them back, and waits for those whose servers answer by then.
async fn give_back(held: Vec<(usize, Guard)>, over: Instant) {
    let end = over.min(Instant::now() + GRACE);
    release_all(held.into_iter().map(|(_, guard)| guard), end).await;
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;
    use crate::mode::Mode;
    use crate::net::server::Server;

    fn lock(server: &str, key: &str) -> Lock {
        let server = Server::open(&format!("redis://{server}")).expect("a URL");
        Lock::new(&server, key)
    }

    /// The places of the locks of each request.
    fn order(multi: &MultiLock) -> Vec<&[usize]> {
        let requests = multi.requests.iter();
        requests.map(|request| &request.places[..]).collect()
    }

    #[test]
    fn the_order_is_that_of_servers_and_keys() {
        let locks = [lock("b:1", "x"), lock("a:1", "y"), lock("a:1", "x")];
        let multi = MultiLock::new(locks).expect("three locks");
        // One name may be two users: each server asks for itself.
        assert_eq!(order(&multi), [[2], [1], [0]]);
        assert_eq!(multi.round, Duration::from_millis(4_500));
    }

    #[test]
    fn locks_of_one_server_that_agree_are_one_request() {
        let server = Server::open("redis://a:1").expect("a URL");
        let of = |key: &str| Lock::new(&server, key);
        let order_of = |locks: [Lock; 3]| {
            let multi = MultiLock::new(locks).expect("three locks");
            order(&multi).concat().len() / order(&multi).len()
        };
        assert_eq!(order_of([of("x"), of("y"), of("z")]), 3);
        assert_eq!(order_of([of("x"), of("y"), of("z").mode(Mode::Read)]), 1);
        assert_eq!(order_of([of("x"), of("y").owner("me"), of("z")]), 1);
        let longer = of("z").lease(Duration::from_secs(60));
        assert_eq!(order_of([of("x"), of("y"), longer]), 1);
    }

    #[test]
    fn one_lock_twice_and_none_at_all_are_refused() {
        let twice = [lock("a:1", "x"), lock("b:1", "x"), lock("a:1", "x")];
        let error = MultiLock::new(twice).expect_err("one twice").to_string();
        assert_eq!(error, "a:1/0: x is named twice");
        assert!(MultiLock::new([]).is_err());
    }
}
