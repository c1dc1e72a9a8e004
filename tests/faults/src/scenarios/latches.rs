//! Latches, beside a few clients of locks.

use super::crash::AOF;
use super::slots::{self, Names};
use super::{clients, mixed, pair, Scenario};
use crate::client::Habits;
use crate::one::one;
use crate::play::Plan;

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "latches",
            about: "clients count down latches and wait for them; connections are killed",
            goal: ("kills", 5_000),
            plan,
            nemesis: || one(&[], clients::kill),
        },
        Scenario {
            name: "latches-mixed",
            about: "latches under every fault of one server; `appendfsync always`",
            goal: ("crashes", 30),
            plan,
            nemesis: || one(&[&AOF[..], &["always"]].concat(), mixed::anything),
        },
        Scenario {
            name: "latches-failover",
            about: "latches over `FAILOVER`, back and forth",
            goal: ("failovers", 100),
            plan,
            nemesis: pair::plain_failovers,
        },
        Scenario {
            name: "latches-crash-failover",
            about: "latches over kill -9 of the master, the replica is promoted",
            goal: ("crashes with promotion", 100),
            plan,
            nemesis: || pair::crashes(&[]),
        },
        Scenario {
            name: "latches-slots",
            about: "the slots of latches move between primaries, key by key and atomically",
            goal: ("moves", 300),
            plan,
            nemesis: || slots::movers(&[], Names::EachItsSlot),
        },
    ]
}

fn plan() -> Plan {
    Plan {
        keys: 2,
        clients: 3,
        bulk: 0,
        latches: 20,
        habits: Habits {
            dies: 5,
            ..Habits::default()
        },
        ..Plan::default()
    }
}
