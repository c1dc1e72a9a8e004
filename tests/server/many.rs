//! Locks on many keys: `LOCK.MACQUIRE`, `LOCK.MRELEASE`, `LOCK.MRENEW` on a real server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::common::cluster::{begin_move, end_move, migrate_keys, one_node, slot_of, two_nodes};
use crate::common::replica::{aof_text, ReplicationStream, PROMPT_MASTER};
use crate::common::scene::{assert_stays_silent, only_reply};
use crate::common::{wait_for, Bystander, Conn, Reply, TestServer};

/// The tokens of a reply that grants.
fn tokens(reply: &Reply) -> Vec<i64> {
    let tokens: Vec<i64> = reply.list().iter().map(Reply::int).collect();
    assert!(
        tokens.windows(2).all(|pair| pair[0] < pair[1]),
        "{tokens:?}"
    );
    tokens
}

/// Parks a request, so that it is in the queues when this returns.
fn park(server: &TestServer, line: &str) -> Conn {
    let parked = server.stat("waits_parked");
    let mut conn = server.conn();
    conn.send_line(line);
    wait_for("a parked request", || server.stat("waits_parked") > parked);
    conn
}

fn waiters_on(c: &mut Conn, key: &str) -> i64 {
    let info = c.run(["LOCK.INFO", key]);
    info.field("waiters").map_or(0, |waiters| waiters.int())
}

fn holder_of(c: &mut Conn, key: &str) -> Option<String> {
    let info = c.run(["LOCK.INFO", key]);
    let holders = info.field("holders")?.list();
    Some(holders.first()?.field("owner").unwrap().text())
}

#[test]
fn all_are_granted_or_none() {
    let server = TestServer::start();
    let mut c = server.conn();
    let granted = tokens(&c.line("LOCK.MACQUIRE 3 x y z a PX 60000"));
    for (key, token) in ["x", "y", "z"].iter().zip(granted) {
        let fields = c.run(["HGETALL", key]).list();
        assert_eq!(fields.len(), 4, "{key}");
        assert_eq!(c.run(["HGET", key, "#token"]).text(), format!("t{token}"));
        assert_eq!(c.run(["HGET", key, "a"]).text(), "1");
        assert!(c.run(["PTTL", key]).int() > 50_000);
    }
    let bystander = Bystander::of(&server, "v");
    assert!(c.line("LOCK.MACQUIRE 2 v x b").is_nil());
    bystander.saw_nothing("a refused MACQUIRE");
    assert_eq!(c.line("LOCK.MRENEW 4 x y z v a PX 90000").int(), 3);
    assert!(c.line("PTTL y").int() > 80_000);
    assert_eq!(c.line("LOCK.MRENEW 2 x y b").int(), 0);
    assert_eq!(c.line("LOCK.MRELEASE 2 x v a").int(), 1);
    assert_eq!(c.line("LOCK.MRELEASE 3 x y z a").int(), 2);
    assert_eq!(c.line("EXISTS x y z").int(), 0);
}

#[test]
fn the_replies_on_the_wire() {
    let server = TestServer::start();
    let (mut c, mut c3) = (server.conn(), server.conn3());
    c.line("LOCK.ACQUIRE x a PX 60000");
    for (conn, nil) in [(&mut c, "*-1"), (&mut c3, "_")] {
        conn.send_line("LOCK.MACQUIRE 2 x y b");
        assert_eq!(conn.raw_line(), nil);
        conn.send_line("LOCK.MACQUIRE 2 x y b BLOCK 20");
        assert_eq!(conn.raw_line(), nil);
        conn.send_line("LOCK.MACQUIRE 2 y z c ONCE");
        assert_eq!(conn.raw_line(), "*2");
        assert!(conn.raw_line().starts_with(':') && conn.raw_line().starts_with(':'));
        conn.send_line("LOCK.MRELEASE 2 y z c");
        assert_eq!(conn.raw_line(), ":2");
        conn.send_line("LOCK.MRENEW 2 y x a");
        assert_eq!(conn.raw_line(), ":1");
    }
}

#[test]
fn withholder_tells_of_the_first_key_that_is_not_to_be_had() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 60000");
    c.line("LOCK.ACQUIRE y a PX 60000");
    for line in [
        "LOCK.MACQUIRE 3 x y z b WITHHOLDER",
        "LOCK.MACQUIRE 3 x y z b WITHHOLDER BLOCK 20",
    ] {
        let reply = c.line(line).list();
        assert!(reply[0].is_nil());
        assert_eq!((reply[1].text().as_str(), reply[2].int()), ("a", 2));
        assert!(reply[3].int() > 50_000);
    }
    let reply = c.line("LOCK.MACQUIRE 2 x z b WITHHOLDER").list();
    assert_eq!(tokens(&reply[0]).len(), 2);
    assert_eq!((reply[1].text().as_str(), reply[2].int()), ("b", 1));
    // Free, but somebody comes first.
    let mut waiter = park(&server, "LOCK.MACQUIRE 2 v y c BLOCK 0");
    let reply = c.line("LOCK.MACQUIRE 1 v d WITHHOLDER").list();
    assert!(reply[0].is_nil() && reply[1].is_nil());
    assert_eq!((reply[2].int(), reply[3].int()), (0, -2));
    c.line("LOCK.RELEASE y a ALL");
    assert_eq!(tokens(&only_reply(&mut waiter)).len(), 2);
}

#[test]
fn what_cannot_be_understood_is_refused() {
    let server = TestServer::start();
    let mut c = server.conn();
    let many: Vec<String> = (0..1_025).map(|key| format!("k{key}")).collect();
    let line = |count: &str, keys: &[String]| format!("LOCK.MACQUIRE {count} {} o", keys.join(" "));
    assert_eq!(c.line(&line("1024", &many[..1_024])).list().len(), 1_024);
    let error = c.line(&line("1025", &many)).error();
    assert_eq!(error, "ERR more than 1024 keys in one request");
    for command in ["LOCK.MACQUIRE", "LOCK.MRELEASE", "LOCK.MRENEW"] {
        for (rest, error) in [
            ("0 x o", "ERR numkeys should be greater than 0"),
            ("-1 x o", "ERR numkeys should be greater than 0"),
            ("two x o", "ERR numkeys should be greater than 0"),
            ("2 x o", "ERR syntax error"),
            ("3 x o", "ERR syntax error"),
            ("9223372036854775807 x o", "ERR syntax error"),
            ("2 x x o", "ERR the same key is given twice"),
            ("2 x y o TOKEN 7", "ERR syntax error"),
            (
                "1 redis_lock:horizon o",
                "ERR keys that begin with 'redis_lock:horizon' are reserved",
            ),
        ] {
            assert_eq!(
                c.line(&format!("{command} {rest}")).error(),
                error,
                "{command} {rest}"
            );
        }
        let few = c.line(&format!("{command} 1 x")).error();
        assert!(few.starts_with("ERR wrong number of arguments"), "{few}");
    }
    let error = c.line("LOCK.MACQUIRE 1 x o PX 0").error();
    assert_eq!(error, "ERR invalid expire time in 'lock.macquire' command");
    let error = c.line("LOCK.MRENEW 1 x o PX 0").error();
    assert_eq!(error, "ERR invalid expire time in 'lock.mrenew' command");
    assert_eq!(
        c.line("LOCK.MACQUIRE 1 x o READ WRITE").error(),
        "ERR syntax error"
    );
}

#[test]
fn an_error_at_one_key_is_the_reply_to_all() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SET s value");
    c.line("HSET h name Ada");
    c.line("LOCK.ACQUIRE x a");
    for (key, code) in [("s", "WRONGTYPE"), ("h", "LOCKTYPE")] {
        let bystander = Bystander::of(&server, "x");
        for command in ["LOCK.MACQUIRE", "LOCK.MRELEASE", "LOCK.MRENEW"] {
            let error = c.line(&format!("{command} 2 x {key} a")).error();
            assert!(error.starts_with(code), "{error}");
        }
        bystander.saw_nothing("a refused command");
    }
}

#[test]
fn who_waits_holds_nothing_and_is_granted_when_all_are_free() {
    let server = TestServer::start();
    let mut c = server.conn();
    let first = tokens(&c.line("LOCK.MACQUIRE 2 x y a PX 60000"));
    let mut waiter = park(&server, "LOCK.MACQUIRE 3 x y z b PX 60000 BLOCK 0");
    assert_eq!(c.line("EXISTS z").int(), 0);
    for key in ["x", "y", "z"] {
        assert_eq!(waiters_on(&mut c, key), 1);
    }
    assert_eq!(server.stat("waiters"), 1);
    // z is reserved: nobody among our own callers takes it.
    assert!(c.line("LOCK.ACQUIRE z c").is_nil());
    assert_eq!(c.line("LOCK.RELEASE x a").int(), 1);
    assert!(c.line("LOCK.ACQUIRE x c").is_nil());
    assert_stays_silent(&mut waiter);
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
fn somebody_before_it_who_leaves_lets_it_on() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 60000");
    c.line("LOCK.ACQUIRE z a PX 60000");
    let first = park(&server, "LOCK.MACQUIRE 2 x y b PX 60000 BLOCK 0");
    let mut second = park(&server, "LOCK.ACQUIRE x c PX 60000 BLOCK 0");
    let mut third = park(&server, "LOCK.MACQUIRE 2 x z d PX 60000 BLOCK 0");
    assert_stays_silent(&mut second);
    first.close();
    only_reply(&mut second).int();
    c.line("LOCK.RELEASE z a");
    assert_stays_silent(&mut third);
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
    assert_stays_silent(&mut waiter);
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
    assert_stays_silent(&mut other);
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
    // The kill is in the turn of the release.
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
fn inside_transactions_and_scripts_it_does_not_wait() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 60000");
    c.line("MULTI");
    c.line("LOCK.MACQUIRE 2 x y b BLOCK 0");
    c.line("LOCK.MACQUIRE 2 x z b BLOCK 0");
    c.line("LOCK.MRENEW 2 x z b");
    c.line("LOCK.MRELEASE 2 x z b");
    let replies = c.line("EXEC").list();
    assert!(replies[0].is_nil());
    assert_eq!(tokens(&replies[1]).len(), 2);
    assert_eq!((replies[2].int(), replies[3].int()), (2, 2));
    let script = "return {redis.call('LOCK.MACQUIRE', 2, KEYS[1], KEYS[2], 'b', 'BLOCK', 0), \
                  redis.call('LOCK.MACQUIRE', 1, KEYS[1], 'b', 'BLOCK', 0)}";
    let replies = c.run(["EVAL", script, "2", "x", "y"]).list();
    assert!(replies[0].is_nil() || replies[0] == Reply(redis::Value::Int(0)));
    assert_eq!(tokens(&replies[1]).len(), 1);
}

#[test]
fn keys_that_are_held_already_are_re_entered() {
    let server = TestServer::start();
    let mut c = server.conn();
    let first = c.line("LOCK.ACQUIRE x a PX 60000").int();
    c.line("LOCK.ACQUIRE y b PX 60000");
    let mut other = park(&server, "LOCK.ACQUIRE x c PX 60000 BLOCK 0");
    let mut waiter = park(&server, "LOCK.MACQUIRE 2 x y a PX 60000 BLOCK 0");
    c.line("LOCK.RELEASE y b");
    let granted = only_reply(&mut waiter).list();
    assert_eq!(granted[0].int(), first);
    assert_eq!(c.line("HGET x a").text(), "2");
    assert_eq!(c.line("LOCK.MRELEASE 2 x y a ALL").int(), 2);
    only_reply(&mut other).int();
}

#[test]
fn readers_enter_many_keys_together() {
    let server = TestServer::start();
    let mut c = server.conn();
    let shared = c.line("LOCK.MACQUIRE 2 x y a READ PX 60000").list();
    let joined = c.line("LOCK.MACQUIRE 2 x y b READ PX 60000").list();
    assert_eq!(shared, joined);
    assert!(c.line("LOCK.MACQUIRE 2 y z w WRITE").is_nil());
    let mut writer = park(&server, "LOCK.MACQUIRE 2 y z w WRITE PX 60000 BLOCK 0");
    assert!(c.line("LOCK.MACQUIRE 2 x y r READ").is_nil());
    let mut reader = park(&server, "LOCK.MACQUIRE 2 x y r READ PX 60000 BLOCK 0");
    assert_eq!(c.line("LOCK.MRELEASE 2 x y a").int(), 2);
    assert_eq!(c.line("LOCK.MRENEW 2 x y b PX 90000").int(), 2);
    assert_stays_silent(&mut writer);
    assert_eq!(c.line("LOCK.MRELEASE 2 x y b").int(), 2);
    assert_eq!(only_reply(&mut writer).list().len(), 2);
    assert_stays_silent(&mut reader);
    assert_eq!(c.line("LOCK.MRELEASE 2 y z w").int(), 2);
    assert_eq!(only_reply(&mut reader).list().len(), 2);
    // Of both kinds held, a release has to say which: then nothing is released.
    c.line("LOCK.MACQUIRE 1 v w WRITE");
    c.line("LOCK.MACQUIRE 1 v w READ");
    c.line("LOCK.ACQUIRE u w");
    assert!(c.line("LOCK.MRELEASE 2 u v w").is_error());
    assert_eq!(holder_of(&mut c, "u").as_deref(), Some("w"));
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
        let started = Instant::now();
        let granted = many.line(&line).list();
        let waited = started.elapsed();
        let all = many.line(
            &line
                .replace("MACQUIRE", "MRELEASE")
                .replace(" PX 60000 BLOCK 0", ""),
        );
        over.store(true, Ordering::Relaxed);
        assert_eq!((granted.len(), all.int()), (KEYS, KEYS as i64));
        assert!(waited < Duration::from_secs(2), "{waited:?}");
    });
}

/// What is written for two grants, and nothing between them.
fn assert_one_unit(commands: &[String]) {
    let names: Vec<&str> = commands
        .iter()
        .map(|c| c.split(' ').next().unwrap())
        .collect();
    let begin = names
        .iter()
        .position(|name| *name == "MULTI")
        .expect("a transaction");
    let end = names
        .iter()
        .rposition(|name| *name == "EXEC")
        .expect("its end");
    assert_eq!(
        names.iter().filter(|name| **name == "MULTI").count(),
        1,
        "{commands:?}"
    );
    let inside = &commands[begin..end];
    for key in ["x", "y", "z"] {
        for start in [format!("HSET {key} "), format!("PEXPIREAT {key} ")] {
            assert!(
                inside.iter().any(|c| c.starts_with(&start)),
                "{start}in {commands:?}"
            );
        }
    }
}

#[test]
fn a_grant_is_one_transaction_in_the_stream_and_the_aof() {
    let options = [
        &PROMPT_MASTER[..],
        &["--appendonly", "yes", "--appendfsync", "always"],
    ]
    .concat();
    let server = TestServer::with(&options);
    let mut c = server.conn();
    let mut stream = ReplicationStream::attach(&server);
    c.line("LOCK.MACQUIRE 3 x y z a PX 60000");
    assert_one_unit(&stream.until_now(&server));
    assert_one_unit(&aof_text(&server));
    c.line("LOCK.MRELEASE 3 x y z a");
    c.line("LOCK.ACQUIRE y b PX 60000");
    let mut waiter = park(&server, "LOCK.MACQUIRE 3 x y z c PX 60000 BLOCK 0");
    stream.until_now(&server);
    c.line("DEL y");
    tokens(&only_reply(&mut waiter));
    let commands = stream.until_now(&server);
    assert_one_unit(&commands[1..]);
    assert_eq!(commands[0], "DEL y");
}

#[test]
fn limits_count_it_once_in_all_and_once_at_each_key() {
    let server = TestServer::with(&["--lock.max-waiters", "2", "--lock.max-waiters-per-key", "1"]);
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
    assert_eq!(server.stat("waiters"), 2);
}

#[test]
fn writes_that_are_refused_for_now_keep_it_parked() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 300");
    let mut waiter = park(&server, "LOCK.MACQUIRE 2 x y b PX 60000 BLOCK 0");
    c.line("CONFIG SET min-replicas-to-write 1");
    wait_for("the end of the lease", || c.line("EXISTS y").int() == 0);
    assert_stays_silent(&mut waiter);
    c.line("CONFIG SET min-replicas-to-write 0");
    assert_eq!(tokens(&only_reply(&mut waiter)).len(), 2);
}

#[test]
fn in_a_cluster_all_keys_are_in_one_slot() {
    let node = one_node(&[]);
    let mut c = node.conn();
    for command in ["LOCK.MACQUIRE", "LOCK.MRELEASE", "LOCK.MRENEW"] {
        let error = c.line(&format!("{command} 2 x y o")).error();
        assert!(error.starts_with("CROSSSLOT"), "{command}: {error}");
        let error = c.line(&format!("{command} 4 x y o")).error();
        assert_eq!(error, "ERR syntax error", "{command}");
    }
    assert_eq!(
        tokens(&c.line("LOCK.MACQUIRE 2 {t}x {t}y o PX 60000")).len(),
        2
    );
    let mut waiter = park(&node, "LOCK.MACQUIRE 3 {t}x {t}y {t}z p PX 60000 BLOCK 0");
    assert_eq!(c.line("LOCK.MRELEASE 2 {t}x {t}y o").int(), 2);
    assert_eq!(tokens(&only_reply(&mut waiter)).len(), 3);
}

#[test]
fn a_slot_that_moves_takes_its_waiters_along() {
    let (source, target) = two_nodes(&[]);
    let (mut here, mut there) = (source.conn(), target.conn());
    let slot = slot_of(&mut here, "{t}x");
    here.line("LOCK.ACQUIRE {t}y a PX 60000");
    let mut waiter = park(&source, "LOCK.MACQUIRE 2 {t}x {t}y b PX 60000 BLOCK 0");
    begin_move(&source, &target, slot);
    migrate_keys(&source, &target, slot);
    end_move(&source, &target, slot);
    let expected = format!("MOVED {slot} 127.0.0.1:{}", target.port);
    assert_eq!(waiter.recv().error(), expected);
    source.wait_for_waiters(0);
    let error = here.line("LOCK.MACQUIRE 2 {t}x {t}y b").error();
    assert_eq!(error, expected);
    assert_eq!(there.line("LOCK.RELEASE {t}y a").int(), 1);
    assert_eq!(tokens(&there.line("LOCK.MACQUIRE 2 {t}x {t}y b")).len(), 2);
}

#[test]
fn permissions_are_asked_for_every_key() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.run([
        "ACL",
        "SETUSER",
        "u",
        "on",
        "nopass",
        "+lock.macquire",
        "+lock.mrelease",
        "~a:*",
    ]);
    let mut u = server.conn();
    u.line("AUTH u any");
    assert_eq!(tokens(&u.line("LOCK.MACQUIRE 2 a:x a:y o")).len(), 2);
    for line in [
        "LOCK.MACQUIRE 2 a:x b:y o",
        "LOCK.MRELEASE 2 b:x a:y o",
        "LOCK.MRENEW 1 a:x o",
    ] {
        assert!(u.line(line).error().starts_with("NOPERM"), "{line}");
    }
}

#[test]
fn the_server_finds_its_keys() {
    let server = TestServer::start();
    let mut c = server.conn();
    for command in ["LOCK.MACQUIRE", "LOCK.MRELEASE", "LOCK.MRENEW"] {
        let keys = c
            .line(&format!("COMMAND GETKEYS {command} 2 x y o PX 7"))
            .list();
        let keys: Vec<String> = keys.iter().map(Reply::text).collect();
        assert_eq!(keys, ["x", "y"], "{command}");
        assert!(c
            .line(&format!("COMMAND GETKEYS {command} 5 x y o"))
            .is_error());
        assert!(c
            .line(&format!("COMMAND GETKEYS {command} none x y o"))
            .is_error());
    }
}

#[test]
fn a_waiter_for_many_does_not_hinder_the_way_out() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE y a PX 60000");
    let mut waiter = park(&server, "LOCK.MACQUIRE 2 x y b BLOCK 0");
    c.line("CONFIG SET lock.drain yes");
    assert!(only_reply(&mut waiter).error().starts_with("UNBLOCKED"));
    assert_eq!(server.stat("places_kept"), 0);
    c.line("LOCK.RELEASE y a");
    crate::common::scene::unload_and_load(&mut c);
}
