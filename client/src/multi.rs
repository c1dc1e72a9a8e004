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

use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{timeout_at, Instant};

use crate::attempt::acquire;
use crate::backoff::{after, Backoff};
use crate::error::{Error, Result};
use crate::guard::Guard;
use crate::lock::Lock;
use crate::notice::{Kept, Lost, Notice};
use crate::outcome::{LostReason, Released};
use crate::runtime::{self, within, Task};
use crate::terms::{Terms, OVERTIME};

/// How long a round may last for each of its locks, as Redisson has it.
const ROUND_PER_LOCK: Duration = Duration::from_millis(1_500);
/// What is given back is answered a moment before the whole is over.
const A_MOMENT: Duration = Duration::from_millis(30);
/// The most keys that `LOCK.MACQUIRE` takes.
const MOST_KEYS: usize = 1_024;
/// How long what is given back may be waited for.
const GRACE: Duration = Duration::from_millis(500);

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

/// In their order. What is not known in time is an error here, and goes on in the background.
async fn release_all(guards: impl Iterator<Item = Guard>, end: Instant) -> Vec<Result<Released>> {
    let begun: Vec<_> = guards
        .map(|guard| (guard.server_name(), tokio::spawn(guard.release_counted())))
        .collect();
    let mut released = Vec::with_capacity(begun.len());
    for (server, release) in begun {
        released.push(match timeout_at(end, release).await {
            Ok(Ok(word)) => word,
            Ok(Err(_)) | Err(_) => Err(Error::no_answer(&server)),
        });
    }
    released
}

/// Ends with the first of these.
async fn first_lost(mut lost: Vec<Lost>) -> LostReason {
    poll_fn(|context| {
        let mut ended = lost.iter_mut().map(|lost| Pin::new(lost).poll(context));
        ended.find(Poll::is_ready).unwrap_or(Poll::Pending)
    })
    .await
}

/// Locks that are held together, each renewed by itself. Dropped, all are given back in the background.
///
/// ```no_run
/// # async fn example(guard: redis_lock_client::MultiGuard) {
/// for member in guard.members() {
///     println!("token {}, for {:?} more", member.token(), member.valid_for());
/// }
/// # }
/// ```
#[derive(Debug)]
#[must_use = "dropped, the locks are given back"]
pub struct MultiGuard {
    members: Vec<Guard>,
    notice: Arc<Notice>,
    watch: Task,
}

impl MultiGuard {
    fn new(members: Vec<Guard>) -> MultiGuard {
        let notice = Notice::new(Instant::now());
        let kept = Kept(notice.clone());
        let losses = members.iter().map(Guard::lost).collect();
        let watch = runtime::spawn(async move {
            let why = first_lost(losses).await;
            kept.0.lose(why);
        });
        MultiGuard {
            members,
            notice,
            watch,
        }
    }

    /// Each lock's own guard, in the order in which the caller has named them.
    pub fn members(&self) -> &[Guard] {
        &self.members
    }

    /// Each lock's fencing token, in the same order. A token fences what its own lock protects; those of
    /// two locks say nothing about each other.
    pub fn tokens(&self) -> Vec<u64> {
        self.members.iter().map(Guard::token).collect()
    }

    /// A future that ends when one of the locks is lost: then what needed all of them must stop. The
    /// others stay held until the guard is dropped.
    pub fn lost(&self) -> Lost {
        self.notice.lost()
    }

    /// How long all the locks are certainly still ours; zero when one is lost.
    pub fn valid_for(&self) -> Duration {
        let left = self.members.iter().map(Guard::valid_for);
        left.min().unwrap_or_default()
    }

    /// Gives all the locks back at the same time: [`Released::Yes`] when each of them was still held. Where a server
    /// does not answer within half a second, its lock is given back in the background.
    ///
    /// # Errors
    /// The first, when a server did not answer or refused.
    pub async fn release(self) -> Result<Released> {
        let mut whole = Released::Yes;
        for released in self.release_each().await {
            if released? == Released::NotHeld {
                whole = Released::NotHeld;
            }
        }
        Ok(whole)
    }

    /// The same, and what was found of each lock, in the caller's order.
    pub async fn release_each(mut self) -> Vec<Result<Released>> {
        let members = std::mem::take(&mut self.members);
        let servers: Vec<_> = members.iter().map(Guard::server_name).collect();
        let end = Instant::now() + GRACE;
        let released = within(async { Ok(release_all(members.into_iter(), end).await) });
        let refused = |error: Error| servers.iter().map(|_| Err(error.clone())).collect();
        released.await.unwrap_or_else(refused)
    }
}

impl Drop for MultiGuard {
    fn drop(&mut self) {
        self.notice.finish();
        self.watch.end();
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;
    use crate::mode::Mode;
    use crate::server::Server;

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
