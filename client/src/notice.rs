//! The notice of a loss: who tells, and who is told.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::{sleep_until, Instant};

use crate::LostReason;

/// What whoever waits for the loss is told.
#[derive(Debug, Clone, Copy)]
struct State {
    /// Until when the lock is ours for certain.
    end: Instant,
    lost: Option<LostReason>,
    /// Whether somebody sees to it that `lost` is set in time.
    is_kept: bool,
}

/// What a guard and the task that keeps it share.
#[derive(Debug)]
pub(crate) struct Notice {
    state: watch::Sender<State>,
    /// Whether the guard has gone.
    is_over: AtomicBool,
}

impl Notice {
    /// Held until then, if nobody sees to it.
    pub(crate) fn new(end: Instant) -> Arc<Notice> {
        Arc::new(Notice {
            state: watch::Sender::new(State {
                end,
                lost: None,
                is_kept: true,
            }),
            is_over: AtomicBool::new(false),
        })
    }

    pub(crate) fn lost(&self) -> Lost {
        Lost {
            state: self.state.subscribe(),
        }
    }

    pub(crate) fn end(&self) -> Instant {
        self.state.borrow().end
    }

    pub(crate) fn reason(&self) -> Option<LostReason> {
        self.state.borrow().lost
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.reason().is_some()
    }

    pub(crate) fn hold_until(&self, end: Instant) {
        self.state.send_modify(|state| state.end = end);
    }

    pub(crate) fn lose(&self, why: LostReason) {
        self.state.send_modify(|state| state.lost = Some(why));
    }

    /// The guard has gone: nobody is told of anything any more.
    pub(crate) fn finish(&self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// Held by the task that tells. When it has gone before the guard, with its runtime, those who wait for the
/// loss wait for the end themselves.
pub(crate) struct Kept(pub(crate) Arc<Notice>);

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.0.is_over.load(Ordering::Acquire) {
            self.0.state.send_modify(|state| state.is_kept = false);
        }
    }
}

/// Ends when a lock is lost; see [`Guard::lost`](crate::Guard::lost). To be awaited.
#[derive(Debug, Clone)]
pub struct Lost {
    state: watch::Receiver<State>,
}

impl IntoFuture for Lost {
    type Output = LostReason;
    type IntoFuture = Pin<Box<dyn Future<Output = LostReason> + Send>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            let is_over = |state: &State| state.lost.is_some() || !state.is_kept;
            let state = self.state.wait_for(is_over).await.map(|state| *state);
            match state.map(|state| (state.lost, state.end)) {
                Ok((Some(why), _)) => why,
                // The renewal's runtime was shut down, so nobody tells.
                Ok((None, end)) => {
                    sleep_until(end).await;
                    LostReason::Unconfirmed
                }
                // Released.
                Err(_) => std::future::pending().await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_goes_leaves_the_end_to_those_who_wait() {
        let notice = Notice::new(Instant::now());
        let lost = notice.lost();
        drop(Kept(notice));
        assert_eq!(lost.await, LostReason::Unconfirmed);
    }

    #[tokio::test]
    async fn a_reason_that_was_told_stays() {
        let notice = Notice::new(Instant::now());
        notice.lose(LostReason::Taken);
        let lost = notice.lost();
        drop(Kept(notice));
        assert_eq!(lost.await, LostReason::Taken);
    }
}
