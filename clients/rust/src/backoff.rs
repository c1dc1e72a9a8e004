//! Pauses between attempts: growing, and random where several clients may have failed at the same moment.

use std::time::Duration;

use tokio::time::{sleep, sleep_until, Instant};
use uuid::Uuid;

const FIRST: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Random pauses between repeated attempts.
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { next: FIRST }
    }

    /// Sleeps between zero and the present longest pause, and no longer than until `end`.
    pub(crate) async fn pause(&mut self, end: Instant) {
        let span = part_of(self.next);
        self.next = (self.next * 2).min(MAX_PAUSE);
        sleep_until(end.min(Instant::now() + span)).await;
    }
}

/// Growing pauses between attempts to reach a server.
pub(crate) struct Pause {
    next: Duration,
}

impl Default for Pause {
    fn default() -> Pause {
        Pause { next: Pause::FIRST }
    }
}

impl Pause {
    /// The first pause.
    pub(crate) const FIRST: Duration = Duration::from_millis(20);

    pub(crate) fn new() -> Pause {
        Pause::default()
    }

    /// The length of the next pause.
    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Sleeps for the next pause, at most `most`.
    pub(crate) async fn sleep(&mut self, most: Duration) {
        sleep(self.next.min(most)).await;
        self.next = (self.next * 2).min(MAX_PAUSE);
    }
}

/// The time left until this end; without an end, more than any wait.
pub(crate) fn left(end: Option<Instant>) -> Duration {
    end.map_or(Duration::MAX, |end| {
        end.saturating_duration_since(Instant::now())
    })
}

/// A random part of this span.
pub(crate) fn part_of(span: Duration) -> Duration {
    let part = Uuid::new_v4().as_u64_pair().1 % 1_000;
    span * u32::try_from(part).unwrap_or(0) / 1_000
}

/// The moment after this span, of which more than a century is cut off.
pub(crate) fn after(span: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
    Instant::now() + span.min(CENTURY)
}

#[allow(clippy::expect_used)]
#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pauses_grow_and_end_where_the_wait_ends() {
        let mut backoff = Backoff::new();
        let end = Instant::now();
        for _ in 0..20 {
            backoff.pause(end).await;
        }
        assert_eq!(backoff.next, MAX_PAUSE);
    }
}
