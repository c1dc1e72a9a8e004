//! LOCK.SCAN: which keys it lists, which guarantees it gives, and where it may be called.

use std::collections::BTreeSet;

use crate::common::cluster::{lock_scenes, one_node};
use crate::common::replica::{follow, wait_until_in_sync};
use crate::common::{wait_for, Bystander, Conn, Reply, TestServer};

type Names = BTreeSet<String>;

/// A whole scan with these options, step by step to its end.
fn scan(c: &mut Conn, options: &str) -> Names {
    let mut found = Names::new();
    let mut cursor = "0".to_string();
    for _ in 0..200_000 {
        let step = c.line(&format!("LOCK.SCAN {cursor} {options}"));
        cursor = add(&step, &mut found);
        if cursor == "0" {
            return found;
        }
    }
    panic!("no end of a scan");
}

/// Adds the keys of a step; returns its cursor.
fn add(step: &Reply, found: &mut Names) -> String {
    let parts = step.list();
    assert_eq!(parts.len(), 2, "{step:?}");
    found.extend(parts[1].list().iter().map(Reply::text));
    parts[0].text()
}

fn names(text: &str) -> Names {
    text.split_whitespace().map(String::from).collect()
}

/// Creates a key of each kind; returns those that are held locks.
fn fill(c: &mut Conn) {
    for line in [
        "LOCK.ACQUIRE ours alice PX 600000",
        "LOCK.ACQUIRE ours:2 alice PX 600000",
        "LOCK.ACQUIRE bobs bob PX 600000",
        // As Redisson takes it.
        "HSET redissons u:1 2",
        "PEXPIRE redissons 600000",
        "HSET no-ttl u:2 1",
        // None of these is held.
        "HSET bare #token t7",
        "HSET profile name Ada",
        "HSET two u:1 1 u:2 1",
        "SET string 1",
        "RPUSH list 1",
        "SADD set 1",
        "ZADD zset 1 1",
        "XADD stream * a 1",
    ] {
        assert!(!c.line(line).is_error(), "{line}");
    }
}

#[test]
fn locks_that_are_held_are_listed_and_nothing_else() {
    let server = TestServer::start();
    for mut c in [server.conn(), server.conn3()] {
        fill(&mut c);
        let all = names("ours ours:2 bobs redissons no-ttl");
        assert_eq!(scan(&mut c, ""), all);
        assert_eq!(scan(&mut c, "COUNT 1"), all);
        assert_eq!(scan(&mut c, "count 1000"), all);
        assert_eq!(scan(&mut c, "MATCH *"), all);
        assert_eq!(scan(&mut c, "MATCH ours*"), names("ours ours:2"));
        assert_eq!(scan(&mut c, "Match no[-]ttl Count 3"), names("no-ttl"));
        assert_eq!(scan(&mut c, "MATCH ba*"), names(""));
        assert_eq!(scan(&mut c, "OWNER alice"), names("ours ours:2"));
        assert_eq!(scan(&mut c, "OWNER alice MATCH *2"), names("ours:2"));
        assert_eq!(scan(&mut c, "OWNER u:1"), names("redissons"));
        for stranger in ["ALICE", "alic", "alice2", "#token", "t7", "name"] {
            assert_eq!(scan(&mut c, &format!("OWNER {stranger}")), names(""));
        }
        assert_eq!(scan(&mut c, "WAITED"), names(""));
        c.line("SELECT 1");
        assert_eq!(scan(&mut c, ""), names(""));
        c.line("SELECT 0");
        c.line("FLUSHALL");
    }
}

#[test]
fn a_lock_is_listed_until_its_last_hold_ends() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o");
    c.line("LOCK.ACQUIRE k o");
    c.line("LOCK.RELEASE k o");
    assert_eq!(scan(&mut c, ""), names("k"));
    c.line("LOCK.RELEASE k o");
    assert_eq!(scan(&mut c, ""), names(""));
    c.line("DEBUG SET-ACTIVE-EXPIRE 0");
    c.line("LOCK.ACQUIRE k o PX 1");
    // The key may still exist; the lease is over by the clock.
    wait_for("the end of a lease", || scan(&mut c, "").is_empty());
    assert_eq!(scan(&mut c, "OWNER o"), names(""));
}

#[test]
fn read_write_locks_are_listed_while_they_are_held() {
    let server = TestServer::start();
    let mut c = server.conn();
    for line in [
        "LOCK.ACQUIRE shared alice READ PX 600000",
        "LOCK.ACQUIRE shared bob READ PX 600000",
        "LOCK.ACQUIRE shared carol READ PX 600000",
        "LOCK.ACQUIRE written alice WRITE PX 600000",
        "LOCK.ACQUIRE both bob WRITE PX 600000",
        "LOCK.ACQUIRE both bob READ PX 600000",
        // None of these is a live hold: a mode alone, a reader without its timeout, and such a reader in a hash with a
        // TTL.
        "HSET mode-only mode read",
        "HSET dead mode read zombie 1",
        "HSET dying mode read zombie 1",
        "PEXPIRE dying 600000",
    ] {
        assert!(!c.line(line).is_error(), "{line}");
    }
    assert_eq!(scan(&mut c, ""), names("shared written both"));
    assert_eq!(scan(&mut c, "OWNER alice"), names("shared written"));
    assert_eq!(scan(&mut c, "OWNER bob"), names("shared both"));
    assert_eq!(scan(&mut c, "OWNER carol"), names("shared"));
    for stranger in ["mode", "read", "alice:write", "zombie", "#token"] {
        assert_eq!(scan(&mut c, &format!("OWNER {stranger}")), names(""));
    }
    c.line("LOCK.RELEASE shared alice");
    c.line("LOCK.RELEASE both bob WRITE");
    assert_eq!(scan(&mut c, "OWNER alice"), names("written"));
    assert_eq!(scan(&mut c, "OWNER bob"), names("shared both"));
    // A reader whose lease is over holds nothing, although its field may still exist.
    assert_eq!(c.line("LOCK.RENEW shared bob READ PX 1").int(), 1);
    wait_for("the end of a reader's lease", || {
        scan(&mut c, "OWNER bob") == names("both")
    });
    assert_eq!(scan(&mut c, ""), names("shared written both"));
}

#[test]
fn waited_lists_the_keys_with_waiters_held_or_free() {
    let server = TestServer::start();
    let mut c = server.conn();
    fill(&mut c);
    let mut waiters = Vec::new();
    for line in [
        "LOCK.ACQUIRE ours zoe BLOCK 0",
        "LOCK.ACQUIRE ours zack BLOCK 0",
        "LOCK.ACQUIRE bobs zoe BLOCK 0",
    ] {
        let mut waiter = server.conn();
        waiter.send_line(line);
        waiters.push(waiter);
        // With I/O threads the next connection's request may be read first.
        server.wait_for_waiters(waiters.len() as u64);
    }
    assert_eq!(scan(&mut c, "WAITED"), names("ours bobs"));
    assert_eq!(scan(&mut c, "WAITED COUNT 1"), names("ours bobs"));
    assert_eq!(scan(&mut c, "WAITED MATCH o*"), names("ours"));
    assert_eq!(scan(&mut c, "OWNER bob WAITED"), names("bobs"));
    assert_eq!(scan(&mut c, "WAITED OWNER zoe"), names(""));
    c.line("SELECT 1");
    assert_eq!(scan(&mut c, "WAITED"), names(""));
    c.line("SELECT 0");
    // Free, and not granted while writes are paused: no key, but there is a waiter.
    c.line("MULTI");
    c.line("DEL ours");
    c.line("CLIENT PAUSE 100000 WRITE");
    c.line("EXEC");
    assert_eq!(scan(&mut c, "WAITED"), names("ours bobs"));
    assert_eq!(scan(&mut c, ""), names("ours:2 bobs redissons no-ttl"));
    c.line("CLIENT UNPAUSE");
    assert!(waiters[0].recv().int() > 0);
    waiters[1].send_line("PING");
    c.line("LOCK.RELEASE ours zack");
    assert!(waiters[1].recv().is_nil(), "withdrawn");
    assert_eq!(scan(&mut c, "WAITED"), names("bobs"));
    // A place that is kept for a disconnected owner is no waiter.
    drop(waiters.pop());
    server.wait_for_waiters(0);
    assert_eq!(scan(&mut c, "WAITED"), names(""));
}

#[test]
fn a_lock_held_all_the_time_is_listed_while_other_keys_change() {
    let server = TestServer::start();
    let (mut c, mut other) = (server.conn(), server.conn());
    let mut kept = Names::new();
    for i in 0..2_000 {
        c.send_line(&format!("LOCK.ACQUIRE kept:{i} o PX 6000000"));
        kept.insert(format!("kept:{i}"));
    }
    for _ in 0..2_000 {
        assert!(c.recv().int() > 0);
    }
    // The table of keys grows and shrinks during the scan, and so does the set of locks.
    let mut found = Names::new();
    let mut cursor = "0".to_string();
    for step in 0..100_000 {
        cursor = add(&c.line(&format!("LOCK.SCAN {cursor} COUNT 7")), &mut found);
        if cursor == "0" {
            break;
        }
        let (shift, verb) = (step / 100 % 2, ["ACQUIRE", "RELEASE"]);
        let lines: Vec<String> = (0..40)
            .map(|i| format!("LOCK.{} moving:{} o", verb[shift], step % 100 * 40 + i))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        other.send_lines(&lines);
        for _ in lines {
            other.recv();
        }
    }
    assert_eq!(cursor, "0", "the scan ends");
    let missed: Vec<_> = kept.difference(&found).collect();
    assert!(missed.is_empty(), "{missed:?}");
    assert!(found
        .iter()
        .all(|key| kept.contains(key) || key.starts_with("moving:")));
}

#[test]
fn a_key_waited_for_all_the_time_is_listed_while_other_queues_come_and_go() {
    const KEPT: usize = 60;
    let server = TestServer::start();
    let mut c = server.conn();
    let mut kept = Names::new();
    let mut waiters = Vec::new();
    let wait = |c: &mut Conn, key: &str| {
        c.line(&format!("LOCK.ACQUIRE {key} o PX 6000000"));
        let mut waiter = server.conn();
        waiter.send_line(&format!("LOCK.ACQUIRE {key} p PX 6000000 BLOCK 0"));
        waiter
    };
    let mut passing = Vec::new();
    for i in 0..KEPT {
        passing.push((
            format!("passing:{i}"),
            wait(&mut c, &format!("passing:{i}")),
        ));
        waiters.push(wait(&mut c, &format!("kept:{i}")));
        kept.insert(format!("kept:{i}"));
    }
    server.wait_for_waiters(2 * KEPT as u64);
    let mut found = Names::new();
    let mut cursor = "0".to_string();
    for step in 0..1_000 {
        cursor = add(
            &c.line(&format!("LOCK.SCAN {cursor} WAITED COUNT 3")),
            &mut found,
        );
        if cursor == "0" {
            break;
        }
        // Removed from the front of the table, or from its end.
        let gone = if step % 2 == 0 { 0 } else { passing.len() - 1 };
        let (key, _waiter) = passing.remove(gone);
        c.line(&format!("LOCK.RELEASE {key} o"));
        if step % 3 == 0 {
            let key = format!("late:{step}");
            let waiter = wait(&mut c, &key);
            c.wait_for_waiters_on(&key, 1);
            passing.push((key, waiter));
        }
    }
    assert_eq!(cursor, "0", "the scan ends");
    let missed: Vec<_> = kept.difference(&found).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn patterns_match_alike_in_the_server_and_the_module() {
    let server = TestServer::start();
    let mut c = server.conn();
    let all = [
        "a", "b", "ab", "abc", "a*", "a\\", "[a]", "^a", "a-c", "\u{e9}", "aab", "]", "-",
    ];
    let mut waiters = Vec::new();
    for key in all {
        c.run(["LOCK.ACQUIRE", key, "o", "PX", "6000000"]);
        let mut waiter = server.conn();
        waiter.send(["LOCK.ACQUIRE", key, "p", "BLOCK", "0"]);
        waiters.push(waiter);
    }
    server.wait_for_waiters(all.len() as u64);
    let parts = [
        "a", "b", "*", "?", "[", "]", "^", "-", "\\", "c", "[a-c]", "[^a]", "\u{e9}",
    ];
    let matching = |c: &mut Conn, pattern: &str, waited: &[&str]| {
        let mut found = Names::new();
        let mut call = vec!["LOCK.SCAN", "0", "COUNT", "1000", "MATCH", pattern];
        call.extend(waited);
        assert_eq!(add(&c.run(call), &mut found), "0");
        found
    };
    for (i, first) in parts.iter().enumerate() {
        for second in parts {
            for third in ["", parts[(i * 7 + 3) % parts.len()]] {
                let pattern = format!("{first}{second}{third}");
                assert_eq!(
                    matching(&mut c, &pattern, &["WAITED"]),
                    matching(&mut c, &pattern, &[]),
                    "{pattern}"
                );
            }
        }
    }
}

#[test]
fn names_and_owners_are_any_bytes() {
    let server = TestServer::start();
    let mut c = server.conn();
    let odd: Vec<u8> = (0..=255).collect();
    c.run([b"LOCK.ACQUIRE", &odd[..], &odd, b"PX", b"600000"]);
    c.line("LOCK.ACQUIRE plain o PX 600000");
    let mut waiter = server.conn();
    waiter.send([b"LOCK.ACQUIRE", &odd[..], b"p", b"BLOCK", b"0"]);
    server.wait_for_waiters(1);
    for waited in [false, true] {
        let mut call = vec![b"LOCK.SCAN".as_slice(), b"0", b"OWNER", &odd];
        call.extend(waited.then_some(b"WAITED".as_slice()));
        let step = c.run(call).list();
        assert_eq!(step[0].text(), "0");
        let keys: Vec<Vec<u8>> = step[1].list().iter().map(Reply::bytes).collect();
        assert_eq!(keys, std::slice::from_ref(&odd));
        let mut call = vec![b"LOCK.SCAN".as_slice(), b"0", b"MATCH", b"\0\x01*\xff"];
        call.extend(waited.then_some(b"WAITED".as_slice()));
        assert_eq!(c.run(call).list()[1].list().len(), 1);
    }
    let none = c.run([b"LOCK.SCAN".as_slice(), b"0", b"OWNER", b""]).list();
    assert!(none[1].list().is_empty(), "an absent user has no name");
}

#[test]
fn wrong_calls_are_refused_with_the_texts_of_the_server() {
    let server = TestServer::start();
    let mut c = server.conn();
    for cursor in ["x", "-1", "1.5", "+1", "18446744073709551616", "0x1", "1 "] {
        let reply = c.run(["LOCK.SCAN", cursor]);
        let error = format!("ERR invalid cursor: cursor '{cursor}'");
        assert_eq!(reply.error(), error, "{cursor:?}");
    }
    let error = c.run(["LOCK.SCAN", ""]).error();
    assert_eq!(error, "ERR invalid cursor: cursor ''");
    for (options, error) in [
        ("MATCH", "syntax error: a value is missing after MATCH"),
        ("COUNT", "syntax error: a value is missing after COUNT"),
        ("OWNER", "syntax error: a value is missing after OWNER"),
        (
            "TYPE hash",
            "syntax error: unknown option 'TYPE', expected MATCH, COUNT, OWNER, WAITED, USER",
        ),
        ("WAITED WAITED", "syntax error: more than one WAITED"),
        ("MATCH a MATCH b", "syntax error: more than one MATCH"),
        ("COUNT 1 COUNT 1", "syntax error: more than one COUNT"),
        ("OWNER a OWNER a", "syntax error: more than one OWNER"),
        (
            "COUNT x",
            "value is not an integer or out of range: COUNT 'x'",
        ),
        (
            "COUNT 0",
            "value is out of range, must be positive: COUNT '0'",
        ),
        (
            "COUNT -1",
            "value is out of range, must be positive: COUNT '-1'",
        ),
    ] {
        let reply = c.line(&format!("LOCK.SCAN 0 {options}"));
        assert_eq!(reply.error(), format!("ERR {error}"), "{options}");
    }
    assert!(c.line("LOCK.SCAN").error().contains("wrong number of"));
    for cursor in ["18446744073709551615", "00", "4294967296"] {
        for waited in ["", "WAITED"] {
            let step = c.line(&format!("LOCK.SCAN {cursor} {waited}"));
            assert_eq!(step.list()[0].text(), "0", "{cursor} of an empty database");
        }
    }
}

#[test]
fn a_scan_changes_nothing() {
    let server = TestServer::start();
    let mut c = server.conn();
    fill(&mut c);
    c.line("CONFIG RESETSTAT");
    let bystander = Bystander::of(&server, "ours");
    for options in ["", "OWNER alice", "WAITED", "WAITED OWNER bob", "MATCH no*"] {
        scan(&mut c, options);
    }
    bystander.saw_nothing("a scan");
    assert_eq!(server.info_field("stats", "keyspace_misses"), "0");
}

#[test]
fn it_runs_in_transactions_and_scripts() {
    let server = TestServer::start();
    for mut c in [server.conn(), server.conn3()] {
        c.line("LOCK.ACQUIRE k o ONCE");
        c.line("MULTI");
        c.line("LOCK.SCAN 0 COUNT 1000");
        c.line("LOCK.SCAN 0 WAITED");
        let replies = c.line("EXEC").list();
        let mut found = Names::new();
        assert_eq!(add(&replies[0], &mut found), "0");
        assert_eq!(add(&replies[1], &mut found), "0");
        assert_eq!(found, names("k"));
        for protocol in ["2", "3"] {
            let script = format!(
                "redis.setresp({protocol}) \
                 local step = redis.call('LOCK.SCAN', '0', 'COUNT', '1000', 'OWNER', 'o') \
                 return {{step[1], step[2]}}"
            );
            let mut found = Names::new();
            let step = c.run(["EVAL", &script, "0"]);
            assert_eq!(add(&step, &mut found), "0");
            assert_eq!(found, names("k"));
        }
        let script = "return redis.call('LOCK.SCAN', '0')";
        assert!(!c.run(["EVAL_RO", script, "0"]).is_error());
    }
}

#[test]
fn a_replica_lists_its_locks() {
    let (master, replica) = (TestServer::start(), TestServer::start());
    follow(&replica, &master);
    let (mut m, mut r) = (master.conn(), replica.conn());
    fill(&mut m);
    let mut waiter = master.conn();
    waiter.send_line("LOCK.ACQUIRE ours bob BLOCK 0");
    master.wait_for_waiters(1);
    wait_until_in_sync(&replica, &master);
    assert_eq!(scan(&mut r, ""), names("ours ours:2 bobs redissons no-ttl"));
    assert_eq!(scan(&mut r, "OWNER alice"), names("ours ours:2"));
    assert_eq!(
        scan(&mut r, "WAITED"),
        names(""),
        "the waiter is parked at the master"
    );
    // The lease ends by the replica's own clock; the key exists until the master deletes it.
    m.line("DEBUG SET-ACTIVE-EXPIRE 0");
    m.line("PEXPIRE bobs 1");
    wait_for("the end of a lease", || {
        scan(&mut r, "OWNER bob").is_empty()
    });
}

#[test]
fn a_cluster_node_lists_its_own() {
    let _scene = lock_scenes();
    let node = one_node(&[]);
    let mut c = node.conn();
    let mut expected = Names::new();
    for i in 0..100 {
        assert!(c.line(&format!("LOCK.ACQUIRE k:{i} o PX 600000")).int() > 0);
        expected.insert(format!("k:{i}"));
    }
    assert_eq!(scan(&mut c, ""), expected);
    assert_eq!(scan(&mut c, "OWNER o COUNT 3"), expected);
    assert_eq!(scan(&mut c, "MATCH k:1?").len(), 10);
    let mut waiter = node.conn();
    waiter.send_line("LOCK.ACQUIRE k:7 p BLOCK 0");
    node.wait_for_waiters(1);
    assert_eq!(scan(&mut c, "WAITED"), names("k:7"));
}

#[test]
fn a_user_without_the_right_to_scan_gets_no_keys() {
    const DENIED: &str = "NOPERM LOCK.SCAN needs permission to run SCAN";
    let server = TestServer::start();
    let mut admin = server.conn();
    admin.line("LOCK.ACQUIRE secret o PX 600000");
    for (rules, may) in [
        ("+lock.scan +lock.acquire ~mine:*", false),
        ("+lock.scan +scan", true),
        ("+@all ~mine:*", true),
        ("+@all -scan ~*", false),
    ] {
        admin.line(&format!("ACL SETUSER u reset on nopass +eval {rules}"));
        let mut conn = server.conn();
        conn.line("AUTH u any");
        for options in ["", "OWNER o", "WAITED"] {
            let reply = conn.line(&format!("LOCK.SCAN 0 COUNT 1000 {options}"));
            if may {
                let found = usize::from(options != "WAITED");
                assert_eq!(reply.list()[1].list().len(), found, "{rules}");
            } else {
                assert_eq!(reply.error(), DENIED, "{rules}");
            }
        }
        let script = "return redis.pcall('LOCK.SCAN', '0')";
        assert_eq!(conn.run(["EVAL", script, "0"]).is_error(), !may, "{rules}");
    }
}
