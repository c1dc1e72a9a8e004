//! Three primaries with a replica each: `CLUSTER FAILOVER`, plain, `FORCE` and `TAKEOVER`, one after another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use redis_lock_harness::cluster::Cluster;

use super::Scenario;
use crate::history::{now, Fault};
use crate::one::{finish, version};
use crate::play::{Hand, Nemesis, Plan};
use crate::route::{Route, Slots};

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        name: "cluster-failover",
        about: "`CLUSTER FAILOVER`, `FORCE` and `TAKEOVER`, one after another; half of the clients wait by tickets",
        goal: ("failovers", 300),
        plan: || Plan {
            clients: 8,
            tickets: 4,
            ..Plan::default()
        },
        nemesis,
    }]
}

/// A node that is silent for this long counts as dead.
const TIMEOUT_MS: u32 = 1_000;

/// Redis 7.0 lets a replica that was elected this recently count its old votes again, and for a moment two nodes act as
/// the primary.
const ELECTION: Duration = Duration::from_millis(4_500);

const MODES: [(&str, &str); 3] = [
    ("", "plain"),
    ("FORCE", "forced"),
    ("TAKEOVER", "takeovers"),
];

struct Six {
    cluster: Cluster,
    step: usize,
    /// The time of each node's last promotion.
    promoted: [Option<Instant>; 6],
}

fn nemesis() -> Box<dyn Nemesis> {
    Box::new(Six {
        cluster: Cluster::with(TIMEOUT_MS, &[]),
        step: 0,
        promoted: [None; 6],
    })
}

impl Nemesis for Six {
    fn route(&self) -> Box<dyn Route> {
        let ports: Vec<_> = self.cluster.nodes.iter().map(|node| node.port).collect();
        let keys = self.keys(Plan::default().keys);
        Box::new(Arc::new(Slots::of(&ports, &keys)))
    }

    /// The keys are on all primaries.
    fn keys(&self, count: usize) -> Vec<String> {
        (0..count)
            .map(|n| self.cluster.key_of(n % 3, &format!("k{n}-")))
            .collect()
    }

    fn strike(&mut self, hand: &mut Hand) {
        hand.pause(50..400);
        let (mode, what) = MODES[self.step % 3];
        // Each mode is combined with each pair of nodes.
        let home = (self.step + self.step / 3) % 3;
        let is_primary =
            |node: usize| self.cluster.nodes[node].info_field("replication", "role") == "master";
        let new = if is_primary(home) { home + 3 } else { home };
        if let Some(last) = self.promoted[new] {
            std::thread::sleep(ELECTION.saturating_sub(last.elapsed()));
        }
        let from = now();
        let line = format!("CLUSTER FAILOVER {mode}");
        let answer = self.cluster.nodes[new].conn().line(line.trim());
        assert!(!answer.is_error(), "{}", answer.error());
        self.cluster.wait_for_primary(new);
        self.cluster.wait_until_whole();
        self.promoted[new] = Some(Instant::now());
        // Only the plain one waits for all writes of the primary.
        let fault = match mode {
            "" => Fault::Handover,
            _ => Fault::Failover,
        };
        hand.journal.mark(fault, None, from);
        hand.count(what);
        hand.count("failovers");
        self.step += 1;
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        let Cluster { nodes, .. } = self.cluster;
        nodes.into_iter().try_for_each(finish)
    }

    fn version(&self) -> String {
        version(&self.cluster.nodes[0])
    }
}
