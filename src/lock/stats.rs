//! Counters of this server's decisions. They only grow, and three sums hold whenever no decision is in progress:
//!
//! - for each kind of resource: `waits_parked` = `waits_granted` + `waits_timed_out` + `waits_unblocked` +
//!   `waits_disconnected` + `waits_taken_over` + `waits_withdrawn` + `waits_failed` + `waits_kept` + present waiters;
//!   for tickets the same sum (`tickets_queued`, ...), with `tickets_unheard`;
//! - `grants` = `grants_released` + `grants_session_ended` + `grants_expired` + `grants_broken` + `grants_lost` +
//!   `grants_undone` + `grants_unwatched` + present tracked grants;
//! - `windows` = `windows_taken` + `windows_unused` + open windows.
//!
//! And counts of times in fixed buckets, for `INFO lock`.

macro_rules! counters {
    ($(#[doc = $what:literal])+ $table:ident $($(#[doc = $doc:literal])+ $name:ident,)+) => {
        $(#[doc = $what])+
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        pub struct $table {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        impl $table {
            /// Every counter with its name in `INFO lock`, less the prefix of the kind of resource.
            pub fn fields(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)+].into_iter()
            }
        }
    };
}

pub(crate) use counters;

counters! {
    /// The waits for one kind of resource.
    WaitStats
    /// Requests refused at once: no grant, and no wait asked for or possible.
    refusals,
    /// Requests answered `-LOCKBUSY`.
    busy,
    /// Parked requests, including those that replaced an older one.
    waits_parked,
    /// Parked requests granted: by a hand-off, or at once when the owner asked again within the grace time.
    waits_granted,
    /// Parked requests whose `BLOCK` ran out, and whose owner did not ask again within the grace time.
    waits_timed_out,
    /// Parked requests ended by `CLIENT UNBLOCK ... TIMEOUT`.
    waits_unblocked,
    /// Parked requests whose connection closed, was redirected, or was unblocked with an error.
    waits_disconnected,
    /// Parked requests replaced by a newer one of the same owner, before or after their `BLOCK` ran out.
    waits_taken_over,
    /// Parked requests withdrawn by a release of their owner.
    waits_withdrawn,
    /// Parked requests answered an error.
    waits_failed,
    /// The longest wait of a granted request, in milliseconds.
    wait_ms_max,
}

counters! {
    /// The counters of locks.
    Stats
    /// Fresh grants, immediate or by hand-off.
    grants,
    /// Acquires by the holder, counted or `ONCE`.
    reentries,
    /// Requests refused because they would have waited for their own owner.
    deadlocks,
    /// Searches for a deadlock that used up their visits, or met a key of which not all holders are known, and found no
    /// cycle.
    deadlock_searches_cut,
    /// Renewals of a lease.
    renewals,
    /// Renewals of a lock that was not held (any more).
    renewal_misses,
    /// Releases by an owner without a hold.
    release_misses,
    /// Commands that `LOCK.IF` did not run, because the lock was not held under their token.
    fenced,
    /// Grants ended by their owner.
    grants_released,
    /// Grants released because the connection that they were bound to has closed.
    grants_session_ended,
    /// Grants whose lease ran out.
    grants_expired,
    /// Grants ended by LOCK.BREAK.
    grants_broken,
    /// Grants whose key was deleted or overwritten (DEL, FLUSHALL, eviction, another holder).
    grants_lost,
    /// Grants whose reply could not be delivered, which were undone.
    grants_undone,
    /// Tracked grants that were pushed out of the bounded table.
    grants_unwatched,
    /// Settled ends of holds that were made by other means than a LOCK command.
    foreign_wakeups,
    /// Horizons that were implausibly far ahead of the clock, and not accepted.
    horizons_implausible,
    /// Requests refused because the token or the counter stored with their lock is implausibly far ahead of the clock.
    tokens_implausible,
}

counters! {
    /// The Redisson windows of all kinds of resource.
    WindowStats
    /// Times that a lock or a permit was left free instead of being handed off.
    windows,
    /// Windows during which a client took it.
    windows_taken,
    /// Windows that ended otherwise.
    windows_unused,
}

/// The upper bounds of the buckets in milliseconds, inclusive. The last bucket has no bound.
pub const BOUNDS_MS: [u64; 18] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000,
    900_000, 3_600_000,
];

const BUCKETS: usize = BOUNDS_MS.len() + 1;

/// How many times were within each bucket, and their sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum_ms: u64,
}

impl Histogram {
    /// Counts a time.
    pub fn record(&mut self, ms: u64) {
        let bucket = BOUNDS_MS.partition_point(|bound| *bound < ms);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }

    /// The sum of all times, in milliseconds.
    pub fn sum_ms(&self) -> u64 {
        self.sum_ms
    }

    /// Both together.
    pub fn plus(mut self, other: &Histogram) -> Histogram {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count += more;
        }
        self.sum_ms = self.sum_ms.saturating_add(other.sum_ms);
        self
    }

    /// Each bound with the number of times up to it, as Prometheus counts; `None`: all times.
    pub fn up_to(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let bounds = BOUNDS_MS.into_iter().map(Some).chain([None]);
        let mut sum = 0;
        bounds.zip(self.counts).map(move |(bound, count)| {
            sum += count;
            (bound, sum)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        times.iter().for_each(|ms| histogram.record(*ms));
        histogram
    }

    fn counts(histogram: &Histogram) -> Vec<u64> {
        histogram.up_to().map(|(_, count)| count).collect()
    }

    #[test]
    fn bounds_rise() {
        assert!(BOUNDS_MS.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_time_counts_up_to_every_bound_that_it_does_not_exceed() {
        for bound in BOUNDS_MS {
            let histogram = of(&[bound - 1, bound, bound + 1]);
            let at = histogram.up_to().find(|(known, _)| *known == Some(bound));
            assert_eq!(at, Some((Some(bound), 2)));
        }
        let histogram = of(&[0, 1, 3, 3_600_000, 3_600_001, u64::MAX]);
        let counts = counts(&histogram);
        assert!(counts.starts_with(&[2, 2, 3, 3]), "{counts:?}");
        assert!(counts.ends_with(&[3, 4, 6]), "{counts:?}");
    }

    #[test]
    fn two_histograms_are_added_bucket_by_bucket() {
        let both = of(&[1, 7]).plus(&of(&[7, 9_000]));
        assert_eq!((both, both.sum_ms()), (of(&[1, 7, 7, 9_000]), 9_015));
    }
}
