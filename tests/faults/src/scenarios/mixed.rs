//! One server with all kinds of fault, one after the other.

use redis_lock_harness::TestServer;

use super::crash::{crash, AOF};
use super::{clients, data, refused, stopped, Scenario};
use crate::history::Fault;
use crate::one::one;
use crate::play::{Hand, Plan};

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "mixed",
            about: "every fault of one server, in random order; `appendfsync always`",
            goal: ("crashes", 30),
            plan: Plan::default,
            nemesis: || one(&[&AOF[..], &["always"]].concat(), anything),
        },
        Scenario {
            name: "beside",
            about: "the same, Redisson instances on the same locks, with a Redisson window after every hand-off",
            goal: ("crashes", 30),
            plan: || Plan {
                keys: 3,
                outside: 8,
                ..Plan::default()
            },
            nemesis: || one(&[&AOF[..], &["always"], &WINDOWS].concat(), beside),
        },
    ]
}

pub const WINDOWS: [&str; 4] = ["--lock.free-after", "1", "--lock.free-window", "20"];

/// A fault of the server, or a change of the window rule.
pub fn beside(server: &mut TestServer, hand: &mut Hand) {
    let windows = server.stat("windows_taken");
    if hand.rng.u8(..4) == 0 {
        let mut conn = server.conn();
        for after in ["0", "3", "1"] {
            hand.pause(20..100);
            conn.run(["CONFIG", "SET", "lock.free-after", after]);
        }
    }
    anything(server, hand);
    let after = server.stat("windows_taken");
    // A new process starts its counters at zero.
    for _ in windows..after {
        hand.count("windows taken");
    }
}

/// One after the other: `CLIENT UNBLOCK` of a client that `CLIENT PAUSE` postpones ends Redis 7.0 and 7.2.
pub fn anything(server: &mut TestServer, hand: &mut Hand) {
    match hand.rng.u8(..8) {
        0 => crash(server, hand, Fault::Crash),
        1 => stopped::stop(server, hand),
        2 => clients::kill(server, hand),
        3 => clients::pause(server, hand),
        4 => data::take(server, hand),
        5 => data::reload(server, hand),
        6 => refused::setting(server, hand, "maxmemory"),
        _ => refused::setting(server, hand, "min-replicas-to-write"),
    }
}
