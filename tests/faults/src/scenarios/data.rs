//! The data is removed, or loaded again.

use redis_lock_harness::TestServer;

use super::Scenario;
use crate::history::{now, Fault};
use crate::one::one;
use crate::play::{Hand, Plan};

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "taken",
            about: "`FLUSHALL`, `DEL` of locks, `LOCK.BREAK`",
            goal: ("deletions", 5_000),
            plan: Plan::default,
            nemesis: || one(&[], take),
        },
        Scenario {
            name: "reload",
            about: "`DEBUG RELOAD`",
            goal: ("reloads", 500),
            plan: Plan::default,
            nemesis: || one(&[], reload),
        },
    ]
}

pub fn take(server: &mut TestServer, hand: &mut Hand) {
    take_with(server, hand, 10);
}

/// One of so many is a `FLUSHALL`.
pub fn take_with(server: &mut TestServer, hand: &mut Hand, of: u8) {
    let mut conn = server.conn();
    for _ in 0..20 {
        hand.pause(5..40);
        let from = now();
        let key = hand.rng.usize(..hand.keys.len());
        let of_key = match hand.rng.u8(..of) {
            0 => {
                conn.run(["FLUSHALL"]);
                hand.count("flushes");
                None
            }
            n => {
                let command = if n <= of / 2 { "DEL" } else { "LOCK.BREAK" };
                conn.run([command, &hand.keys[key]]);
                hand.count("deletions");
                Some(key as u32)
            }
        };
        hand.journal.mark(Fault::Taken, of_key, from);
    }
}

pub fn reload(server: &mut TestServer, hand: &mut Hand) {
    hand.pause(50..300);
    let mut conn = server.conn();
    hand.journal.during(Fault::Trouble, || {
        assert_eq!(conn.run(["DEBUG", "RELOAD"]).text(), "OK");
    });
    hand.count("reloads");
}
