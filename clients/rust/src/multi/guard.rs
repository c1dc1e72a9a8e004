//! The guard of locks that are held together.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::after;
use crate::error::Result;
use crate::lock::guard::{released, Guard};
use crate::lock::loss::Lost;
use crate::lock::release::at_once;
use crate::moment::now;
use crate::outcome::Released;
use crate::trace::shown;

/// The longest wait for the replies to releases.
pub(super) const GRACE: Duration = Duration::from_millis(500);

/// Releases the locks and returns the results in their order. A release without a reply in time is an error here, and
/// continues in the background.
pub(super) async fn release_all(
    guards: impl Iterator<Item = Guard>,
    end: Instant,
) -> Vec<Result<Released>> {
    let releases = guards.map(|guard| {
        let server = guard.hold.claim.server.clone();
        let (name, running) = (server.name().to_string(), server.inner.background.begin());
        let release = async move {
            let released = guard.release().await;
            drop(running);
            released
        };
        (name, release)
    });
    let released = at_once(releases, end).await.into_iter();
    released.map(|(_, word)| word).collect()
}

/// Locks that are held together, each with its own renewal. Dropping it releases all of them in the background.
///
/// ```no_run
/// # async fn example(guard: redis_lock_client::MultiGuard) {
/// for member in guard.members() {
///     println!("token {}, for {:?} more", member.token(), member.valid_for());
/// }
/// # }
/// ```
#[must_use = "dropped, the locks are given back"]
pub struct MultiGuard {
    pub(super) members: Vec<Guard>,
}

impl MultiGuard {
    /// The guard of each lock, in the caller's order.
    pub fn members(&self) -> &[Guard] {
        &self.members
    }

    /// The fencing token of each lock, in the same order. A token fences the resource that its own lock protects;
    /// tokens of two locks cannot be compared.
    pub fn tokens(&self) -> Vec<u64> {
        self.members.iter().map(Guard::token).collect()
    }

    /// A future that completes when one of the locks is lost: then the work that needs all of them must stop. The
    /// others stay held until the guard is dropped.
    pub fn lost(&self) -> Lost {
        Lost::first(self.members.iter().map(Guard::lost))
    }

    /// How long all the locks are certainly still held; zero when one is lost.
    pub fn valid_for(&self) -> Duration {
        let left = self.members.iter().map(Guard::valid_for);
        left.min().unwrap_or_default()
    }

    /// Runs the work and releases the locks. The loss of one stops the work; see [`Guard::run`].
    ///
    /// # Errors
    /// As there.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Result<T> {
        let done = self.lost().stops(work).await?;
        let is_valid = !self.valid_for().is_zero();
        released(self.release().await, is_valid)?;
        Ok(done)
    }

    /// Releases all the locks at the same time: [`Released::Yes`] when each of them was still held. If a server does
    /// not answer within half a second, its lock is released in the background.
    ///
    /// # Errors
    /// The first error, when a server did not answer or refused.
    pub async fn release(self) -> Result<Released> {
        let mut whole = Released::Yes;
        for released in self.release_each().await {
            if released? == Released::NotHeld {
                whole = Released::NotHeld;
            }
        }
        Ok(whole)
    }

    /// The same, with the result for each lock, in the caller's order.
    pub async fn release_each(self) -> Vec<Result<Released>> {
        release_all(self.members.into_iter(), now() + GRACE).await
    }

    /// Leaves all the locks held for this time from now on; see [`Guard::leave`]. The servers are asked at the same
    /// time, so that one that hangs costs the others nothing. The results are in the caller's order.
    pub async fn leave_each(self, rest: Duration) -> Vec<Result<Released>> {
        let members = self.members.into_iter().map(|member| {
            let name = member.hold.claim.server.name().to_string();
            (name, member.leave(rest))
        });
        // Each ends by itself.
        let left = at_once(members, after(Duration::MAX)).await.into_iter();
        left.map(|(_, word)| word).collect()
    }
}

shown! { MultiGuard, guard, members = guard.members }
