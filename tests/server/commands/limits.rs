//! Limits: the behaviour at each of them, and that none is exceeded.

use crate::common::{wait_for, Bystander, Conn, Reply, TestServer};

const BUSY: &str =
    "LOCKBUSY too many places in queues, see lock.max-waiters, lock.max-waiters-per-key, lock.max-tickets, lock.max-wait-bytes and lock.user-share";

/// Parks this number of requests of the owners `{prefix}0`, `{prefix}1` and so on, one after the other.
fn park(server: &TestServer, key: &str, prefix: &str, count: usize) -> Vec<Conn> {
    let mut looker = server.conn();
    let mut parked = Vec::new();
    for i in 0..count {
        let mut conn = server.conn();
        conn.send_line(&format!("LOCK.ACQUIRE {key} {prefix}{i} BLOCK 0"));
        looker.wait_for_waiters_on(key, i as i64 + 1);
        parked.push(conn);
    }
    parked
}

fn queue(conn: &mut Conn, key: &str) -> Vec<String> {
    let info = conn.run(["LOCK.INFO", key, "WAITERS", "COUNT", "100"]);
    let owner = |waiter: &Reply| waiter.field("owner").unwrap().text();
    info.field("queue")
        .unwrap()
        .list()
        .iter()
        .map(owner)
        .collect()
}

#[test]
fn a_full_queue_of_a_key_refuses_one_more_and_is_left_as_it_was() {
    let server = TestServer::with(&["--lock.max-waiters-per-key", "2"]);
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 600000");
    c.line("LOCK.ACQUIRE j o PX 600000");
    let mut parked = park(&server, "k", "w", 2);
    let bystander = Bystander::of(&server, "k");
    for line in [
        "LOCK.ACQUIRE k x BLOCK 0",
        "LOCK.ACQUIRE k x PX 5 BLOCK 5 ONCE WITHHOLDER",
    ] {
        assert_eq!(c.line(line).error(), BUSY);
    }
    assert!(
        c.line("LOCK.ACQUIRE k x").is_nil(),
        "a request without BLOCK does not wait, so it is not refused"
    );
    assert!(c.line("LOCK.ACQUIRE k o PX 5 ONCE").int() > 0);
    bystander.saw_nothing("a full queue");
    assert_eq!(queue(&mut c, "k"), ["w0", "w1"]);
    assert_eq!((server.stat("busy"), server.stat("waits_parked")), (2, 2));
    let _other = park(&server, "j", "v", 2);
    c.line("LOCK.RELEASE k o");
    assert!(parked[0].recv().int() > 0);
    c.send_line("LOCK.ACQUIRE k x BLOCK 0");
    server.wait_for_waiters(4);
    assert_eq!(queue(&mut server.conn(), "k"), ["w1", "x"]);
}

#[test]
fn a_full_server_refuses_one_more_on_any_key() {
    let server = TestServer::with(&["--lock.max-waiters", "3"]);
    let mut c = server.conn();
    for key in ["i", "j", "k"] {
        c.line(&format!("LOCK.ACQUIRE {key} o PX 600000"));
    }
    let (_i, mut j) = (park(&server, "i", "v", 2), park(&server, "j", "w", 1));
    for key in ["i", "j", "k"] {
        let bystander = Bystander::of(&server, key);
        let reply = c.line(&format!("LOCK.ACQUIRE {key} x BLOCK 0"));
        assert_eq!(reply.error(), BUSY);
        bystander.saw_nothing("a full server");
    }
    assert_eq!(server.stat("waiters"), 3);
    assert_eq!(server.stat("keys_waited"), 2);
    c.line("LOCK.RELEASE j w0");
    assert!(j[0].recv().is_nil());
    let _k = park(&server, "k", "x", 1);
}

#[test]
fn at_the_limit_an_owner_may_still_take_over_its_own_place() {
    let server = TestServer::with(&["--lock.max-waiters", "2"]);
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 600000");
    let mut parked = park(&server, "k", "w", 2);
    let mut newer = server.conn();
    newer.send_line("LOCK.ACQUIRE k w0 BLOCK 0");
    assert!(parked[0].recv().is_nil(), "the older request");
    assert_eq!(queue(&mut c, "k"), ["w0", "w1"]);
    assert_eq!(server.stat("busy"), 0);
    assert_eq!(server.stat("waits_taken_over"), 1);
    c.line("LOCK.RELEASE k o");
    assert!(newer.recv().int() > 0);
}

#[test]
fn with_a_limit_of_0_no_request_is_parked_and_locks_work() {
    for limit in ["lock.max-waiters", "lock.max-waiters-per-key"] {
        let server = TestServer::start();
        let mut c = server.conn();
        assert_eq!(c.line(&format!("CONFIG SET {limit} 0")).text(), "OK");
        assert!(c.line("LOCK.ACQUIRE k o BLOCK 0").int() > 0);
        assert!(c.line("LOCK.ACQUIRE k p").is_nil());
        assert_eq!(c.line("LOCK.ACQUIRE k p BLOCK 0").error(), BUSY, "{limit}");
        assert_eq!(c.line("LOCK.RELEASE k o").int(), 1);
        assert!(c.line("LOCK.ACQUIRE k p BLOCK 0").int() > 0);
        assert_eq!(server.stat("waits_parked"), 0);
    }
}

#[test]
fn a_lowered_limit_keeps_present_waiters() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 600000");
    let mut parked = park(&server, "k", "w", 3);
    c.line("CONFIG SET lock.max-waiters 1");
    assert_eq!(c.line("LOCK.ACQUIRE k x BLOCK 0").error(), BUSY);
    c.line("LOCK.RELEASE k o");
    for (i, conn) in parked.iter_mut().enumerate() {
        assert!(conn.recv().int() > 0);
        assert_eq!(c.line(&format!("LOCK.RELEASE k w{i}")).int(), 1);
    }
}

#[test]
fn requests_beyond_the_limit_take_no_memory() {
    let server = TestServer::with(&["--lock.max-waiters", "1"]);
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 600000");
    let _parked = park(&server, "k", "w", 1);
    let used = |c: &mut Conn| -> i64 {
        let info = c.line("INFO memory").text();
        let line = info.lines().find_map(|l| l.strip_prefix("used_memory:"));
        line.unwrap().trim().parse().unwrap()
    };
    let mut knock = |rounds: std::ops::Range<usize>| {
        for i in rounds {
            let owner = format!("{i:0>200}");
            let key = format!("k{i}");
            c.run(["HSET", &key, "o", "1"]);
            let reply = c.run(["LOCK.ACQUIRE", &key, &owner, "BLOCK", "0"]);
            assert_eq!(reply.error(), BUSY);
            let reply = c.run(["LOCK.ACQUIRE", "k", &owner, "BLOCK", "0"]);
            assert_eq!(reply.error(), BUSY);
            c.run(["DEL", &key]);
        }
        used(&mut c)
    };
    let before = knock(0..500);
    let after = knock(500..3_000);
    assert!(
        after - before < 100_000,
        "{} bytes for 5,000 refused requests",
        after - before
    );
    assert_eq!(server.stat("busy"), 6_000);
    assert_eq!(server.stat("places_kept"), 0);
}

#[test]
fn the_longest_owner_is_a_setting() {
    let server = TestServer::with(&["--lock.max-owner-len", "8"]);
    let mut c = server.conn();
    assert!(c.line("LOCK.ACQUIRE k 12345678").int() > 0);
    let long = "123456789";
    for command in ["LOCK.ACQUIRE k", "LOCK.MACQUIRE 1 k", "SEM.ACQUIRE k"] {
        let reply = c.line(&format!("{command} {long}"));
        assert_eq!(reply.error(), "ERR owner is longer than lock.max-owner-len");
    }
    // Locks by other clients are still visible, and an operator can end them.
    c.run(["HSET", "j", long, "1"]);
    let info = c.line("LOCK.INFO j");
    let holder = info.field("holders").unwrap().list()[0].clone();
    assert_eq!(holder.field("owner").unwrap().text(), long);
    assert!(c.line("LOCK.ACQUIRE j o").is_nil());
    assert_eq!(c.line("LOCK.BREAK j").int(), 1);
    c.line("CONFIG SET lock.max-owner-len 65536");
    let longest = "x".repeat(65_536);
    assert!(c.run(["LOCK.ACQUIRE", "long", &longest]).int() > 0);
    // A hold of before the setting was lowered is renewed and released as ever.
    c.line("CONFIG SET lock.max-owner-len 8");
    assert_eq!(c.run(["LOCK.RENEW", "long", &longest]).int(), 1);
    assert_eq!(c.run(["LOCK.RELEASE", "long", &longest]).int(), 1);
    c.line("CONFIG SET lock.max-owner-len 65536");
    let longer = "x".repeat(65_537);
    assert!(c.run(["LOCK.ACQUIRE", "long", &longer]).is_error());
}

#[test]
fn a_long_owner_of_before_shares_its_timeouts_with_nobody() {
    let server = TestServer::start();
    let mut c = server.conn();
    assert!(c.line("LOCK.ACQUIRE k aaaaaaaaaaaa:b READ PX 600000").int() > 0);
    c.line("CONFIG SET lock.max-owner-len 5");
    let second = c.line("LOCK.ACQUIRE {k}:aaaaaaaaaaaa b READ");
    assert!(second.error().starts_with("LOCKTYPE"));
}

#[test]
fn the_longest_lease_is_a_setting() {
    let server = TestServer::with(&["--lock.max-lease", "20000"]);
    let mut c = server.conn();
    for (command, name) in [
        ("LOCK.ACQUIRE", "lock.acquire"),
        ("LOCK.RENEW", "lock.renew"),
    ] {
        for lease in ["PX 20001", "EX 21", "EX 9000000000"] {
            let reply = c.line(&format!("{command} k o {lease}"));
            let word = lease.replace(' ', " '");
            let expected = format!("ERR invalid expire time in '{name}' command: {word}'");
            assert_eq!(reply.error(), expected, "{lease}");
        }
        for lease in ["PX 20000", "EX 20"] {
            assert!(c.line(&format!("{command} k o {lease}")).int() > 0);
        }
    }
    c.line("LOCK.RELEASE k o ALL");
    // The default lease is limited, too.
    c.line("LOCK.ACQUIRE k o");
    assert!((1..=20_000).contains(&c.line("PTTL k").int()));
}

#[test]
fn the_longest_wait_is_a_setting() {
    const TOO_LONG: &str = "ERR timeout is out of range: BLOCK '51'";
    let server = TestServer::with(&["--lock.max-wait", "50"]);
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 600000");
    assert_eq!(c.line("LOCK.ACQUIRE k p BLOCK 51").error(), TOO_LONG);
    assert!(c.line("LOCK.ACQUIRE k p BLOCK 50").is_nil());
    assert_eq!(
        c.line("LOCK.ACQUIRE free p BLOCK 51").error(),
        TOO_LONG,
        "also if the lock is free"
    );
    c.line("CONFIG SET lock.max-wait 0");
    assert_eq!(
        c.line("LOCK.ACQUIRE k p BLOCK 1").error(),
        TOO_LONG.replace("51", "1")
    );
    // The limit concerns bounded waits: a request without limit stays unlimited.
    let mut parked = park(&server, "k", "w", 1);
    c.line("LOCK.RELEASE k o");
    assert!(parked[0].recv().int() > 0);
}

#[test]
fn out_of_memory_new_grants_are_refused_and_everything_else_works() {
    const OOM: &str = "OOM command not allowed when used memory > 'maxmemory'.";
    let server = TestServer::start();
    let mut c = server.conn();
    for key in ["k", "renewed", "released", "broken"] {
        c.line(&format!("LOCK.ACQUIRE {key} o PX 600000"));
        c.line(&format!("LOCK.ACQUIRE {key} o PX 600000"));
    }
    let mut parked = park(&server, "k", "w", 3);
    // Subscribed before: Redis 8.6 refuses subscriptions without memory.
    let bystander = Bystander::of(&server, "free");
    c.line("CONFIG SET maxmemory-policy noeviction");
    c.line("CONFIG SET maxmemory 1");
    for line in [
        "LOCK.ACQUIRE free o",
        "LOCK.ACQUIRE k o",
        "LOCK.ACQUIRE k x BLOCK 0",
    ] {
        assert_eq!(c.line(line).error(), OOM, "{line}");
    }
    bystander.saw_nothing("a server without memory");
    assert_eq!(c.line("LOCK.RENEW renewed o PX 500000").int(), 1);
    assert!((1..=500_000).contains(&c.line("PTTL renewed").int()));
    assert_eq!(c.line("LOCK.RELEASE released o").int(), 0);
    assert_eq!(c.line("LOCK.RELEASE released o").int(), 1);
    assert_eq!(c.line("LOCK.BREAK broken").int(), 1);
    assert!(!c.line("LOCK.INFO k").is_nil());
    // Ended by release, by break, and by the end of a lease.
    assert_eq!(c.line("LOCK.RELEASE k o ALL").int(), 1);
    assert!(parked[0].recv().int() > 0);
    assert_eq!(c.line("LOCK.BREAK k").int(), 1);
    assert!(parked[1].recv().int() > 0);
    assert_eq!(c.line("LOCK.RENEW k w1 PX 10").int(), 1);
    assert!(parked[2].recv().int() > 0);
    assert_eq!(c.line("HGET k w2").text(), "1");
    assert_eq!(server.stat("eviction_risk"), 0);
}

/// Takes and ends this number of locks in every possible way.
fn many_lives(server: &TestServer, count: usize) {
    let mut c = server.conn();
    for i in 0..count {
        let token = c.line(&format!("LOCK.ACQUIRE k{i} o PX 600000")).int();
        assert!(token > 0);
        assert_eq!(c.line(&format!("LOCK.RENEW k{i} o PX 600000")).int(), 1);
    }
    server.check_counters();
    for i in 0..count {
        match i % 4 {
            0 => assert_eq!(c.line(&format!("LOCK.RELEASE k{i} o")).int(), 1),
            1 => assert_eq!(c.line(&format!("LOCK.BREAK k{i}")).int(), 1),
            2 => {
                assert_eq!(c.line(&format!("DEL k{i}")).int(), 1);
                assert!(c.line(&format!("LOCK.ACQUIRE k{i} p")).int() > 0);
            }
            _ => {
                c.line(&format!("LOCK.RENEW k{i} o PX 1"));
                wait_for("the end of a lease", || {
                    c.line(&format!("EXISTS k{i}")).int() == 0
                });
            }
        }
        server.check_counters();
    }
}

#[test]
fn a_small_table_forgets_locks_but_loses_none() {
    let server = TestServer::with(&["--lock.max-tracked", "3"]);
    let mut c = server.conn();
    for i in 0..10 {
        c.line(&format!("LOCK.ACQUIRE held{i} o PX 600000"));
    }
    assert_eq!(server.stat("grants_tracked"), 3);
    assert_eq!(server.stat("grants_unwatched"), 7);
    let known = |c: &mut Conn| {
        let is_known = |i: &usize| {
            let info = c.line(&format!("LOCK.INFO held{i}"));
            let holder = &info.field("holders").unwrap().list()[0];
            let known = !holder.field("held-ms").unwrap().is_nil();
            assert_eq!(holder.field("client-id").unwrap().is_nil(), !known);
            assert!(
                holder.field("token").unwrap().int() > 0,
                "the token is in the key"
            );
            known
        };
        (0..10).filter(is_known).count()
    };
    assert_eq!(known(&mut c), 3);
    many_lives(&server, 12);
    // A limit that is lowered at run time shrinks the table at the next grant; a raised one lets it fill again.
    c.line("CONFIG SET lock.max-tracked 1");
    c.line("LOCK.ACQUIRE one o");
    assert_eq!(server.stat("grants_tracked"), 1);
    c.line("CONFIG SET lock.max-tracked 100");
    c.line("LOCK.ACQUIRE two o");
    assert_eq!(server.stat("grants_tracked"), 2);
}

#[test]
fn a_table_of_0_tracks_no_grant_and_the_counters_add_up() {
    let server = TestServer::with(&["--lock.max-tracked", "0"]);
    many_lives(&server, 12);
    assert_eq!(server.stat("grants_tracked"), 0);
    assert_eq!(server.stat("grants"), server.stat("grants_unwatched"));
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 600000");
    let mut parked = park(&server, "k", "w", 1);
    c.line("LOCK.RELEASE k o");
    assert!(parked[0].recv().int() > 0);
    c.line("CONFIG SET lock.max-tracked 1");
    c.line("LOCK.ACQUIRE j o");
    assert_eq!(server.stat("grants_tracked"), 1);
    c.line("CONFIG SET lock.max-tracked 0");
    c.line("LOCK.ACQUIRE l o");
    assert_eq!(
        server.stat("grants_tracked"),
        0,
        "emptied with the next grant"
    );
}

/// The order of the queue after `early` gave up and returned behind `late`.
fn queue_after_a_return(grace: &str) -> Vec<String> {
    let server = TestServer::with(&["--lock.queue-grace", grace]);
    let (mut c, mut early, mut late) = (server.conn(), server.conn(), server.conn());
    c.line("LOCK.ACQUIRE k o PX 600000");
    assert!(early.line("LOCK.ACQUIRE k early BLOCK 1").is_nil());
    assert_eq!(server.stat("places_kept"), u64::from(grace != "0"));
    late.send_line("LOCK.ACQUIRE k late BLOCK 0");
    server.wait_for_waiters(1);
    early.send_line("LOCK.ACQUIRE k early BLOCK 0");
    server.wait_for_waiters(2);
    queue(&mut c, "k")
}

#[test]
fn without_a_grace_time_a_waiter_that_leaves_loses_its_place() {
    assert_eq!(queue_after_a_return("0"), ["late", "early"]);
    assert_eq!(queue_after_a_return("60000"), ["early", "late"]);
}

#[test]
fn kept_places_are_no_more_than_waiters_may_be() {
    let server = TestServer::with(&["--lock.queue-grace", "60000", "--lock.max-waiters", "3"]);
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 600000");
    for i in 0..20 {
        let reply = c.line(&format!("LOCK.ACQUIRE k w{i} BLOCK 1"));
        assert!(reply.is_nil(), "kept places do not count as waiters");
    }
    assert_eq!(server.stat("places_kept"), 3);
}
