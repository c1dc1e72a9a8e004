//! `lock.string-holders yes`: a string with a TTL is a lock that another owner holds, as libraries write it that lock
//! with `SET key value NX PX lease`.

use crate::common::{Conn, TestServer};

/// The release of such libraries: the key is deleted if it has their value.
const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

fn server() -> TestServer {
    TestServer::with(&["--lock.string-holders", "yes"])
}

/// A client takes the lock for ten minutes.
fn take(c: &mut Conn) {
    assert_eq!(c.line("SET k secret NX PX 600000").text(), "OK");
}

#[test]
fn a_string_with_a_ttl_excludes_every_other_owner() {
    let server = server();
    let mut c = server.conn();
    take(&mut c);
    assert!(c.line("LOCK.ACQUIRE k o").is_nil());
    assert!(c.line("LOCK.ACQUIRE k o BLOCK 1").is_nil());
    assert!(c.line("LOCK.MACQUIRE 2 j k o").is_nil());
    let refused = c.line("LOCK.ACQUIRE k o WITHHOLDER").list();
    assert!(refused[0].is_nil() && refused[1].text().is_empty());
    assert!((1..=600_000).contains(&refused[3].int()));
    assert_eq!(c.line("LOCK.RENEW k o").int(), 0);
    assert!(c.line("LOCK.RELEASE k o ALL").is_nil());
    assert!(c.line("LOCK.IF k 1 SET d x").error().starts_with("FENCED"));
    for mode in ["READ", "WRITE"] {
        let refused = c.line(&format!("LOCK.ACQUIRE k o {mode}")).error();
        assert!(refused.starts_with("LOCKTYPE"), "{refused}");
    }
    let info = c.line("LOCK.INFO k");
    assert_eq!(info.field("mode").unwrap().text(), "string");
    let holder = &info.field("holders").unwrap().list()[0];
    assert_eq!(holder.field("owner").unwrap().text(), "");
    for unknown in ["token", "held-ms", "addr", "note"] {
        assert!(holder.field(unknown).unwrap().is_nil(), "{unknown}");
    }
    let scanned = c.line("LOCK.SCAN 0").list()[1].list().len();
    assert_eq!(scanned, 0, "other strings with a TTL would be listed too");
    assert_eq!(c.line("GET k").text(), "secret");
}

#[test]
fn a_string_without_a_ttl_and_the_setting_off_are_another_type() {
    let server = server();
    let mut c = server.conn();
    c.line("SET k x");
    let other = |reply: &str| reply.starts_with("WRONGTYPE");
    assert!(other(&c.line("LOCK.ACQUIRE k o").error()));
    c.line("PEXPIRE k 600000");
    assert!(c.line("LOCK.ACQUIRE k o").is_nil());
    c.line("CONFIG SET lock.string-holders no");
    assert!(other(&c.line("LOCK.ACQUIRE k o").error()));
    assert!(other(&c.line("LOCK.BREAK k").error()));
}

#[test]
fn a_hold_of_the_module_excludes_the_client() {
    let server = server();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 600000");
    assert!(c.line("SET k secret NX PX 600000").is_nil());
    assert_eq!(c.line("LOCK.RELEASE k o").int(), 1);
    take(&mut c);
}

#[test]
fn every_end_of_the_string_hands_the_lock_to_the_first_waiter() {
    let server = server();
    let mut c = server.conn();
    let script = ["EVAL", COMPARE_AND_DELETE, "1", "k", "secret"].map(str::to_string);
    let mut ends: Vec<Vec<String>> = vec![script.to_vec()];
    ends.extend(
        [
            "DEL k",
            "UNLINK k",
            "GETDEL k",
            "EXPIRE k 0",
            "PEXPIREAT k 1",
            "PEXPIRE k 1",
            "GETEX k PX 1",
            "SET k secret XX PX 1",
            "RENAME k other",
            "MOVE k 1",
            "FLUSHDB",
            "LOCK.BREAK k",
            "DELIFEQ k secret",
            "DELEX k IFEQ secret",
        ]
        .map(|line| line.split(' ').map(str::to_string).collect()),
    );
    for end in ends {
        c.line("FLUSHALL");
        take(&mut c);
        let mut waiter = server.conn();
        waiter.send_line("LOCK.ACQUIRE k o PX 600000 BLOCK 0");
        server.wait_for_waiters(1);
        // Its own connection: MOVE leaves that of some servers in the other database.
        let done = server.conn().run(&end);
        if done.is_error() && done.error().contains("unknown command") {
            continue;
        }
        assert!(!done.is_error(), "{end:?}: {done:?}");
        let granted = waiter.recv();
        assert!(!granted.is_nil(), "{end:?}");
        assert!(granted.int() > 0, "{end:?}");
        assert_eq!(c.line("LOCK.RELEASE k o").int(), 1, "{end:?}");
    }
    server.check_counters();
}

#[test]
fn a_renewal_of_the_string_moves_the_end_of_the_wait() {
    let server = server();
    let mut c = server.conn();
    c.line("SET k secret NX PX 60000");
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k o PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    // The clients' renewals: PEXPIRE, and SET with the same value.
    for renewal in ["PEXPIRE k 600000", "SET k secret XX PX 600000"] {
        c.line(renewal);
        let holder = c.line("LOCK.ACQUIRE k p WITHHOLDER").list();
        assert!(holder[3].int() > 500_000, "{renewal}");
        server.wait_for_waiters(1);
    }
    c.line("PEXPIRE k 1");
    assert!(waiter.recv().int() > 0);
}

#[test]
fn a_string_that_becomes_other_data_fails_the_waiters() {
    let server = server();
    let mut c = server.conn();
    for change in ["SET k x", "PERSIST k", "GETEX k PERSIST"] {
        c.line("DEL k");
        take(&mut c);
        let mut waiter = server.conn();
        waiter.send_line("LOCK.ACQUIRE k o BLOCK 0");
        server.wait_for_waiters(1);
        c.line(change);
        let failed = waiter.recv().error();
        assert!(failed.starts_with("WRONGTYPE"), "{change}: {failed}");
    }
}

/// A latch and two semaphores with a TTL: with the permits all free, and with one taken.
const COUNTS: [&[&str]; 3] = [
    &["LATCH.SET k 3"],
    &["SEM.SET k 3"],
    &["SEM.SET k 3", "SEM.ACQUIRE k id PX 600000"],
];

#[test]
fn a_number_with_a_ttl_excludes_others_but_is_not_broken() {
    let server = server();
    let mut c = server.conn();
    for count in COUNTS.into_iter().chain([&["SET k 1"][..]]) {
        c.line("FLUSHALL");
        for line in count {
            c.line(line);
        }
        c.line("PEXPIRE k 600000");
        let keys = |c: &mut Conn| {
            let permits = c.line("ZRANGE {k}:timeout 0 -1 WITHSCORES").list().len();
            (
                c.line("GET k").text(),
                c.line("PEXPIRETIME k").int(),
                permits,
            )
        };
        let before = keys(&mut c);
        assert!(c.line("LOCK.ACQUIRE k o").is_nil(), "{count:?}");
        for line in ["LOCK.BREAK k", "LOCK.BREAK k PURGE", "LOCK.BREAK k TO o"] {
            let refused = c.line(line).error();
            assert!(
                refused.starts_with("WRONGTYPE the key holds a number"),
                "{count:?}: {refused}"
            );
        }
        assert_eq!(c.line("LOCK.BREAK k TOKEN 1").int(), 0);
        assert_eq!(c.line("LOCK.BREAK k TOKEN 1 TO o").int(), 0);
        let mut waiter = server.conn();
        waiter.send_line("LOCK.ACQUIRE k o BLOCK 0");
        server.wait_for_waiters(1);
        assert!(c.line("LOCK.BREAK k").is_error());
        server.wait_for_waiters(1);
        assert_eq!(c.line("LOCK.BREAK k PURGE").int(), 0);
        assert!(waiter.recv().error().starts_with("LOCKBROKEN"));
        assert_eq!(keys(&mut c), before, "{count:?}");
        waiter.send_line("LOCK.ACQUIRE k o BLOCK 0");
        server.wait_for_waiters(1);
        c.line("DEL k");
        assert!(waiter.recv().int() > 0);
    }
    server.check_counters();
}

#[test]
fn a_latch_that_opens_wakes_those_that_waited_behind_it() {
    let server = server();
    let mut c = server.conn();
    c.line("LATCH.SET k 1");
    c.line("PEXPIRE k 600000");
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k o BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(c.line("LATCH.DOWN k").int(), 0);
    assert!(waiter.recv().int() > 0);
}

#[test]
fn a_string_has_no_owner_that_can_be_named() {
    let server = server();
    let mut c = server.conn();
    take(&mut c);
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k o BLOCK 0");
    server.wait_for_waiters(1);
    let waited = |c: &mut Conn, words: &[&str]| {
        let words = [&["LOCK.SCAN", "0", "COUNT", "100", "WAITED"], words].concat();
        c.run(words).list()[1].list().len()
    };
    assert_eq!(waited(&mut c, &[]), 1);
    assert_eq!(waited(&mut c, &["OWNER", ""]), 0);
}

#[test]
fn the_setting_turned_off_fails_those_that_wait_behind_a_string() {
    let server = server();
    let mut c = server.conn();
    take(&mut c);
    c.line("LOCK.ACQUIRE held h PX 600000");
    let mut behind_a_lock = server.conn();
    behind_a_lock.send_line("LOCK.ACQUIRE held o BLOCK 0");
    server.wait_for_waiters(1);
    let mut one = server.conn();
    one.send_line("LOCK.ACQUIRE k o BLOCK 0");
    server.wait_for_waiters(2);
    let mut several = server.conn();
    several.send_line("LOCK.MACQUIRE 2 j k p BLOCK 0");
    server.wait_for_waits(3);
    let mut subscriber = server.conn();
    subscriber.line("SUBSCRIBE ch");
    let queued = c.line("LOCK.ACQUIRE k q BLOCK 0 NOTIFY ch t");
    assert_eq!(queued.text(), "QUEUED");
    c.line("CONFIG SET lock.string-holders no");
    for failed in [one.recv(), several.recv()] {
        assert!(failed.error().starts_with("WRONGTYPE"), "{failed:?}");
    }
    let told = subscriber.recv().list()[2].text();
    assert!(told.contains("WRONGTYPE"), "{told}");
    c.line("LOCK.RELEASE held h");
    assert!(behind_a_lock.recv().int() > 0);
    assert_eq!(c.line("GET k").text(), "secret");
    server.check_counters();
}

#[test]
fn several_keys_are_granted_when_the_string_has_ended() {
    let server = server();
    let mut c = server.conn();
    take(&mut c);
    let mut waiter = server.conn();
    waiter.send_line("LOCK.MACQUIRE 2 j k o PX 600000 BLOCK 0");
    server.wait_for_waits(1);
    c.line("DEL k");
    assert_eq!(waiter.recv().list().len(), 2);
}

/// A lock with a waiter, after one hand-off; the present holder releases it. Returns the waiter.
fn hand_off_and_release(server: &TestServer, c: &mut Conn) -> Conn {
    c.line("LOCK.ACQUIRE k first");
    let [mut second, mut third] = [server.conn(), server.conn()];
    second.send_line("LOCK.ACQUIRE k second BLOCK 0");
    server.wait_for_waiters(1);
    third.send_line("LOCK.ACQUIRE k third BLOCK 0");
    server.wait_for_waiters(2);
    c.line("LOCK.RELEASE k first");
    assert!(second.recv().int() > 0);
    c.line("LOCK.RELEASE k second");
    third
}

#[test]
fn the_lock_is_left_free_for_clients_that_poll() {
    // Longer than the test.
    let options = [
        "--lock.string-holders",
        "yes",
        "--lock.free-window",
        "60000",
    ];
    // Redisson's waiters need messages, these clients do not.
    for publish in ["yes", "no"] {
        let server = TestServer::with(&[&options[..], &["--lock.publish", publish]].concat());
        let mut c = server.conn();
        let mut waiter = hand_off_and_release(&server, &mut c);
        take(&mut c);
        c.line("DEL k");
        assert!(waiter.recv().int() > 0);
    }
}

#[test]
fn the_setting_ends_a_lock_being_left_free() {
    let server = TestServer::with(&[
        "--lock.string-holders",
        "yes",
        "--lock.free-window",
        "60000",
    ]);
    let mut c = server.conn();
    let mut waiter = hand_off_and_release(&server, &mut c);
    assert_eq!(c.line("EXISTS k").int(), 0);
    c.line("CONFIG SET lock.string-holders no");
    assert!(waiter.recv().int() > 0);
    c.line("LOCK.RELEASE k third");
    assert!(hand_off_and_release(&server, &mut c).recv().int() > 0);
}
