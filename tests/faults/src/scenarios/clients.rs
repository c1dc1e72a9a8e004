//! Connections are killed, unblocked and paused.

use std::time::Duration;

use redis_lock_harness::{Conn, TestServer};

use super::Scenario;
use crate::client::Habits;
use crate::history::{now, Fault};
use crate::one::one;
use crate::play::{Hand, Nemesis, Plan};

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "client-kill",
            about: "`CLIENT KILL` and `CLIENT UNBLOCK` (`TIMEOUT`, `ERROR`) of any client",
            goal: ("kills", 5_000),
            plan: Plan::default,
            nemesis: || one(&[], kill),
        },
        Scenario {
            name: "same-turn",
            about:
                "the granted waiter is killed or unblocked in the very transaction that releases",
            goal: ("hand-offs hit", 5_000),
            plan: || Plan {
                bulk: 0,
                habits: Habits {
                    sleeps: 0,
                    forgets: 0,
                    ..Habits::default()
                },
                ..Plan::default()
            },
            nemesis: same_turn,
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

/// A few clients, chosen from the server's list, with one connection for the nemesis.
pub fn kill(server: &mut TestServer, hand: &mut Hand) {
    let mut conn = server.conn();
    for _ in 0..20 {
        hand.pause(2..15);
        let Some(id) = random_client(&mut conn, hand) else {
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

/// Any client but the nemesis itself; replicas and masters have other flags.
pub fn random_client(conn: &mut Conn, hand: &mut Hand) -> Option<String> {
    let list = conn.run(["CLIENT", "LIST"]).text();
    let is_client = |line: &&str| line.contains("flags=N") || line.contains("flags=b");
    let others = list.lines().filter(|line| !line.contains("cmd=client"));
    let lines: Vec<&str> = others.filter(is_client).collect();
    let line = lines.get(hand.rng.usize(..lines.len().max(1)))?;
    Some(line.strip_prefix("id=")?.split(' ').next()?.to_string())
}

/// Waits for every lock itself, and when granted, kills or unblocks the next waiter in the tick of the release.
fn same_turn() -> Box<dyn Nemesis> {
    let mut waits: Vec<(Conn, String)> = Vec::new();
    one(&[], move |server, hand| {
        if waits.is_empty() {
            waits = hand
                .keys
                .iter()
                .map(|key| (server.conn(), key.clone()))
                .collect();
            waits.iter_mut().for_each(|(conn, key)| ask(conn, key));
        }
        for (conn, key) in &mut waits {
            if !conn.is_silent() {
                conn.recv();
                hand_on(conn, key, hand);
                ask(conn, key);
            }
        }
        hand.pause(0..2);
    })
}

fn ask(conn: &mut Conn, key: &str) {
    conn.send_line(&format!("LOCK.ACQUIRE {key} nemesis PX 300 BLOCK 0"));
}

fn hand_on(conn: &mut Conn, key: &str, hand: &mut Hand) {
    let release = format!("LOCK.RELEASE {key} nemesis");
    let Some(waiter) = first_waiter(conn, key) else {
        conn.line(&release);
        return;
    };
    let hit = match hand.rng.u8(..3) {
        0 => format!("CLIENT KILL ID {waiter}"),
        1 => format!("CLIENT UNBLOCK {waiter} TIMEOUT"),
        _ => format!("CLIENT UNBLOCK {waiter} ERROR"),
    };
    conn.send_lines(&["MULTI", &release, &hit, "EXEC"]);
    for _ in 0..4 {
        conn.recv();
    }
    hand.count("hand-offs hit");
}

/// The id of its client, if it is known soon.
fn first_waiter(conn: &mut Conn, key: &str) -> Option<i64> {
    (0..50).find_map(|_| {
        let info = conn.run(["LOCK.INFO", key, "WAITERS", "COUNT", "1"]);
        let queue = info.field("queue").map_or(Vec::new(), |queue| queue.list());
        queue.first()?.field("client-id")?.maybe_int()
    })
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
        // No command is answered, so none can end the pause.
        conn.run(["CLIENT", "PAUSE", &ms.to_string(), "ALL"]);
    }
    // Answered when the pause is over, whatever ended it.
    conn.run(["SET", "the:end", "1"]);
    hand.journal.mark(Fault::Trouble, None, from);
    hand.count("client pauses");
}
