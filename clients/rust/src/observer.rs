//! The events of locks for an observer of the program.

use std::future::Future;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{timeout_at, Instant};

use crate::aside::aside;
use crate::error::Error;
use crate::lock::terms::Terms;
use crate::moment::now;
use crate::net::command::Kind;
use crate::net::server::Server;
use crate::outcome::LostReason;
use crate::trace::{event, shown, Text};

/// What happens to the locks of a server, for the metrics and traces of a program
/// ([`ServerBuilder::observer`](crate::ServerBuilder::observer)). Each acquisition is asked and answered once; each
/// granted one is then either released or lost, once.
///
/// The methods are called in the program's own task where it acquires and releases, and otherwise on a thread that
/// renews nothing: they may block there. One that panics is a warning in the log. A lock of a
/// [`MultiLock`](crate::MultiLock) is a lock as any other; a [`RedLock`](crate::RedLock) is one lock, and the observer
/// of the first of its servers is told of it.
///
/// ```
/// use std::time::Duration;
/// use redis_lock_client::{Error, LockName, LockObserver};
///
/// struct Log;
///
/// impl LockObserver for Log {
///     fn answered(&self, lock: &LockName, granted: bool, waited: Duration, error: Option<&Error>) {
///         println!("{:?}: {granted} after {waited:?}, {error:?}", lock.key);
///     }
/// }
/// ```
pub trait LockObserver: Send + Sync {
    /// An acquisition begins.
    fn asked(&self, lock: &LockName) {
        let _ = lock;
    }

    /// It has ended, after this time: granted, or not, with the error if there is one. Dropped, it is not granted.
    fn answered(&self, lock: &LockName, granted: bool, waited: Duration, error: Option<&Error>) {
        let _ = (lock, granted, waited, error);
    }

    /// A guard whose hold was not lost is released, left or dropped, this long after the grant.
    fn released(&self, lock: &LockName, held: Duration) {
        let _ = (lock, held);
    }

    /// A hold was lost.
    fn lost(&self, lock: &LockName, reason: &LostReason) {
        let _ = (lock, reason);
    }

    /// A renewal is not confirmed a third of the lease after it was due, for this time. It is told once, until one is.
    fn late(&self, lock: &LockName, by: Duration) {
        let _ = (lock, by);
    }
}

/// A lock as the program has named it. It has no owner.
#[derive(Clone)]
#[non_exhaustive]
pub struct LockName {
    /// The server's name; of a [`RedLock`](crate::RedLock) the names of all with commas between them.
    pub server: String,
    /// The key.
    pub key: Vec<u8>,
    /// `exclusive`, `read`, `write` or `semaphore`.
    pub kind: &'static str,
}

shown! { LockName, lock, server = lock.server, key = Text(&lock.key), kind = lock.kind }

/// The observer of a server and what it calls a lock.
#[derive(Clone)]
pub(crate) struct Observed {
    server: Server,
    observer: Arc<dyn LockObserver>,
    lock: LockName,
    /// When this value was made.
    pub since: Instant,
}

impl Observed {
    /// None without an observer.
    pub(crate) fn of(server: &Server, key: &[u8], kind: Kind) -> Option<Observed> {
        Some(Observed {
            observer: server.inner.observer.clone()?,
            server: server.clone(),
            since: now(),
            lock: LockName {
                server: server.name().into(),
                key: key.to_vec(),
                kind: kind.name(),
            },
        })
    }

    /// A lock on all servers of these terms.
    pub(crate) fn of_all(terms: &[Terms], names: String) -> Option<Observed> {
        let first = terms.first()?;
        let mut observed = Observed::of(&first.server, &first.key, first.kind)?;
        observed.lock.server = names;
        Some(observed)
    }

    fn tell(&self, tell: impl FnOnce(&dyn LockObserver, &LockName) + Send + 'static) {
        let Observed {
            server,
            observer,
            lock,
            ..
        } = self.clone();
        aside(move || {
            let told = catch_unwind(AssertUnwindSafe(|| tell(&*observer, &lock)));
            if told.is_err() {
                event!(WARN, "observer failed", &server, &lock.key);
            }
        });
    }

    pub(crate) fn released(&self, held: Duration) {
        self.tell(move |observer, lock| observer.released(lock, held));
    }

    pub(crate) fn lost(&self, reason: &LostReason) {
        let reason = reason.clone();
        self.tell(move |observer, lock| observer.lost(lock, &reason));
    }

    /// Waits for a renewal that was due at this moment, and tells when it is late.
    pub(crate) async fn renews<T>(
        this: Option<&Observed>,
        (due, lease): (Instant, Duration),
        renewal: impl Future<Output = T>,
    ) -> T {
        let mut renewal = pin!(renewal);
        if let Some(observed) = this {
            if let Ok(done) = timeout_at(due + lease / 3, &mut renewal).await {
                return done;
            }
            let by = now().saturating_duration_since(due);
            observed.tell(move |observer, lock| observer.late(lock, by));
        }
        renewal.await
    }
}

/// An acquisition of these locks. Dropped without an answer, it is not granted.
pub(crate) struct Asked {
    locks: Vec<Observed>,
    began: Instant,
}

impl Asked {
    pub(crate) fn new(locks: impl IntoIterator<Item = Option<Observed>>, began: Instant) -> Asked {
        let locks: Vec<_> = locks.into_iter().flatten().collect();
        for observed in &locks {
            observed.tell(|observer, lock| observer.asked(lock));
        }
        Asked { locks, began }
    }

    pub(crate) fn of(terms: &[Terms], began: Instant) -> Asked {
        let of_each = |terms: &Terms| Observed::of(&terms.server, &terms.key, terms.kind);
        Asked::new(terms.iter().map(of_each), began)
    }

    pub(crate) fn answered(mut self, granted: bool, error: Option<&Error>) {
        self.answer(granted, error);
    }

    fn answer(&mut self, granted: bool, error: Option<&Error>) {
        for observed in self.locks.drain(..) {
            let (waited, error) = (now() - self.began, error.cloned());
            observed.tell(move |observer, lock| {
                observer.answered(lock, granted, waited, error.as_ref());
            });
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.answer(false, None);
    }
}
