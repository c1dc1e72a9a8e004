//! Writes are refused for a while: out of memory, a save that fails, too few replicas.

use redis_lock_harness::{wait_for, Conn, TestServer};

use super::Scenario;
use crate::history::Fault;
use crate::one::one;
use crate::play::{Hand, Plan};

pub fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "out-of-memory",
            about: "`maxmemory 1`, again and again",
            goal: ("refusals", 100),
            plan: Plan::default,
            nemesis: || one(&[], |server, hand| setting(server, hand, "maxmemory")),
        },
        Scenario {
            name: "failed-save",
            about: "a save that fails (`-MISCONF`), again and again",
            goal: ("refusals", 100),
            plan: Plan::default,
            nemesis: || one(&["--save", "3600 1000000000"], failed_save),
        },
        Scenario {
            name: "few-replicas",
            about: "`min-replicas-to-write 1` without a replica, again and again",
            goal: ("refusals", 100),
            plan: Plan::default,
            nemesis: || {
                one(&[], |server, hand| {
                    setting(server, hand, "min-replicas-to-write")
                })
            },
        },
    ]
}

pub fn setting(server: &mut TestServer, hand: &mut Hand, name: &str) {
    let mut conn = server.conn();
    let mut set = |value| assert_eq!(conn.run(["CONFIG", "SET", name, value]).text(), "OK");
    hand.pause(50..300);
    let from = crate::history::now();
    set("1");
    hand.pause(50..600);
    set("0");
    hand.journal.mark(Fault::Trouble, None, from);
    hand.count("refusals");
}

fn failed_save(server: &mut TestServer, hand: &mut Hand) {
    // A snapshot cannot be renamed onto a directory, not even by root.
    let in_the_way = server.dir().join("dump.rdb");
    let mut conn = server.conn();
    hand.pause(50..300);
    let from = crate::history::now();
    let _ = std::fs::remove_file(&in_the_way);
    std::fs::create_dir(&in_the_way).expect("a directory");
    save(&mut conn, "err");
    hand.pause(50..600);
    std::fs::remove_dir(&in_the_way).expect("the directory");
    save(&mut conn, "ok");
    hand.journal.mark(Fault::Trouble, None, from);
    hand.count("refusals");
}

fn save(conn: &mut Conn, status: &str) {
    let status = format!("rdb_last_bgsave_status:{status}");
    wait_for(&status, || {
        conn.run(["BGSAVE"]);
        conn.run(["INFO", "persistence"]).text().contains(&status)
    });
}
