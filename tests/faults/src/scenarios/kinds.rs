//! Readers and writers, permits, and holds that are bound to connections.

use super::crash::{crash, AOF};
use super::{clients, mixed, pair, Scenario};
use crate::client::{Family, Habits};
use crate::history::Fault;
use crate::one::one;
use crate::play::{Nemesis, Plan};

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "read-write",
            about: "readers and writers, upgrades and downgrades; connections are killed",
            goal: ("kills", 5_000),
            plan: || of(|_| Family::ReadWrite, 0),
            nemesis: || one(&[], clients::kill),
        },
        Scenario {
            name: "read-write-mixed",
            about: "readers and writers under every fault of one server",
            goal: ("crashes", 30),
            plan: || of(|_| Family::ReadWrite, 0),
            nemesis: || one(&[&AOF[..], &["always"]].concat(), mixed::anything),
        },
        Scenario {
            name: "sessions",
            about: "holds bound to connections, locks and permits of every kind; connections are killed, die, and are forgotten",
            goal: ("kills", 5_000),
            plan: || of(any_family, 75),
            nemesis: || one(&[], clients::kill),
        },
        Scenario {
            name: "sessions-crash",
            about: "the server of bound holds is killed; `appendfsync always`, a session lease of 0.3 s",
            goal: ("crashes", 200),
            plan: || {
                let mut plan = of(any_family, 75);
                plan.habits.session_lease = 300;
                plan
            },
            nemesis: sessions_crash,
        },
        Scenario {
            name: "many-keys",
            about: "requests for two to four locks at once beside those for one; connections are killed",
            goal: ("kills", 5_000),
            plan: many,
            nemesis: || one(&[], clients::kill),
        },
        Scenario {
            name: "many-keys-mixed",
            about: "requests for several locks under every fault of one server",
            goal: ("crashes", 30),
            plan: many,
            nemesis: || one(&[&AOF[..], &["always"]].concat(), mixed::anything),
        },
        Scenario {
            name: "semaphores",
            about: "three permits for sixteen clients; connections are killed",
            goal: ("kills", 5_000),
            plan: || of(|_| Family::Semaphore(3), 0),
            nemesis: || one(&[], clients::kill),
        },
        Scenario {
            name: "semaphores-crash",
            about: "the server of semaphores is killed; `appendfsync always`",
            goal: ("crashes", 200),
            plan: || of(|_| Family::Semaphore(3), 0),
            nemesis: || {
                one(&[&AOF[..], &["always"]].concat(), |server, hand| {
                    crash(server, hand, Fault::Crash);
                })
            },
        },
        Scenario {
            name: "kinds-failover",
            about: "exclusive and read-write locks and semaphores, some bound, over `FAILOVER`s while clients are killed",
            goal: ("failovers", 100),
            plan: || bound_for_300_ms(any_family),
            nemesis: || pair::failovers(&["--lock.session-lease", "300"]),
        },
        Scenario {
            name: "kinds-crash-failover",
            about: "exclusive and read-write locks and semaphores, some bound, over kill -9 of the master, the replica is promoted",
            goal: ("crashes with promotion", 100),
            plan: || bound_for_300_ms(any_family),
            nemesis: || pair::crashes(&["--lock.session-lease", "300"]),
        },
    ]
}

fn bound_for_300_ms(family: fn(u32) -> Family) -> Plan {
    let mut plan = of(family, 50);
    plan.habits.session_lease = 300;
    plan
}

fn many() -> Plan {
    Plan {
        many: 8,
        clients: 10,
        ..of(|_| Family::Lock, 0)
    }
}

pub fn any_family(key: u32) -> Family {
    match key % 3 {
        0 => Family::Lock,
        1 => Family::ReadWrite,
        _ => Family::Semaphore(3),
    }
}

/// A plan for keys of these kinds, without the clients of short holds, which use exclusive locks only.
fn of(family: fn(u32) -> Family, sessions: u8) -> Plan {
    Plan {
        bulk: 0,
        habits: Habits {
            family,
            sessions,
            ..Habits::default()
        },
        ..Plan::default()
    }
}

fn sessions_crash() -> Box<dyn Nemesis> {
    let options = [&AOF[..], &["always", "--lock.session-lease", "300"]].concat();
    one(&options, |server, hand| crash(server, hand, Fault::Crash))
}
