//! A lock on several independent servers: held by the owner that holds it on a majority of them.
//!
//! It survives the failure of a minority, without replication between the servers. docs/REDLOCK.md compares that with
//! one server and a fencing token, and states its premises.
//!
//! All waiters wait in the queue of one server: the first one, by name, that answers. Granted there, an acquisition
//! opens a *round*: it asks all servers at once, and a majority must grant while its validity lasts. Otherwise
//! everything is undone, also at servers that did not answer, and after a random pause the acquisition waits at the
//! server that refused, because a holder has the lock there.

mod guard;
mod hold;
mod rule;

use std::time::Duration;

use tokio::time::{timeout_at, Instant};

pub use self::guard::RedGuard;

use self::hold::is_permanent;
use self::rule::{validity, Verdict};
use crate::backoff::{after, Pause};
use crate::error::{Error, Result};
use crate::lock::events::{self, Unreached};
use crate::lock::terms::{names, overtime, Terms};
use crate::mode::Mode;
use crate::moment::now;
use crate::net::command::Kind;
use crate::net::server::Server;
use crate::observer::{Asked, Observed};
use crate::runtime::on_thread;
use crate::trace::Span;

/// The smallest number of servers of which one may fail.
const MIN_SERVERS: usize = 3;

/// A lock on a key of three or more independent servers. Each acquisition has an owner of its own.
///
/// ```no_run
/// # async fn example() -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::{RedLock, Server};
///
/// let urls = ["redis://a", "redis://b", "redis://c"];
/// let servers = urls.map(Server::open).into_iter().collect::<Result<Vec<_>, _>>()?;
/// let guard = RedLock::new(&servers, "invoices:42")?.acquire().await?;
/// println!("on {} servers", guard.tokens().len());
/// assert_eq!(guard.release().await?, redis_lock_client::Released::Yes);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RedLock {
    /// In the order of their servers' names, on which all programs must agree: it decides at which server they wait.
    locks: Vec<Terms>,
}

impl RedLock {
    /// The exclusive lock of this key on these servers, with a lease of 30 s.
    ///
    /// # Errors
    /// When there are fewer than three servers, when one is named twice, or when one is a cluster.
    pub fn new<'a>(
        servers: impl IntoIterator<Item = &'a Server>,
        key: impl AsRef<[u8]>,
    ) -> Result<RedLock> {
        let mut servers: Vec<&Server> = servers.into_iter().collect();
        servers.sort_by(|a, b| a.name().cmp(b.name()));
        if servers.len() < MIN_SERVERS {
            return Err(Error::config(format!(
                "a RedLock needs {MIN_SERVERS} servers at least, so that one may die: {} named",
                servers.len()
            )));
        }
        for (one, next) in servers.iter().zip(servers.iter().skip(1)) {
            if one.name() == next.name() {
                let name = one.name();
                return Err(Error::config(format!("{name} is named twice in a RedLock")));
            }
        }
        if let Some(cluster) = servers.iter().find(|server| server.is_cluster()) {
            let name = cluster.name();
            return Err(Error::config(format!(
                "{name}: a RedLock's servers are single ones, not clusters"
            )));
        }
        let key = key.as_ref();
        let locks = servers.into_iter().map(|server| Terms::new(server, key));
        Ok(RedLock {
            locks: locks.collect(),
        })
    }

    /// The lease: how long each server keeps the lock without a renewal. No server's `lock.startup-delay` may be
    /// shorter.
    #[must_use]
    pub fn lease(self, lease: Duration) -> RedLock {
        self.each(|lock| lock.set_lease(lease))
    }

    /// When no majority confirms a renewal, [`lost`](RedGuard::lost) completes this long before the leases of the
    /// majority end; see [`Lock::margin`](crate::Lock::margin).
    #[must_use]
    pub fn margin(self, margin: Duration) -> RedLock {
        self.each(|lock| lock.margin = Some(margin))
    }

    /// The mode; see [`Lock::mode`](crate::Lock::mode).
    #[must_use]
    pub fn mode(self, mode: Mode) -> RedLock {
        self.each(|lock| lock.kind = Kind::Lock(mode))
    }

    fn each(mut self, change: impl Fn(&mut Terms)) -> RedLock {
        self.locks.iter_mut().for_each(change);
        self
    }

    /// Takes the lock if it is free on a majority of the servers. None when another owner holds it.
    ///
    /// # Errors
    /// When no majority can be reached, or a server refuses.
    pub async fn try_acquire(&self) -> Result<Option<RedGuard>> {
        self.acquire_within(Duration::ZERO).await
    }

    /// Waits for the lock for at most `wait`, and 0.3 s more for pending replies. None when it was not granted in that
    /// time.
    ///
    /// # Errors
    /// When no majority could be reached in that time, or a server refuses: an error that names the server and the
    /// fault, such as a `lock.startup-delay` that is shorter than the lease.
    pub async fn acquire_within(&self, wait: Duration) -> Result<Option<RedGuard>> {
        let begun = now();
        let key = self.locks.first().map_or(&[][..], |lock| &lock.key);
        let names_of_all = names(self.locks.iter());
        let observed = Observed::of_all(&self.locks, names_of_all.clone());
        let asked = Asked::new([observed.clone()], begun);
        let span = Span::new(&names_of_all, key, None);
        let servers: Vec<_> = self.locks.iter().map(|lock| &lock.server).collect();
        let end = after(wait);
        // An end that the clock cannot represent is no limit.
        let is_bounded = begun.checked_add(wait).is_some();
        let work = || {
            let red = self.clone();
            async move {
                let over = end + overtime(red.locks.iter());
                let waited = timeout_at(over, red.wait(end, !wait.is_zero(), is_bounded)).await;
                let silence = || Error::no_answer(&names(red.locks.iter()));
                waited.unwrap_or_else(|_| Err(red.no_majority(silence())))
            }
        };
        let lease = self.locks.first().map_or(Duration::ZERO, |lock| lock.lease);
        span.around(async {
            let acquired = on_thread(&servers, lease, work).await;
            let is_granted = matches!(acquired, Ok(Some(_)));
            asked.answered(is_granted, acquired.as_ref().err());
            match &acquired {
                Ok(Some(guard)) => guard.record_grant(observed, now() - begun),
                other => self.locks.iter().for_each(|lock| {
                    events::not_acquired(lock, other.as_ref().err(), now() - begun);
                }),
            }
            acquired
        })
        .await
    }

    /// Waits for the lock without a limit, once a majority has answered also while none can be reached.
    ///
    /// # Errors
    /// When a server refuses, or no majority can be reached at first. (A replica counts as out of reach.)
    pub async fn acquire(&self) -> Result<RedGuard> {
        let guard = self.acquire_within(Duration::MAX).await?;
        guard.ok_or_else(|| Error::no_answer(&names(self.locks.iter())))
    }

    async fn wait(&self, end: Instant, waits: bool, is_bounded: bool) -> Result<Option<RedGuard>> {
        let lease = self.locks.first().map_or(Duration::ZERO, |lock| lock.lease);
        if validity(lease).is_zero() {
            let why = format!("a lease of {lease:?} is too short for a RedLock");
            return Err(Error::config(why));
        }
        self.locks.iter().try_for_each(Terms::check)?;
        let mut pause = Pause::default();
        let mut queue_at = 0;
        // Before a majority has ever answered, one that cannot be reached is an error, or without a limit one of
        // replicas; one that does not answer has the time of a first request to a single server.
        let mut is_reached = false;
        let is_single = self.locks.iter().all(|lock| lock.server.is_single());
        let patience = self.locks.iter().map(|lock| lock.server.patience());
        let silent_until = now() + patience.max().unwrap_or_default() / 2;
        let mut unreached = None;
        loop {
            let attempt = self.attempt(&mut queue_at, end, waits, &mut is_reached);
            match attempt.await {
                Ok(Some(guard)) => return Ok(Some(guard)),
                Ok(None) if now() >= end => return Ok(None),
                Ok(None) => (is_reached, unreached) = (true, None),
                Err(error) if is_permanent(&error) => return Err(error),
                Err(error) => {
                    let is_wrong = error.has_code("READONLY") && !is_bounded && is_single;
                    is_reached |= !matches!(error, Error::Connection { .. }) && !is_wrong;
                    let may_answer = error.is_silence() && now() < silent_until;
                    if !(is_reached || may_answer) || now() >= end {
                        return Err(self.no_majority(error));
                    }
                    if let Some(lock) = self.locks.first() {
                        let begin = || Unreached::new(&lock.server, &lock.key, None);
                        unreached.get_or_insert_with(begin).failed(&error);
                    }
                }
            }
            pause.random(Some(end)).await;
        }
    }

    fn no_majority(&self, error: Error) -> Error {
        let servers = self.locks.len();
        match error {
            Error::Connection { server, what } => {
                let what = format!("{what} (no majority of {servers} servers could be asked)");
                Error::Connection { server, what }
            }
            other => other,
        }
    }

    /// One wait in a queue, and one round. Any error that is not permanent means that no majority was reached.
    async fn attempt(
        &self,
        queue_at: &mut usize,
        end: Instant,
        waits: bool,
        is_reached: &mut bool,
    ) -> Result<Option<RedGuard>> {
        let guard = RedGuard::acquiring(&self.locks)?;
        let begun = now();
        let queued = guard.hold.wait_in_queue(*queue_at, end).await;
        // It has waited in a queue, perhaps of a server that is gone since.
        let has_waited = queued.is_ok() && now() - begun > overtime(self.locks.iter());
        *is_reached |= has_waited || guard.hold.has_lost_a_server();
        let round = match queued {
            Ok(true) => guard.hold.round(waits).await,
            other => {
                guard.undo().await;
                return other.map(|_| None);
            }
        };
        let refused_by = round.refused_by();
        match round.error {
            // Whatever the others answer.
            Some(error) if is_permanent(&error) => {
                guard.undo().await;
                Err(error)
            }
            _ if round.verdict == Verdict::Held => Ok(Some(guard.held(round.opened))),
            error => {
                guard.undo().await;
                *queue_at = refused_by.unwrap_or(*queue_at + 1);
                match error {
                    Some(error) if refused_by.is_none() => Err(error),
                    _ => Ok(None),
                }
            }
        }
    }
}

#[allow(clippy::expect_used)]
#[cfg(test)]
mod tests {
    use super::*;

    fn red(urls: &[&str]) -> Result<RedLock> {
        let servers: Vec<Server> = urls
            .iter()
            .map(|url| Server::open(url).expect("a URL"))
            .collect();
        RedLock::new(&servers, "k")
    }

    #[test]
    fn too_few_servers_duplicates_and_clusters_are_refused() {
        let two = red(&["redis://a", "redis://b"]).expect_err("two servers");
        assert!(two.to_string().contains("needs 3"), "{two}");
        let twice = red(&["redis://a", "redis://b", "redis://a:6379"]).expect_err("one twice");
        assert!(twice.to_string().contains("a:6379/0 is named twice"));
        let cluster = red(&["redis://a", "redis://b", "redis+cluster://c:1,d:1"]);
        assert!(cluster.expect_err("a cluster").to_string().contains("c:1"));
    }

    #[test]
    fn all_programs_wait_at_the_servers_in_the_same_order() {
        let names = |red: RedLock| -> Vec<String> {
            let names = red.locks.iter().map(|lock| lock.server.name().to_string());
            names.collect()
        };
        let one = red(&["redis://c", "redis://a", "redis://b"]).expect("three");
        let other = red(&["redis://b", "redis://c", "redis://a"]).expect("three");
        assert_eq!(names(one), names(other));
    }
}
