//! The limits on what is kept in memory.

use crate::lock::wait::waiters::Waiters;
use crate::lock::KeyRef;

/// The limits in force, from the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The most places of parked requests on this server.
    pub max_waiters: usize,
    /// The most places of parked requests on one key.
    pub max_waiters_per_key: usize,
    /// The most places of tickets on this server.
    pub max_tickets: usize,
    /// The most tracked grants.
    pub max_tracked: usize,
}

/// The places of all kinds of resource on this server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    /// Those of parked requests.
    pub parked: usize,
    /// Those of tickets.
    pub tickets: usize,
}

impl Limits {
    /// Whether they exclude a request that would wait at this key: the places of its kind on this server, or those of
    /// parked requests at the key, are too many, and the request continues no earlier one of its kind.
    pub(crate) fn exclude(
        &self,
        places: Places,
        waiters: &Waiters,
        (key, owner): (KeyRef<'_>, &[u8]),
        is_ticket: bool,
    ) -> bool {
        let full = match is_ticket {
            true => places.tickets >= self.max_tickets,
            false => {
                places.parked >= self.max_waiters
                    || waiters.parked_on(key) >= self.max_waiters_per_key
            }
        };
        full && !waiters.has_waiter(key, owner, is_ticket)
    }
}
