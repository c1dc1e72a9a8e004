//! Two primaries: the slots of the locks move from one to the other and back, key by key or, if the server can,
//! atomically.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

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
        nemesis: || movers(&[], Names::EachItsSlot),
    }]
}

/// The slots of the locks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Names {
    EachItsSlot,
    /// All have one hash tag, so that a request can name several.
    AllOneSlot,
}

impl Names {
    fn of(self, count: usize) -> Vec<String> {
        let tag = match self {
            Names::EachItsSlot => "",
            Names::AllOneSlot => "{one}",
        };
        (0..count).map(|n| format!("{tag}k{n}")).collect()
    }
}

struct Movers {
    nodes: [TestServer; 2],
    names: Names,
    /// The node of each slot that has moved.
    at: HashMap<i64, usize>,
    is_atomic: bool,
    route: Arc<Slots>,
}

/// For an atomic move.
const LIMIT: Duration = Duration::from_secs(5);

/// The most keys of locks, and of latches, that a plan for this nemesis has.
const KEYS: usize = 16;

/// The keys of latches, each in a slot of its own.
fn latches(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("l{n}")).collect()
}

/// Two nodes with these options, and keys with such names.
pub fn movers(options: &[&str], names: Names) -> Box<dyn Nemesis> {
    let (first, second) = two_nodes(options);
    let keys = [names.of(KEYS), latches(KEYS)].concat();
    let route = Slots::of(&[first.port, second.port], &keys);
    Box::new(Movers {
        is_atomic: moves_atomically(&first),
        nodes: [first, second],
        names,
        at: HashMap::new(),
        route: Arc::new(route),
    })
}

impl Nemesis for Movers {
    fn route(&self) -> Box<dyn Route> {
        Box::new(self.route.clone())
    }

    fn keys(&self, count: usize) -> Vec<String> {
        self.names.of(count)
    }

    fn latches(&self, count: usize) -> Vec<String> {
        latches(count)
    }

    fn strike(&mut self, hand: &mut Hand) {
        hand.pause(20..300);
        let locks = hand.keys.len();
        let key = hand.rng.usize(..locks + hand.latches.len());
        let name = hand.keys.get(key);
        let name = name.unwrap_or_else(|| &hand.latches[key - locks]);
        let slot = slot_of(&mut self.nodes[0].conn(), name);
        let here = self.at.get(&slot).copied().unwrap_or(0);
        let (source, target) = (&self.nodes[here], &self.nodes[1 - here]);
        let from = now();
        let is_atomic = self.is_atomic && hand.rng.bool();
        let has_moved = if is_atomic {
            AtomicMove::begin(source, target, slot).wait_or_cancel(LIMIT)
        } else {
            move_slot(source, target, slot);
            true
        };
        let (fault, what) = match (is_atomic, has_moved) {
            (false, _) => (Fault::Migration, "moves key by key"),
            (true, true) => (Fault::Handover, "atomic moves"),
            // Valkey 9.1 may lose writes of a move that is cancelled late: the slot moves all the same.
            (true, false) => (Fault::Failover, "moves given up"),
        };
        hand.count(what);
        if has_moved {
            self.at.insert(slot, 1 - here);
            hand.count("moves");
        }
        let moved = (self.names == Names::EachItsSlot).then_some(key as u32);
        match key < locks {
            true => hand.journal.mark(fault, moved, from),
            // A latch has no lease and no order of waiters.
            false => hand.journal.mark(Fault::Trouble, None, from),
        }
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        self.nodes.into_iter().try_for_each(finish)
    }

    fn version(&self) -> String {
        version(&self.nodes[0])
    }
}
