//! What those who ask are told.

/// What a command answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Granted,
    Refused,
    Parked,
    Freed,
    StillHeld,
    NotHeld,
    Renewed,
    Lost,
    Broken,
    Error(&'static str),
}

/// What a parked connection is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Told {
    Granted,
    Nil,
    Error(&'static str),
}
