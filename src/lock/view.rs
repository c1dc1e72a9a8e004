//! What the shell reads for one decision.

use crate::lock::{Domain, KeyRef, KeyState};

/// What the shell read for one decision.
#[derive(Debug, Clone)]
pub struct View<'a> {
    /// The lock.
    pub key: KeyRef<'a>,
    /// What the key holds.
    pub state: KeyState,
    /// Whose horizon covers this key: 0, in a cluster its slot.
    pub domain: Domain,
    /// What a token leans on; `None` when the decision was not expected to need one.
    pub fence: Option<Fence>,
    /// Whether somebody listens for the release of this lock; asked only where
    /// [`Locks::depends_on_subscribers`].
    pub has_subscriber: bool,
}

/// What the keys beside a lock say about its tokens.
#[derive(Debug, Clone, Copy)]
pub struct Fence {
    /// Redisson's token counter of this name, where that key exists.
    pub counter: Option<u64>,
    /// False while a grant cannot be made safe: its horizon's slot is on its way between nodes, or
    /// traffic is paused within this very transaction.
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
