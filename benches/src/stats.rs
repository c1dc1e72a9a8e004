//! Medians and ranges: the reported figures of a series of rounds.

/// The summary of one series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The middle value.
    pub median: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
}

impl Summary {
    /// Of at least one value; `None` of none.
    pub fn of(values: &[f64]) -> Option<Summary> {
        Some(Summary {
            median: quantile(values, 0.5)?,
            min: quantile(values, 0.0)?,
            max: quantile(values, 1.0)?,
        })
    }

    /// Half the distance from the smallest to the largest value, in percent of the median.
    pub fn spread_percent(&self) -> f64 {
        50.0 * (self.max - self.min) / self.median
    }
}

/// The value below which this part of the values lies (nearest rank).
pub fn quantile(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (part * (sorted.len().checked_sub(1)?) as f64).round() as usize;
    sorted.get(rank).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_series() {
        let values = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!(quantile(&values, 0.5), Some(3.0));
        assert_eq!(quantile(&values, 0.99), Some(5.0));
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(
            Summary::of(&values).map(|all| all.spread_percent() as i64),
            Some(66)
        );
    }
}
