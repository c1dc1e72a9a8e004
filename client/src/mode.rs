//! How a lock is held.

use std::fmt;

/// How a lock is held, or asked for.
///
/// ```
/// use redis_lock_client::Mode;
///
/// assert_eq!(Mode::Read.to_string(), "read");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// By one owner.
    #[default]
    Exclusive,
    /// By readers, together.
    Read,
    /// By one writer, and by no reader.
    Write,
}

impl Mode {
    /// Which of its owner's holds a command means.
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Mode::Exclusive => None,
            Mode::Read => Some("READ"),
            Mode::Write => Some("WRITE"),
        }
    }

    /// The mode that a reply names.
    pub(crate) fn named(name: &str) -> Mode {
        match name {
            "read" => Mode::Read,
            "write" => Mode::Write,
            _ => Mode::Exclusive,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Exclusive => "exclusive",
            Mode::Read => "read",
            Mode::Write => "write",
        })
    }
}
