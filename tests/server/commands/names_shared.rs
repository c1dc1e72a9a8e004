//! Two locks that share sibling keys because of a script of Redisson's, or `HSET`: the end or renewal of one does not
//! take anything from the other.

use crate::commands::names_collide::{read, refused, TAKEN};
use crate::common::{wait_for, Conn, TestServer};

fn plant(c: &mut Conn, lock: &str, owner: &str, holds: u32) {
    c.line(&format!("HSET {lock} mode read {owner} {holds}"));
    c.line(&format!("PEXPIRE {lock} 60000"));
}

#[test]
fn keys_shared_by_two_readers_of_a_script_stay_until_both_are_gone() {
    let server = TestServer::start();
    let mut c = server.conn();
    for ((one, owner), (other, reader)) in [
        (("k", "o"), ("{k}", "o")),
        (("{k}", "o"), ("k", "o")),
        (("k", "u:7"), ("{k}:u", "7")),
    ] {
        for line in [
            "LOCK.RELEASE ? READ ALL",
            "LOCK.RELEASE ? READ",
            "LOCK.RENEW ? READ PX 1",
            "LOCK.BREAK",
        ] {
            let what = format!("{one} {owner}, {other} {reader}: {line}");
            let acquire = format!("LOCK.ACQUIRE {one} {owner} READ PX 60000");
            let token = c.line(&acquire).int();
            assert_eq!(c.line(&acquire).int(), token);
            plant(&mut c, other, reader, 2);
            let line = match line {
                "LOCK.BREAK" => format!("LOCK.BREAK {other}"),
                _ => line.replace('?', &format!("{other} {reader}")),
            };
            assert!(c.line(&line).int() >= 0, "{what}");
            if line.contains("RENEW") {
                wait_for("the end of that lease", || {
                    c.line(&format!("EXISTS {other}")).int() == 0
                });
            }
            let left = c.line(&format!("PTTL {{k}}:{owner}:rwlock_timeout:2"));
            assert!(left.int() > 40_000, "{what}: {left:?}");
            let renewed = c.line(&format!("LOCK.RENEW {one} {owner} PX 60000 TOKEN {token}"));
            assert_eq!(renewed.int(), 1, "{what}");
            assert!(c.line(&format!("LOCK.ACQUIRE {one} w WRITE")).is_nil());
            c.line(&format!("LOCK.BREAK {other}"));
            assert_eq!(c.line(&format!("LOCK.RELEASE {one} {owner} ALL")).int(), 1);
            wait_for("the horizon alone", || c.line("DBSIZE").int() == 1);
        }
    }
    server.check_counters();
}

#[test]
fn the_token_of_a_held_lock_stays_when_a_script_has_taken_its_twin() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (one, other) in [("k", "{k}"), ("{k}", "k")] {
        for end in ["RELEASE ? x WRITE", "RENEW ? x WRITE PX 1", "BREAK ?"] {
            let end = end.replace('?', other);
            let token = c
                .line(&format!("LOCK.ACQUIRE {one} o WRITE PX 60000"))
                .int();
            c.line(&format!("HSET {other} mode write x:write 1"));
            c.line(&format!("PEXPIRE {other} 60000"));
            // This would store a token in the same key.
            refused(&mut c, &format!("LOCK.ACQUIRE {other} x WRITE"), TAKEN);
            assert_eq!(c.line(&format!("LOCK.{end}")).int(), 1, "{end}");
            assert!(c.line("PTTL {k}:rwlock_token").int() > 50_000, "{end}");
            let renewed = c.line(&format!("LOCK.RENEW {one} o TOKEN {token}"));
            assert_eq!(renewed.int(), 1, "{end}: the token is still there");
            c.line(&format!("DEL {other}"));
            assert_eq!(c.line(&format!("LOCK.RELEASE {one} o")).int(), 1);
        }
    }
    assert_eq!(c.line("DBSIZE").int(), 1, "the horizon");
    server.check_counters();
}

#[test]
fn no_owner_enters_under_the_token_of_the_twin() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (one, other) in [("k", "{k}"), ("{k}", "k")] {
        // The token record does not name readers, and a writer in it may be one of the twin's as well.
        for (mode, fields, asks) in [
            ("READ", "mode read b 1", "c READ"),
            ("WRITE", "mode write x:write 1", "x WRITE"),
        ] {
            let hold = format!("LOCK.ACQUIRE {one} x {mode} PX 60000");
            let token = c.line(&hold).int();
            c.line(&format!("HSET {other} {fields}"));
            c.line(&format!("PEXPIRE {other} 60000"));
            c.line("SET {k}:b:rwlock_timeout:1 1 PX 60000");
            refused(&mut c, &format!("LOCK.ACQUIRE {other} {asks}"), TAKEN);
            c.line(&format!("DEL {other} {{k}}:b:rwlock_timeout:1"));
            let renewed = c.line(&format!("LOCK.RENEW {one} x TOKEN {token}"));
            assert_eq!(renewed.int(), 1, "{hold}");
            assert_eq!(c.line(&format!("LOCK.RELEASE {one} x")).int(), 1);
        }
    }
    server.check_counters();
}

#[test]
fn a_reader_stays_when_redisson_or_the_module_releases_the_twin() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (one, other) in [("k", "{k}"), ("{k}", "k")] {
        for first in [one, other] {
            c.line(&format!("LOCK.ACQUIRE {one} u:1 READ PX 60000"))
                .int();
            assert!(c.run(read(other, "{k}", "u:1")).is_nil());
            assert_eq!(c.line(&format!("LOCK.RELEASE {first} u:1 READ")).int(), 1);
            let left = if first == one { other } else { one };
            assert!(c.line(&format!("LOCK.ACQUIRE {left} w WRITE")).is_nil());
            assert_eq!(c.line(&format!("LOCK.RELEASE {left} u:1 READ")).int(), 1);
            assert_eq!(c.line("DBSIZE").int(), 1, "the horizon");
        }
    }
    server.check_counters();
}

#[test]
fn a_parked_request_stays_until_a_release_would_grant_it() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (holder, asks) in [("WRITE", "READ"), ("WRITE", "WRITE"), ("READ", "WRITE")] {
        for twin_stays in [true, false] {
            let what = format!("{holder}, {asks}, {twin_stays}");
            let hold = format!("LOCK.ACQUIRE k h {holder} PX 60000");
            assert_eq!(c.line(&hold).int(), c.line(&hold).int());
            let mut waiter = server.conn();
            waiter.send_line(&format!("LOCK.ACQUIRE k o {asks} BLOCK 0"));
            c.wait_for_waiters_on("k", 1);
            plant(&mut c, "{k}", "o", 1);
            c.line("SET {k}:o:rwlock_timeout:1 1 PX 60000");
            assert_eq!(c.line("LOCK.RELEASE k h").int(), 0, "{what}");
            let info = c.line("LOCK.INFO k");
            assert_eq!(info.field("waiters").unwrap().int(), 1, "{what}");
            if !twin_stays {
                c.line("DEL {k} {k}:o:rwlock_timeout:1");
            }
            assert_eq!(c.line("LOCK.RELEASE k h").int(), 1, "{what}");
            let response = waiter.recv();
            match twin_stays {
                true => assert!(response.error().starts_with(TAKEN), "{what}: {response:?}"),
                false => assert!(response.int() > 0, "{what}"),
            }
            c.line("DEL k {k} {k}:o:rwlock_timeout:1");
        }
    }
    // The last hold of one reader frees nothing while another reader stays.
    for owner in ["h", "z"] {
        c.line(&format!("LOCK.ACQUIRE k {owner} READ PX 60000"))
            .int();
    }
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k o WRITE BLOCK 0");
    c.wait_for_waiters_on("k", 1);
    plant(&mut c, "{k}", "o", 1);
    c.line("SET {k}:o:rwlock_timeout:1 1 PX 60000");
    assert_eq!(c.line("LOCK.RELEASE k h").int(), 1);
    assert_eq!(c.line("LOCK.INFO k").field("waiters").unwrap().int(), 1);
    assert_eq!(c.line("LOCK.RELEASE k z").int(), 1);
    let response = waiter.recv().error();
    assert!(response.starts_with(TAKEN), "{response}");
    c.line("DEL {k} {k}:o:rwlock_timeout:1");
    server.check_counters();
}

#[test]
fn a_renewal_of_shared_timeouts_does_not_take_them_over() {
    let server = TestServer::start();
    let mut c = server.conn();
    for longer in [
        "ACQUIRE k u:1 READ PX 900000",
        "ACQUIRE k u:1 READ PX 900000 ONCE",
        "RENEW k u:1 PX 900000",
    ] {
        c.line("LOCK.ACQUIRE k u:1 READ PX 60000").int();
        assert!(c.run(read("{k}", "{k}", "u:1")).is_nil());
        assert!(c.line(&format!("LOCK.{longer}")).int() > 0);
        assert_eq!(c.line("LOCK.RELEASE k u:1 ALL").int(), 1);
        assert!(c.line("LOCK.ACQUIRE {k} w WRITE").is_nil(), "{longer}");
        assert_eq!(c.line("LOCK.RELEASE {k} u:1").int(), 1);
        // A shared timeout that neither lock needs any more expires by itself.
        c.line("DEL {k}:u:1:rwlock_timeout:2");
        assert_eq!(c.line("DBSIZE").int(), 1, "the horizon");
    }
    server.check_counters();
}

#[test]
fn a_parked_request_stays_when_a_release_fails() {
    let mut server = TestServer::start();
    let mut c = server.conn();
    let exclusive = ["MULTI", "DEL k", "HSET k h 1", "PEXPIRE k 60000", "EXEC"];
    for (made, release) in [
        (&["SET z 1"][..], "LOCK.MRELEASE 2 k z h"),
        (&exclusive, "LOCK.RELEASE k h READ"),
    ] {
        c.line("LOCK.ACQUIRE k h WRITE PX 60000").int();
        let mut waiter = server.conn();
        waiter.send_line("LOCK.ACQUIRE k o READ BLOCK 0");
        c.wait_for_waiters_on("k", 1);
        for line in made {
            c.line(line);
        }
        plant(&mut c, "{k}", "o", 1);
        c.line("SET {k}:o:rwlock_timeout:1 1 PX 60000");
        c.line(release).error();
        let info = c.line("LOCK.INFO k");
        assert_eq!(info.field("waiters").unwrap().int(), 1, "{release}");
        c.line("DEL {k} {k}:o:rwlock_timeout:1 z");
        c.line("DEL k");
        waiter.recv().int();
        assert_eq!(c.line("LOCK.RELEASE k o").int(), 1);
        c.line("FLUSHALL");
    }
    assert!(server.is_alive());
}
