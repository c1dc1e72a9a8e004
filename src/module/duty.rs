//! What is due with a hold that is bound to a connection.

/// What is to be done with a bound hold.
#[derive(Clone, Copy)]
pub enum Duty {
    /// Its connection has gone.
    Release,
    /// Its lease is to be renewed.
    Renew,
}
