//! Pauses between attempts: longer each time, and never the same for two who failed at one moment.

use std::time::Duration;

use tokio::time::{sleep, sleep_until, Instant};
use uuid::Uuid;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_millis(500);

/// The pauses of one who tries again and again.
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Backoff {
        Backoff { next: FIRST }
    }

    /// Sleeps between nothing and the present longest pause, and no longer than until `end`.
    pub(crate) async fn pause(&mut self, end: Instant) {
        let span = part_of(self.next);
        self.next = (self.next * 2).min(LONGEST);
        sleep_until(end.min(Instant::now() + span)).await;
    }
}

/// The pauses between attempts to reach a server: longer each time.
pub(crate) struct Pause {
    next: Duration,
}

impl Pause {
    /// The first of them.
    pub(crate) const FIRST: Duration = Duration::from_millis(20);

    pub(crate) fn new() -> Pause {
        Pause { next: Pause::FIRST }
    }

    /// How long the next one is.
    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Sleeps, for no longer than so long.
    pub(crate) async fn sleep(&mut self, most: Duration) {
        sleep(self.next.min(most)).await;
        self.next = (self.next * 2).min(LONGEST);
    }
}

/// What is left until this end; without an end, more than any wait.
pub(crate) fn left(end: Option<Instant>) -> Duration {
    end.map_or(Duration::MAX, |end| {
        end.saturating_duration_since(Instant::now())
    })
}

/// Something between nothing and this span, another each time.
pub(crate) fn part_of(span: Duration) -> Duration {
    let part = Uuid::new_v4().as_u64_pair().1 % 1_000;
    span * u32::try_from(part).unwrap_or(0) / 1_000
}

/// The moment after so long; a wait too long to be told is one of a century.
pub(crate) fn after(span: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
    Instant::now() + span.min(CENTURY)
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pauses_grow_and_end_where_the_wait_ends() {
        let mut backoff = Backoff::new();
        let end = Instant::now();
        for _ in 0..20 {
            backoff.pause(end).await;
        }
        assert_eq!(backoff.next, LONGEST);
    }
}
