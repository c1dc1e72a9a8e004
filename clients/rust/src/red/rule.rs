//! The arithmetic of a RedLock, without servers, clock and I/O. `tests/several/model.rs` tests it with random
//! histories.
//!
//! A round of requests is *opened* before the first of them is sent. Every server that grants keeps the lock for at
//! least a lease from that moment, by its own clock. If two owners had a majority each, one server would have granted
//! to both, which is impossible while these leases last.

use std::time::Duration;

/// The size of a majority: any two majorities have a server in common.
pub(crate) fn quorum(servers: usize) -> usize {
    servers / 2 + 1
}

/// The tolerated gain of a server's clock on ours within a lease: a hundredth of it, and two milliseconds for the
/// granularity of the servers' clocks.
pub(crate) fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// How long a majority is certainly held, from the opening of its round.
pub(crate) fn validity(lease: Duration) -> Duration {
    lease.saturating_sub(drift(lease))
}

/// The time for the answers of one round: short compared with the lease, from which it is lost.
pub(crate) fn round_patience(lease: Duration) -> Duration {
    (lease / 10).clamp(Duration::from_millis(50), Duration::from_secs(1))
}

/// The votes of a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tally {
    servers: usize,
    yes: usize,
    no: usize,
}

/// The verdict of the votes so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A majority granted.
    Held,
    /// So many refused that no majority is possible any more.
    Refused,
    /// Undecided: more answers are expected.
    Open,
}

impl Tally {
    pub(crate) fn of(servers: usize) -> Tally {
        Tally {
            servers,
            yes: 0,
            no: 0,
        }
    }

    pub(crate) fn count(&mut self, yes: bool) {
        if yes {
            self.yes += 1;
        } else {
            self.no += 1;
        }
    }

    pub(crate) fn verdict(self) -> Verdict {
        if self.yes >= quorum(self.servers) {
            Verdict::Held
        } else if is_out_of_reach(self.servers, self.no) {
            Verdict::Refused
        } else {
            Verdict::Open
        }
    }
}

/// Whether no majority is possible any more after this many refusals, whatever the other servers answer.
pub(crate) fn is_out_of_reach(servers: usize, refusals: usize) -> bool {
    servers.saturating_sub(refusals) < quorum(servers)
}
