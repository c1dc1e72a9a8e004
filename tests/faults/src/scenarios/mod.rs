//! The scenarios: what is broken, and how many clients of which habits look on.

mod crash;

use crate::play::{Nemesis, Plan};

/// A scenario.
pub struct Scenario {
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    pub plan: fn() -> Plan,
    pub nemesis: fn() -> Box<dyn Nemesis>,
}

/// All of them.
pub fn all() -> Vec<Scenario> {
    crash::scenarios()
}
