//! Counts of times in fixed buckets, for `INFO lock`.

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
