//! The modes of a lock.

use std::fmt;

/// The mode in which a lock is held or requested.
///
/// ```
/// use redis_lock_client::Mode;
///
/// assert_eq!(Mode::Read.to_string(), "read");
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// Held by one owner.
    #[default]
    Exclusive,
    /// Held by any number of readers together.
    Read,
    /// Held by one writer, without readers.
    Write,
}

impl Mode {
    /// The word of a command that selects one of the owner's holds.
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Mode::Exclusive => None,
            Mode::Read => Some("READ"),
            Mode::Write => Some("WRITE"),
        }
    }

    /// The mode with this name in a reply.
    #[cfg(feature = "admin")]
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
