//! The leases of readers that are bound to connections (`SESSION`), by node.
//!
//! The lease is a setting of the server, which may change. A holder reads it from `LOCK.INFO`, whose reply lists all
//! readers: if each of N readers read it at each renewal, N times N holders would be sent. So the readers of a program
//! share the lease that one of them has read.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::moment::now;
use crate::runtime::locked;

/// How long the other readers use the former lease while one reads it again.
const READING: Duration = Duration::from_millis(100);

/// The leases that were read, by the name of the node.
#[derive(Default)]
pub(crate) struct ReaderLeases {
    nodes: Mutex<HashMap<String, Known>>,
}

struct Known {
    lease: Duration,
    /// The next reader after this moment reads it again.
    until: Instant,
}

impl ReaderLeases {
    /// The lease of readers at this node. None: the caller reads it, and [records](ReaderLeases::record) it.
    pub(crate) fn known(&self, node: &str) -> Option<Duration> {
        let mut nodes = locked(&self.nodes);
        let known = nodes.get_mut(node)?;
        let moment = now();
        if moment < known.until {
            return Some(known.lease);
        }
        known.until = moment + READING;
        None
    }

    /// Records a lease. It is used for as long as a holder that reads it itself uses it: until its next renewal.
    pub(crate) fn record(&self, node: &str, lease: Duration) {
        let until = now() + lease / 3;
        let mut nodes = locked(&self.nodes);
        nodes.insert(node.to_string(), Known { lease, until });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_reader_at_a_time_reads_a_lease_again() {
        let leases = ReaderLeases::default();
        assert_eq!(leases.known("a"), None);
        leases.record("a", Duration::ZERO);
        assert_eq!(leases.known("a"), None);
        assert_eq!(leases.known("a"), Some(Duration::ZERO));
        leases.record("a", Duration::from_secs(60));
        assert_eq!(leases.known("a"), Some(Duration::from_secs(60)));
        assert_eq!(leases.known("b"), None);
    }
}
