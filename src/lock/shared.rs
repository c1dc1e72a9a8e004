//! The part of the memory that all kinds of resource share.

use crate::lock::grant::in_flight::GrantsInFlight;
use crate::lock::session::bindings::Sessions;
use crate::lock::startup_delay::StartupDelay;
use crate::lock::token::Tokens;
use crate::lock::wait::waiters::Waiters;

/// What all kinds of resource share.
#[derive(Debug, Default)]
pub struct Shared {
    /// The waiters.
    pub waiters: Waiters,
    /// The bindings of holds to connections.
    pub sessions: Sessions,
    /// The sources of tokens.
    pub tokens: Tokens,
    /// The grants that are in flight or to undo.
    pub in_flight: GrantsInFlight,
    /// The startup delay.
    pub startup_delay: StartupDelay,
}
