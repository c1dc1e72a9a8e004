//! `WAIT` and `WAITAOF` in the pipeline after an acquire: they cover its grant, whether immediate or after a wait in
//! the queue.

use crate::common::cluster::one_node;
use crate::common::replica::{aof_text, follow, wait_until_in_sync, PROMPT_MASTER};
use crate::common::{Conn, TestServer};

/// A master with an AOF and a replica that needs no module, with an AOF of its own.
fn master_and_replica() -> (TestServer, TestServer) {
    let aof = ["--appendonly", "yes", "--appendfsync", "always"];
    let master = TestServer::with(&[&PROMPT_MASTER[..], &aof].concat());
    let replica = TestServer::without_module(&aof);
    follow(&replica, &master);
    wait_until_in_sync(&replica, &master);
    (master, replica)
}

/// The reply of the grant and of the command after it.
fn granted_and_covered(conn: &mut Conn) -> (i64, Vec<i64>) {
    let token = conn.recv().int();
    let covered = conn.recv();
    let counts = match covered.0 {
        redis::Value::Int(replicas) => vec![replicas],
        _ => covered.list().iter().map(|count| count.int()).collect(),
    };
    (token, counts)
}

fn token_at(server: &TestServer) -> String {
    server.conn().line("HGET k #token").text()
}

/// Runs the recipe for a free lock and for a held one; returns the reply of the command after each grant.
fn both_ways(master: &TestServer, behind: &str, mut check: impl FnMut(i64, Vec<i64>)) {
    let mut conn = master.conn();
    conn.send_lines(&["LOCK.ACQUIRE k a PX 60000 ONCE", behind]);
    let (token, counts) = granted_and_covered(&mut conn);
    check(token, counts);

    let mut waiter = master.conn();
    wait_with(&mut waiter, master, behind);
    assert_eq!(conn.line("LOCK.RELEASE k a").int(), 1);
    let (token, counts) = granted_and_covered(&mut waiter);
    check(token, counts);
}

/// Waits for the lock, with this command in the pipeline behind.
fn wait_with(waiter: &mut Conn, master: &TestServer, behind: &str) {
    waiter.send_lines(&["LOCK.ACQUIRE k b PX 60000 BLOCK 0 ONCE", behind]);
    master.wait_for_waiters(1);
}

#[test]
fn wait_covers_the_grant() {
    let (master, replica) = master_and_replica();
    both_ways(&master, "WAIT 1 10000", |token, replicas| {
        assert_eq!(replicas, [1]);
        assert_eq!(token_at(&replica), format!("t{token}"));
    });
}

#[test]
fn waitaof_covers_the_grant() {
    let (master, replica) = master_and_replica();
    if master.version() < (7, 2, 0) {
        return;
    }
    both_ways(&master, "WAITAOF 1 1 10000", |token, files| {
        assert_eq!(files, [1, 1]);
        for server in [&master, &replica] {
            let written = format!("#token t{token}");
            let text = aof_text(server).join("\n");
            assert!(text.contains(&written), "{written} in {text}");
        }
    });
}

/// A replica that does not acknowledge: the grant remains, and its client gets the number of replicas that have it.
#[test]
fn without_enough_replicas_the_grant_remains_and_wait_reports_it() {
    let (master, replica) = master_and_replica();
    replica.signal(libc::SIGSTOP);
    let mut conn = master.conn();
    conn.send_lines(&["LOCK.ACQUIRE k a PX 60000 ONCE", "WAIT 1 50"]);
    let (token, replicas) = granted_and_covered(&mut conn);
    assert_eq!(replicas, [0]);
    assert_eq!(token_at(&master), format!("t{token}"));
    replica.signal(libc::SIGCONT);
}

/// On each kind of server: the replica has acknowledged everything up to the park, and nothing since.
#[test]
fn wait_does_not_count_a_replica_without_the_grant() {
    for master in [
        TestServer::with(&PROMPT_MASTER),
        TestServer::with(&[&PROMPT_MASTER[..], &["--io-threads", "2"]].concat()),
        one_node(&PROMPT_MASTER),
    ] {
        let replica = TestServer::without_module(&[]);
        follow(&replica, &master);
        let (mut conn, mut waiter) = (master.conn(), master.conn());
        conn.line("LOCK.ACQUIRE k a PX 60000").int();
        wait_with(&mut waiter, &master, "WAIT 1 50");
        assert_eq!(conn.line("SET {k}2 v").text(), "OK");
        assert_eq!(conn.line("WAIT 1 10000").int(), 1);
        replica.signal(libc::SIGSTOP);
        assert_eq!(conn.line("LOCK.RELEASE k a").int(), 1);
        let (_, replicas) = granted_and_covered(&mut waiter);
        replica.signal(libc::SIGCONT);
        assert_eq!(replicas, [0]);
    }
}

/// A repeated request over a new connection: its grant changes nothing, and the replica does not have it yet.
#[test]
fn wait_does_not_count_a_replica_without_the_hold_of_a_repeated_request() {
    let (master, replica) = master_and_replica();
    let mut conn = master.conn();
    conn.line("SEM.SET s 5");
    assert_eq!(conn.line("WAIT 1 10000").int(), 1);
    let requests = [
        [
            "LOCK.ACQUIRE k a PX 60000 ONCE",
            "LOCK.ACQUIRE k a PX 1000 ONCE",
        ],
        [
            "LOCK.ACQUIRE r a PX 60000 READ ONCE",
            "LOCK.ACQUIRE r a PX 1000 READ ONCE",
        ],
        [
            "LOCK.ACQUIRE w a PX 60000 WRITE ONCE",
            "LOCK.ACQUIRE w a PX 1000 WRITE ONCE",
        ],
        [
            "LOCK.MACQUIRE 2 x y a PX 60000 ONCE",
            "LOCK.MACQUIRE 2 x y a PX 1000 ONCE",
        ],
        ["SEM.ACQUIRE s a PX 60000", "SEM.ACQUIRE s a PX 1000"],
        [
            "LOCK.ACQUIRE e a SESSION ONCE",
            "LOCK.ACQUIRE e a SESSION ONCE",
        ],
        ["LOCK.BREAK b TO a PX 60000", "LOCK.BREAK b TO a PX 1000"],
        ["SEM.SET t 5", "SEM.SET t 5"],
        [
            "LOCK.ACQUIRE v a WRITE PX 60000",
            "LOCK.RENEW v a WRITE PX 60000",
        ],
        [
            "LOCK.MACQUIRE 2 x y a PX 90000 ONCE",
            "LOCK.MRENEW 2 x y a PX 90000",
        ],
        ["SEM.ACQUIRE s b PX 60000", "SEM.RENEW s b PX 60000"],
    ];
    for [first, repeated] in requests {
        replica.signal(libc::SIGSTOP);
        assert!(!conn.line(first).is_error(), "{first}");
        let mut again = master.conn();
        again.send_lines(&[repeated, "WAIT 1 50"]);
        let granted = again.recv();
        assert!(
            !granted.is_error() && !granted.is_nil(),
            "{repeated}: {granted:?}"
        );
        let replicas = again.recv().int();
        replica.signal(libc::SIGCONT);
        assert_eq!(replicas, 0, "{repeated}");
        again.send_lines(&[repeated, "WAIT 1 10000"]);
        assert!(!again.recv().is_nil());
        assert_eq!(again.recv().int(), 1, "{repeated}");
    }
}
