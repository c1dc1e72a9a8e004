//! The input of a decision about one key.

use crate::lock::{Domain, KeyRef, KeyState};

/// The content that the shell has read for one decision.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// The lock.
    pub key: KeyRef<'a>,
    /// The content of the key.
    pub state: KeyState,
    /// The domain of the horizon that covers this key: 0, in a cluster its slot.
    pub domain: Domain,
    /// The numbers on which a token depends; `None` if the decision was not expected to need a token.
    pub fence: Option<Fence>,
    /// Whether the lock has a subscriber; read only if [`crate::lock::Locks::depends_on_subscribers`].
    pub has_subscriber: bool,
    /// The most readers that the decision grants: the sibling keys of so many were checked.
    pub readers: usize,
}

/// The keys besides the lock on which a token depends.
#[derive(Debug, Clone, Copy)]
pub struct Fence {
    /// Redisson's token counter of this name, if that key exists.
    pub counter: Option<u64>,
    /// False while a grant cannot be made safe: the slot of its horizon is migrating, or traffic is paused within this
    /// transaction.
    pub may_grant: bool,
}

/// The database that holds the horizons.
pub const HORIZON_DB: i32 = 0;

impl View<'_> {
    /// Whether a grant is possible now.
    pub fn may_grant(&self) -> bool {
        self.fence.is_some_and(|fence| fence.may_grant)
    }
}
