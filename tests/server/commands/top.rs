//! LOCK.TOP: which names it lists, in which order, for which users, and that its memory is bounded.

use crate::common::{wait_for, Conn, Reply, TestServer};

const OFF: &str = "ERR LOCK.TOP is turned off, CONFIG SET lock.top-names 1000 turns it on";

fn counting(names: &str) -> TestServer {
    TestServer::with(&["--lock.top-names", names])
}

/// The names of a list, with their sums and errors.
fn listed(reply: &Reply, sum: &str) -> Vec<(String, i64, i64)> {
    let names = reply.field("names").unwrap().list();
    let one = |name: &Reply| {
        let number = |field: &str| name.field(field).unwrap().int();
        (
            name.field("key").unwrap().text(),
            number(sum),
            number("error"),
        )
    };
    names.iter().map(one).collect()
}

fn hand_offs(conn: &mut Conn, options: &str) -> Vec<(String, i64, i64)> {
    let reply = conn.line(&format!("LOCK.TOP HANDOFFS {options}"));
    listed(&reply, "hand-offs")
}

/// A connection whose channel `ch` has a subscriber.
fn with_subscriber(server: &TestServer) -> (Conn, Conn) {
    let mut subscriber = server.conn();
    subscriber.line("SUBSCRIBE ch");
    (server.conn(), subscriber)
}

/// Hands a lock off, to a ticket.
fn hand_off(conn: &mut Conn, key: &[u8]) {
    conn.run([b"LOCK.ACQUIRE", key, b"a"]);
    let words: [&[u8]; 8] = [
        b"LOCK.ACQUIRE",
        key,
        b"b",
        b"BLOCK",
        b"0",
        b"NOTIFY",
        b"ch",
        b"1",
    ];
    assert_eq!(conn.run(words).text(), "QUEUED");
    assert_eq!(conn.run([b"LOCK.RELEASE", key, b"a"]).int(), 1);
    assert_eq!(conn.run([b"LOCK.RELEASE", key, b"b"]).int(), 1);
}

#[test]
fn names_are_listed_by_hand_offs_and_by_waits() {
    let server = counting("100");
    let (mut conn, _subscriber) = with_subscriber(&server);
    for (name, times) in [("one", 1), ("three", 3), ("two", 2)] {
        (0..times).for_each(|_| hand_off(&mut conn, name.as_bytes()));
    }
    let expected = |name: &str, sum| (name.to_string(), sum, 0);
    let all = [expected("three", 3), expected("two", 2), expected("one", 1)];
    assert_eq!(hand_offs(&mut conn, ""), all);
    assert_eq!(hand_offs(&mut conn, "COUNT 2"), all[..2]);
    let reply = conn.line("LOCK.TOP HANDOFFS COUNT 1");
    assert_eq!(reply.field("total").unwrap().int(), 6);
    wait_for("some time", || {
        conn.line("LOCK.TOP").field("counted-ms").unwrap().int() >= 20
    });

    // The wait for `long` has lasted 50 ms before the other one begins, and ends after it.
    conn.line("LOCK.ACQUIRE long a");
    conn.line("LATCH.SET short 1");
    let (mut first, mut second) = (server.conn(), server.conn());
    first.send_line("LOCK.ACQUIRE long b BLOCK 0");
    server.wait_for_waiters(1);
    wait_for("a wait of 50 ms", || server.stat("oldest_wait_ms") >= 50);
    second.send_line("LATCH.WAIT short BLOCK 0");
    wait_for("a wait of 1 ms", || {
        server.stat("latch_oldest_wait_ms") >= 1
    });
    conn.line("LATCH.DOWN short");
    second.recv();
    conn.line("LOCK.RELEASE long a");
    first.recv();
    let reply = conn.line("LOCK.TOP COUNT 1000");
    let waits = listed(&reply, "wait-ms");
    let at = |name: &str| waits.iter().position(|listed| listed.0 == name).unwrap();
    assert!(waits.is_sorted_by(|a, b| a.1 >= b.1), "{waits:?}");
    assert!(
        at("long") < at("short") && waits[at("long")].1 >= 51,
        "{waits:?}"
    );
    let kind = |at: usize| {
        reply.field("names").unwrap().list()[at]
            .field("kind")
            .unwrap()
            .text()
    };
    assert_eq!([kind(at("long")), kind(at("short"))], ["lock", "latch"]);
}

#[test]
fn it_is_off_by_default_and_the_setting_changes_it_at_run_time() {
    let server = TestServer::start();
    let (mut conn, _subscriber) = with_subscriber(&server);
    hand_off(&mut conn, b"before");
    for line in ["LOCK.TOP", "LOCK.TOP HANDOFFS COUNT 3"] {
        assert_eq!(conn.line(line).error(), OFF);
    }
    conn.line("CONFIG SET lock.top-names 3");
    assert_eq!(hand_offs(&mut conn, ""), []);
    for (name, times) in [("a", 9), ("b", 6), ("c", 3), ("d", 1)] {
        (0..times).for_each(|_| hand_off(&mut conn, name.as_bytes()));
    }
    let of = |name: &str, sum, error| (name.to_string(), sum, error);
    let three = [of("a", 9, 0), of("b", 6, 0), of("d", 4, 3)];
    assert_eq!(hand_offs(&mut conn, ""), three);
    // Any setting may be set meanwhile.
    conn.line("CONFIG SET lock.max-waiters 77");
    assert_eq!(hand_offs(&mut conn, ""), three);
    conn.line("CONFIG SET lock.top-names 1");
    assert_eq!(hand_offs(&mut conn, ""), three[..1]);
    conn.line("CONFIG SET lock.top-names 2");
    hand_off(&mut conn, b"e");
    assert_eq!(hand_offs(&mut conn, ""), [of("a", 9, 0), of("e", 7, 6)]);
    conn.line("CONFIG SET lock.top-names 0");
    assert_eq!(conn.line("LOCK.TOP").error(), OFF);
    conn.line("CONFIG SET lock.top-names 2");
    let reply = conn.line("LOCK.TOP HANDOFFS");
    assert_eq!(listed(&reply, "hand-offs"), []);
    assert_eq!(reply.field("total").unwrap().int(), 0);
}

#[test]
fn a_name_may_have_any_bytes_and_belongs_to_its_database() {
    let server = counting("10");
    let (mut conn, _subscriber) = with_subscriber(&server);
    let name: Vec<u8> = (0..=255).chain(*b"\r\n+OK\r\n").collect();
    hand_off(&mut conn, &name);
    hand_off(&mut conn, b"");
    conn.line("SELECT 3");
    hand_off(&mut conn, b"there");
    assert_eq!(hand_offs(&mut conn, ""), [("there".to_string(), 1, 0)]);
    conn.line("SELECT 0");
    let names = conn
        .line("LOCK.TOP HANDOFFS")
        .field("names")
        .unwrap()
        .list();
    let mut names: Vec<_> = names
        .iter()
        .map(|top| top.field("key").unwrap().bytes())
        .collect();
    names.sort();
    assert_eq!(names, [b"".to_vec(), name]);
}

#[test]
fn the_reply_is_a_map_in_resp3_and_a_flat_array_in_resp2() {
    let server = counting("10");
    let (mut conn, _subscriber) = with_subscriber(&server);
    hand_off(&mut conn, b"k");
    conn.send_line("LOCK.TOP HANDOFFS");
    assert_eq!(conn.raw_line(), "*6");
    let mut conn = server.conn3();
    assert_eq!(hand_offs(&mut conn, ""), [("k".to_string(), 1, 0)]);
    conn.send_line("LOCK.TOP HANDOFFS");
    assert_eq!(conn.raw_line(), "%3");
}

#[test]
fn many_names_take_bounded_memory() {
    const NAMES: usize = 30_000;
    let server = counting("50");
    let (mut conn, mut subscriber) = with_subscriber(&server);
    let mut hand_off_all = |from: usize, to: usize| {
        let lines: Vec<String> = (from..to)
            .flat_map(|number| {
                let key = format!("a-name-of-some-length-for-a-lock:{number:08}");
                [
                    format!("LOCK.ACQUIRE {key} a"),
                    format!("LOCK.ACQUIRE {key} b BLOCK 0 NOTIFY ch 1"),
                    format!("LOCK.RELEASE {key} a"),
                    format!("LOCK.RELEASE {key} b"),
                ]
            })
            .collect();
        for chunk in lines.chunks(4_000) {
            conn.send_lines(&chunk.iter().map(String::as_str).collect::<Vec<_>>());
            chunk.iter().for_each(|_| assert!(!conn.recv().is_error()));
            chunk.chunks(4).for_each(|_| drop(subscriber.recv()));
        }
    };
    hand_off_all(0, 5_000);
    let used = || -> i64 { server.info_field("memory", "used_memory").parse().unwrap() };
    let before = used();
    hand_off_all(5_000, NAMES);
    let grown = used() - before;
    let mut conn = server.conn();
    let listed = hand_offs(&mut conn, "COUNT 100000");
    assert_eq!(listed.len(), 50);
    let bound = (NAMES / 50) as i64;
    assert!(listed
        .iter()
        .all(|(_, sum, error)| sum - error <= 1 && *error <= bound));
    let total = conn.line("LOCK.TOP HANDOFFS").field("total").unwrap();
    assert_eq!(total.int(), NAMES as i64);
    // 25,000 names of 41 bytes would be 1 MB.
    assert!(grown < 500_000, "used_memory has grown by {grown} bytes");
}

#[test]
fn a_user_without_the_right_to_scan_gets_no_names() {
    let server = counting("10");
    let mut admin = server.conn();
    for (rules, may) in [
        ("+lock.top", false),
        ("+lock.top +scan", true),
        ("+@all -lock.top", false),
        ("+@all ~mine:*", true),
    ] {
        admin.line(&format!("ACL SETUSER u reset on nopass {rules}"));
        let mut conn = server.conn();
        conn.line("AUTH u any");
        let reply = conn.line("LOCK.TOP");
        assert_eq!(!reply.is_error(), may, "{rules}: {reply:?}");
        if !may {
            assert!(reply.error().starts_with("NOPERM "), "{reply:?}");
        }
    }
}
