//! Processes that wait by tickets beside parked clients. Subscribers, commands' connections and servers are killed;
//! processes hang and die by themselves.

use redis_lock_harness::{Conn, TestServer};

use super::clients::kill;
use super::crash::AOF;
use super::kinds::any_family;
use super::{mixed, pair, Scenario};
use crate::client::{Family, Habits};
use crate::one::one;
use crate::play::{Hand, Nemesis, Plan};

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "tickets",
            about: "tickets beside parked requests, for one lock and several; subscribers and other connections are killed",
            goal: ("subscribers killed", 5_000),
            plan: || plan(|_| Family::Lock),
            nemesis: kill_at_grants,
        },
        Scenario {
            name: "tickets-mixed",
            about: "tickets for locks, read-write locks and permits under every fault of one server; `appendfsync always`",
            goal: ("crashes", 30),
            plan: || plan(any_family),
            nemesis: || one(&[&AOF[..], &["always"]].concat(), anything),
        },
        Scenario {
            name: "tickets-failover",
            about: "tickets for locks, read-write locks and permits over `FAILOVER`s while clients are killed",
            goal: ("failovers", 100),
            plan: || plan(any_family),
            nemesis: || pair::failovers(&[]),
        },
    ]
}

fn plan(family: fn(u32) -> Family) -> Plan {
    Plan {
        keys: 8,
        clients: 8,
        bulk: 0,
        tickets: 6,
        habits: Habits {
            family,
            many_tickets: 15,
            ..Habits::default()
        },
        ..Plan::default()
    }
}

/// Kills subscribers, and waits for some of the locks itself. When it is granted one, it kills the subscribers in the
/// very transaction that releases.
fn kill_at_grants() -> Box<dyn Nemesis> {
    let mut waits: Vec<(Conn, String)> = Vec::new();
    one(&[], move |server, hand| {
        if waits.is_empty() {
            let some = hand.keys.iter().take(2);
            waits = some.map(|key| (named(server), key.clone())).collect();
            waits.iter_mut().for_each(|(conn, key)| ask(conn, key));
        }
        for _ in 0..20 {
            hand.pause(0..4);
            for (conn, key) in &mut waits {
                if !conn.is_silent() {
                    conn.recv();
                    hand_over(conn, key, hand);
                    ask(conn, key);
                }
            }
        }
        kill_subscribers(server, hand);
    })
}

/// A connection that the nemesis does not kill.
fn named(server: &TestServer) -> Conn {
    let mut conn = server.conn();
    conn.run(["CLIENT", "SETNAME", "nemesis"]);
    conn
}

/// With an owner for each lock: one owner that holds one and waits for another can close a cycle.
fn ask(conn: &mut Conn, key: &str) {
    conn.send_line(&format!("LOCK.ACQUIRE {key} nemesis-{key} PX 300 BLOCK 0"));
}

/// The message to the next waiter is published before the subscribers are killed, and so lost; or they are killed
/// before, and their tickets passed over.
fn hand_over(conn: &mut Conn, key: &str, hand: &mut Hand) {
    let release = format!("LOCK.RELEASE {key} nemesis-{key}");
    let kill = "CLIENT KILL TYPE pubsub";
    match hand.rng.u8(..4) {
        0 => conn.send_lines(&["MULTI", &release, kill, "EXEC"]),
        1 => conn.send_lines(&["MULTI", kill, &release, "EXEC"]),
        _ => return drop(conn.line(&release)),
    }
    (0..4).for_each(|_| drop(conn.recv()));
    hand.count("hand-offs hit");
}

/// All subscribers, one of them, or any client that is no nemesis.
pub fn kill_subscribers(server: &mut TestServer, hand: &mut Hand) {
    let mut conn = server.conn();
    let kind = match hand.rng.u8(..4) {
        0 => {
            let killed = conn.run(["CLIENT", "KILL", "TYPE", "pubsub"]).int();
            (0..killed).for_each(|_| hand.count("subscribers killed"));
            return;
        }
        1 => "normal",
        _ => "pubsub",
    };
    let list = conn.run(["CLIENT", "LIST", "TYPE", kind]).text();
    let lines = list.lines().filter(|line| !line.contains("name=nemesis"));
    let others = lines.filter(|line| !line.contains("cmd=client"));
    let lines: Vec<&str> = others.collect();
    let line = lines.get(hand.rng.usize(..lines.len().max(1)));
    let id = line.and_then(|line| line.strip_prefix("id=")?.split(' ').next());
    if let Some(id) = id {
        conn.run(["CLIENT", "KILL", "ID", id]);
        hand.count(match kind {
            "normal" => "kills",
            _ => "subscribers killed",
        });
    }
}

/// Every fault of one server, and subscribers are killed.
pub fn anything(server: &mut TestServer, hand: &mut Hand) {
    match hand.rng.u8(..4) {
        0 => {
            for _ in 0..10 {
                hand.pause(5..60);
                kill_subscribers(server, hand);
            }
        }
        1 => kill(server, hand),
        _ => mixed::anything(server, hand),
    }
}
