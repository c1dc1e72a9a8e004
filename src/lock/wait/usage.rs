//! What waits use of the limits ([`crate::lock::Limits`]).

/// What waits use, or what a request needs in order to wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Places of parked requests.
    pub parked: usize,
    /// Places of tickets.
    pub tickets: usize,
    /// Bytes of places, also of empty ones that are kept for their owners.
    pub bytes: usize,
}

/// The usage of one user among that of all.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    /// By the user.
    pub own: Usage,
    /// By all users.
    pub all: Usage,
}

impl Usage {
    /// A place with names of so many bytes: the key, the owner, the channel and the tag.
    pub fn place(is_ticket: bool, names: usize) -> Usage {
        /// Without its names a place takes about so many bytes; one at a key of its own up to 450 more.
        const PLACE: usize = 256;
        Usage {
            parked: usize::from(!is_ticket),
            tickets: usize::from(is_ticket),
            bytes: PLACE + names,
        }
    }

    /// Of an empty place.
    pub fn kept(names: usize) -> Usage {
        Usage {
            bytes: Usage::place(false, names).bytes,
            ..Usage::default()
        }
    }

    /// Both together.
    pub fn plus(self, other: Usage) -> Usage {
        Usage {
            parked: self.parked + other.parked,
            tickets: self.tickets + other.tickets,
            bytes: self.bytes + other.bytes,
        }
    }

    /// Without a part, or nothing.
    pub fn minus(self, part: Usage) -> Usage {
        Usage {
            parked: self.parked.saturating_sub(part.parked),
            tickets: self.tickets.saturating_sub(part.tickets),
            bytes: self.bytes.saturating_sub(part.bytes),
        }
    }
}
