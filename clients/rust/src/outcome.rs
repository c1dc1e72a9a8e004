//! The ways in which a hold ends.

use std::fmt;

/// Why a lock is no longer held.
///
/// ```
/// use redis_lock_client::LostReason;
///
/// let told = LostReason::Taken.to_string();
/// assert_eq!(told, "the lock was lost: the server says that the grant is over");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// The server reports that this grant is over: it was broken or deleted, its lease ran out, or the server lost its
    /// data.
    Taken,
    /// No renewal was confirmed until the [margin](crate::Lock::margin) before the end of the lease: the server could
    /// not be reached, or this program was paused. Until the end of the lease this holder still has the lock.
    Unconfirmed,
    /// The server refuses renewals for longer than the lease lasts: the key holds other data (`WRONGTYPE`, `LOCKTYPE`),
    /// the user lacks the permission (`NOPERM`, `NOAUTH`, `WRONGPASS`), the server is a replica (`READONLY`).
    #[non_exhaustive]
    Refused {
        /// The first word of the server's error.
        code: String,
        /// The rest.
        text: String,
    },
    /// The connection to which the hold was bound has ended ([`Lock::session`](crate::Lock::session)): the server has
    /// released the hold, or it ends with its lease.
    Disconnected,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lock was lost: ")?;
        match self {
            LostReason::Taken => f.write_str("the server says that the grant is over"),
            LostReason::Unconfirmed => {
                f.write_str("its lease is about to end, and no renewal was confirmed")
            }
            LostReason::Disconnected => {
                f.write_str("the connection to which it was bound has ended")
            }
            LostReason::Refused { code, text } => {
                write!(f, "the server does not renew it: {code} {text}")
            }
        }
    }
}

/// The result of a release; for several servers or locks, the combined result.
///
/// ```no_run
/// use redis_lock_client::Released;
///
/// # async fn example(guard: redis_lock_client::Guard) -> Result<(), redis_lock_client::Error> {
/// match guard.release().await? {
///     Released::Yes => println!("free, or the next waiter's"),
///     _ => eprintln!("the lock was lost before it was released"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a lock that was lost before its release is found here"]
pub enum Released {
    /// The lock was still held, and is now free or granted to the next waiter.
    Yes,
    /// The lock was no longer held by this holder.
    NotHeld,
}
