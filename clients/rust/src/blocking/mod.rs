//! The blocking interface, for programs without an executor.
//!
//! The types have the names, methods and meanings of the asynchronous ones and wrap them: `From` converts
//! [`crate::Server`], [`crate::Lock`] and the others to the types here, so that both interfaces can share a server and
//! its connections. Only [`Guard::lost`] differs: it returns a [`Lost`] that is polled or waited for, because a thread
//! cannot be stopped from outside.
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
//! assert_eq!(guard.release()?, redis_lock_client::Released::Yes);
//! # Ok(())
//! # }
//! # fn work(_step: u32, _token: u64) {}
//! ```
//!
//! Connections and renewals run on the thread of this crate, which the asynchronous interface uses as well: so this
//! module needs no feature, and costs nothing where it is not used.
//!
//! # In an asynchronous program
//!
//! A call from a task blocks the thread that polls the task. It does not panic, and does not use the task's executor,
//! but the other tasks of that thread do not run meanwhile. If one of them holds the lock, and no other thread can poll
//! it, the wait is a deadlock, because the thread of this crate keeps renewing that hold. In a task, use the
//! asynchronous types, or `spawn_blocking`.

#[cfg(feature = "admin")]
mod admin;
mod family;
mod lock;
mod lost;
mod server;
mod several;
mod wrapper;

#[cfg(feature = "admin")]
pub use self::admin::{KeyEvents, Scan};
pub use self::family::{Latch, Permit, Semaphore};
pub use self::lock::{Guard, Lock, SessionLock};
pub use self::lost::Lost;
pub use self::server::Server;
pub use self::several::{MultiGuard, MultiLock, RedGuard, RedLock};
