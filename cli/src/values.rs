//! Values of options: durations, and names of any bytes.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// The longest duration, about thirty years, which clocks can still represent.
const LONGEST: f64 = 1e9;

/// A duration in seconds, such as `2.5`.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "seconds, such as 2.5".to_string())?;
    if number > LONGEST {
        return Err("more than thirty years".into());
    }
    Duration::try_from_secs_f64(number).map_err(|error| error.to_string())
}

/// The bytes of a name.
pub fn bytes(name: &OsString) -> &[u8] {
    name.as_bytes()
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn spans_have_fractions_and_no_sign() {
        assert_eq!(seconds("0.25").map(|span| span.as_millis()), Ok(250));
        for wrong in ["-1", "x", "", "inf", "NaN", "1e10"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
