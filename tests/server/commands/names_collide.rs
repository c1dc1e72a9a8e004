//! Keys whose names are derived from other keys' names: no lock, semaphore or latch uses keys of another one, and
//! foreign data does not change.

use crate::common::{wait_for, Conn, TestServer};

const TAKEN: &str = "LOCKTYPE the keys beside";
const BRACED: &str = "ERR READ, WRITE and semaphores need a name";
const FOREIGN: &str = "WRONGTYPE a key beside";

fn refused(c: &mut Conn, line: &str, why: &str) {
    let response = c.line(line);
    assert!(response.is_error(), "{line}: {response:?}");
    let response = response.error();
    assert!(response.starts_with(why), "{line}: {response}");
}

fn dump(c: &mut Conn, key: &str) -> Vec<u8> {
    c.line(&format!("DUMP {key}")).bytes()
}

#[test]
fn a_name_in_braces_is_refused_where_it_would_share_keys_with_the_one_without() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (braced, bare) in [("{k}", "k"), ("{a}}", "a}"), ("{}", "\"\"")] {
        let bare = bare.trim_matches('"');
        assert!(
            c.run(["LOCK.ACQUIRE", bare, "o", "WRITE", "PX", "60000"])
                .int()
                > 0
        );
        assert!(
            c.run(["LOCK.ACQUIRE", bare, "o", "READ", "PX", "60000"])
                .int()
                > 0
        );
        for line in [
            format!("LOCK.ACQUIRE {braced} o READ"),
            format!("LOCK.ACQUIRE {braced} o WRITE BLOCK 0"),
            format!("LOCK.ACQUIRE {braced} o READ SESSION"),
            format!("LOCK.MACQUIRE 2 x {braced} o READ BLOCK 0"),
            format!("SEM.SET {braced} 1"),
            format!("SEM.ACQUIRE {braced} a LIMIT 1 BLOCK 0"),
            format!("SEM.RELEASE {braced} a"),
            format!("SEM.RENEW {braced} a"),
            format!("SEM.INFO {braced}"),
        ] {
            refused(&mut c, &line, BRACED);
        }
        // An exclusive lock and a latch share none of these keys.
        assert!(c.line(&format!("LOCK.ACQUIRE {braced} x PX 60000")).int() > 0);
        assert_eq!(c.line(&format!("LOCK.RELEASE {braced} x")).int(), 1);
        assert_eq!(c.line(&format!("LATCH.SET {braced} 1")).int(), 1);
        assert_eq!(c.line(&format!("LATCH.DOWN {braced}")).int(), 0);
        let renewed = c.run(["LOCK.RENEW", bare, "o", "READ"]);
        assert_eq!(renewed.int(), 1);
        assert_eq!(c.run(["LOCK.RELEASE", bare, "o", "READ"]).int(), 1);
        assert_eq!(c.run(["LOCK.RELEASE", bare, "o"]).int(), 1);
    }
    assert_eq!(c.line("DBSIZE").int(), 1, "the horizon");
    server.check_counters();
}

#[test]
fn a_braced_lock_of_a_script_does_not_take_the_token_of_the_one_without_braces() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (mode, field) in [("write", "x:write"), ("read", "x")] {
        for end in [
            "RELEASE {k} x",
            "RENEW {k} x PX 90000",
            "RENEW {k} x PX 1",
            "BREAK {k}",
            "ACQUIRE {k} y",
        ] {
            let token = c.line("LOCK.ACQUIRE k o WRITE PX 60000").int();
            c.line(&format!("HSET {{k}} mode {mode} {field} 1"));
            c.line("PEXPIRE {k} 60000");
            c.line("SET {k}:x:rwlock_timeout:1 1 PX 60000");
            refused(&mut c, "LOCK.ACQUIRE {k} x WRITE", BRACED);
            if end.starts_with("ACQUIRE") {
                c.line("DEL {k}");
                assert!(c.line(&format!("LOCK.{end}")).int() > 0, "{end}");
            } else {
                assert_eq!(c.line(&format!("LOCK.{end}")).int(), 1, "{end}");
            }
            let left = c.line("PTTL {k}:rwlock_token").int();
            assert!((50_000..=60_000).contains(&left), "{end}: {left}");
            let renewed = c.line(&format!("LOCK.RENEW k o TOKEN {token}"));
            assert_eq!(renewed.int(), 1, "{end}: the token is still there");
            c.line("DEL {k} {k}:x:rwlock_timeout:1");
            assert_eq!(c.line("LOCK.RELEASE k o").int(), 1);
        }
    }
    assert_eq!(c.line("DBSIZE").int(), 1, "the horizon");
    server.check_counters();
}

#[test]
fn readers_with_the_same_timeout_key_are_not_granted_together() {
    let server = TestServer::start();
    let mut c = server.conn();
    for ((lock, owner), (other, reader)) in [
        (("k", "a:b"), ("{k}:a", "b")),
        (("{k}:a", "b"), ("k", "a:b")),
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
    assert!(c.line("LOCK.ACQUIRE k o READ PX 60000").int() > 0);
    assert!(c.line("LOCK.ACQUIRE k w WRITE").is_nil());
    assert_eq!(c.line("LOCK.RELEASE k o").int(), 1);
    assert_eq!(c.line("DBSIZE").int(), 1);
    server.check_counters();
}

#[test]
fn a_parked_reader_is_not_granted_the_keys_of_another_lock() {
    let server = TestServer::start();
    let mut c = server.conn();
    for request in [
        "LOCK.ACQUIRE k a:o READ BLOCK 0",
        "LOCK.MACQUIRE 2 y k a:o READ BLOCK 0",
    ] {
        c.line("LOCK.ACQUIRE k h WRITE PX 60000").int();
        c.line("LOCK.ACQUIRE y h WRITE PX 60000").int();
        let mut waiter = server.conn();
        waiter.send_line(request);
        c.wait_for_waiters_on("k", 1);
        c.line("MULTI");
        c.line("DEL k");
        c.line("LOCK.ACQUIRE {k}:a o READ PX 60000");
        c.line("LOCK.RELEASE y h");
        c.line("EXEC");
        let response = waiter.recv().error();
        assert!(response.starts_with(TAKEN), "{response}");
        assert!(c.line("LOCK.ACQUIRE {k}:a w WRITE").is_nil());
        c.line("LOCK.RELEASE {k}:a o");
    }
    server.check_counters();
}

#[test]
fn a_session_keeps_its_lock_while_another_lock_asks_for_its_keys() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut holder = server.conn();
    holder.line("LOCK.ACQUIRE k a:o READ SESSION").int();
    refused(&mut c, "LOCK.ACQUIRE {k}:a o READ", TAKEN);
    assert!(c.line("LOCK.RELEASE {k}:a o READ").is_nil());
    assert!(c.line("LOCK.ACQUIRE k w WRITE").is_nil());
    holder.close();
    wait_for("the end of the session", || {
        c.line("LOCK.ACQUIRE {k}:a o READ")
            .maybe_int()
            .is_some_and(|token| token > 0)
    });
    server.check_counters();
}

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

fn plant(c: &mut Conn, lock: &str, owner: &str) {
    c.line(&format!("HSET {lock} mode read {owner} 1"));
    c.line(&format!("PEXPIRE {lock} 60000"));
}

#[test]
fn a_parked_request_stays_until_a_release_would_grant_it() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (holder, asks) in [("WRITE", "READ"), ("WRITE", "WRITE"), ("READ", "WRITE")] {
        for stays in [true, false] {
            let what = format!("{holder}, {asks}, {stays}");
            let hold = format!("LOCK.ACQUIRE k h {holder} PX 60000");
            assert_eq!(c.line(&hold).int(), c.line(&hold).int());
            let mut waiter = server.conn();
            waiter.send_line(&format!("LOCK.ACQUIRE k a:o {asks} BLOCK 0"));
            c.wait_for_waiters_on("k", 1);
            let (beside, why) = match asks {
                "READ" => ("{k}:a", TAKEN),
                _ => ("{k}:rwlock_token", FOREIGN),
            };
            match asks {
                "READ" => plant(&mut c, beside, "o"),
                _ => drop(c.line(&format!("SET {beside} mine"))),
            }
            assert_eq!(c.line("LOCK.RELEASE k h").int(), 0, "{what}");
            let info = c.line("LOCK.INFO k");
            assert_eq!(info.field("waiters").unwrap().int(), 1, "{what}");
            if !stays {
                c.line(&format!("DEL {beside}"));
            }
            assert_eq!(c.line("LOCK.RELEASE k h").int(), 1, "{what}");
            let response = waiter.recv();
            match stays {
                true => assert!(response.error().starts_with(why), "{what}: {response:?}"),
                false => assert!(response.int() > 0, "{what}"),
            }
            c.line("LOCK.RELEASE k a:o");
            c.line(&format!("DEL {beside}"));
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
    c.line("SET {k}:rwlock_token mine");
    assert_eq!(c.line("LOCK.RELEASE k h").int(), 1);
    assert_eq!(c.line("LOCK.INFO k").field("waiters").unwrap().int(), 1);
    assert_eq!(c.line("LOCK.RELEASE k z").int(), 1);
    let response = waiter.recv().error();
    assert!(response.starts_with(FOREIGN), "{response}");
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
        waiter.send_line("LOCK.ACQUIRE k a:o READ BLOCK 0");
        c.wait_for_waiters_on("k", 1);
        for line in made {
            c.line(line);
        }
        plant(&mut c, "{k}:a", "o");
        c.line(release).error();
        let info = c.line("LOCK.INFO k");
        assert_eq!(info.field("waiters").unwrap().int(), 1, "{release}");
        c.line("DEL {k}:a z");
        c.line("DEL k");
        waiter.recv().int();
        assert_eq!(c.line("LOCK.RELEASE k a:o").int(), 1);
        c.line("FLUSHALL");
    }
    assert!(server.is_alive());
}
