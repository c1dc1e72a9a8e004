//! The notice of a loss: who tells, and who is told.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::outcome::LostReason;

/// What a guard and the task that keeps it share.
#[derive(Debug)]
pub(crate) struct Notice {
    state: watch::Sender<State>,
    /// Whether the guard has gone.
    is_over: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// The loss is told by then, unless a renewal is confirmed before.
    end: Instant,
    lost: Option<LostReason>,
}

impl Notice {
    pub(crate) fn new(end: Instant) -> Arc<Notice> {
        Arc::new(Notice {
            state: watch::Sender::new(State { end, lost: None }),
            is_over: AtomicBool::new(false),
        })
    }

    pub(crate) fn lost(&self) -> Lost {
        Lost {
            state: self.state.subscribe(),
            told: None,
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

    /// The first reason stays. What the holder gives back is not lost.
    pub(crate) fn lose(&self, why: LostReason) {
        if self.is_over.load(Ordering::Acquire) {
            return;
        }
        self.state.send_modify(|state| {
            state.lost.get_or_insert(why);
        });
    }

    /// The guard has gone: no loss is told any more.
    pub(crate) fn finish(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}

/// Held by the task that renews and tells. Should that end by a defect, the guard hears of a loss: the lock is not
/// renewed any more.
pub(crate) struct Kept(pub(crate) Arc<Notice>);

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.0.is_over() {
            self.0.lose(LostReason::Unconfirmed);
        }
    }
}

/// Ends when a lock is lost, with the reason; see [`Guard::lost`](crate::Guard::lost). A clone ends at the same
/// moment. It needs no runtime.
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
    told: Option<Pin<Box<dyn Future<Output = LostReason> + Send + Sync>>>,
}

impl Future for Lost {
    type Output = LostReason;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<LostReason> {
        let mut future = match self.told.take() {
            Some(future) => future,
            None => Box::pin(told(self.state.clone())),
        };
        let polled = future.as_mut().poll(context);
        if polled.is_pending() {
            self.told = Some(future);
        }
        polled
    }
}

async fn told(state: watch::Receiver<State>) -> LostReason {
    match ended(state).await {
        Some(why) => why,
        None => std::future::pending().await,
    }
}

/// Why the lock was lost; None when it was released instead.
async fn ended(mut state: watch::Receiver<State>) -> Option<LostReason> {
    let lost = state.wait_for(|state| state.lost.is_some()).await;
    lost.ok().and_then(|state| state.lost.clone())
}

impl Lost {
    /// Why the lock was lost, if it was.
    pub(crate) fn reason(&self) -> Option<LostReason> {
        self.state.borrow().lost.clone()
    }

    /// Ends as the future does, and with None soon after a release.
    pub(crate) async fn ended(&self) -> Option<LostReason> {
        ended(self.state.clone()).await
    }
}

impl Clone for Lost {
    fn clone(&self) -> Lost {
        Lost {
            state: self.state.clone(),
            told: None,
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
    async fn a_task_that_ends_too_early_is_a_loss() {
        let notice = Notice::new(Instant::now());
        let lost = notice.lost();
        drop(Kept(notice));
        assert_eq!(lost.await, LostReason::Unconfirmed);
    }

    #[tokio::test]
    async fn the_first_reason_stays() {
        let notice = Notice::new(Instant::now());
        notice.lose(LostReason::Taken);
        let lost = notice.lost();
        let other = lost.clone();
        drop(Kept(notice));
        assert_eq!(lost.await, LostReason::Taken);
        assert_eq!(other.await, LostReason::Taken);
    }
}
