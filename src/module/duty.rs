//! The work that is due for a hold that is bound to a connection.

/// The work for a bound hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Duty {
    /// Release: its connection has ended.
    Release,
    /// Renew its lease.
    Renew,
}
