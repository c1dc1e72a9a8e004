//! Figures as the cells of a table show them: three significant digits, thousands separated.

use crate::stats::Summary;

/// `4.17`, `41.7`, `417`, `4,170`.
pub fn short(value: f64) -> String {
    let decimals = match value.abs() {
        small if small < 9.995 => 2,
        middle if middle < 99.95 => 1,
        _ => 0,
    };
    grouped(&format!("{value:.decimals$}"))
}

/// A count.
pub fn count(value: usize) -> String {
    grouped(&value.to_string())
}

/// The median, and the range of the rounds: `41.7 (40.2..45.0)`.
pub fn with_spread(rounds: &[f64]) -> String {
    match Summary::of(rounds) {
        Some(all) if rounds.len() > 1 => format!(
            "{} ({}..{})",
            short(all.median),
            short(all.min),
            short(all.max)
        ),
        Some(all) => short(all.median),
        None => "-".into(),
    }
}

fn grouped(number: &str) -> String {
    let end = number.find('.').unwrap_or(number.len());
    let mut grouped = String::new();
    for (at, digit) in number.chars().enumerate() {
        let left = end.saturating_sub(at);
        if at < end && left % 3 == 0 && grouped.ends_with(|last: char| last.is_ascii_digit()) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_matter_and_thousands_stand_apart() {
        let cells = [
            0.0, 4.173, 9.999, 41.73, 99.96, 417.3, 4173.0, 1234567.0, -4173.0,
        ];
        let shown: Vec<String> = cells.iter().map(|value| short(*value)).collect();
        let expected = [
            "0.00",
            "4.17",
            "10.0",
            "41.7",
            "100",
            "417",
            "4,173",
            "1,234,567",
            "-4,173",
        ];
        assert_eq!(shown, expected);
        assert_eq!(count(10_000), "10,000");
    }

    #[test]
    fn a_single_round_has_no_spread() {
        assert_eq!(with_spread(&[]), "-");
        assert_eq!(with_spread(&[2.0]), "2.00");
        assert_eq!(with_spread(&[2.0, 1.0, 40.0]), "2.00 (1.00..40.0)");
    }
}
