//! The kinds of hold.

/// The kind of hold that a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Redisson's `RLock`: one owner.
    Exclusive,
    /// The read half of Redisson's `RReadWriteLock`: any number of owners.
    Read,
    /// The write half: one owner.
    Write,
}

impl Mode {
    /// Its name in replies.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Exclusive => "exclusive",
            Mode::Read => "read",
            Mode::Write => "write",
        }
    }
}
