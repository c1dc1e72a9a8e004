//! Locks, semaphores and latches of the redis-lock module, for programs in Rust.
//!
//! A [`Lock`] names a key of a [`Server`]. Acquiring it returns a [`Guard`], which has the fencing token, renews the
//! lease in the background, reports when the lock is [`Lost`], and releases it on drop.
//!
//! ```no_run
//! use std::time::Duration;
//! use redis_lock_client::{Lock, Server};
//!
//! # async fn example() -> Result<(), redis_lock_client::Error> {
//! let server = Server::open("redis://127.0.0.1:6379")?;
//! let lock = Lock::new(&server, "invoices:42").lease(Duration::from_secs(10));
//! let Some(guard) = lock.acquire_within(Duration::from_secs(60)).await? else {
//!     return Ok(()); // another owner has had it for a minute
//! };
//! let token = guard.token();
//! guard.run(work(token)).await // stops the work when the lock is lost, releases it at the end
//! # }
//! # async fn work(_token: u64) {}
//! ```
//!
//! Connections, renewals and releases run on a thread of this crate: the program may use any executor, which may end
//! while a lock is held. A program without an executor waits for each future with [`block_on`]. (A process that forks
//! without `exec` after its first request has no such thread.)
//!
//! A lease is counted from before its request was sent: the client's end of the lease is never later than the server's,
//! as long as their clocks run at the same rate. Each acquisition has a fresh owner, and its requests carry `ONCE` and
//! `SEQ`: repeated after a broken connection they never count a second hold, and after the acquisition was given up
//! they grant nothing.
//!
//! # Semaphores and latches
//!
//! A [`Semaphore`] has a number of permits, each of which is acquired, renewed, lost and released as a lock is. A
//! [`Latch`] is closed until it has been counted down to zero, and then all its waits end.
//!
//! ```no_run
//! use std::time::Duration;
//! use redis_lock_client::{Latch, Semaphore, Server};
//!
//! # async fn example() -> Result<(), redis_lock_client::Error> {
//! let server = Server::open("redis://127.0.0.1:6379")?;
//! // At most three workers load at a time; each of ten parts counts the latch down.
//! let loading = Semaphore::new(&server, "import:42:loading").limit(3).lease(Duration::from_secs(10));
//! let loaded = Latch::new(&server, "import:42:loaded");
//! loaded.set(10).await?;
//!
//! // A worker:
//! let permit = loading.acquire().await?;
//! permit.run(load()).await?;
//! loaded.count_down().await?;
//!
//! // What needs all parts:
//! if !loaded.wait_within(Duration::from_secs(600)).await? {
//!     eprintln!("{} parts are missing", loaded.count().await?);
//! }
//! # Ok(())
//! # }
//! # async fn load() {}
//! ```
//!
//! # Observation
//!
//! [`Server::statistics`] returns counters and gauges for any metrics crate. A [`LockObserver`] is told of each
//! acquisition, release, loss and late renewal; with the feature `metrics`, `Metrics` is one for the crate `metrics`.
//!
//! With the feature `tracing` the program's subscriber gets the same as events, with the target `redis_lock`. An
//! acquisition is the span `redis_lock.acquire` (level DEBUG; `server`, `key`, and `owner` where the program has chosen
//! it). A [`MultiLock`] has a span for each request, with the first of its keys; a [`RedLock`] has one with the names
//! of all its servers. The events:
//!
//! | Message | Level | Fields besides `server` and `key` |
//! |---|---|---|
//! | `granted` | DEBUG | `owner`, `token`, `waited_ms` |
//! | `not granted` | DEBUG | `waited_ms`; `owner` where the program has chosen it; `error` where there is one |
//! | `parked` (the server has it in the queue) | DEBUG | `owner` |
//! | `unreached` (see below) | WARN | `owner`, `unreached_ms`, `error` |
//! | `renewed` | DEBUG | `owner`, `token` |
//! | `not renewed` | DEBUG | `owner`, `token`, `error` where there is one; a loss is another event |
//! | `lost` | WARN | `owner`, `token`, `reason` |
//! | `released` | DEBUG | `owner`, `token`; the server's answer, also that the lock was no longer held |
//! | `not released` | DEBUG | `owner`, `token`, `error`, which the caller gets as well |
//! | `observer failed` (a [`LockObserver`] panics) | WARN | |
//! | `left behind` | WARN | `owner`, `token`, `error`: given up in the background; the lease ends what is held |
//!
//! An acquisition is `unreached` that goes on while its server cannot be reached: after 3 s, then every 30 s.
//! `waited_ms` is the time since the acquisition began. Keys and owners appear as text; bytes that are not UTF-8 are
//! replaced. A token that differs from server to server, or is not known, is left out. Renewals, losses and releases in
//! the background are outside of the program's spans. What happens on the thread of this crate is emitted by another
//! one, so that a subscriber that blocks does not delay renewals; behind 10,000 events that wait for it, further ones
//! are dropped. An owner is the credential of its locks: a reader of such an event who can send commands to the server
//! can release the lock. So the text of an error, and of a value for `{:?}`, has no owner.

#![forbid(unsafe_code)]
#![warn(unreachable_pub)]

mod aside;
mod backoff;
mod election;
mod error;
mod info;
#[cfg(feature = "admin")]
mod inspect;
#[cfg(feature = "admin")]
mod key_events;
mod latch;
mod lock;
#[cfg(feature = "metrics")]
mod metrics;
mod mode;
mod moment;
mod multi;
mod net;
mod observer;
mod outcome;
mod red;
mod runtime;
mod semaphore;
mod statistics;
#[cfg(feature = "testing")]
pub mod testing;
mod trace;

pub use election::{Election, Leader, Observer};
pub use error::{Error, Result};
pub use info::{Holder, LockInfo, Waiter};
#[cfg(feature = "admin")]
pub use inspect::{BreakTarget, BreakWaiters, Readiness, Scan, Search};
#[cfg(feature = "admin")]
pub use key_events::{KeyEvent, KeyEvents};
pub use latch::Latch;
pub use lock::execute::Reply;
pub use lock::guard::Guard;
pub use lock::loss::Lost;
pub use lock::Lock;
#[cfg(feature = "metrics")]
pub use metrics::Metrics;
pub use mode::Mode;
pub use multi::{MultiGuard, MultiLock};
pub use net::background::Unreleased;
pub use net::server::{Server, ServerBuilder};
#[cfg(feature = "tls")]
pub use net::tls::Certificates;
pub use observer::{LockName, LockObserver};
pub use outcome::{LostReason, Released};
pub use red::{RedGuard, RedLock};
pub use runtime::block_on;
pub use semaphore::{Permit, Semaphore, SemaphoreInfo};
pub use statistics::Statistics;
