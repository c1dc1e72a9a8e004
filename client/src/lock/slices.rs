//! The slices of a parked wait.
//!
//! A slice ends before the response timeout of its connection. The next one is sent earlier, through another
//! connection, and takes over the place of its predecessor, which then gets nil. So the wait is in the server's queue
//! without a gap and is never overtaken.

use std::future::{poll_fn, Future};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::{sleep_until, timeout, Instant};

use crate::error::Result;
use crate::moment::Moment;
use crate::net::caller::Caller;
use crate::net::server::Server;

/// The slices of a wait that were sent and not answered yet, the oldest first: usually one, briefly two. Dropped, it
/// closes their connections, and the server removes the wait.
#[derive(Default)]
pub(crate) struct ParkedSlices {
    slices: Vec<Slice>,
    /// The caller of a finished slice, with its connection (if that works) and its route, for the next one.
    spare: Option<Caller>,
    /// The time until which a request without a reply may still be served.
    under_way_until: Option<Instant>,
}

struct Slice {
    sent: Moment,
    answer: Pin<Box<dyn Future<Output = (Caller, Result<Value>)> + Send>>,
}

/// The next event of a wait.
pub(crate) enum Next {
    /// A slice was answered.
    Answer(Answer),
    /// The next slice is due.
    SliceDue,
}

/// The reply to a slice.
pub(crate) struct Answer {
    /// A moment before the slice was sent.
    pub sent: Moment,
    pub reply: Result<Value>,
    /// Whether no later slice was sent.
    pub is_newest: bool,
}

impl ParkedSlices {
    /// Sends a request that is parked for `slice`.
    pub(crate) fn send(&mut self, server: &Server, key: &[u8], command: Cmd, slice: Duration) {
        let spare = self.spare.take();
        let mut caller = spare.unwrap_or_else(|| Caller::waiting(server, key));
        let patience = slice + server.patience() / 2;
        self.slices.push(Slice {
            sent: Moment::now(),
            answer: Box::pin(async move {
                let reply = caller.call(&command, patience).await;
                (caller, reply)
            }),
        });
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    /// The time until which a request without a reply may still be served.
    pub(crate) fn under_way_until(&self, server: &Server) -> Option<Instant> {
        let unanswered = (!self.is_empty()).then(|| Instant::now() + server.patience());
        unanswered.max(self.under_way_until)
    }

    /// Waits for the next reply or, while only one slice is parked, until `due`.
    pub(crate) async fn next(&mut self, due: Option<Instant>) -> Next {
        let due = due.filter(|_| self.slices.len() < 2);
        let is_time = async {
            match due {
                Some(due) => sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = self.answer() => Next::Answer(answer),
            () = is_time => Next::SliceDue,
        }
    }

    /// Waits for the pending replies, for at most `patience`.
    pub(crate) async fn finish(&mut self, patience: Duration) {
        let answered = async {
            while !self.is_empty() {
                self.answer().await;
            }
        };
        let _ = timeout(patience, answered).await;
    }

    async fn answer(&mut self) -> Answer {
        let (answer, mut caller) = poll_fn(|context| self.poll(context)).await;
        if caller.was_unanswered() {
            self.under_way_until = Some(Instant::now() + caller.patience());
        }
        if let Some(spare) = self.spare.replace(caller) {
            spare.keep_open();
        }
        answer
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<(Answer, Caller)> {
        for place in 0..self.slices.len() {
            let Some(slice) = self.slices.get_mut(place) else {
                continue;
            };
            if let Poll::Ready((caller, reply)) = slice.answer.as_mut().poll(context) {
                let slice = self.slices.remove(place);
                let answer = Answer {
                    sent: slice.sent,
                    reply,
                    is_newest: place == self.slices.len(),
                };
                return Poll::Ready((answer, caller));
            }
        }
        Poll::Pending
    }
}

impl Drop for ParkedSlices {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.take() {
            spare.keep_open();
        }
    }
}
