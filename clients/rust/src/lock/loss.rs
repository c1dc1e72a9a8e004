//! The validity of a hold and the notification of its loss, from the renewal task to the holder.

use std::future::{poll_fn, Future};
use std::pin::{pin, Pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{timeout_at, Instant};

use crate::backoff::after;
use crate::error::{Error, Result};
use crate::moment::Moment;
use crate::outcome::LostReason;
use crate::runtime::{block_on, within};
use crate::trace::shown;

/// The state that a guard and its renewal task share.
pub(crate) struct LossNotice(watch::Sender<State>);

struct State {
    confirmed: Confirmed,
    lost: Option<LostReason>,
    /// Whether the guard is released or dropped.
    is_over: bool,
}

/// The lease that the server certainly has.
#[derive(Clone, Copy)]
pub(crate) struct Confirmed {
    /// A moment before the request that has set it, or read its rest, was sent.
    pub sent: Moment,
    pub lease: Duration,
    /// How long from that moment the hold is certain.
    pub certain: Duration,
    /// How long before the end of that a loss is reported, unless a renewal is confirmed before.
    pub margin: Duration,
}

impl LossNotice {
    /// Of a hold that has no lease yet.
    pub(crate) fn new() -> Arc<LossNotice> {
        let confirmed = Confirmed {
            sent: Moment::now(),
            lease: Duration::ZERO,
            certain: Duration::ZERO,
            margin: Duration::ZERO,
        };
        let (lost, is_over) = (None, false);
        Arc::new(LossNotice(watch::Sender::new(State {
            confirmed,
            lost,
            is_over,
        })))
    }

    pub(crate) fn lost(&self) -> Lost {
        Lost {
            states: vec![self.0.subscribe()],
            waiting: None,
        }
    }

    pub(crate) fn confirmed(&self) -> Confirmed {
        self.0.borrow().confirmed
    }

    pub(crate) fn confirm(&self, confirmed: Confirmed) {
        self.0.send_modify(|state| state.confirmed = confirmed);
    }

    /// When the loss is reported.
    pub(crate) fn end(&self) -> Instant {
        let last = self.confirmed();
        last.sent.steady + last.certain.saturating_sub(last.margin)
    }

    /// How long the hold is certain from now on. Zero when the server has reported the loss.
    pub(crate) fn valid_for(&self) -> Duration {
        let last = self.confirmed();
        match self.reason() {
            None | Some(LostReason::Unconfirmed) => {
                last.certain.saturating_sub(last.sent.elapsed())
            }
            Some(_) => Duration::ZERO,
        }
    }

    pub(crate) fn reason(&self) -> Option<LostReason> {
        self.0.borrow().lost.clone()
    }

    /// Reports the loss. The first reason is kept. After a release there is no loss.
    pub(crate) fn lose(&self, why: LostReason) {
        self.0.send_modify(|state| {
            if !state.is_over {
                state.lost.get_or_insert(why);
            }
        });
    }

    /// Marks the guard as released or dropped: no loss is reported any more.
    pub(crate) fn finish(&self) {
        self.0.send_modify(|state| state.is_over = true);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.borrow().is_over
    }
}

/// Owned by the renewal task. If that ends by a defect, the drop reports a loss, because the lock is not renewed any
/// more.
pub(crate) struct LossOnDrop(pub(crate) Arc<LossNotice>);

impl Drop for LossOnDrop {
    fn drop(&mut self) {
        self.0.lose(LostReason::Unconfirmed);
    }
}

/// A future that completes with the reason when a lock is lost, and with None when it is released or its guard dropped;
/// see [`Guard::lost`](crate::Guard::lost). A clone completes at the same moment. It needs no runtime.
///
/// ```no_run
/// # async fn example(guard: redis_lock_client::Guard) {
/// let lost: redis_lock_client::Lost = guard.lost();
/// let why: Option<redis_lock_client::LostReason> = lost.await;
/// # }
/// ```
#[must_use = "a future does nothing unless it is awaited"]
pub struct Lost {
    /// Of one hold, or of several that are needed together.
    states: Vec<watch::Receiver<State>>,
    waiting: Option<Vec<Waiting>>,
}

/// The end of one hold.
type Waiting = Pin<Box<dyn Future<Output = Option<LostReason>> + Send + Sync>>;

impl Future for Lost {
    type Output = Option<LostReason>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<LostReason>> {
        let lost = &mut *self;
        let states = lost.states.iter().cloned();
        let waiting = lost.waiting.get_or_insert_with(|| {
            let ends = states.map(|state| Box::pin(ended(state)) as Waiting);
            ends.collect()
        });
        let mut why = None;
        waiting.retain_mut(|end| match end.as_mut().poll(context) {
            Poll::Ready(reason) => {
                why = why.take().or(reason);
                false
            }
            Poll::Pending => true,
        });
        match why {
            None if !waiting.is_empty() => Poll::Pending,
            ended => Poll::Ready(ended),
        }
    }
}

async fn ended(mut state: watch::Receiver<State>) -> Option<LostReason> {
    let is_end = |state: &State| state.lost.is_some() || state.is_over;
    let ended = state.wait_for(is_end).await;
    ended.ok().and_then(|state| state.lost.clone())
}

impl Lost {
    /// The first loss of these.
    pub(crate) fn first(of: impl Iterator<Item = Lost>) -> Lost {
        Lost {
            states: of.flat_map(|lost| lost.states).collect(),
            waiting: None,
        }
    }

    /// The reason of the loss, if the lock was lost.
    pub fn reason(&self) -> Option<LostReason> {
        let mut states = self.states.iter();
        states.find_map(|state| state.borrow().lost.clone())
    }

    /// Blocks the thread until the loss, for at most `timeout`. None when the lock was not lost in that time, and at
    /// once when it is released.
    pub fn wait(&self, timeout: Duration) -> Option<LostReason> {
        let told = within(async {
            let told = timeout_at(after(timeout), self.clone()).await;
            Ok(told.ok().flatten())
        });
        // A guard exists only after the thread that `within` needs was started.
        block_on(told).ok().flatten()
    }

    /// Runs the work until its end, or until the loss, which is an error.
    pub(crate) async fn stops<T>(mut self, work: impl Future<Output = T>) -> Result<T> {
        let mut work = pin!(work);
        poll_fn(|context| match Pin::new(&mut self).poll(context) {
            Poll::Ready(Some(why)) => Poll::Ready(Err(Error::Lost(why))),
            _ => work.as_mut().poll(context).map(Ok),
        })
        .await
    }
}

impl Clone for Lost {
    fn clone(&self) -> Lost {
        Lost {
            states: self.states.clone(),
            waiting: None,
        }
    }
}

shown! { Lost, lost, reason = lost.reason() }

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_renewal_task_that_ends_reports_a_loss() {
        let notice = LossNotice::new();
        let lost = notice.lost();
        drop(LossOnDrop(notice));
        assert_eq!(lost.await, Some(LostReason::Unconfirmed));
    }

    #[tokio::test]
    async fn the_first_reason_is_kept() {
        let notice = LossNotice::new();
        notice.lose(LostReason::Taken);
        let lost = notice.lost();
        let other = lost.clone();
        drop(LossOnDrop(notice));
        assert_eq!(lost.await, Some(LostReason::Taken));
        assert_eq!(other.await, Some(LostReason::Taken));
    }

    #[tokio::test]
    async fn a_release_ends_the_watch_without_a_reason() {
        let notice = LossNotice::new();
        let lost = notice.lost();
        notice.finish();
        notice.lose(LostReason::Taken);
        assert_eq!(lost.await, None);
        assert_eq!(notice.lost().stops(async { 7 }).await.ok(), Some(7));
    }
}
