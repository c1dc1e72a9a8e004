//! Keys whose names are derived from other keys' names: no lock, semaphore or latch uses keys of another one, and
//! foreign data does not change.

use crate::common::redisson::{self, READ_ACQUIRE, READ_UNLOCK, WRITE_ACQUIRE};
use crate::common::{wait_for, Conn, TestServer};
use crate::redisson::native::{call, native};

pub const TAKEN: &str = "LOCKTYPE the keys beside";
const FOREIGN: &str = "WRONGTYPE a key beside";

pub fn refused(c: &mut Conn, line: &str, why: &str) {
    let response = c.line(line);
    assert!(response.is_error(), "{line}: {response:?}");
    let response = response.error();
    assert!(response.starts_with(why), "{line}: {response}");
}

pub fn dump(c: &mut Conn, key: &str) -> Vec<u8> {
    c.line(&format!("DUMP {key}")).bytes()
}

#[test]
fn twins_are_not_held_in_read_or_write_mode_together() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (one, other) in [("k", "{k}"), ("{k}", "k"), ("a}", "{a}}")] {
        for (first, second) in [("READ", "READ"), ("READ", "WRITE"), ("WRITE", "READ")] {
            let token = c
                .line(&format!("LOCK.ACQUIRE {one} o {first} PX 60000"))
                .int();
            for owner in ["o", "p"] {
                for line in [
                    format!("LOCK.ACQUIRE {other} {owner} {second}"),
                    format!("LOCK.ACQUIRE {other} {owner} {second} BLOCK 0"),
                    format!("LOCK.ACQUIRE {other} {owner} {second} SESSION"),
                    format!("LOCK.MACQUIRE 2 x {other} {owner} {second} BLOCK 0"),
                ] {
                    refused(&mut c, &line, TAKEN);
                }
                assert!(c.line(&format!("LOCK.RELEASE {other} {owner}")).is_nil());
                assert_eq!(c.line(&format!("LOCK.RENEW {other} {owner}")).int(), 0);
            }
            assert_eq!(c.line(&format!("LOCK.BREAK {other}")).int(), 0);
            // An exclusive lock shares none of these keys.
            assert!(c.line(&format!("LOCK.ACQUIRE {other} x PX 60000")).int() > 0);
            assert_eq!(c.line(&format!("LOCK.RELEASE {other} x")).int(), 1);
            let renewed = c.line(&format!("LOCK.RENEW {one} o TOKEN {token}"));
            assert_eq!(renewed.int(), 1, "the token is still there");
            assert_eq!(c.line(&format!("LOCK.RELEASE {one} o")).int(), 1);
            assert!(c.line(&format!("LOCK.ACQUIRE {other} o {second}")).int() > 0);
            assert_eq!(c.line(&format!("LOCK.RELEASE {other} o")).int(), 1);
        }
    }
    refused(&mut c, "LOCK.MACQUIRE 3 x {k} k o READ", TAKEN);
    assert_eq!(c.line("LOCK.MACQUIRE 2 {k} k o").list().len(), 2);
    c.line("LOCK.MRELEASE 2 {k} k o");
    assert_eq!(c.line("DBSIZE").int(), 1, "the horizon");
    server.check_counters();
}

#[test]
fn readers_with_the_same_timeout_key_are_not_granted_together() {
    let server = TestServer::start();
    let mut c = server.conn();
    for ((lock, owner), (other, reader)) in [
        (("k", "a:b"), ("{k}:a", "b")),
        (("{k}:a", "b"), ("{k}", "a:b")),
        (("{k}:a:b", "c"), ("{k}:a", "b:c")),
    ] {
        c.line(&format!("LOCK.ACQUIRE {lock} {owner} READ PX 60000"))
            .int();
        refused(
            &mut c,
            &format!("LOCK.ACQUIRE {other} {reader} READ"),
            TAKEN,
        );
        // Other owners are granted READ there, and WRITE.
        assert!(c.line(&format!("LOCK.ACQUIRE {other} z READ")).int() > 0);
        refused(
            &mut c,
            &format!("LOCK.ACQUIRE {other} {reader} READ"),
            TAKEN,
        );
        c.line(&format!("LOCK.RELEASE {other} z"));
        assert!(
            c.line(&format!("LOCK.ACQUIRE {other} {reader} WRITE"))
                .int()
                > 0
        );
        refused(
            &mut c,
            &format!("LOCK.ACQUIRE {other} {reader} READ"),
            TAKEN,
        );
        c.line(&format!("LOCK.RELEASE {other} {reader}"));
        // The release of a dead reader would delete the timeout of the other reader, so it still excludes it.
        let mut hidden = server.conn();
        hidden
            .line(&format!("LOCK.ACQUIRE {lock} stays READ PX 60000"))
            .int();
        c.line(&format!("LOCK.RENEW {lock} {owner} PX 1"));
        wait_for("a dead reader", || {
            c.line(&format!("LOCK.RENEW {lock} {owner} PX 1")).int() == 0
        });
        refused(
            &mut c,
            &format!("LOCK.ACQUIRE {other} {reader} READ"),
            TAKEN,
        );
        c.line(&format!("LOCK.BREAK {lock}"));
        assert!(
            c.line(&format!("LOCK.ACQUIRE {other} {reader} READ PX 60000"))
                .int()
                > 0
        );
        assert!(c.line(&format!("LOCK.ACQUIRE {other} z WRITE")).is_nil());
        c.line(&format!("LOCK.RELEASE {other} {reader}"));
    }
    server.check_counters();
}

#[test]
fn foreign_keys_beside_a_lock_do_not_block_it() {
    let server = TestServer::start();
    let mut c = server.conn();
    // As after DEL of a lock by hand, or Redisson's forceUnlock.
    c.line("LOCK.ACQUIRE k o READ PX 60000").int();
    c.line("DEL k");
    for lock in ["k", "{k}"] {
        assert!(
            c.line(&format!("LOCK.ACQUIRE {lock} o READ PX 60000"))
                .int()
                > 0
        );
        assert!(c.line(&format!("LOCK.ACQUIRE {lock} w WRITE")).is_nil());
        assert_eq!(c.line(&format!("LOCK.RELEASE {lock} o")).int(), 1);
    }
    assert_eq!(c.line("DBSIZE").int(), 1);
    server.check_counters();
}

#[test]
fn a_parked_reader_or_writer_is_not_granted_beside_a_twin() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (mode, many) in [
        ("READ", false),
        ("WRITE", false),
        ("READ", true),
        ("WRITE", true),
    ] {
        c.line("LOCK.ACQUIRE k h WRITE PX 60000").int();
        c.line("LOCK.ACQUIRE y h WRITE PX 60000").int();
        let mut waiter = server.conn();
        waiter.send_line(&match many {
            false => format!("LOCK.ACQUIRE k o {mode} BLOCK 0"),
            true => format!("LOCK.MACQUIRE 2 y k o {mode} BLOCK 0"),
        });
        c.wait_for_waiters_on("k", 1);
        c.line("MULTI");
        c.line("DEL k");
        c.line("LOCK.ACQUIRE {k} o READ PX 60000");
        c.line("LOCK.RELEASE y h");
        c.line("EXEC");
        let response = waiter.recv().error();
        assert!(response.starts_with(TAKEN), "{response}");
        assert!(c.line("LOCK.ACQUIRE {k} w WRITE").is_nil());
        c.line("LOCK.RELEASE {k} o");
    }
    server.check_counters();
}

#[test]
fn a_session_keeps_its_lock_while_the_twin_is_requested() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut holder = server.conn();
    holder.line("LOCK.ACQUIRE k o READ SESSION").int();
    refused(&mut c, "LOCK.ACQUIRE {k} o READ", TAKEN);
    assert!(c.line("LOCK.RELEASE {k} o READ").is_nil());
    assert!(c.line("LOCK.ACQUIRE k w WRITE").is_nil());
    holder.close();
    wait_for("the end of the session", || {
        c.line("LOCK.ACQUIRE {k} o READ")
            .maybe_int()
            .is_some_and(|token| token > 0)
    });
    server.check_counters();
}

/// Makes this owner a reader without the checks of a grant, as a script or another client may.
#[test]
fn foreign_data_beside_a_lock_stays_as_it_is() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE warm o READ").int();
    for (key, line) in [
        ("{k}:rwlock_token", "SET {k}:rwlock_token mine"),
        ("{k}:rwlock_token", "HSET {k}:rwlock_token u:1 1"),
        ("{k}:rwlock_token", "RPUSH {k}:rwlock_token 1"),
        (
            "{k}:o:rwlock_timeout:1",
            "SET {k}:o:rwlock_timeout:1 mine PX 60000",
        ),
        ("{k}:o:rwlock_timeout:1", "SADD {k}:o:rwlock_timeout:1 1"),
    ] {
        c.line(line);
        let before = dump(&mut c, key);
        let is_token = key.ends_with("token");
        for mode in ["READ", "WRITE"] {
            let concerned = is_token || mode == "READ";
            for line in [
                format!("LOCK.ACQUIRE k o {mode}"),
                format!("LOCK.ACQUIRE k o {mode} BLOCK 0"),
                format!("LOCK.MACQUIRE 2 j k o {mode}"),
            ] {
                match concerned {
                    true => refused(&mut c, &line, FOREIGN),
                    false => assert!(!c.line(&line).is_error()),
                }
                c.line("LOCK.MRELEASE 2 j k o ALL");
            }
        }
        c.line("LOCK.ACQUIRE k x PX 60000").int();
        c.line("LOCK.RELEASE k x");
        assert_eq!(dump(&mut c, key), before, "{line}");
        c.line(&format!("DEL {key}"));
    }
    // The data arrives while the lock is held.
    let token = c.line("LOCK.ACQUIRE k o READ PX 60000").int();
    c.line("SET {k}:rwlock_token mine");
    assert_eq!(c.line("LOCK.RENEW k o PX 70000").int(), 1);
    c.line("RPUSH {k}:o:rwlock_timeout:2 1");
    refused(&mut c, "LOCK.ACQUIRE k o READ", FOREIGN);
    assert!(c.line("LOCK.RELEASE k o TOKEN 1").is_nil() && token > 1);
    assert_eq!(c.line("LOCK.RELEASE k o").int(), 1);
    assert_eq!(c.line("GET {k}:rwlock_token").text(), "mine");
    assert_eq!(c.line("LLEN {k}:o:rwlock_timeout:2").int(), 1);
    assert_eq!(c.line("PTTL {k}:rwlock_token").int(), -1);
    // A reader whose timeout key has foreign data holds nothing.
    c.line("FLUSHALL");
    c.line("LOCK.ACQUIRE k o READ PX 60000").int();
    c.line("SET {k}:o:rwlock_timeout:1 mine");
    assert_eq!(c.line("LOCK.RENEW k o").int(), 0);
    assert!(c.line("LOCK.ACQUIRE k w WRITE").int() > 0);
    assert_eq!(c.line("LOCK.RELEASE k w").int(), 1);
    assert_eq!(c.line("GET {k}:o:rwlock_timeout:1").text(), "mine");
}

#[test]
fn a_semaphore_leaves_foreign_data_at_its_permits_key() {
    let server = TestServer::start();
    let mut c = server.conn();
    for line in [
        "SET {k}:timeout x",
        "SET {k}:timeout 5",
        "RPUSH {k}:timeout x",
        "LOCK.ACQUIRE {k}:timeout holder PX 60000",
        "ZADD {k}:timeout 1 bob 7.5 alice",
        "ZADD {k}:timeout 1795215970798 bob inf alice",
    ] {
        assert!(!c.line(line).is_error());
        let before = dump(&mut c, "{k}:timeout");
        for line in [
            "SEM.SET k 3",
            "SEM.SET k 3 NX",
            "SEM.ACQUIRE k a LIMIT 2",
            "SEM.ACQUIRE k a LIMIT 2 BLOCK 0",
            "SEM.ACQUIRE k a BLOCK 0",
            "SEM.RELEASE k a",
            "SEM.RENEW k a",
            "SEM.INFO k",
        ] {
            refused(&mut c, line, FOREIGN);
        }
        assert_eq!(dump(&mut c, "{k}:timeout"), before, "{line}");
        assert_eq!(c.line("EXISTS k").int(), 0);
        c.line("DEL {k}:timeout");
    }
    // The data arrives while the semaphore exists.
    for line in [
        "SET {k}:timeout x",
        "LOCK.ACQUIRE {k}:timeout holder",
        "ZADD {k}:timeout 1 bob",
    ] {
        c.line("SEM.SET k 1");
        c.line(line);
        let before = dump(&mut c, "{k}:timeout");
        for line in ["SEM.ACQUIRE k a", "SEM.SET k 2", "SEM.RELEASE k bob"] {
            refused(&mut c, line, FOREIGN);
        }
        assert_eq!(dump(&mut c, "{k}:timeout"), before, "{line}");
        c.line("DEL k {k}:timeout");
    }
    // Tokens that a former semaphore of this name has left do not apply to the new one.
    c.line("SEM.SET k 1");
    c.line("SEM.ACQUIRE k a PX 60000").int();
    c.line("DEL k");
    assert_eq!(c.line("SEM.SET k 1").int(), 1);
    assert!(c.line("SEM.ACQUIRE k b").int() > 0);
}

#[test]
fn a_waiter_with_a_limit_is_granted_no_permit_of_a_foreign_set() {
    let server = TestServer::start();
    let mut c = server.conn();
    for line in [
        "LOCK.ACQUIRE {k}:timeout holder PX 60000",
        "SET {k}:timeout x",
    ] {
        c.line("SEM.SET k 1");
        c.line("SEM.ACQUIRE k a PX 60000").int();
        let mut waiter = server.conn();
        waiter.send_line("SEM.ACQUIRE k b LIMIT 2 BLOCK 0");
        wait_for("a waiter", || {
            c.line("SEM.INFO k").field("waiters").unwrap().int() == 1
        });
        c.line("MULTI");
        c.line("DEL k {k}:timeout");
        c.line(line);
        c.line("EXEC");
        let response = waiter.recv().error();
        assert!(response.starts_with(FOREIGN), "{response}");
        assert_eq!(c.line("EXISTS {k}:timeout").int(), 1);
        assert_eq!(c.line("EXISTS k").int(), 0);
        c.line("DEL {k}:timeout");
    }
}

#[test]
fn a_session_does_not_end_the_hold_of_a_twin() {
    for mode in ["READ", "WRITE"] {
        let server = TestServer::start();
        let (mut bound, mut c) = (server.conn(), server.conn());
        bound
            .line(&format!("LOCK.ACQUIRE k o {mode} SESSION"))
            .int();
        let field = if mode == "READ" { "o" } else { "o:write" };
        let token = c.run([
            "EVAL",
            "redis.call('DEL', 'k') \
            local token = redis.call('LOCK.ACQUIRE', '{k}', 'o', ARGV[1], 'PX', '60000') \
            redis.call('HSET', 'k', 'mode', string.lower(ARGV[1]), ARGV[2], '1') \
            redis.call('PEXPIRE', 'k', 60000) \
            return token",
            "3",
            "k",
            "{k}",
            "{k}:rwlock_token",
            mode,
            field,
        ]);
        let token = token.int();
        bound.close();
        wait_for("the end of the binding", || {
            server.stat("session_losses") == 1
        });
        assert_eq!(c.line(&format!("HEXISTS k {field}")).int(), 1);
        let renewed = c.line(&format!("LOCK.RENEW {{k}} o TOKEN {token}"));
        assert_eq!(renewed.int(), 1, "{mode}");
    }
}

#[test]
fn semaphores_that_are_twins_do_not_share_their_permits() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (one, other) in [("k", "{k}"), ("{k}", "k")] {
        c.line(&format!("SEM.SET {one} 1"));
        c.line(&format!("SEM.ACQUIRE {one} a PX 60000")).int();
        for line in [
            format!("SEM.SET {other} 1"),
            format!("SEM.ACQUIRE {other} a LIMIT 1"),
            format!("SEM.ACQUIRE {other} a LIMIT 1 BLOCK 0"),
        ] {
            refused(&mut c, &line, TAKEN);
        }
        assert!(c.line(&format!("SEM.ACQUIRE {one} b")).is_nil());
        // Created by another client: no permit is granted, but permits can be returned.
        let mut waiter = server.conn();
        waiter.send_line(&format!("SEM.ACQUIRE {one} b BLOCK 0"));
        wait_for("a waiter", || {
            c.line(&format!("SEM.INFO {one}"))
                .field("waiters")
                .unwrap()
                .int()
                == 1
        });
        c.line(&format!("SET {other} 1"));
        for line in [
            "SEM.ACQUIRE ? x",
            "SEM.ACQUIRE ? a",
            "SEM.RELEASE ? a",
            "SEM.RENEW ? a",
        ] {
            refused(&mut c, &line.replace('?', other), TAKEN);
        }
        assert_eq!(c.line(&format!("SEM.RELEASE {one} a")).int(), 1);
        let response = waiter.recv().error();
        assert!(response.starts_with(TAKEN), "{response}");
        c.line("DEL k {k}");
    }
}

#[test]
fn one_key_is_no_latch_and_semaphore_at_once() {
    let server = TestServer::start();
    let mut c = server.conn();
    // A latch with a waiter.
    c.line("LATCH.SET k 1");
    let mut waiter = server.conn();
    waiter.send_line("LATCH.WAIT k BLOCK 0");
    wait_for("a waiter", || server.stat("latch_waiters") == 1);
    for line in [
        "SEM.SET k 1",
        "SEM.ACQUIRE k a",
        "SEM.ACQUIRE k a LIMIT 1 BLOCK 0",
    ] {
        refused(&mut c, line, "LOCKTYPE the key is in use as");
    }
    assert_eq!(c.line("LATCH.DOWN k").int(), 0);
    assert_eq!(waiter.recv().int(), 1);
    // A semaphore with permits that are held, or with a waiter.
    c.line("SEM.SET k 1");
    c.line("SEM.ACQUIRE k a PX 60000").int();
    for line in [
        "LATCH.SET k 1",
        "LATCH.SET k 0",
        "LATCH.DOWN k",
        "LATCH.WAIT k",
        "LATCH.WAIT k BLOCK 0",
    ] {
        refused(&mut c, line, "LOCKTYPE the key is in use as");
    }
    waiter.send_line("SEM.ACQUIRE k b BLOCK 0 PX 60000");
    wait_for("a waiter", || server.stat("sem_waiters") == 1);
    // A script may have removed the permit: the waiter stays in the queue.
    c.line("MULTI");
    c.line("DEL {k}:timeout");
    c.line("LATCH.SET k 1");
    let response = c.line("EXEC").list()[1].error();
    assert!(
        response.starts_with("LOCKTYPE the key is in use as"),
        "{response}"
    );
    assert_eq!(c.line("GET k").text(), "0");
    c.line("SET k 1");
    assert!(waiter.recv().int() > 0);
    assert_eq!(c.line("SEM.RELEASE k b").int(), 1);
    // A semaphore without held permits looks like a latch; the waiter waits for the count.
    waiter.send_line("LATCH.WAIT k BLOCK 0");
    wait_for("a waiter", || server.stat("latch_waiters") == 1);
    c.line("DECR k");
    assert_eq!(waiter.recv().int(), 1);
    // Expired permits are not held.
    c.line("SET p 1");
    c.line("ZADD {p}:timeout 1000000000000 a");
    c.line("ZADD {q}:timeout 1000000000000 a");
    assert_eq!(c.line("LATCH.WAIT p").int(), 0);
    assert_eq!(c.line("LATCH.SET q 1").int(), 1);
    // Without the number there is no semaphore, and the latch is open; but none is created while the former permits are
    // left.
    c.line("SEM.SET r 1");
    c.line("SEM.ACQUIRE r a PX 60000").int();
    c.line("DEL r");
    assert_eq!(c.line("LATCH.WAIT r").int(), 1);
    assert_eq!(c.line("LATCH.DOWN r").int(), 0);
    refused(&mut c, "LATCH.SET r 1", "LOCKTYPE the key is in use as");
    assert_eq!(c.line("EXISTS r {r}:timeout").int(), 1);
}

#[test]
fn the_modules_own_names_are_no_locks_and_foreign_data_there_stays() {
    let server = TestServer::start();
    let mut c = server.conn();
    for name in [
        "redis_lock:horizon",
        "redisson_lock_token:{k}",
        "redisson_lock_token:x{k}",
    ] {
        for line in [
            "LOCK.ACQUIRE ? o",
            "SEM.SET ? 3",
            "LATCH.SET ? 3",
            "LOCK.MACQUIRE 2 a ? o",
        ] {
            refused(
                &mut c,
                &line.replace('?', name),
                "ERR keys that begin with 'redis_lock:horizon'",
            );
        }
    }
    // A value that is no counter is not incremented.
    for line in [
        "HSET redisson_lock_token:{k} a 1",
        "SET redisson_lock_token:{k} many",
    ] {
        c.line(line);
        let before = dump(&mut c, "redisson_lock_token:{k}");
        assert!(c.line("LOCK.ACQUIRE k o").int() > 0);
        c.line("LOCK.RELEASE k o");
        assert_eq!(dump(&mut c, "redisson_lock_token:{k}"), before);
        c.line("DEL redisson_lock_token:{k}");
    }
    // While the horizon cannot be stored no lock is granted.
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("RPUSH redis_lock:horizon x");
    for line in [
        "LOCK.ACQUIRE k o",
        "LOCK.ACQUIRE k o READ",
        "LOCK.MACQUIRE 1 k o",
        "SEM.ACQUIRE s a LIMIT 1",
    ] {
        refused(&mut c, line, "WRONGTYPE the key redis_lock:horizon");
    }
    assert_eq!(c.line("LRANGE redis_lock:horizon 0 -1").list().len(), 1);
    c.line("DEL redis_lock:horizon");
    assert!(c.line("LOCK.ACQUIRE k o").int() > 0);
    assert!(c.line("GET redis_lock:horizon").text().len() > 10);
}

/// Redisson's acquire script for READ.
pub fn read(lock: &str, prefix: &str, owner: &str) -> Vec<String> {
    let rest = format!("2 {lock} {prefix}:{owner}:rwlock_timeout 600000 {owner} {owner}:write");
    call("EVAL", &redisson::text(READ_ACQUIRE), &rest)
}

fn write(lock: &str, owner: &str) -> Vec<String> {
    let rest = format!("1 {lock} 600000 {owner}:write");
    call("EVAL", &redisson::text(WRITE_ACQUIRE), &rest)
}

#[test]
fn neither_redisson_nor_the_module_is_granted_beside_a_twin_of_the_other() {
    let server = native();
    let mut c = server.conn();
    for (one, other) in [("k", "{k}"), ("{k}", "k")] {
        c.line(&format!("LOCK.ACQUIRE {one} u:1 READ PX 60000"))
            .int();
        for script in [
            read(other, "{k}", "u:1"),
            read(other, "{k}", "u:2"),
            write(other, "u:1"),
        ] {
            let response = c.run(&script).error();
            assert!(response.starts_with(TAKEN), "{response}");
        }
        // One lock, used by both kinds of client.
        assert!(c.run(read(one, "{k}", "u:1")).is_nil());
        assert!(c.run(read(one, "{k}", "u:2")).is_nil());
        c.line(&format!("LOCK.BREAK {one}"));
        assert!(c.run(read(other, "{k}", "u:1")).is_nil());
        refused(&mut c, &format!("LOCK.ACQUIRE {one} u:1 READ"), TAKEN);
        refused(&mut c, &format!("LOCK.ACQUIRE {one} u:2 WRITE"), TAKEN);
        let unlock =
            format!("5 {other} c {{k}}:u:1:rwlock_timeout {{k}} latch 0 u:1 PUBLISH 13500");
        assert_eq!(
            c.run(call("EVAL", &redisson::text(READ_UNLOCK), &unlock))
                .int(),
            1
        );
        c.line("DEL latch");
        assert!(c.run(write(other, "u:1")).is_nil());
        refused(&mut c, &format!("LOCK.ACQUIRE {one} u:1 READ"), TAKEN);
        c.line(&format!("LOCK.BREAK {other}"));
    }
    // Lua takes the twin nevertheless: an owner that joins it has no keys of the module.
    c.line("LOCK.ACQUIRE k u:1 READ PX 60000").int();
    c.line("CONFIG SET lock.redisson-scripts no");
    assert!(c.run(read("{k}", "{k}", "u:2")).is_nil());
    refused(&mut c, "LOCK.ACQUIRE {k} u:1 READ", TAKEN);
    c.line("CONFIG SET lock.redisson-scripts yes");
    let response = c.run(read("{k}", "{k}", "u:1")).error();
    assert!(response.starts_with(TAKEN), "{response}");
    assert!(c.line("LOCK.ACQUIRE k w WRITE").is_nil());
    c.line("LOCK.BREAK k");
    c.line("LOCK.BREAK {k}");
    c.line("LOCK.ACQUIRE {k}:u 1 READ PX 60000").int();
    let response = c.run(read("k", "{k}", "u:1")).error();
    assert!(response.starts_with(TAKEN), "{response}");
    assert!(c.run(read("k", "{k}", "u:2")).is_nil());
    let response = c.run(read("k", "{k}", "u:1")).error();
    assert!(response.starts_with(TAKEN), "{response}");
    assert_eq!(server.stat("redisson_lua"), 0);
}
