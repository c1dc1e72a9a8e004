//! Two primaries: the slots of the locks move from one to the other and back, key by key or, if the server can,
//! atomically.

use std::sync::Arc;

use redis_lock_harness::cluster::{move_slot, moves_atomically, slot_of, two_nodes, AtomicMove};
use redis_lock_harness::TestServer;

use super::Scenario;
use crate::history::{now, Fault};
use crate::one::{finish, version};
use crate::play::{Hand, Nemesis, Plan};
use crate::route::{Route, Slots};

pub fn scenarios() -> Vec<Scenario> {
    vec![Scenario {
        name: "slots",
        about: "slots move between primaries, key by key and atomically; half of the clients wait by tickets",
        goal: ("moves", 300),
        plan: || Plan {
            clients: 8,
            tickets: 4,
            ..Plan::default()
        },
        nemesis,
    }]
}

struct Movers {
    nodes: [TestServer; 2],
    /// The node of each key.
    at: Vec<usize>,
    is_atomic: bool,
    route: Arc<Slots>,
}

fn nemesis() -> Box<dyn Nemesis> {
    let (first, second) = two_nodes(&[]);
    let plan = Plan::default();
    let keys = names(plan.keys);
    let route = Slots::of(&[first.port, second.port], &keys);
    Box::new(Movers {
        is_atomic: moves_atomically(&first),
        nodes: [first, second],
        at: vec![0; keys.len()],
        route: Arc::new(route),
    })
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("k{n}")).collect()
}

impl Nemesis for Movers {
    fn route(&self) -> Box<dyn Route> {
        Box::new(self.route.clone())
    }

    fn keys(&self, count: usize) -> Vec<String> {
        names(count)
    }

    fn strike(&mut self, hand: &mut Hand) {
        hand.pause(20..300);
        let key = hand.rng.usize(..hand.keys.len());
        let here = self.at[key];
        let (source, target) = (&self.nodes[here], &self.nodes[1 - here]);
        let slot = slot_of(&mut source.conn(), &hand.keys[key]);
        let from = now();
        let fault = if self.is_atomic && hand.rng.bool() {
            AtomicMove::begin(source, target, slot).wait_until_done();
            hand.count("atomic moves");
            Fault::Handover
        } else {
            move_slot(source, target, slot);
            hand.count("moves key by key");
            Fault::Migration
        };
        self.at[key] = 1 - here;
        hand.journal.mark(fault, Some(key as u32), from);
        hand.count("moves");
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        self.nodes.into_iter().try_for_each(finish)
    }

    fn version(&self) -> String {
        version(&self.nodes[0])
    }
}
