//! A wait: parked in the server, slice after slice.
//!
//! A slice ends before its connection would be given up. The next one is sent before that, through another
//! connection, and takes over the place of the one before, which is then answered with nil. So the wait is in the
//! server's queue without a gap, and is never passed over.

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

/// The slices of a wait that were sent and not answered yet, the oldest first: mostly one, for a moment two.
/// Dropped, it closes their connections, and the server forgets the wait.
#[derive(Default)]
pub(crate) struct Parked {
    slices: Vec<Slice>,
    /// Of a slice that has ended: with its connection, where that is good, and with what it knows of the way.
    spare: Option<Caller>,
    /// Until this moment a request that failed without an answer may be under way.
    under_way_until: Option<Instant>,
}

struct Slice {
    sent: Moment,
    answer: Pin<Box<dyn Future<Output = (Caller, Result<Value>)> + Send>>,
}

/// What has happened to a wait.
pub(crate) enum Next {
    /// A slice was answered.
    Answer(Answer),
    /// It is time for another slice.
    Change,
}

/// The answer to a slice.
pub(crate) struct Answer {
    /// The slice was sent after this.
    pub sent: Moment,
    pub reply: Result<Value>,
    /// Whether no later slice was sent.
    pub is_newest: bool,
}

impl Parked {
    /// Sends a request that is parked for so long.
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

    /// Until this moment a request without an answer may still be under way.
    pub(crate) fn under_way_until(&self, server: &Server) -> Option<Instant> {
        let unanswered = (!self.is_empty()).then(|| Instant::now() + server.patience());
        unanswered.max(self.under_way_until)
    }

    /// The next answer; or, where only one slice is parked, the moment to send another.
    pub(crate) async fn next(&mut self, change: Option<Instant>) -> Next {
        let change = change.filter(|_| self.slices.len() < 2);
        let is_time = async {
            match change {
                Some(change) => sleep_until(change).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = self.answer() => Next::Answer(answer),
            () = is_time => Next::Change,
        }
    }

    /// Waits for the answers that are owed, but not for long.
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

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(spare) = self.spare.take() {
            spare.keep_open();
        }
    }
}
