//! Pauses between attempts: growing, and random where several clients may have failed at the same moment.

use std::time::Duration;

use tokio::time::{sleep, Instant};
use uuid::Uuid;

use crate::moment::now;

const LONGEST: Duration = Duration::from_millis(500);

/// Growing pauses between attempts.
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

    /// The length of the next pause.
    pub(crate) fn next(&self) -> Duration {
        self.next
    }

    /// Sleeps for the next pause, at most `most`.
    pub(crate) async fn sleep(&mut self, most: Duration) {
        sleep(self.next.min(most)).await;
        self.next = (self.next * 2).min(LONGEST);
    }

    /// Sleeps for a random part of the next pause, and no longer than until `end`: several clients may have failed at
    /// the same moment.
    pub(crate) async fn random(&mut self, end: Option<Instant>) {
        self.sleep(part_of(self.next).min(left(end))).await;
    }
}

/// The time left until this end; without an end, more than any wait.
pub(crate) fn left(end: Option<Instant>) -> Duration {
    end.map_or(Duration::MAX, |end| end.saturating_duration_since(now()))
}

/// A random part of this span.
pub(crate) fn part_of(span: Duration) -> Duration {
    let part = Uuid::new_v4().as_u64_pair().1 % 1_000;
    span * u32::try_from(part).unwrap_or(0) / 1_000
}

/// The moment after this span, of which more than a century is cut off.
pub(crate) fn after(span: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);
    now() + span.min(CENTURY)
}

/// The end of a wait that began when a test had moved the time of a double so far, now that it has moved it further.
pub(crate) fn sooner(
    end: Option<Instant>,
    begun: Option<Duration>,
    moved: Option<Duration>,
) -> Option<Instant> {
    let by = moved
        .unwrap_or_default()
        .saturating_sub(begun.unwrap_or_default());
    end.map(|end| end.checked_sub(by).unwrap_or_else(now))
}
