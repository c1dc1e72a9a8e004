//! The settings of sessions.

use crate::lock::Lease;

/// The most bound holds for each millisecond of their lease: 50,000 with a lease of ten seconds. So a renewal may take
/// 33 microseconds in a tick in which all are urgent; it takes 5 to 22.
pub(super) const HOLDS_PER_MS: usize = 5;

/// The rule for sessions, from the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionRule {
    /// `lock.session-lease`.
    pub lease: Lease,
    /// False while the module is drained: no new hold is bound. Existing bindings stay.
    pub open: bool,
}

impl SessionRule {
    /// The most holds that are bound when a request asks for `SESSION`. A request that waits meanwhile is bound in any
    /// case.
    pub fn max_holds(&self) -> usize {
        let lease_ms = usize::try_from(self.lease.ms()).unwrap_or(0);
        match self.open {
            true => lease_ms.saturating_mul(HOLDS_PER_MS),
            false => 0,
        }
    }
}

impl Default for SessionRule {
    fn default() -> SessionRule {
        SessionRule {
            lease: Lease::TEN_SECONDS,
            open: true,
        }
    }
}
