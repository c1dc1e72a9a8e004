//! The key argument: as text, or in hexadecimal, because no argument can contain a NUL.

use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// The key of a subcommand without other positional arguments.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub struct Key {
    /// The key of the lock.
    key: Option<OsString>,

    /// The key in hexadecimal, instead of KEY: a NUL cannot be in an argument.
    #[arg(long, value_name = "HEX", value_parser = unhex)]
    key_hex: Option<Bytes>,
}

impl Key {
    pub fn bytes(&self) -> &[u8] {
        match (&self.key_hex, &self.key) {
            (Some(bytes), _) => bytes,
            (None, Some(key)) => key.as_bytes(),
            (None, None) => &[],
        }
    }
}

/// One value of an option; clap would take a Vec for several.
pub type Bytes = Vec<u8>;

/// Bytes given by their hexadecimal digits.
pub fn unhex(digits: &str) -> Result<Bytes, &'static str> {
    let byte = |at| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Bytes> = (0..digits.len()).step_by(2).map(byte).collect();
    // A sign is a part of a number, but no digit.
    let bytes = bytes.filter(|_| !digits.contains('+'));
    bytes.ok_or("two hexadecimal digits a byte, such as 6b00ff")
}

/// The hexadecimal digits of bytes.
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::{hex, unhex};

    #[test]
    fn hexadecimal_digits_name_any_bytes() {
        for (digits, bytes) in [("", &b""[..]), ("6B00fF", b"k\0\xff"), ("0a", b"\n")] {
            assert_eq!(unhex(digits).expect(digits), bytes);
            assert_eq!(hex(bytes), digits.to_lowercase());
        }
        for wrong in ["6", "6b0", "0x", "g0", " 6b", "+1", "é0"] {
            assert!(unhex(wrong).is_err(), "{wrong}");
        }
    }
}
