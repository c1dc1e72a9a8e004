//! The same locks for programs without an executor: each call returns when it is done.
//!
//! The types have the names, methods and meanings of the asynchronous ones, and are made of them: `From` leads from
//! [`crate::Server`], [`crate::Lock`] and the others to the types here, so that both
//! interfaces can share a server and its connections. Only [`Guard::lost`] answers something else: a [`Lost`] that is
//! asked or waited for, because a thread cannot be stopped from outside.
//!
//! ```no_run
//! use std::time::Duration;
//! use redis_lock_client::blocking::{Lock, Server};
//!
//! # fn main() -> Result<(), redis_lock_client::Error> {
//! let server = Server::open("redis://127.0.0.1:6379")?;
//! let lock = Lock::new(&server, "invoices:42").lease(Duration::from_secs(10));
//! let Some(guard) = lock.acquire_within(Duration::from_secs(60))? else {
//!     return Ok(()); // another owner has held it for a minute
//! };
//! let lost = guard.lost();
//! for step in 0..10 {
//!     if let Some(why) = lost.reason() {
//!         eprintln!("stopped: {why}");
//!         break;
//!     }
//!     work(step, guard.token());
//! }
//! guard.release()?;
//! # Ok(())
//! # }
//! # fn work(_step: u32, _token: u64) {}
//! ```
//!
//! Connections and renewals live on the thread of this crate, which exists either way: so this module needs no feature,
//! and a program that does not use it pays nothing for it.
//!
//! # In an asynchronous program
//!
//! A call from a task blocks the thread that polls the task. It does not panic, and needs nothing of the task's executor.
//! But other tasks of that thread stand still meanwhile. If one of them holds the lock, and no other thread can poll it,
//! the wait is a deadlock: that hold is renewed by the thread of this crate. In a task, use the asynchronous types, or
//! `spawn_blocking`.

mod family;
mod lock;
mod server;
mod several;

use std::future::Future;
use std::time::Duration;

use tokio::task::unconstrained;
use tokio::time::timeout_at;

pub use self::family::{Latch, Permit, Semaphore, SessionLock};
pub use self::lock::{Guard, Lock};
pub use self::server::{Scan, Server};
pub use self::several::{MultiGuard, MultiLock, RedGuard, RedLock};

use crate::backoff::after;
use crate::outcome::LostReason;
use crate::runtime::within;

/// The result of this, for which the thread waits.
fn block_on<T>(work: impl Future<Output = T>) -> T {
    // A task of tokio has a budget for each time that it is polled. Where it is used up, futures are pending until the
    // task yields; and a task that blocks its thread does not.
    pollster::block_on(unconstrained(work))
}

/// Options that are those of the asynchronous type around which `Self` is.
macro_rules! options {
    ($of:ident: $($(#[$what:meta])* $name:ident($($value:ident: $type:ty)?);)*) => {$(
        $(#[$what])*
        #[doc = concat!("See [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        #[must_use]
        pub fn $name(self $(, $value: $type)?) -> Self {
            Self::from(self.inner.$name($($value)?))
        }
    )*};
}

/// The three ways to acquire.
macro_rules! acquisitions {
    ($of:ident, $guard:ident) => {
        #[doc = concat!("Acquires without waiting. None when another owner is in the way. See [`", stringify!($of), "::try_acquire`](crate::", stringify!($of), "::try_acquire).")]
        ///
        /// # Errors
        /// As there.
        pub fn try_acquire(&self) -> Result<Option<$guard>> {
            Ok(block_on(self.inner.try_acquire())?.map($guard::from))
        }

        #[doc = concat!("Waits for at most so long. None when that was not enough. See [`", stringify!($of), "::acquire_within`](crate::", stringify!($of), "::acquire_within).")]
        ///
        /// # Errors
        /// As there.
        pub fn acquire_within(&self, wait: Duration) -> Result<Option<$guard>> {
            Ok(block_on(self.inner.acquire_within(wait))?.map($guard::from))
        }

        #[doc = concat!("Waits for as long as it takes. See [`", stringify!($of), "::acquire`](crate::", stringify!($of), "::acquire).")]
        ///
        /// # Errors
        /// As there.
        pub fn acquire(&self) -> Result<$guard> {
            block_on(self.inner.acquire()).map($guard::from)
        }
    };
}

/// What all guards do.
macro_rules! holds {
    ($of:ident) => {
        #[doc = concat!("Tells of the loss, as [`", stringify!($of), "::lost`](crate::", stringify!($of), "::lost) does.")]
        pub fn lost(&self) -> Lost {
            Lost {
                inner: self.inner.lost(),
            }
        }

        #[doc = concat!("How long it is certainly still held. See [`", stringify!($of), "::valid_for`](crate::", stringify!($of), "::valid_for).")]
        pub fn valid_for(&self) -> Duration {
            self.inner.valid_for()
        }

        #[doc = concat!("Gives back, and waits for the word of the server. See [`", stringify!($of), "::release`](crate::", stringify!($of), "::release).")]
        ///
        /// # Errors
        /// As there.
        pub fn release(self) -> Result<Released> {
            block_on(self.inner.release())
        }
    };
}

/// A blocking type around an asynchronous one, and the way there.
macro_rules! around {
    ($($name:ident)*) => {$(
        impl From<crate::$name> for $name {
            fn from(inner: crate::$name) -> $name {
                $name { inner }
            }
        }
    )*};
}

use {acquisitions, around, holds, options};

/// Tells when a lock is lost, and why. It outlives its guard, and can be sent to another thread: a clone each for as many
/// as wait.
///
/// ```no_run
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::thread;
/// use std::time::Duration;
///
/// # fn example(guard: redis_lock_client::blocking::Guard) -> Result<(), redis_lock_client::Error> {
/// let stop = AtomicBool::new(false);
/// let lost = guard.lost();
/// thread::scope(|scope| {
///     scope.spawn(|| {
///         if let Some(why) = lost.wait(Duration::MAX) {
///             eprintln!("stop: {why}");
///             stop.store(true, Ordering::Relaxed);
///         }
///     });
///     work(guard.token(), &stop);
///     guard.release() // which ends the wait of the other thread
/// })?;
/// # Ok(())
/// # }
/// # fn work(_token: u64, _stop: &AtomicBool) {}
/// ```
#[derive(Debug, Clone)]
pub struct Lost {
    inner: crate::Lost,
}

impl Lost {
    /// Why the lock was lost, if it was. Answers at once, and asks no server.
    pub fn reason(&self) -> Option<LostReason> {
        self.inner.reason()
    }

    /// Waits for the loss, for at most so long. None when the lock was not lost until then; and at once when the guard is
    /// released or dropped, because then no loss is told any more.
    pub fn wait(&self, timeout: Duration) -> Option<LostReason> {
        let told = within(async {
            let told = timeout_at(after(timeout), self.inner.ended()).await;
            Ok(told.ok().flatten())
        });
        // There is no guard without the thread that `within` wants.
        block_on(told).ok().flatten()
    }
}
