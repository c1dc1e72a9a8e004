//! Every kind of lock in every place: one server with every fault, a primary with a replica that takes over in each
//! way, a cluster whose slots move. A kind is a plan of clients, which is the same in every place.

use redis_lock_harness::TestServer;

use super::crash::AOF;
use super::kinds::any_family;
use super::slots::{self, Names};
use super::{mixed, pair, tickets};
use crate::client::{Family, Habits};
use crate::one::one;
use crate::play::{Hand, Nemesis, Plan};

/// A kind of lock.
pub struct Kind {
    pub name: &'static str,
    pub about: &'static str,
    plan: fn() -> Plan,
    /// Of the servers.
    options: &'static [&'static str],
    /// A request may name several keys.
    names: Names,
    /// A fault of a server that has no replica.
    strike: fn(&mut TestServer, &mut Hand),
}

/// Where the locks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    One,
    Pair,
    Slots,
}

pub const PLACES: [Place; 3] = [Place::One, Place::Pair, Place::Slots];

impl Place {
    pub fn name(self) -> &'static str {
        match self {
            Place::One => "one server",
            Place::Pair => "replica",
            Place::Slots => "cluster",
        }
    }
}

/// The lease of holds that are bound to a connection: one that a fail-over unbinds ends soon, and a server that the
/// machine does not run for a moment can still renew it.
const SOON: [&str; 2] = ["--lock.session-lease", "1000"];

pub const KINDS: [Kind; 9] = [
    Kind {
        name: "locks",
        about: "exclusive locks",
        plan: || plan(|_| Family::Lock),
        options: &[],
        names: Names::EachItsSlot,
        strike: tickets::anything,
    },
    Kind {
        name: "read-write",
        about: "readers and writers, upgrades and downgrades",
        plan: || plan(|_| Family::ReadWrite),
        options: &[],
        names: Names::EachItsSlot,
        strike: tickets::anything,
    },
    Kind {
        name: "many-keys",
        about: "requests for two to four locks at once beside those for one",
        plan: || Plan {
            many: 8,
            ..plan(|_| Family::Lock)
        },
        options: &[],
        names: Names::AllOneSlot,
        strike: tickets::anything,
    },
    Kind {
        name: "sessions",
        about: "holds of every kind, three of four bound to connections",
        plan: || bound(75),
        options: &SOON,
        names: Names::EachItsSlot,
        strike: tickets::anything,
    },
    Kind {
        name: "semaphores",
        about: "three permits",
        plan: || plan(|_| Family::Semaphore(3)),
        options: &[],
        names: Names::EachItsSlot,
        strike: tickets::anything,
    },
    Kind {
        name: "latches",
        about: "latches, which are set, counted down and waited for",
        plan: || Plan {
            keys: 2,
            clients: 3,
            bulk: 0,
            latches: 60,
            ..Plan::default()
        },
        options: &[],
        names: Names::EachItsSlot,
        strike: tickets::anything,
    },
    Kind {
        name: "tickets",
        about: "tickets for one lock and several beside parked requests",
        plan: || with_tickets(plan(|_| Family::Lock), 15),
        options: &[],
        names: Names::AllOneSlot,
        strike: tickets::anything,
    },
    Kind {
        name: "mixed kinds",
        about:
            "exclusive and read-write locks and semaphores, some holds bound, some waits by tickets",
        plan: || with_tickets(bound(30), 0),
        options: &SOON,
        names: Names::EachItsSlot,
        strike: tickets::anything,
    },
    Kind {
        name: "mixed fleet",
        about: "Redisson's scripts beside `LOCK.*`, with a Redisson window after hand-offs",
        plan: || Plan {
            outside: 8,
            ..plan(|_| Family::Lock)
        },
        options: &mixed::WINDOWS,
        names: Names::EachItsSlot,
        strike: mixed::beside,
    },
];

impl Kind {
    pub fn plan(&self) -> Plan {
        (self.plan)()
    }

    /// The servers and their faults.
    pub fn nemesis(&self, place: Place) -> Box<dyn Nemesis> {
        match place {
            Place::One => one(&[&AOF[..], &["always"], self.options].concat(), self.strike),
            Place::Pair => pair::anything(self.options),
            Place::Slots => slots::movers(self.options, self.names),
        }
    }
}

/// Clients of short holds make most of the operations.
fn plan(family: fn(u32) -> Family) -> Plan {
    Plan {
        keys: 8,
        clients: 16,
        bulk: 1,
        habits: Habits {
            rests: 1,
            family,
            ..Habits::default()
        },
        ..Plan::default()
    }
}

fn bound(sessions: u8) -> Plan {
    let mut plan = plan(any_family);
    plan.habits.sessions = sessions;
    plan.habits.session_lease = 1_000;
    plan
}

fn with_tickets(mut plan: Plan, many: u8) -> Plan {
    plan.clients = 8;
    plan.tickets = 6;
    plan.habits.many_tickets = many;
    plan
}
