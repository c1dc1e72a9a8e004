//! Several locks acquired together or not at all, on servers that need not know of each other.
//!
//! The locks of one server are acquired in one request (`LOCK.MACQUIRE`), which holds nothing while it waits. (If one
//! of them is lost right after the grant, the others are released, and the wait goes on.) The servers follow in the
//! order of their names, whatever the caller's order, so that two acquisitions of the same locks never wait for each
//! other. (Locks of one server that differ in lease, mode or owner, or in a cluster in their slot, are acquired one
//! after another, in the order of their keys.) The wait for the first request holds nothing. From its grant on, a
//! *round* lasts 1.5 s for each lock: if it is not complete by then, all its locks are released, because other owners
//! may want some of them. Locks that are held already are renewed meanwhile; if one is lost the round is over.
//!
//! Releases at a server that does not answer are repeated in the background, for as long as the lease could last: no
//! caller waits for a dead server.

mod guard;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{timeout_at, Instant};

pub use self::guard::MultiGuard;

use self::guard::{release_all, GRACE};
use crate::backoff::{after, left, sooner, Pause};
use crate::error::{Error, Result};
use crate::lock::acquire::acquire;
use crate::lock::events::Unreached;
use crate::lock::guard::Guard;
use crate::lock::loss::Lost;
use crate::lock::terms::{names, overtime, Terms};
use crate::lock::wait::Known;
use crate::lock::Lock;
use crate::moment::now;
use crate::runtime::on_thread;
use crate::trace::{text, Span};

/// The duration of a round for each of its locks, the value of Redisson.
const ROUND_PER_LOCK: Duration = Duration::from_millis(1_500);
/// Time for the replies to the releases at the end of a wait.
const RELEASE_REPLIES: Duration = Duration::from_millis(30);
/// The most keys that `LOCK.MACQUIRE` takes.
const MAX_KEYS: usize = 1_024;

/// Several locks that are acquired together or not at all.
///
/// ```no_run
/// # async fn example(server: redis_lock_client::Server) -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::{Lock, MultiLock};
///
/// let accounts = ["account:1", "account:2"].map(|key| Lock::new(&server, key));
/// let guard = MultiLock::new(accounts)?.acquire().await?;
/// println!("the fencing tokens are {:?}", guard.tokens());
/// assert_eq!(guard.release().await?, redis_lock_client::Released::Yes);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MultiLock {
    /// In the order of acquisition.
    requests: Vec<Request>,
    round: Duration,
}

/// Locks that are acquired in one request.
#[derive(Debug, Clone)]
struct Request {
    terms: Vec<Terms>,
    /// The index of each lock in the caller's list.
    indices: Vec<usize>,
}

impl MultiLock {
    /// Combines these locks, each with its own server, lease and mode, in any order. If all locks of one
    /// [`Server`](crate::Server) agree in lease, mode and owner (in a cluster also in their slot), they are acquired in
    /// one request, `LOCK.MACQUIRE`, and have one owner; otherwise one after another. Such a request holds none of its
    /// locks while it waits, also when one of them is lost right after the grant.
    ///
    /// # Errors
    /// When the list is empty, names a lock twice, or has a [session](Lock::session) lock or one
    /// with a [note](Lock::note). `localhost` and `127.0.0.1`
    /// count as different servers.
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<MultiLock> {
        let terms = locks.into_iter().map(|lock| lock.terms);
        let mut members: Vec<_> = terms.enumerate().collect();
        members.sort_by(|(_, a), (_, b)| position(a).cmp(&position(b)));
        let any = |is: fn(&Terms) -> bool| members.iter().any(|(_, terms)| is(terms));
        let is_twice =
            |pair: &&[(usize, Terms)]| matches!(pair, [a, b] if position(&a.1) == position(&b.1));
        if members.is_empty() {
            return Err(Error::config("a MultiLock of no locks"));
        } else if any(|terms| terms.is_session) {
            return Err(Error::config("a MultiLock of locks of a session"));
        } else if any(|terms| terms.note.is_some()) {
            return Err(Error::config("a MultiLock of locks with notes"));
        } else if let Some([(_, terms), ..]) = members.windows(2).find(is_twice) {
            let (server, key) = position(terms);
            return Err(Error::config(format!(
                "{server}: {} is named twice",
                text(key)
            )));
        }
        let round = ROUND_PER_LOCK * u32::try_from(members.len()).unwrap_or(u32::MAX);
        Ok(MultiLock {
            requests: requests(members),
            round,
        })
    }

    /// How long some of the locks may be held while the others are waited for: 1.5 s for each lock by default.
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

    /// Waits for all the locks for at most `wait`, and 0.3 s more for a pending reply. None when they were not all
    /// granted in that time. Once its server has answered, each request survives broken connections and restarts.
    ///
    /// # Errors
    /// When a server refuses, cannot be reached at first, or could not be reached at the end of the wait.
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<MultiGuard>> {
        // An end that the clock cannot represent is no limit.
        let end = now().checked_add(wait);
        // Each request keeps the limit; several late ones, one after another, would not.
        let over = end.map_or_else(
            || after(wait),
            |end| end + self.overtime() + RELEASE_REPLIES,
        );
        let span = Span::current();
        let work = || {
            let multi = self.clone();
            span.follows(async move {
                let waited = timeout_at(over, multi.rounds(end)).await;
                waited.unwrap_or_else(|_| Err(Error::no_answer(&names(multi.firsts()))))
            })
        };
        let servers: Vec<_> = self.firsts().map(|terms| &terms.server).collect();
        let leases = self.firsts().map(|terms| terms.lease);
        on_thread(&servers, leases.min().unwrap_or_default(), work).await
    }

    fn overtime(&self) -> Duration {
        overtime(self.requests.iter().flat_map(|request| &request.terms))
    }

    /// The first lock of each request.
    fn firsts(&self) -> impl Iterator<Item = &Terms> {
        self.requests
            .iter()
            .flat_map(|request| request.terms.first())
    }

    /// Waits for all the locks without a limit, once their servers have answered also while one is down.
    ///
    /// # Errors
    /// When a server refuses, or at first cannot be reached or is a replica.
    pub async fn acquire(&self) -> Result<MultiGuard> {
        let guard = self.acquire_within(Duration::MAX).await?;
        guard.ok_or_else(|| Error::no_answer(&names(self.firsts())))
    }

    async fn rounds(&self, end: Option<Instant>) -> Result<Option<MultiGuard>> {
        let mut pause = Pause::default();
        let known = self.firsts().map(|first| first.server.name());
        let known: HashMap<_, _> = known.map(|name| (name, Known::of(end))).collect();
        let mut unreached = None;
        let moved = || self.firsts().find_map(|first| first.server.moved());
        let (bound, begun) = (end, moved());
        loop {
            let end = sooner(bound, begun, moved());
            match self.one_round(end, &known).await {
                Ok(Some(guard)) => return Ok(Some(guard)),
                Ok(None) if left(end).is_zero() => return Ok(None),
                Ok(None) => unreached = None,
                Err((first, error)) => {
                    let known = known.get(first.server.name());
                    let is_answered = known.is_some_and(|known| known.is_answered());
                    if !is_answered || !error.is_passing() || left(end).is_zero() {
                        return Err(error);
                    }
                    let begin = || Unreached::new(&first.server, &first.key, None);
                    unreached.get_or_insert_with(begin).failed(&error);
                }
            }
            pause.random(end).await;
        }
    }

    /// Asks for all the locks. An error has the first lock of the request that has failed.
    async fn one_round(
        &self,
        end: Option<Instant>,
        known: &HashMap<&str, Arc<Known>>,
    ) -> std::result::Result<Option<MultiGuard>, (&Terms, Error)> {
        let mut held: Vec<(usize, Guard)> = Vec::new();
        let over = end.map_or_else(|| after(Duration::MAX), |end| end + self.overtime());
        let mut end = end;
        for (first, request) in self.firsts().zip(&self.requests) {
            let lost = Lost::first(held.iter().map(|(_, guard)| guard.lost()));
            let known = known.get(first.server.name()).cloned();
            let got = tokio::select! {
                got = acquire(&request.terms, end.map(|_| left(end)), known) => got,
                Some(_) = lost => Ok(None),
            };
            let is_first = held.is_empty();
            match got {
                Ok(Some(guards)) => held.extend(request.indices.iter().copied().zip(guards)),
                other => {
                    give_back(held, over).await;
                    return other.map(|_| None).map_err(|error| (first, error));
                }
            }
            if is_first {
                let round = after(self.round);
                end = Some(end.map_or(round, |end| end.min(round)));
            }
        }
        held.sort_by_key(|(place, _)| *place);
        let members = held.into_iter().map(|(_, guard)| guard).collect();
        let guard = MultiGuard { members };
        Ok((!guard.valid_for().is_zero()).then_some(guard))
    }
}

/// The position in the order of acquisition, on which all programs must agree.
fn position(terms: &Terms) -> (&str, &[u8]) {
    (terms.server.name(), &terms.key)
}

/// Groups the locks into requests: those of one server form one if they agree in everything that a request states once.
fn requests(locks: Vec<(usize, Terms)>) -> Vec<Request> {
    let mut requests = Vec::new();
    for of_server in locks.chunk_by(|(_, a), (_, b)| position(a).0 == position(b).0) {
        let agree = |pair: &[(usize, Terms)]| matches!(pair, [(_, a), (_, b)] if a.agrees_with(b));
        let in_one = of_server.len() <= MAX_KEYS && of_server.windows(2).all(agree);
        let size = if in_one { of_server.len() } else { 1 };
        for locks in of_server.chunks(size) {
            let (indices, terms) = locks.iter().cloned().unzip();
            requests.push(Request { terms, indices });
        }
    }
    requests
}

/// Releases all of them, and waits for the replies until `over`, at most [`GRACE`].
async fn give_back(held: Vec<(usize, Guard)>, over: Instant) {
    let end = over.min(now() + GRACE);
    release_all(held.into_iter().map(|(_, guard)| guard), end).await;
}

#[allow(clippy::expect_used)]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::Mode;
    use crate::net::server::Server;

    fn lock(server: &str, key: &str) -> Lock {
        let server = Server::open(&format!("redis://{server}")).expect("a URL");
        Lock::new(&server, key)
    }

    /// The indices of the locks of each request.
    fn order(multi: &MultiLock) -> Vec<&[usize]> {
        let requests = multi.requests.iter();
        requests.map(|request| &request.indices[..]).collect()
    }

    #[test]
    fn locks_are_acquired_in_the_order_of_servers_and_keys() {
        let locks = [lock("b:1", "x"), lock("a:1", "y"), lock("a:1", "x")];
        let multi = MultiLock::new(locks).expect("three locks");
        // Two servers of one name may have different users, so they do not share a request.
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
    fn a_duplicate_lock_and_an_empty_list_are_refused() {
        let twice = [lock("a:1", "x"), lock("b:1", "x"), lock("a:1", "x")];
        let error = MultiLock::new(twice).expect_err("one twice").to_string();
        assert_eq!(error, "a:1/0: x is named twice");
        assert!(MultiLock::new([]).is_err());
        assert!(MultiLock::new([lock("a:1", "x").session()]).is_err());
    }
}
