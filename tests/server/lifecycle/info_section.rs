//! Gauges of `INFO lock` that depend on the clock and on settings.

use std::time::Instant;

use crate::common::{histogram_in, wait_for, TestServer};

#[test]
fn the_oldest_wait_is_shown_for_each_kind() {
    let server = TestServer::start();
    let oldest = |kind: &str| server.stat(&format!("{kind}oldest_wait_ms"));
    let mut holder = server.conn();
    holder.line("LOCK.ACQUIRE k alice");
    holder.line("SEM.ACQUIRE s alice LIMIT 1");
    holder.line("LATCH.SET l 1");
    assert_eq!(["", "sem_", "latch_"].map(oldest), [0, 0, 0]);
    let requests = [
        (
            "",
            "LOCK.ACQUIRE k bob BLOCK 0",
            "LOCK.ACQUIRE k carol BLOCK 0",
        ),
        (
            "sem_",
            "SEM.ACQUIRE s bob BLOCK 0",
            "SEM.ACQUIRE s carol BLOCK 0",
        ),
        ("latch_", "LATCH.WAIT l BLOCK 0", "LATCH.WAIT l BLOCK 0"),
    ];
    let mut waiters = Vec::new();
    for (kind, first, second) in requests {
        let waits = server.waits();
        let mut bob = server.conn();
        bob.send_line(first);
        server.wait_for_waits(waits + 1);
        wait_for("a wait of 20 ms", || oldest(kind) >= 20);
        // A younger request changes nothing.
        let mut carol = server.conn();
        let sent = Instant::now();
        carol.send_line(second);
        server.wait_for_waits(waits + 2);
        assert!(oldest(kind) >= 20, "{kind}");
        waiters.push((bob, carol, sent));
    }
    holder.line("LOCK.RELEASE k alice");
    assert!(waiters[0].0.recv().int() > 0);
    let carols = u128::from(oldest(""));
    let at_most = waiters[0].2.elapsed().as_millis() + 1;
    assert!(carols <= at_most, "bob waits no more: {carols}, {at_most}");
    holder.line("LOCK.RELEASE k bob");
    holder.line("SEM.RELEASE s alice");
    holder.line("SEM.RELEASE s bob");
    holder.line("LATCH.DOWN l");
    assert_eq!(["", "sem_", "latch_"].map(oldest), [0, 0, 0]);
}

#[test]
fn a_ticket_counts_for_the_oldest_wait() {
    let server = TestServer::start();
    let mut conn = server.conn();
    let mut subscriber = server.conn();
    subscriber.line("SUBSCRIBE answers");
    conn.line("LOCK.ACQUIRE k alice");
    let queued = conn.line("LOCK.ACQUIRE k bob BLOCK 0 NOTIFY answers 1");
    assert_eq!(queued.text(), "QUEUED");
    wait_for("a wait of 20 ms", || server.stat("oldest_wait_ms") >= 20);
}

/// A candidate waits for as long as another leads: it counts in no alert of long waits.
#[test]
fn the_wait_of_a_candidate_is_told_apart() {
    let server = TestServer::start();
    let all = || server.stat("oldest_wait_ms");
    let unnoted = || server.stat("oldest_wait_without_note_ms");
    let mut leader = server.conn();
    let mut subscriber = server.conn();
    subscriber.line("SUBSCRIBE answers");
    leader.line("LOCK.ACQUIRE scheduler leader NOTE 10.0.0.7:8080 ONCE");
    let mut candidate = server.conn();
    candidate.send_line("LOCK.ACQUIRE scheduler candidate NOTE 10.0.0.8:8080 ONCE BLOCK 0");
    server.wait_for_waiters(1);
    // A text may be empty, and a candidate may wait with a ticket.
    let words = "LOCK.ACQUIRE scheduler other ONCE BLOCK 0 NOTIFY answers 1 NOTE";
    let queued = leader.run(words.split(' ').chain([""]));
    assert_eq!(queued.text(), "QUEUED");
    wait_for("a wait of 20 ms", || all() >= 20);
    assert_eq!(unnoted(), 0);

    let mut worker = server.conn();
    worker.send_line("LOCK.ACQUIRE scheduler worker BLOCK 0");
    server.wait_for_waiters(2);
    wait_for("a wait of 20 ms", || unnoted() >= 20);
    assert!(unnoted() < all());
    worker.close();
    server.wait_for_waiters(1);
    assert_eq!(unnoted(), 0);
    leader.line("LOCK.RELEASE scheduler leader");
    assert!(candidate.recv().int() > 0);
    candidate.line("LOCK.RELEASE scheduler candidate");
    wait_for("no wait", || all() == 0);
}

#[test]
fn the_limits_in_force_are_shown() {
    let server = TestServer::start();
    let mut conn = server.conn();
    let limits = || {
        [
            "max_waiters",
            "max_tickets",
            "max_wait_bytes",
            "max_tracked",
        ]
        .map(|name| server.stat(name))
    };
    assert_eq!(limits(), [10_000, 100_000, 64 << 20, 10_000]);
    for (name, value) in [
        ("max-waiters", "7"),
        ("max-tickets", "8"),
        ("max-wait-bytes", "2000000"),
        ("max-tracked", "9"),
    ] {
        conn.run(["CONFIG", "SET", &format!("lock.{name}"), value]);
    }
    assert_eq!(limits(), [7, 8, 2_000_000, 9]);
}

/// At the end of every test the harness compares each `count` with its counters.
#[test]
fn histograms_are_dictionaries_of_rising_buckets() {
    let server = TestServer::start();
    let mut alice = server.conn();
    let mut bob = server.conn();
    alice.line("LOCK.ACQUIRE k alice");
    bob.send_line("LOCK.ACQUIRE k bob BLOCK 0 SESSION");
    server.wait_for_waiters(1);
    wait_for("a wait of 20 ms", || server.stat("oldest_wait_ms") >= 20);
    alice.line("LOCK.RELEASE k alice");
    bob.recv();
    bob.close();
    wait_for("bob's release", || server.stat("grants_session_ended") == 1);
    let mut carol = server.conn();
    carol.line("SEM.ACQUIRE s carol LIMIT 1");
    carol.line("SEM.RELEASE s carol");
    let info = alice.line("INFO lock").text();
    let line = info.lines().find(|line| line.starts_with("lock_wait_ms:"));
    let line = line.expect("a histogram");
    // Not within 10 ms, but within an hour.
    assert!(
        line.starts_with("lock_wait_ms:le_1=0,le_2=0,le_5=0,le_10=0,"),
        "{line}"
    );
    assert!(line.ends_with(",le_3600000=1,le_inf=1,count=1"), "{line}");
    assert!(server.stat("wait_ms_sum") >= 20);
    let counted = |name: &str| *histogram_in(&info, name).unwrap().last().unwrap();
    let names = [
        "hold_ms",
        "session_hold_ms",
        "sem_hold_ms",
        "sem_wait_ms",
        "tickets_wait_ms",
    ];
    assert_eq!(names.map(counted), [2, 1, 1, 0, 0]);
    for name in names {
        server.stat(&format!("{name}_sum"));
    }
}
