//! No faults of the servers: many operations, holders that sleep, clients that close their connections.

use super::Scenario;
use crate::client::Habits;
use crate::one::one;
use crate::play::{Hand, Plan};

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "load",
            about: "no faults; many short holds beside the other actions of clients",
            goal: ("operations", 10_000_000),
            plan: || Plan {
                keys: 64,
                clients: 16,
                bulk: 2,
                habits: Habits {
                    rests: 0,
                    ..Habits::default()
                },
                ..Plan::default()
            },
            nemesis: || one(&[], |_, hand| hand.pause(20..60)),
        },
        Scenario {
            name: "sleepers",
            about: "every other holder sleeps through 0.5 to 3 of its leases and goes on working",
            goal: ("holder sleeps", 2_000),
            plan: || Plan {
                habits: Habits {
                    sleeps: 50,
                    lease: 5..100,
                    ..Habits::default()
                },
                ..Plan::default()
            },
            nemesis: || one(&[], |_, hand: &mut Hand| hand.pause(20..60)),
        },
        Scenario {
            name: "deaths",
            about: "clients close their connection, or ask again through another, about when they are granted",
            goal: ("operations", 1_000_000),
            plan: || Plan {
                habits: Habits {
                    lease: 5..60,
                    wait: 1..60,
                    dies: 35,
                    hurries: 25,
                    ..Habits::default()
                },
                ..Plan::default()
            },
            nemesis: || one(&[], |_, hand: &mut Hand| hand.pause(20..60)),
        },
    ]
}
