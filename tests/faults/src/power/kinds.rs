//! The load of every kind of lock: the participants of the other fault tests, each group with keys of its own.
//!
//! A key is used in one round only. Some groups have few keys, which all want: grants are hand-offs there. Others have
//! many, and leave holds behind: these are looked for in the data after the loss.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crate::client::{Client, Family, Habits, World};
use crate::counter::Counter;
use crate::history::History;
use crate::latches::Latches;
use crate::many;
use crate::route::Fixed;
use crate::tickets;

/// The permits of each semaphore.
pub const PERMITS: u32 = 3;

/// The lease of holds that are bound to a connection: the server's default.
const SESSION_LEASE: u32 = 10_000;

/// The leases of all other holds are longer than a round.
const LEASE: std::ops::Range<u32> = 60_000..90_000;

/// The participants that share some keys.
struct Group {
    name: &'static str,
    keys: u32,
    family: fn(u32) -> Family,
    clients: u32,
    /// Clients that request several locks at once.
    many: u32,
    /// Processes that wait by tickets.
    tickets: u32,
    habits: fn(Habits) -> Habits,
}

const GROUPS: [Group; 5] = [
    Group {
        name: "few",
        keys: 6,
        family: any,
        clients: 3,
        many: 0,
        tickets: 1,
        habits: |habits| Habits {
            sessions: 20,
            ..habits
        },
    },
    Group {
        name: "few-locks",
        keys: 4,
        family: |_| Family::Lock,
        clients: 1,
        many: 2,
        tickets: 1,
        habits: |habits| Habits {
            many_tickets: 60,
            ..habits
        },
    },
    Group {
        name: "wide",
        keys: 600,
        family: any,
        clients: 3,
        many: 0,
        tickets: 1,
        habits: |habits| Habits {
            forgets: 30,
            dies: 2,
            ..habits
        },
    },
    Group {
        name: "wide-locks",
        keys: 400,
        family: |_| Family::Lock,
        clients: 0,
        many: 2,
        tickets: 1,
        habits: |habits| Habits {
            forgets: 30,
            dies: 2,
            many_tickets: 60,
            ..habits
        },
    },
    Group {
        name: "bound",
        keys: 40,
        family: any,
        clients: 4,
        many: 0,
        tickets: 0,
        // A holder that sleeps keeps its connection, and so the hold.
        habits: |habits| Habits {
            sessions: 100,
            sleeps: 30,
            forgets: 10,
            dies: 3,
            ..habits
        },
    },
];

/// The names of the keys of a group, and its history.
pub struct Part {
    pub keys: Vec<String>,
    pub family: fn(u32) -> Family,
    pub history: History,
}

/// The kind of the key of this number.
pub fn any(key: u32) -> Family {
    match key % 3 {
        0 => Family::Lock,
        1 => Family::ReadWrite,
        _ => Family::Semaphore(PERMITS),
    }
}

/// Starts all groups; they work until they are stopped.
pub fn start(
    port: u16,
    round: u64,
    rng: &mut fastrand::Rng,
    stop: &Arc<AtomicBool>,
) -> Vec<JoinHandle<Part>> {
    let groups = GROUPS.iter().enumerate();
    groups
        .map(|(number, group)| {
            let (stop, rng) = (stop.clone(), rng.fork());
            // Owners, and the channels of tickets, are named after the number of a participant.
            let first = 100 * (number as u32 + 1);
            std::thread::spawn(move || group.work(first, port, round, rng, &stop))
        })
        .collect()
}

impl Group {
    fn work(
        &self,
        first: u32,
        port: u16,
        round: u64,
        mut rng: fastrand::Rng,
        stop: &AtomicBool,
    ) -> Part {
        let name = |key| format!("{}:{round}:{key}", self.name);
        let keys: Vec<String> = (0..self.keys).map(name).collect();
        let counters: Vec<Counter> = keys.iter().map(|_| Counter::default()).collect();
        let latches = Latches::of(&[], self.keys);
        let habits = (self.habits)(Habits {
            lease: LEASE,
            wait: 1..60,
            patient: 0,
            sleeps: 0,
            forgets: 0,
            dies: 0,
            family: self.family,
            session_lease: SESSION_LEASE,
            ..Habits::default()
        });
        let route = Fixed(port);
        let sleeps = AtomicU64::new(0);
        let world = World {
            keys: &keys,
            counters: &counters,
            latches: &latches,
            route: &route,
            habits: &habits,
            stop,
            drain: Duration::ZERO,
            sleeps: &sleeps,
        };
        let mut history = History::default();
        std::thread::scope(|scope| {
            let world = &world;
            let mut works = Vec::new();
            for place in 0..self.clients + self.many + self.tickets {
                let (id, seed) = (first + place, rng.u64(..));
                works.push(scope.spawn(move || self.participate(place, id, world, seed)));
            }
            for work in works {
                history.add(work.join().expect("a participant"));
            }
        });
        Part {
            keys,
            family: self.family,
            history,
        }
    }

    fn participate(&self, place: u32, id: u32, world: &World, seed: u64) -> History {
        match place {
            place if place < self.clients => Client::new(id, world, seed).work().into(),
            place if place < self.clients + self.many => many::work(id, world, seed).into(),
            _ => tickets::work(id, world, seed),
        }
    }
}
