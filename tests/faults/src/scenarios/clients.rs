//! Connections are killed, unblocked and paused.

use std::time::Duration;

use redis_lock_harness::{Conn, TestServer};

use super::Scenario;
use crate::history::{now, Fault};
use crate::one::one;
use crate::play::{Hand, Plan};

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "client-kill",
            about: "`CLIENT KILL` and `CLIENT UNBLOCK` (`TIMEOUT`, `ERROR`) of anybody",
            goal: ("kills", 5_000),
            plan: Plan::default,
            nemesis: || one(&[], kill),
        },
        Scenario {
            name: "client-pause",
            about: "`CLIENT PAUSE` (`WRITE`, `ALL`), ended by `UNPAUSE` or by time",
            goal: ("client pauses", 200),
            plan: Plan::default,
            nemesis: || one(&[], pause),
        },
    ]
}

/// A few clients, chosen from the server's list, on one connection of our own.
pub fn kill(server: &mut TestServer, hand: &mut Hand) {
    let mut conn = server.conn();
    for _ in 0..20 {
        hand.pause(2..15);
        let Some(id) = somebody(&mut conn, hand) else {
            continue;
        };
        match hand.rng.u8(..3) {
            0 => {
                conn.run(["CLIENT", "KILL", "ID", &id]);
                hand.count("kills");
            }
            1 => {
                conn.run(["CLIENT", "UNBLOCK", &id, "TIMEOUT"]);
                hand.count("unblocks");
            }
            _ => {
                conn.run(["CLIENT", "UNBLOCK", &id, "ERROR"]);
                hand.count("unblocks");
            }
        }
    }
}

/// Anybody but us; replicas and masters have a line of their own.
pub fn somebody(conn: &mut Conn, hand: &mut Hand) -> Option<String> {
    let list = conn.run(["CLIENT", "LIST"]).text();
    let is_client = |line: &&str| line.contains("flags=N") || line.contains("flags=b");
    let others = list.lines().filter(|line| !line.contains("cmd=client"));
    let lines: Vec<&str> = others.filter(is_client).collect();
    let line = lines.get(hand.rng.usize(..lines.len().max(1)))?;
    Some(line.strip_prefix("id=")?.split(' ').next()?.to_string())
}

pub fn pause(server: &mut TestServer, hand: &mut Hand) {
    hand.pause(100..400);
    let (mut conn, ms) = (server.conn(), hand.rng.u64(50..600));
    let from = now();
    if hand.rng.bool() {
        conn.run(["CLIENT", "PAUSE", &ms.to_string(), "WRITE"]);
        if hand.rng.bool() {
            hand.pause(20..50);
            conn.run(["CLIENT", "UNPAUSE"]);
        } else {
            std::thread::sleep(Duration::from_millis(ms));
        }
    } else {
        // Nothing is answered, so nobody can end it.
        conn.run(["CLIENT", "PAUSE", &ms.to_string(), "ALL"]);
    }
    // Answered when it is over, whatever ended it.
    conn.run(["SET", "the:end", "1"]);
    hand.journal.mark(Fault::Trouble, None, from);
    hand.count("client pauses");
}
