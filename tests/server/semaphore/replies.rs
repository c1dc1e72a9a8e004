//! `SEM.*` on real servers: each reply, each refusal, and the content of the two keys.

use crate::common::barrier::assert_stays_silent;
use crate::common::scene::only_reply;
use crate::common::{wait_for, Bystander, Conn, Reply, TestServer};

/// The permit ids and their ends, as Redisson reads them.
fn permits(conn: &mut Conn) -> Vec<(String, i64)> {
    let flat = conn.line("ZRANGE {k}:timeout 0 -1 WITHSCORES").list();
    flat.chunks(2)
        .map(|pair| (pair[0].text(), pair[1].text().parse().expect("a score")))
        .collect()
}

fn ids(conn: &mut Conn) -> Vec<String> {
    let mut ids: Vec<String> = permits(conn).into_iter().map(|(id, _)| id).collect();
    ids.sort();
    ids
}

fn info(conn: &mut Conn, field: &str) -> Reply {
    let info = conn.line("SEM.INFO k WAITERS");
    info.field(field).expect(field)
}

#[test]
fn set_says_how_many_permits_there_are() {
    let server = TestServer::start();
    let mut c = server.conn();
    assert!(c.line("SEM.SET k 3 XX").is_nil());
    assert_eq!(c.line("EXISTS k").int(), 0);
    assert_eq!(c.line("SEM.SET k 3 NX").int(), 3);
    assert_eq!(c.line("GET k").text(), "3");
    assert!(c.line("SEM.SET k 4 NX").is_nil());
    assert_eq!(c.line("SEM.SET k 2 XX").int(), 2);
    c.line("SEM.ACQUIRE k a");
    assert_eq!(c.line("SEM.SET k 5").int(), 5);
    assert_eq!(c.line("GET k").text(), "4", "the held permit counts");
    assert_eq!(c.line("SEM.SET k 0").int(), 0);
    assert_eq!(c.line("GET k").text(), "-1", "the held permit is a debt");
    assert_eq!(c.line("SEM.RELEASE k a").int(), 1);
    assert_eq!(c.line("GET k").text(), "0");
    assert_eq!(c.line("EXISTS {k}:timeout").int(), 0);
}

#[test]
fn a_permit_is_a_place_in_redissons_set_and_an_end_by_the_servers_clock() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 2");
    let now = c.line("TIME").list();
    let now_ms: i64 = now[0].text().parse::<i64>().expect("seconds") * 1_000;
    let first = c.line("SEM.ACQUIRE k a PX 5000").int();
    let second = c.line("SEM.ACQUIRE k b EX 60").int();
    assert!(first > 0 && second > first);
    let all = permits(&mut c);
    assert_eq!((all[0].0.as_str(), all[1].0.as_str()), ("a", "b"));
    assert!((now_ms..now_ms + 10_000).contains(&(all[0].1 - 5_000)));
    assert_eq!(c.line("GET k").text(), "0");
    assert!(c.line("SEM.ACQUIRE k c").is_nil());
    assert_eq!(c.line("SEM.RELEASE k a").int(), 1);
    assert!(c.line("SEM.RELEASE k a").is_nil());
    assert_eq!(c.line("GET k").text(), "1");
    assert_eq!(ids(&mut c), ["b"]);
    assert_eq!(server.stat("sem_grants"), 2);
    assert_eq!(server.stat("sem_refusals"), 1);
    assert_eq!(server.stat("sem_release_misses"), 1);
}

#[test]
fn limit_creates_the_semaphore_and_is_ignored_afterwards() {
    let server = TestServer::start();
    let mut c = server.conn();
    assert!(c.line("SEM.ACQUIRE k a").is_nil(), "there is no semaphore");
    assert_eq!(c.line("EXISTS k").int(), 0);
    assert!(c.line("SEM.ACQUIRE k a LIMIT 2").int() > 0);
    assert!(c.line("SEM.ACQUIRE k b LIMIT 1").int() > 0);
    assert!(c.line("SEM.ACQUIRE k c LIMIT 9").is_nil());
    assert_eq!(info(&mut c, "permits").int(), 2);
}

#[test]
fn a_repeated_acquire_extends_the_permit_and_never_shortens_it() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = c.line("SEM.ACQUIRE k a LIMIT 1 PX 60000").int();
    let end = permits(&mut c)[0].1;
    let bystander = Bystander::of(&server, "{k}:timeout");
    assert_eq!(c.line("SEM.ACQUIRE k a PX 10").int(), token);
    bystander.saw_nothing("asking again for less");
    assert_eq!(permits(&mut c)[0].1, end);
    assert_eq!(c.line("SEM.ACQUIRE k a PX 90000 BLOCK 0").int(), token);
    assert!(permits(&mut c)[0].1 > end);
    assert_eq!(c.line("GET k").text(), "0");
    assert_eq!(c.line("ZCARD {k}:timeout").int(), 1);
    assert_eq!(server.stat("sem_reentries"), 2);
}

#[test]
fn renew_sets_the_lease_exactly() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.ACQUIRE k a LIMIT 1 PX 60000");
    let end = permits(&mut c)[0].1;
    assert_eq!(c.line("SEM.RENEW k a PX 1000").int(), 1);
    assert!(permits(&mut c)[0].1 < end);
    assert_eq!(c.line("SEM.RENEW k a EX 500").int(), 1);
    assert!(permits(&mut c)[0].1 > end + 400_000);
    assert_eq!(c.line("SEM.RENEW k a").int(), 1);
    assert_eq!(c.line("SEM.RENEW k b").int(), 0);
    assert_eq!(c.line("SEM.RENEW none a").int(), 0);
    assert_eq!(server.stat("sem_renewals"), 3);
    assert_eq!(server.stat("sem_renewal_misses"), 2);
}

#[test]
fn an_expired_permit_has_no_holder_and_is_reclaimed_when_needed() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.ACQUIRE k a LIMIT 1 PX 1");
    wait_for("the end of the lease", || info(&mut c, "free").int() == 1);
    assert_eq!(info(&mut c, "held").int(), 0);
    assert_eq!(c.line("SEM.RENEW k a").int(), 0);
    assert!(c.line("SEM.RELEASE k a").is_nil());
    assert_eq!(ids(&mut c), ["a"], "a call that fails changes nothing");
    assert!(c.line("SEM.ACQUIRE k b").int() > 0);
    assert_eq!(ids(&mut c), ["b"]);
    assert_eq!(c.line("GET k").text(), "0");
    assert_eq!(server.stat("sem_grants_expired"), 1);
}

#[test]
fn an_owner_can_acquire_again_after_its_permit_has_expired() {
    let server = TestServer::start();
    let mut c = server.conn();
    let first = c.line("SEM.ACQUIRE k a LIMIT 1 PX 1").int();
    wait_for("the end of the lease", || info(&mut c, "free").int() == 1);
    assert!(c.line("SEM.ACQUIRE k a PX 60000").int() > first);
    assert_eq!(c.line("GET k").text(), "0");
    assert_eq!(ids(&mut c), ["a"]);
    assert_eq!(info(&mut c, "permits").int(), 1);
}

/// A refused acquire writes nothing, except that the expired permits that it had to read are removed afterwards.
#[test]
fn a_long_debt_is_paid_by_expired_permits() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 302");
    for id in 0..300 {
        c.line(&format!("SEM.ACQUIRE k id{id} PX 1"));
    }
    c.line("SEM.ACQUIRE k stays PX 600000");
    c.line("SEM.ACQUIRE k also PX 600000");
    assert_eq!(c.line("SEM.SET k 1").int(), 1);
    wait_for("the end of the leases", || {
        c.line("SEM.INFO k").field("held").unwrap().int() == 2
    });
    assert!(c.line("SEM.ACQUIRE k late").is_nil());
    wait_for("what is over to leave", || {
        c.line("ZCARD {k}:timeout").int() == 2
    });
    assert_eq!(c.line("GET k").text(), "-1");
    assert_eq!(server.stat("sem_grants_expired"), 300);
    assert_eq!(c.line("SEM.INFO k").field("permits").unwrap().int(), 1);
}

#[test]
fn debt_is_paid_before_a_permit_is_granted() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 3");
    for id in ["a", "b", "c"] {
        c.line(&format!("SEM.ACQUIRE k {id} PX 60000"));
    }
    c.line("SEM.SET k 1");
    let mut waiter = server.conn();
    waiter.send_line("SEM.ACQUIRE k w BLOCK 0");
    wait_for("a waiter", || server.stat("sem_waiters") == 1);
    c.line("SEM.RELEASE k a");
    c.line("SEM.RELEASE k b");
    assert_stays_silent(&server, &mut waiter);
    assert_eq!(c.line("GET k").text(), "0");
    c.line("SEM.RELEASE k c");
    assert!(only_reply(&mut waiter).int() > 0);
    assert_eq!(info(&mut c, "permits").int(), 1);
}

#[test]
fn permits_go_to_waiters_in_their_order() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 2");
    c.line("SEM.ACQUIRE k a");
    c.line("SEM.ACQUIRE k b");
    let mut waiters: Vec<Conn> = Vec::new();
    for (at, id) in ["w1", "w2", "w3"].into_iter().enumerate() {
        let mut conn = server.conn3();
        conn.send_line(&format!("SEM.ACQUIRE k {id} BLOCK 60000"));
        wait_for("a waiter", || server.stat("sem_waiters") == at as u64 + 1);
        waiters.push(conn);
    }
    assert!(
        c.line("SEM.ACQUIRE k z").is_nil(),
        "no caller passes a waiter"
    );
    assert_eq!(info(&mut c, "waiters").int(), 3);
    assert_eq!(
        info(&mut c, "queue").list()[0]
            .field("id")
            .expect("an id")
            .text(),
        "w1"
    );
    c.line("SEM.RELEASE k a");
    let first = only_reply(&mut waiters[0]).int();
    assert!(waiters[1].is_silent() && waiters[2].is_silent());
    c.line("SEM.RELEASE k b");
    assert!(only_reply(&mut waiters[1]).int() > first);
    assert_eq!(ids(&mut c), ["w1", "w2"]);
    assert_eq!(c.line("SEM.SET k 3").int(), 3);
    only_reply(&mut waiters[2]).int();
    assert_eq!(c.line("GET k").text(), "0");
    assert_eq!(server.stat("sem_waits_granted"), 3);
}

/// One event serves a hundred waiters; a caller in the same tick passes none of the others.
#[test]
fn more_waiters_than_one_event_serves_are_all_served() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 0");
    let mut waiters: Vec<Conn> = (0..230).map(|_| server.conn()).collect();
    for (at, conn) in waiters.iter_mut().enumerate() {
        conn.send_line(&format!("SEM.ACQUIRE k w{at} BLOCK 0"));
    }
    wait_for("all to wait", || server.stat("sem_waiters") == 230);
    c.line("MULTI");
    c.line("SEM.SET k 300");
    c.line("SEM.ACQUIRE k z");
    let replies = c.line("EXEC").list();
    assert_eq!(replies[0].int(), 300);
    assert!(replies[1].is_nil(), "no caller passes a waiter");
    for conn in &mut waiters {
        conn.recv().int();
    }
    assert_eq!(c.line("GET k").text(), "70");
    assert_eq!(c.line("ZCARD {k}:timeout").int(), 230);
}

#[test]
fn an_id_that_waits_twice_waits_once() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.ACQUIRE k a LIMIT 1");
    let (mut older, mut newer) = (server.conn(), server.conn());
    older.send_line("SEM.ACQUIRE k w BLOCK 0");
    wait_for("a waiter", || server.stat("sem_waiters") == 1);
    newer.send_line("SEM.ACQUIRE k w BLOCK 0");
    assert!(only_reply(&mut older).is_nil());
    assert!(
        c.line("SEM.ACQUIRE k w").is_nil(),
        "without BLOCK no request waits"
    );
    assert!(c.line("SEM.RELEASE k w").is_nil(), "the wait is withdrawn");
    assert!(only_reply(&mut newer).is_nil());
    assert_eq!(server.stat("sem_waits_taken_over"), 1);
    assert_eq!(server.stat("sem_waits_withdrawn"), 1);
}

#[test]
fn a_wait_that_timed_out_keeps_its_place_for_a_moment() {
    let server = TestServer::with(&["--lock.queue-grace", "60000"]);
    let mut c = server.conn();
    c.line("SEM.ACQUIRE k a LIMIT 1");
    let (mut first, mut second) = (server.conn(), server.conn());
    assert!(first.line("SEM.ACQUIRE k w1 BLOCK 20").is_nil());
    assert_eq!(server.stat("sem_places_kept"), 1);
    second.send_line("SEM.ACQUIRE k w2 BLOCK 0");
    wait_for("a waiter", || server.stat("sem_waiters") == 1);
    first.send_line("SEM.ACQUIRE k w1 BLOCK 0");
    wait_for("both", || server.stat("sem_waiters") == 2);
    c.line("SEM.RELEASE k a");
    only_reply(&mut first).int();
    assert!(second.is_silent());
}

#[test]
fn inside_a_transaction_or_a_script_no_request_is_parked() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.ACQUIRE k a LIMIT 1");
    c.line("LATCH.SET l 1");
    c.line("MULTI");
    c.line("SEM.ACQUIRE k b BLOCK 0");
    c.line("LATCH.WAIT l BLOCK 0");
    let replies = c.line("EXEC").list();
    assert!(replies[0].is_nil());
    assert_eq!(replies[1].int(), 0);
    let script = "return redis.call('SEM.ACQUIRE', KEYS[1], 'b', 'BLOCK', '0')";
    assert!(c.run(["EVAL", script, "1", "k"]).is_nil());
}

#[test]
fn foreign_data_is_never_changed() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (make, code) in [
        ("HSET k f v", "WRONGTYPE"),
        ("SET k hello", "LOCKTYPE"),
        ("SET k 1.5", "LOCKTYPE"),
        ("SET k 99999999999999999999", "LOCKTYPE"),
    ] {
        c.line("DEL k");
        c.line(make);
        let bystander = Bystander::of(&server, "k");
        for call in [
            "SEM.SET k 1",
            "SEM.ACQUIRE k a",
            "SEM.ACQUIRE k a BLOCK 0",
            "SEM.RELEASE k a",
            "SEM.RENEW k a",
            "SEM.INFO k",
        ] {
            let error = c.line(call).error();
            assert!(error.starts_with(code), "{call} of {make}: {error}");
        }
        bystander.saw_nothing("refused calls");
    }
    c.line("DEL k");
    c.line("SET k 1");
    c.line("SADD {k}:timeout x");
    assert!(c.line("SEM.ACQUIRE k a").error().starts_with("WRONGTYPE"));
    assert_eq!(c.line("SMEMBERS {k}:timeout").list().len(), 1);
}

#[test]
fn a_refusal_leaves_no_trace() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 1");
    c.line("SEM.ACQUIRE k a");
    let (key, set) = (
        Bystander::of(&server, "k"),
        Bystander::of(&server, "{k}:timeout"),
    );
    for call in [
        "SEM.SET k 7 NX",
        "SEM.SET absent 7 XX",
        "SEM.ACQUIRE k b",
        "SEM.ACQUIRE absent b",
        "SEM.RELEASE k b",
        "SEM.RENEW k b",
    ] {
        let reply = c.line(call);
        assert!(reply.is_nil() || reply.int() == 0, "{call}");
    }
    for (call, error) in [
        (
            "SEM.SET k x",
            "ERR value is not an integer or out of range: permits 'x'",
        ),
        (
            "SEM.SET k -1",
            "ERR value is not an integer or out of range: permits '-1'",
        ),
        (
            "SEM.SET k 2147483648",
            "ERR value is not an integer or out of range: more than 2147483647 permits",
        ),
        (
            "SEM.SET k 1 NX XX",
            "ERR syntax error: more than one of NX, XX",
        ),
        (
            "SEM.SET k 1 MORE",
            "ERR syntax error: unknown option 'MORE', expected NX, XX",
        ),
        (
            "SEM.ACQUIRE k b LIMIT 0",
            "ERR value is out of range, must be positive: LIMIT '0'",
        ),
        (
            "SEM.ACQUIRE k b LIMIT 2147483648",
            "ERR value is not an integer or out of range: more than 2147483647 permits",
        ),
        (
            "SEM.ACQUIRE k b LIMIT",
            "ERR syntax error: a value is missing after LIMIT",
        ),
        (
            "SEM.ACQUIRE k b EX 1 PX 1",
            "ERR syntax error: more than one of EX, PX, SESSION",
        ),
        (
            "SEM.ACQUIRE k b PX 0",
            "ERR invalid expire time in 'sem.acquire' command: PX '0'",
        ),
        (
            "SEM.ACQUIRE k b BLOCK -1",
            "ERR timeout is negative: BLOCK '-1'",
        ),
        (
            "SEM.RENEW k a PX 0",
            "ERR invalid expire time in 'sem.renew' command: PX '0'",
        ),
        (
            "SEM.INFO k WAITERS COUNT 0",
            "ERR value is out of range, must be positive: COUNT '0'",
        ),
        (
            "SEM.ACQUIRE redis_lock:horizon b",
            "ERR keys that begin with 'redis_lock:horizon' or 'redisson_lock_token:' are reserved",
        ),
    ] {
        assert_eq!(c.line(call).error(), error, "{call}");
    }
    assert!(c
        .run(["SEM.ACQUIRE", "k", ""])
        .error()
        .contains("owner is empty"));
    key.saw_nothing("refused calls");
    set.saw_nothing("refused calls");
    assert!(c.line("SEM.INFO absent").is_nil());
}

#[test]
fn info_in_both_protocols() {
    let server = TestServer::start();
    for mut c in [server.conn(), server.conn3()] {
        c.line("DEL k {k}:timeout");
        c.line("SEM.SET k 3");
        assert!(info(&mut c, "next-end-ms").is_nil());
        c.line("SEM.ACQUIRE k a PX 60000");
        for (field, value) in [("permits", 3), ("free", 2), ("held", 1), ("waiters", 0)] {
            assert_eq!(info(&mut c, field).int(), value, "{field}");
        }
        assert!((50_000..=60_000).contains(&info(&mut c, "next-end-ms").int()));
        assert!(c.line("SEM.INFO k").field("queue").is_none());
    }
}

#[test]
fn any_bytes_are_an_id() {
    let server = TestServer::start();
    let mut c = server.conn();
    let id = [0u8, 255, b'\r', b'\n', 1, 2];
    let call = [b"SEM.ACQUIRE".as_slice(), b"k", &id, b"LIMIT", b"1"];
    let token = c.run(call).int();
    assert_eq!(c.run(call).int(), token);
    assert_eq!(c.line("ZRANGE {k}:timeout 0 0").list()[0].bytes(), id);
    let release = [b"SEM.RELEASE".as_slice(), b"k", &id];
    assert_eq!(c.run(release).int(), 1);
}

#[test]
fn the_set_ends_with_the_string() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 2");
    c.line("PEXPIRE k 600000");
    let end = c.line("PEXPIRETIME k").int();
    c.line("SEM.ACQUIRE k a");
    assert_eq!(c.line("PEXPIRETIME k").int(), end, "counting keeps the TTL");
    assert_eq!(c.line("PEXPIRETIME {k}:timeout").int(), end);
    c.line("DEL k");
    assert_eq!(c.line("SEM.RENEW k a").int(), 0, "no string, no semaphore");
    assert!(c.line("SEM.ACQUIRE k b LIMIT 1").int() > 0);
    assert_eq!(
        ids(&mut c),
        ["b"],
        "permits of a former semaphore are not counted"
    );
    assert_eq!(c.line("PTTL k").int(), -1);
    assert_eq!(server.stat("sem_grants_lost"), 1);
}

#[test]
fn the_table_of_tokens_is_bounded() {
    let server = TestServer::with(&["--lock.max-tracked", "2"]);
    let mut c = server.conn();
    c.line("SEM.SET k 10");
    let tokens: Vec<i64> = ["a", "b", "c", "d"]
        .iter()
        .map(|id| c.line(&format!("SEM.ACQUIRE k {id}")).int())
        .collect();
    assert_eq!(server.stat("sem_grants_tracked"), 2);
    assert_eq!(server.stat("sem_grants_unwatched"), 2);
    let again: Vec<i64> = ["a", "b", "c", "d"]
        .iter()
        .map(|id| c.line(&format!("SEM.ACQUIRE k {id}")).int())
        .collect();
    for (old, new) in tokens.iter().zip(&again) {
        assert!(old == new || new > tokens.last().expect("four"));
    }
    assert_eq!(c.line("ZCARD {k}:timeout").int(), 4);
}

#[test]
fn too_many_waiters_of_all_kinds_together_are_busy() {
    let server = TestServer::with(&["--lock.max-waiters", "2"]);
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE l a");
    c.line("SEM.ACQUIRE k a LIMIT 1");
    c.line("LATCH.SET d 1");
    let (mut one, mut two) = (server.conn(), server.conn());
    one.send_line("LOCK.ACQUIRE l b BLOCK 0");
    two.send_line("LATCH.WAIT d BLOCK 0");
    wait_for("two", || {
        server.stat("waiters") + server.stat("latch_waiters") == 2
    });
    for call in [
        "SEM.ACQUIRE k b BLOCK 0",
        "LOCK.ACQUIRE l c BLOCK 0",
        "LATCH.WAIT d BLOCK 0",
    ] {
        assert!(c.line(call).error().starts_with("LOCKBUSY"), "{call}");
    }
    assert_eq!(server.stat("sem_busy") + server.stat("latch_busy"), 2);
    c.line("LATCH.DOWN d");
    two.recv();
    two.send_line("SEM.ACQUIRE k b BLOCK 0");
    wait_for("a waiter", || server.stat("sem_waiters") == 1);
}

/// An old set may be large: it is freed outside of the main thread.
#[test]
fn the_permits_of_a_former_semaphore_are_unlinked() {
    let server = TestServer::start();
    let mut c = server.conn();
    let freed = |c: &mut Conn| -> u64 {
        let info = c.line("INFO memory").text();
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("lazyfreed_objects:"));
        line.expect("a field").trim().parse().expect("a number")
    };
    for line in ["SEM.SET k 5", "SEM.ACQUIRE k a LIMIT 3"] {
        c.line("DEL k {k}:timeout");
        for from in (0..1_000).step_by(100) {
            let ids = (from..from + 100).map(|id| format!(" 99999999999999 p{id}"));
            c.line(&format!("ZADD {{k}}:timeout{}", ids.collect::<String>()));
        }
        let before = freed(&mut c);
        assert!(c.line(line).int() > 0);
        wait_for("the set is freed", || freed(&mut c) > before);
    }
}
