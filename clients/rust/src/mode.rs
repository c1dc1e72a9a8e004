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
    /// Held by a client that has set the key as a string (`SET NX PX`; the server's setting `lock.string-holders`). No
    /// request has this mode.
    String,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Read => "read",
            Mode::Write => "write",
            Mode::String => "string",
        }
    }

    /// The word of a command that selects one of the owner's holds.
    pub(crate) fn word(self) -> Option<String> {
        (self != Mode::Exclusive).then(|| self.name().to_ascii_uppercase())
    }

    /// The mode with this name in a reply.
    pub(crate) fn named(name: &str) -> Mode {
        let mut others = [Mode::Read, Mode::Write, Mode::String].into_iter();
        others.find(|mode| mode.name() == name).unwrap_or_default()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
