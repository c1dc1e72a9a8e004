//! The notification of a loss, from the renewal task to the holder.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::outcome::LostReason;

/// The state that a guard and its renewal task share.
pub(crate) struct LossNotice {
    state: watch::Sender<State>,
    /// Whether the guard is released or dropped.
    is_over: AtomicBool,
}

struct State {
    /// The loss is reported at this moment, unless a renewal is confirmed before.
    end: Instant,
    lost: Option<LostReason>,
}

impl LossNotice {
    pub(crate) fn new(end: Instant) -> Arc<LossNotice> {
        Arc::new(LossNotice {
            state: watch::Sender::new(State { end, lost: None }),
            is_over: AtomicBool::new(false),
        })
    }

    pub(crate) fn lost(&self) -> Lost {
        Lost {
            state: self.state.subscribe(),
            waiting: None,
        }
    }

    pub(crate) fn end(&self) -> Instant {
        self.state.borrow().end
    }

    pub(crate) fn reason(&self) -> Option<LostReason> {
        self.state.borrow().lost.clone()
    }

    pub(crate) fn hold_until(&self, end: Instant) {
        self.state.send_modify(|state| state.end = end);
    }

    /// Reports the loss. The first reason is kept. After a release there is no loss.
    pub(crate) fn lose(&self, why: LostReason) {
        if self.is_over.load(Ordering::Acquire) {
            return;
        }
        self.state.send_modify(|state| {
            state.lost.get_or_insert(why);
        });
    }

    /// Marks the guard as released or dropped: no loss is reported any more.
    pub(crate) fn finish(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// Owned by the renewal task. If that ends by a defect, the drop reports a loss, because the lock is not renewed any
/// more.
pub(crate) struct LossOnDrop(pub(crate) Arc<LossNotice>);

impl Drop for LossOnDrop {
    fn drop(&mut self) {
        if !self.0.is_over() {
            self.0.lose(LostReason::Unconfirmed);
        }
    }
}

/// A future that completes with the reason when a lock is lost; see [`Guard::lost`](crate::Guard::lost). A clone
/// completes at the same moment. It needs no runtime.
///
/// ```no_run
/// # async fn example(guard: redis_lock_client::Guard) {
/// let lost: redis_lock_client::Lost = guard.lost();
/// let why: redis_lock_client::LostReason = lost.await;
/// # }
/// ```
#[must_use = "a future does nothing unless it is awaited"]
pub struct Lost {
    state: watch::Receiver<State>,
    waiting: Option<Pin<Box<dyn Future<Output = LostReason> + Send + Sync>>>,
}

impl Future for Lost {
    type Output = LostReason;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<LostReason> {
        let mut future = match self.waiting.take() {
            Some(future) => future,
            None => Box::pin(reason_or_never(self.state.clone())),
        };
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            self.waiting = Some(future);
        }
        polled
    }
}

async fn reason_or_never(state: watch::Receiver<State>) -> LostReason {
    match ended(state).await {
        Some(why) => why,
        None => std::future::pending().await,
    }
}

/// Waits for the reason of the loss; None when the lock was released instead.
async fn ended(mut state: watch::Receiver<State>) -> Option<LostReason> {
    let lost = state.wait_for(|state| state.lost.is_some()).await;
    lost.ok().and_then(|state| state.lost.clone())
}

impl Lost {
    /// The reason of the loss, if the lock was lost.
    pub(crate) fn reason(&self) -> Option<LostReason> {
        self.state.borrow().lost.clone()
    }

    /// Completes as the future does, and with None soon after a release.
    pub(crate) async fn ended(&self) -> Option<LostReason> {
        ended(self.state.clone()).await
    }
}

impl Clone for Lost {
    fn clone(&self) -> Lost {
        Lost {
            state: self.state.clone(),
            waiting: None,
        }
    }
}

impl std::fmt::Debug for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lost = &self.state.borrow().lost;
        f.debug_tuple("Lost").field(lost).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_renewal_task_that_ends_reports_a_loss() {
        let notice = LossNotice::new(Instant::now());
        let lost = notice.lost();
        drop(LossOnDrop(notice));
        assert_eq!(lost.await, LostReason::Unconfirmed);
    }

    #[tokio::test]
    async fn the_first_reason_is_kept() {
        let notice = LossNotice::new(Instant::now());
        notice.lose(LostReason::Taken);
        let lost = notice.lost();
        let other = lost.clone();
        drop(LossOnDrop(notice));
        assert_eq!(lost.await, LostReason::Taken);
        assert_eq!(other.await, LostReason::Taken);
    }
}
