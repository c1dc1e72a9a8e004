//! Waiters for several keys: the events that wake them or send them away, and the places that are kept.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::barrier::{assert_stays_silent, Barrier};
use crate::common::scene::only_reply;
use crate::common::{wait_for, Conn, TestServer};
use crate::multi::many::{holder_of, park, tokens};

fn waiters_on(c: &mut Conn, key: &str) -> i64 {
    let info = c.run(["LOCK.INFO", key]);
    info.field("waiters").map_or(0, |waiters| waiters.int())
}

#[test]
fn a_waiter_holds_nothing_and_is_granted_when_all_keys_are_free() {
    let server = TestServer::start();
    let mut c = server.conn();
    let first = tokens(&c.line("LOCK.MACQUIRE 2 x y a PX 60000"));
    let mut waiter = park(&server, "LOCK.MACQUIRE 3 x y z b PX 60000 BLOCK 0");
    assert_eq!(c.line("EXISTS z").int(), 0);
    for key in ["x", "y", "z"] {
        assert_eq!(waiters_on(&mut c, key), 1);
    }
    assert_eq!(server.stat("waiters"), 1);
    // z is reserved: no caller of LOCK.* takes it.
    assert!(c.line("LOCK.ACQUIRE z c").is_nil());
    assert_eq!(c.line("LOCK.RELEASE x a").int(), 1);
    assert!(c.line("LOCK.ACQUIRE x c").is_nil());
    assert_stays_silent(&server, &mut waiter);
    assert_eq!(c.line("EXISTS x").int(), 0);
    assert_eq!(c.line("LOCK.RELEASE y a").int(), 1);
    let granted = tokens(&only_reply(&mut waiter));
    assert!(granted[0] > first[1]);
    assert_eq!(server.stat("waits_granted"), 1);
    for key in ["x", "y", "z"] {
        assert_eq!(holder_of(&mut c, key).as_deref(), Some("b"));
    }
}

#[test]
fn whatever_frees_its_last_key_wakes_it() {
    type Free = fn(&TestServer, &mut Conn);
    let ways: [(&str, Free); 9] = [
        ("release", |_, c| drop(c.line("LOCK.RELEASE y a"))),
        ("mrelease", |_, c| drop(c.line("LOCK.MRELEASE 2 w y a"))),
        ("break", |_, c| drop(c.line("LOCK.BREAK y"))),
        ("del", |_, c| drop(c.line("DEL y"))),
        ("expiry", |_, c| drop(c.line("PEXPIRE y 20"))),
        ("hdel", |_, c| drop(c.line("HDEL y a"))),
        ("flushall", |_, c| drop(c.line("FLUSHALL"))),
        ("rename", |_, c| drop(c.line("RENAME y elsewhere"))),
        ("a script", |_, c| {
            c.run(["EVAL", "return redis.call('DEL', KEYS[1])", "1", "y"]);
        }),
    ];
    for (way, free) in ways {
        let server = TestServer::start();
        let mut c = server.conn();
        c.line("LOCK.ACQUIRE y a PX 60000");
        let mut waiter = park(&server, "LOCK.MACQUIRE 2 x y b PX 60000 BLOCK 0");
        free(&server, &mut c);
        assert_eq!(tokens(&only_reply(&mut waiter)).len(), 2, "{way}");
        assert_eq!(holder_of(&mut c, "y").as_deref(), Some("b"), "{way}");
    }
}

#[test]
fn a_waiter_in_front_that_leaves_wakes_it() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 60000");
    c.line("LOCK.ACQUIRE z a PX 60000");
    let first = park(&server, "LOCK.MACQUIRE 2 x y b PX 60000 BLOCK 0");
    let mut second = park(&server, "LOCK.ACQUIRE x c PX 60000 BLOCK 0");
    let mut third = park(&server, "LOCK.MACQUIRE 2 x z d PX 60000 BLOCK 0");
    assert_stays_silent(&server, &mut second);
    first.close();
    only_reply(&mut second).int();
    c.line("LOCK.RELEASE z a");
    assert_stays_silent(&server, &mut third);
    c.line("LOCK.RELEASE x c");
    assert_eq!(tokens(&only_reply(&mut third)).len(), 2);
}

#[test]
fn a_redisson_client_may_take_a_reserved_key() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 60000");
    let mut waiter = park(&server, "LOCK.MACQUIRE 2 x y b PX 60000 BLOCK 0");
    let take = "redis.call('HINCRBY', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], 60000)";
    c.run(["EVAL", take, "1", "x", "r:1"]);
    c.line("LOCK.RELEASE y a");
    assert_stays_silent(&server, &mut waiter);
    assert_eq!(c.line("EXISTS y").int(), 0);
    c.line("DEL x");
    assert_eq!(tokens(&only_reply(&mut waiter)).len(), 2);
}

#[test]
fn it_is_sent_away_as_a_whole() {
    for (line, expected) in [
        ("LOCK.BREAK y PURGE", "LOCKBROKEN"),
        ("SET x value", "WRONGTYPE"),
        ("HSET y name Ada", "LOCKTYPE"),
        ("LOCK.RELEASE x b", ""),
        ("LOCK.MRELEASE 2 w y b", ""),
    ] {
        let server = TestServer::start();
        let mut c = server.conn();
        c.line("LOCK.ACQUIRE y a PX 60000");
        let mut waiter = park(&server, "LOCK.MACQUIRE 3 x y z b PX 60000 BLOCK 0");
        c.line(line);
        let reply = only_reply(&mut waiter);
        match expected {
            "" => assert!(reply.is_nil(), "{line}"),
            code => assert!(reply.error().starts_with(code), "{line}: {}", reply.error()),
        }
        for key in ["z", "w"] {
            assert!(c.run(["LOCK.INFO", key]).is_nil(), "{line}");
        }
        assert_eq!(server.stat("places_kept"), 0, "{line}");
    }
}

#[test]
fn its_wait_ends_and_its_places_are_kept() {
    let server = TestServer::with(&["--lock.queue-grace", "60000"]);
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 60000");
    let mut waiter = server.conn();
    waiter.send_line("LOCK.MACQUIRE 2 x y b BLOCK 30");
    assert!(only_reply(&mut waiter).is_nil());
    assert_eq!(server.stat("places_kept"), 2);
    let mut other = park(&server, "LOCK.ACQUIRE y c PX 60000 BLOCK 0");
    let mut again = park(&server, "LOCK.MACQUIRE 2 x y b PX 60000 BLOCK 0");
    c.line("LOCK.RELEASE y a");
    assert_eq!(tokens(&only_reply(&mut again)).len(), 2);
    assert_stays_silent(&server, &mut other);
    c.line("LOCK.MRELEASE 2 x y b");
    other.recv().int();
}

#[test]
fn unblocked_killed_and_taken_over() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 60000");
    for (kind, stat) in [
        ("TIMEOUT", "waits_unblocked"),
        ("ERROR", "waits_disconnected"),
    ] {
        let mut waiter = server.conn();
        let id = waiter.id();
        waiter.send_line("LOCK.MACQUIRE 2 x y b BLOCK 0");
        server.wait_for_waiters(1);
        c.line(&format!("CLIENT UNBLOCK {id} {kind}"));
        let reply = only_reply(&mut waiter);
        assert!(reply.is_nil() || reply.error().starts_with("UNBLOCKED"));
        assert_eq!(server.stat(stat), 1);
    }
    let mut waiter = server.conn();
    let id = waiter.id();
    waiter.send_line("LOCK.MACQUIRE 2 x y b BLOCK 0");
    server.wait_for_waiters(1);
    c.line(&format!("CLIENT KILL ID {id}"));
    server.wait_for_waiters(0);
    let mut older = park(&server, "LOCK.MACQUIRE 2 x y b BLOCK 0");
    let mut newer = park(&server, "LOCK.MACQUIRE 2 y v b BLOCK 0");
    assert!(only_reply(&mut older).is_nil());
    assert_eq!(waiters_on(&mut c, "x"), 0);
    let mut single = park(&server, "LOCK.ACQUIRE y b PX 60000 BLOCK 0");
    assert!(only_reply(&mut newer).is_nil());
    assert_eq!(waiters_on(&mut c, "v"), 0);
    c.line("LOCK.RELEASE y a");
    only_reply(&mut single).int();
}

#[test]
fn a_grant_that_finds_no_client_is_taken_back_at_every_key() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 60000");
    let mut waiter = server.conn();
    let id = waiter.id();
    waiter.send_line("LOCK.MACQUIRE 2 x y b PX 60000 BLOCK 0");
    server.wait_for_waiters(1);
    let mut next = park(&server, "LOCK.MACQUIRE 2 x y c PX 60000 BLOCK 0");
    // The kill is in the tick of the release.
    c.send_lines(&[
        "MULTI",
        "LOCK.RELEASE y a",
        &format!("CLIENT KILL ID {id}"),
        "EXEC",
    ]);
    for _ in 0..4 {
        c.recv();
    }
    assert_eq!(tokens(&only_reply(&mut next)).len(), 2);
    for key in ["x", "y"] {
        assert_eq!(holder_of(&mut c, key).as_deref(), Some("c"));
    }
}

#[test]
fn a_session_ends_them_all() {
    let server = TestServer::start();
    let mut c = server.conn();
    let mut session = server.conn();
    session.line("LOCK.ACQUIRE y a PX 60000");
    let mut bound = park(&server, "LOCK.MACQUIRE 2 x y b SESSION BLOCK 0");
    session.line("LOCK.RELEASE y a");
    tokens(&only_reply(&mut bound));
    assert_eq!(server.stat("session_holds"), 2);
    let mut next = park(&server, "LOCK.MACQUIRE 2 x y c PX 60000 BLOCK 0");
    bound.close();
    assert_eq!(tokens(&only_reply(&mut next)).len(), 2);
    c.line("LOCK.MRELEASE 2 x y c");
    assert_eq!(c.line("EXISTS x y").int(), 0);
}

#[test]
fn single_key_traffic_does_not_starve_it() {
    const KEYS: usize = 10;
    const CLIENTS: usize = 20;
    let server = TestServer::start();
    let port = server.port;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let over = &over;
            scope.spawn(move || {
                let mut c = Conn::open(port);
                let (key, owner) = (format!("k{}", client % KEYS), format!("o{client}"));
                while !over.load(Ordering::Relaxed) {
                    let take = ["LOCK.ACQUIRE", &key, &owner, "PX", "60000", "BLOCK", "0"];
                    c.run(take).int();
                    c.run(["LOCK.RELEASE", &key, &owner]).int();
                }
            });
        }
        wait_for("traffic", || server.stat("waits_granted") > 200);
        let mut many = server.conn();
        let keys: Vec<String> = (0..KEYS).map(|key| format!("k{key}")).collect();
        let line = format!(
            "LOCK.MACQUIRE {KEYS} {} many PX 60000 BLOCK 0",
            keys.join(" ")
        );
        let granted = many.line(&line).list();
        let all = many.line(
            &line
                .replace("MACQUIRE", "MRELEASE")
                .replace(" PX 60000 BLOCK 0", ""),
        );
        over.store(true, Ordering::Relaxed);
        assert_eq!((granted.len(), all.int()), (KEYS, KEYS as i64));
    });
}

#[test]
fn limits_count_its_place_at_each_key() {
    let server = TestServer::with(&["--lock.max-waiters", "3", "--lock.max-waiters-per-key", "1"]);
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 60000");
    c.line("LOCK.ACQUIRE z a PX 60000");
    let _first = park(&server, "LOCK.MACQUIRE 2 x y b BLOCK 0");
    assert!(c
        .line("LOCK.ACQUIRE x c BLOCK 0")
        .error()
        .starts_with("LOCKBUSY"));
    assert!(c
        .line("LOCK.MACQUIRE 2 x z c BLOCK 0")
        .error()
        .starts_with("LOCKBUSY"));
    let _second = park(&server, "LOCK.ACQUIRE z c BLOCK 0");
    assert!(c.line("LOCK.MACQUIRE 2 v w d BLOCK 0").list().len() == 2);
    assert!(c
        .line("LOCK.MACQUIRE 2 v w e BLOCK 0")
        .error()
        .starts_with("LOCKBUSY"));
    assert_eq!((server.stat("waiters"), server.stat("places")), (2, 3));
    // The limit also holds for latches and semaphores.
    c.line("LATCH.SET latch 1");
    let latch = c.line("LATCH.WAIT latch BLOCK 0").error();
    c.line("SEM.SET sem 0");
    let permit = c.line("SEM.ACQUIRE sem id BLOCK 0").error();
    assert!(latch.starts_with("LOCKBUSY") && permit.starts_with("LOCKBUSY"));
    // A request at the limit may take over the same number of places or fewer.
    let _third = park(&server, "LOCK.ACQUIRE y b BLOCK 0");
    assert_eq!((server.stat("waiters"), server.stat("places")), (2, 2));
    assert_eq!(server.stat("waits_taken_over"), 1);
}

/// The setting limits the places of a client, whatever the number of keys of its requests.
#[test]
fn the_limit_bounds_the_memory_of_requests_for_many_keys() {
    let server = TestServer::with(&["--lock.max-waiters", "2000", "--lock.queue-grace", "60000"]);
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE held o PX 600000");
    let request = |number: usize| {
        let keys = (1..1_000).map(|key| format!("key:{number}:{key}"));
        let keys = keys
            .chain(["held".to_owned()])
            .collect::<Vec<_>>()
            .join(" ");
        format!("LOCK.MACQUIRE 1000 {keys} owner:{number} BLOCK 0")
    };
    let mut parked: Vec<_> = (0..2)
        .map(|number| park(&server, &request(number)))
        .collect();
    let refused = server.conn().line(&request(2)).error();
    assert!(refused.starts_with("LOCKBUSY"), "{refused}");
    assert_eq!(server.stat("places"), 2_000);
    // The setting also limits places that are kept for disconnected clients.
    for number in 3..5 {
        parked.pop();
        server.wait_for_waiters(1);
        parked.push(park(&server, &request(number)));
    }
    parked.clear();
    server.wait_for_waiters(0);
    assert_eq!(server.stat("places_kept"), 2_000);
}

#[test]
fn writes_refused_for_now_keep_it_parked() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 5000");
    let mut waiter = park(&server, "LOCK.MACQUIRE 2 x y b PX 60000 BLOCK 0");
    let mut barrier = Barrier::on(&server);
    c.line("CONFIG SET min-replicas-to-write 1");
    wait_for("the end of the lease", || c.line("EXISTS y").int() == 0);
    barrier.assert_silent(&mut waiter);
    server.wait_for_stat("keys_withheld", 1);
    c.line("CONFIG SET min-replicas-to-write 0");
    assert_eq!(tokens(&only_reply(&mut waiter)).len(), 2);
}

#[test]
fn writes_refused_at_the_end_of_the_tick_keep_it_parked() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 60000");
    let mut waiter = park(&server, "LOCK.MACQUIRE 2 x y b PX 60000 BLOCK 0");
    let mut barrier = Barrier::on(&server);
    c.line("MULTI");
    c.line("LOCK.RELEASE y a");
    c.line("CONFIG SET min-replicas-to-write 1");
    assert_eq!(c.line("EXEC").list()[0].int(), 1);
    barrier.assert_silent(&mut waiter);
    assert_eq!(c.line("EXISTS x y").int(), 0);
    c.line("CONFIG SET min-replicas-to-write 0");
    assert_eq!(tokens(&only_reply(&mut waiter)).len(), 2);
}
