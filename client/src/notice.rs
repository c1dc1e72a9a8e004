//! The notice of a loss, for guards of several servers: who tells, and who is told.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::guard::State;
use crate::{Lost, LostReason};

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
            state: watch::Sender::new(State::held(end)),
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

    pub(crate) fn is_lost(&self) -> bool {
        self.state.borrow().lost.is_some()
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
