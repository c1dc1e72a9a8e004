//! The durations of options.

use std::time::Duration;

/// The longest duration, about thirty years, which clocks can still represent.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// A duration: seconds, such as `2.5`, or with units, such as `250ms`, `5m` or `1h 30m`.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let span = match text.parse() {
        Ok(number) => Duration::try_from_secs_f64(number).ok(),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    let span = span.ok_or("seconds, such as 2.5, or with a unit, such as 5m")?;
    match span > LONGEST {
        true => Err("more than thirty years".into()),
        false => Ok(span),
    }
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn spans_have_fractions_and_no_sign() {
        for (text, millis) in [
            ("0.25", 250),
            ("10", 10_000),
            ("10s", 10_000),
            ("250ms", 250),
            ("5m", 300_000),
            ("1h 30m", 5_400_000),
        ] {
            assert_eq!(seconds(text).map(|span| span.as_millis()), Ok(millis));
        }
        for wrong in ["-1", "x", "", "inf", "NaN", "1e10", "5x", "-5m", "s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
