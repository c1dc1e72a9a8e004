//! The guard of a held lock: its renewal task and its release.

use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep_until, timeout_at};

use crate::error::{Error, Result};
use crate::lock::loss::Lost;
use crate::lock::release::{give_up, release};
use crate::lock::renewal::{renew_once, Hold};
use crate::lock::start;
use crate::lock::terms::LONGEST_LEASE;
use crate::lock::Lock;
use crate::moment::now;
use crate::net::caller::Caller;
use crate::net::command::Ending;
use crate::outcome::{LostReason, Released};
use crate::runtime::within;
use crate::statistics::Counted;
use crate::trace::{shown, Text};

/// A lock that is held, or a [`Permit`](crate::Permit) of a semaphore (`Guard<Semaphore>`). Dropping it, in any thread
/// or runtime, releases it in the background. A program that is about to end calls [`release`](Guard::release) or waits
/// for [`Server::settled`](crate::Server::settled); otherwise it may stay held until its lease ends.
///
/// ```no_run
/// # async fn work(_token: u64) {}
/// # async fn example(guard: redis_lock_client::Guard) -> Result<(), redis_lock_client::Error> {
/// let token = guard.token();
/// guard.run(work(token)).await
/// # }
/// ```
#[must_use = "dropped, the lock is given back"]
pub struct Guard<Of = Lock> {
    pub(crate) hold: Arc<Hold>,
    /// Whether the renewal task owns the connection that the hold is bound to: it ends with that.
    pub(crate) is_bound: bool,
    /// Whether a request of the acquisition, or a release, has no answer: the server may meet it late.
    pub(crate) is_unanswered: bool,
    is_released: bool,
    _counted: Counted,
    _of: PhantomData<fn() -> Of>,
}

impl<Of> Guard<Of> {
    pub(crate) fn new(hold: Arc<Hold>, is_unanswered: bool, bound: Option<Caller>) -> Guard<Of> {
        let server = &hold.claim.server;
        hold.claim.changed();
        let is_bound = bound.is_some();
        start::renew(&hold, bound);
        Guard {
            is_bound,
            is_unanswered,
            is_released: false,
            _counted: server.counts().holds.count(),
            _of: PhantomData,
            hold,
        }
    }

    /// The fencing token of this grant: higher than that of every earlier grant of this key. Pass it to the resource
    /// that the lock protects, which has to refuse lower ones. (Readers that hold a lock together share one. That of a
    /// permit identifies its grant, and is no fencing token, because several permits are valid at a time.)
    pub fn token(&self) -> u64 {
        self.hold.token
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        &self.hold.claim.key
    }

    /// The owner that holds it: of a permit the id in `SEM.*`.
    pub fn owner(&self) -> &[u8] {
        &self.hold.claim.owner
    }

    /// A future that completes when the lock is lost: at once when the server reports it (a permit: at the next
    /// renewal), and at the [margin](crate::Lock::margin) before the end of the lease when no renewal is confirmed. It
    /// can be created any number of times and outlives the guard; after a release it completes with None.
    pub fn lost(&self) -> Lost {
        self.hold.notice.lost()
    }

    /// Runs the work and releases the lock. A loss stops the work: its future is dropped.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lock was lost before the end of the work, or the release finds that it was. When the
    /// server does not answer the release, the work has its result, and the release goes on in the background.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Result<T> {
        let done = self.lost().stops(work).await?;
        self.end_run().await?;
        Ok(done)
    }

    /// Runs the work as [`run`](Guard::run) does, and lends it the guard, for work that writes with
    /// [`execute`](Guard::execute).
    ///
    /// ```no_run
    /// # async fn example(guard: redis_lock_client::Guard) -> Result<(), redis_lock_client::Error> {
    /// guard.run_with(async |guard| guard.execute(["INCRBY", "total", "100"]).await).await??;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Guard::run).
    pub async fn run_with<T>(self, work: impl AsyncFnOnce(&Guard<Of>) -> T) -> Result<T> {
        let done = self.lost().stops(work(&self)).await?;
        self.end_run().await?;
        Ok(done)
    }

    async fn end_run(self) -> Result<()> {
        let is_valid = !self.valid_for().is_zero();
        released(self.release().await, is_valid)
    }

    /// How long the lock is certainly still held: the lease less a millisecond, less the time since the last confirmed
    /// request was sent, by the monotonic or the wall clock of this machine, whichever shows more. Zero when the server
    /// has reported the loss. After a loss without a confirmation ([`LostReason::Unconfirmed`]) it is the rest of the
    /// lease: the time left to stop.
    pub fn valid_for(&self) -> Duration {
        self.hold.notice.valid_for()
    }

    /// Releases the lock and waits for the reply of the server, at most for the
    /// [response timeout](crate::ServerBuilder::response_timeout).
    ///
    /// # Errors
    /// When the server has not answered in that time: the release goes on in the background, until it is answered or
    /// the lease is over ([`Server::settled`](crate::Server::settled) reports it then). When the server refused.
    pub async fn release(mut self) -> Result<Released> {
        self.stop_renewal();
        let hold = self.hold.clone();
        let ending = self.ending();
        let end = now() + hold.claim.server.patience();
        // Until the reply: this future may be dropped.
        self.is_unanswered = true;
        let was_valid = !self.valid_for().is_zero();
        let released = within(release(&hold.claim, ending, end, was_valid)).await;
        let released = hold.record_end(released);
        let is_over = |error: &Error| !error.is_passing();
        self.is_released = released.as_ref().err().is_none_or(is_over);
        released
    }

    /// Leaves the lock held for this time from now on, instead of releasing it, without renewals: a
    /// hundred years at most. For work that must not be done again too soon, and for another process that
    /// [resumes](Lock::resume) it. (The hold of a session is bound to its connection no more.)
    ///
    /// ```no_run
    /// # use std::time::Instant;
    /// # use redis_lock_client::{Error, Guard};
    /// # async fn example(guard: Guard, granted: Instant) -> Result<(), Error> {
    /// use std::time::Duration;
    ///
    /// // Not again within a minute of the grant, however quick the work was:
    /// let rest = Duration::from_secs(60).saturating_sub(granted.elapsed());
    /// let left = if rest.is_zero() { guard.release().await } else { guard.leave(rest).await };
    /// assert_eq!(left?, redis_lock_client::Released::Yes);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the server has not answered within the [response timeout](crate::ServerBuilder::response_timeout), or
    /// refused: the lock then ends with its lease. When the time is zero: then the lock is released in the background.
    pub async fn leave(mut self, rest: Duration) -> Result<Released> {
        if rest.is_zero() {
            return Err(Error::config("a hold is left for more than no time"));
        }
        self.is_released = true;
        let hold = self.hold.clone();
        hold.finish();
        // A renewal that is served after this request would set its shorter lease again.
        let end = (now() + hold.claim.server.patience()).min(hold.notice.end());
        let _renewing = within(async {
            let renewing = timeout_at(end, hold.renewing.lock()).await.ok();
            if let Some(until) = renewing.as_deref().copied().flatten() {
                sleep_until(until.min(end)).await;
            }
            Ok(renewing)
        })
        .await?;
        self.stop_renewal();
        let rest = Some(rest.min(LONGEST_LEASE));
        let renewed = renew_once(&hold.claim, rest, hold.token, None).await;
        hold.record_end(renewed.map(|held| held.map_or(Released::NotHeld, |_| Released::Yes)))
    }

    fn ending(&self) -> Ending {
        match self.is_unanswered && !self.hold.claim.is_named {
            true => Ending::Final,
            false => Ending::Token(self.hold.token),
        }
    }

    /// The task of a bound hold keeps the connection open: its end would release the lock before the reply.
    fn stop_renewal(&self) {
        self.hold.finish();
        if !self.is_bound {
            start::end(&self.hold);
        }
    }
}

shown! {
    Guard<Of>, guard, server = guard.hold.claim.server, key = Text(guard.key()), kind = guard.hold.claim.kind,
    token = guard.token(), lost = guard.hold.notice.reason()
}

impl<Of> Drop for Guard<Of> {
    fn drop(&mut self) {
        self.hold.finish();
        let hold = &self.hold;
        start::end(hold);
        let is_taken = hold.notice.reason() == Some(LostReason::Taken);
        if self.is_released || is_taken && !self.is_unanswered {
            return;
        }
        let confirmed = hold.notice.confirmed();
        let mut last = confirmed.lease;
        if confirmed.sent.elapsed() > last / 3 {
            // A renewal has been sent, and may be served late.
            last += hold.claim.server.patience();
        }
        let (claim, token) = (hold.claim.clone(), Some(Some(hold.token)));
        drop(give_up(claim, token, self.ending(), last, self.is_bound));
    }
}

/// The result of a run of work whose release had this result.
pub(crate) fn released(released: Result<Released>, was_valid: bool) -> Result<()> {
    match released {
        Ok(Released::Yes) => Ok(()),
        Err(error) if error.is_passing() && was_valid => Ok(()),
        Ok(Released::NotHeld) => Err(Error::Lost(LostReason::Taken)),
        Err(error) if error.is_passing() => Err(Error::Lost(LostReason::Unconfirmed)),
        Err(error) => Err(error),
    }
}
