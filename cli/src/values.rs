//! The durations of options.

use std::ffi::OsString;
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

/// The longest time for a reply, of 10 ms at least.
pub fn response_time(text: &str) -> Result<Duration, String> {
    let span = seconds(text)?;
    match span < Duration::from_millis(10) {
        true => Err("less than 10ms".into()),
        false => Ok(span),
    }
}

/// A name that the server would find nowhere.
pub fn not_empty(name: OsString) -> Result<OsString, &'static str> {
    match name.is_empty() {
        true => Err("it is empty"),
        false => Ok(name),
    }
}

/// What the names of variables begin with.
pub fn prefix(text: &str) -> Result<String, &'static str> {
    let is_of_names = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let is_name = text.chars().all(is_of_names) && !text.starts_with(|c: char| c.is_ascii_digit());
    is_name
        .then(|| text.into())
        .ok_or("letters, digits and _, no digit at first")
}

/// One value of an option; clap would take a Vec for several.
pub type Tokens = Vec<u64>;

/// Tokens with commas between them; none for a permit.
pub fn tokens(text: &str) -> Result<Tokens, &'static str> {
    let parts = text.split(',').filter(|_| !text.is_empty());
    let tokens: Result<Tokens, _> = parts.map(str::parse).collect();
    tokens.map_err(|_| "numbers, with commas between them")
}

#[cfg(test)]
mod tests {
    use super::{prefix, response_time, seconds, tokens};

    #[test]
    fn tokens_are_numbers_with_commas() {
        assert_eq!(tokens("12,13"), Ok(vec![12, 13]));
        assert_eq!(tokens(""), Ok(vec![]));
        assert!(tokens("12,").is_err() && tokens("x").is_err());
    }

    #[test]
    fn a_prefix_begins_a_name_of_a_variable() {
        assert!(["", "DB_", "_1"].iter().all(|text| prefix(text).is_ok()));
        assert!(["1", "a-b", "a=b", "\u{e4}"]
            .iter()
            .all(|text| prefix(text).is_err()));
    }

    #[test]
    fn a_reply_has_time_to_come() {
        assert!(response_time("10ms").is_ok());
        assert!(response_time("9ms").is_err() && response_time("0").is_err());
    }

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
