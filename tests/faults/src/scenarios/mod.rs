//! The scenarios: their faults, and the number and habits of their clients.

pub(crate) mod clients;
mod clock;
mod cluster;
mod crash;
pub(crate) mod data;
pub(crate) mod kinds;
mod latches;
mod load;
pub mod matrix;
mod mixed;
mod pair;
mod refused;
mod sentinel;
mod slots;
mod stopped;
pub(crate) mod tickets;

use crate::play::{Nemesis, Plan};

/// A scenario.
pub struct Scenario {
    pub name: &'static str,
    /// One line about the scenario.
    pub about: &'static str,
    /// How often `long` lets this fault happen (or `operations`).
    pub goal: (&'static str, u64),
    pub plan: fn() -> Plan,
    pub nemesis: fn() -> Box<dyn Nemesis>,
}

/// All scenarios.
pub fn all() -> Vec<Scenario> {
    let mut all = load::scenarios();
    all.extend(crash::scenarios());
    all.extend(stopped::scenarios());
    all.extend(clock::scenarios());
    all.extend(clients::scenarios());
    all.extend(data::scenarios());
    all.extend(refused::scenarios());
    all.extend(mixed::scenarios());
    all.extend(pair::scenarios());
    all.extend(sentinel::scenarios());
    all.extend(slots::scenarios());
    all.extend(cluster::scenarios());
    all.extend(kinds::scenarios());
    all.extend(tickets::scenarios());
    all.extend(latches::scenarios());
    all
}
