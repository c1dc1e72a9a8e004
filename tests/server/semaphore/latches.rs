//! `LATCH.*` on real servers: each reply, and every event that opens a latch.

use crate::common::barrier::assert_stays_silent;
use crate::common::scene::only_reply;
use crate::common::{wait_for, Bystander, Conn, Events, TestServer};

const DOWN: &str = "\
    local left = redis.call('DECR', KEYS[1]) \
    if left <= 0 then redis.call('DEL', KEYS[1]) end \
    if left == 0 then redis.call('PUBLISH', KEYS[2], '0') end \
    return left";
const CHANNEL: &str = "redisson_countdownlatch__channel__{k}";

/// Waiters for a latch with a count of one.
fn waiting(server: &TestServer, count: usize) -> (Conn, Vec<Conn>) {
    let mut c = server.conn();
    c.line("LATCH.SET k 1");
    let mut waiters: Vec<Conn> = (0..count).map(|_| server.conn()).collect();
    for conn in &mut waiters {
        conn.send_line("LATCH.WAIT k BLOCK 0");
    }
    wait_for("waiters", || server.stat("latch_waiters") == count as u64);
    (c, waiters)
}

/// Runs the lines and asserts that all waiters are answered.
fn opens(lines: &[&str]) {
    let server = TestServer::start();
    let (mut c, mut waiters) = waiting(&server, 3);
    for line in lines {
        let reply = c.line(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    for conn in &mut waiters {
        assert_eq!(only_reply(conn).int(), 1, "{lines:?}");
    }
    assert_eq!(server.stat("latch_waits_opened"), 3);
    assert_eq!(server.stat("panics"), 0);
}

#[test]
fn set_and_down() {
    let server = TestServer::start();
    let mut c = server.conn();
    assert!(c.line("LATCH.SET k 3 XX").is_nil());
    assert_eq!(c.line("LATCH.WAIT k").int(), 1, "an absent latch is open");
    assert_eq!(c.line("LATCH.DOWN k").int(), 0);
    assert_eq!(c.line("LATCH.SET k 3 NX").int(), 3);
    assert!(c.line("LATCH.SET k 9 NX").is_nil());
    assert_eq!(c.line("GET k").text(), "3");
    assert_eq!(c.line("LATCH.WAIT k").int(), 0);
    assert_eq!(c.line("LATCH.DOWN k").int(), 2);
    assert_eq!(c.line("LATCH.SET k 5 XX").int(), 5);
    assert_eq!(c.line("LATCH.DOWN k 4").int(), 1);
    assert_eq!(c.line("LATCH.DOWN k 9223372036854775807").int(), 0);
    assert_eq!(c.line("EXISTS k").int(), 0);
    assert_eq!(c.line("LATCH.WAIT k BLOCK 0").int(), 1);
    assert_eq!(c.line("LATCH.SET k 7").int(), 7);
    assert_eq!(c.line("LATCH.SET k 0").int(), 0, "0 opens it");
    assert_eq!(c.line("EXISTS k").int(), 0);
    assert_eq!(server.stat("latch_open"), 2);
    assert_eq!(server.stat("latch_closed"), 1);
}

#[test]
fn counting_keeps_the_ttl() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LATCH.SET k 3");
    c.line("PEXPIRE k 600000");
    let end = c.line("PEXPIRETIME k").int();
    c.line("LATCH.DOWN k");
    assert_eq!(c.line("PEXPIRETIME k").int(), end);
}

#[test]
fn every_way_of_opening_answers_all_waiters() {
    opens(&["LATCH.DOWN k"]);
    opens(&["LATCH.SET k 2", "LATCH.DOWN k", "LATCH.DOWN k"]);
    opens(&["LATCH.SET k 0"]);
    opens(&["DEL k"]);
    opens(&["DECR k"]);
    opens(&["SET k 0"]);
    opens(&["PEXPIRE k 20"]);
    opens(&["FLUSHALL"]);
    opens(&["SWAPDB 0 1"]);
    opens(&["RENAME k elsewhere"]);
    opens(&["MULTI", "LATCH.DOWN k", "EXEC"]);
}

#[test]
fn a_later_deadline_is_waited_for() {
    let server = TestServer::start();
    let (mut c, mut waiters) = waiting(&server, 1);
    c.line("PEXPIRE k 2000");
    c.line("SET later 1 PX 2100");
    c.line("PEXPIRE k 600000");
    c.line("PERSIST k");
    wait_for("the first end", || c.line("EXISTS later").int() == 0);
    assert_stays_silent(&server, &mut waiters[0]);
    c.line("LATCH.DOWN k");
    assert_eq!(only_reply(&mut waiters[0]).int(), 1);
}

#[test]
fn the_end_without_active_expiry() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("DEBUG SET-ACTIVE-EXPIRE 0");
    c.line("LATCH.SET k 1");
    c.line("PEXPIRE k 60");
    let mut waiter = server.conn();
    assert_eq!(waiter.line("LATCH.WAIT k BLOCK 0").int(), 1);
}

#[test]
fn a_wait_that_times_out_says_that_the_latch_is_closed() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LATCH.SET k 1");
    assert_eq!(c.line("LATCH.WAIT k BLOCK 30").int(), 0);
    assert_eq!(server.stat("latch_waits_timed_out"), 1);
    let mut waiter = server.conn3();
    let id = waiter.id();
    waiter.send_line("LATCH.WAIT k BLOCK 0");
    wait_for("a waiter", || server.stat("latch_waiters") == 1);
    c.line(&format!("CLIENT UNBLOCK {id}"));
    assert_eq!(only_reply(&mut waiter).int(), 0);
    assert_eq!(server.stat("latch_waits_unblocked"), 1);
    waiter.send_line("LATCH.WAIT k BLOCK 0");
    wait_for("a waiter", || server.stat("latch_waiters") == 1);
    c.line(&format!("CLIENT UNBLOCK {id} ERROR"));
    assert!(only_reply(&mut waiter).error().starts_with("UNBLOCKED"));
    waiter.send_line("LATCH.WAIT k BLOCK 0");
    wait_for("a waiter", || server.stat("latch_waiters") == 1);
    waiter.close();
    wait_for("no waiter", || server.stat("latch_waiters") == 0);
    assert_eq!(server.stat("latch_waits_disconnected"), 2);
}

#[test]
fn another_type_sends_them_away() {
    for (make, code) in [("SET k hello", "LOCKTYPE"), ("HSET k f v", "WRONGTYPE")] {
        let server = TestServer::start();
        let (mut c, mut waiters) = waiting(&server, 1);
        c.line("MULTI");
        c.line("DEL k");
        c.line(make);
        c.line("EXEC");
        let error = only_reply(&mut waiters[0]).error();
        assert!(error.starts_with(code), "{error}");
        assert_eq!(server.stat("latch_waits_failed"), 1);
        let bystander = Bystander::of(&server, "k");
        for call in ["LATCH.SET k 1", "LATCH.DOWN k", "LATCH.WAIT k BLOCK 0"] {
            assert!(c.line(call).error().starts_with(code), "{call}");
        }
        bystander.saw_nothing("refused calls");
    }
}

#[test]
fn a_refusal_leaves_no_trace() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LATCH.SET k 2");
    let bystander = Bystander::of(&server, "k");
    for (call, error) in [
        (
            "LATCH.SET k -1",
            "ERR value is not an integer or out of range: count '-1'",
        ),
        (
            "LATCH.SET k 9223372036854775808",
            "ERR value is not an integer or out of range: count '9223372036854775808'",
        ),
        (
            "LATCH.SET k 1 XX XX",
            "ERR syntax error: more than one of NX, XX",
        ),
        (
            "LATCH.DOWN k 0",
            "ERR value is out of range, must be positive: n '0'",
        ),
        (
            "LATCH.DOWN k x",
            "ERR value is not an integer or out of range: n 'x'",
        ),
        (
            "LATCH.DOWN k 1 1",
            "ERR syntax error: unknown option '1', expected none",
        ),
        (
            "LATCH.WAIT k BLOCK",
            "ERR syntax error: a value is missing after BLOCK",
        ),
        (
            "LATCH.WAIT k BLOCK x",
            "ERR timeout is not an integer or out of range: BLOCK 'x'",
        ),
        (
            "LATCH.WAIT k NOW",
            "ERR syntax error: unknown option 'NOW', expected BLOCK, NOTIFY, QUEUE",
        ),
    ] {
        assert_eq!(c.line(call).error(), error, "{call}");
    }
    assert!(c.line("LATCH.SET k 1 NX").is_nil());
    assert_eq!(c.line("LATCH.WAIT k").int(), 0);
    assert_eq!(c.line("LATCH.WAIT k BLOCK 10").int(), 0);
    bystander.saw_nothing("refused calls");
}

#[test]
fn a_redisson_client_counts_down_and_the_modules_waiters_are_answered() {
    let server = TestServer::start();
    let (mut c, mut waiters) = waiting(&server, 2);
    assert_eq!(c.line("LATCH.SET k 2").int(), 2);
    assert_eq!(c.run(["EVAL", DOWN, "2", "k", CHANNEL]).int(), 1);
    assert!(waiters[0].is_silent());
    assert_eq!(c.run(["EVAL", DOWN, "2", "k", CHANNEL]).int(), 0);
    for conn in &mut waiters {
        assert_eq!(only_reply(conn).int(), 1);
    }
}

#[test]
fn redissons_waiters_get_the_message() {
    let server = TestServer::start();
    let (mut c, mut subscriber) = (server.conn(), server.conn());
    subscriber.run(["SUBSCRIBE", CHANNEL]);
    let mut received = || subscriber.recv().list()[2].text();
    c.line("LATCH.SET k 2");
    assert_eq!(received(), "1", "as after trySetCount");
    c.line("LATCH.SET k 3");
    c.line("LATCH.DOWN k");
    c.line("LATCH.DOWN k 2");
    assert_eq!(received(), "0");
    c.line("CONFIG SET lock.publish no");
    c.line("LATCH.SET k 1");
    c.line("LATCH.DOWN k");
    c.line(&format!("PUBLISH {CHANNEL} end"));
    assert_eq!(received(), "end");
}

#[test]
fn the_key_of_the_permits_is_neither_hit_nor_missed() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut events = Events::of(&server);
    c.line("CONFIG SET notify-keyspace-events EAm");
    let counts = || {
        let count = |name: &str| server.info_field("stats", name);
        (count("keyspace_hits"), count("keyspace_misses"))
    };
    for line in ["LATCH.SET k 3", "LATCH.SET k 2", "LATCH.DOWN k"] {
        assert!(c.line(line).int() > 0, "{line}");
    }
    // (On Redis 8.6 a change of a key counts as a hit, or as a miss.)
    c.line("CONFIG RESETSTAT");
    assert_eq!(c.line("LATCH.WAIT k").int(), 0);
    assert_eq!(counts(), ("1".into(), "0".into()));
    assert_eq!(c.line("LATCH.DOWN k").int(), 0);
    assert_eq!(c.line("LATCH.DOWN k").int(), 0);
    let mut missed = events.so_far();
    missed.retain(|event| event == "keymiss {k}:timeout");
    assert!(missed.is_empty());
    // If the key exists, it does not count as a hit either.
    c.line("SEM.SET k 1");
    c.line("SEM.ACQUIRE k a PX 60000").int();
    c.line("CONFIG RESETSTAT");
    assert!(c.line("LATCH.DOWN k").is_error());
    assert_eq!(counts(), ("0".into(), "0".into()));
}
