//! Locks on many keys: `LOCK.MACQUIRE`, `LOCK.MRELEASE`, `LOCK.MRENEW` on a real server.

use crate::common::barrier::assert_stays_silent;
use crate::common::cluster::{begin_move, end_move, migrate_keys, one_node, slot_of, two_nodes};
use crate::common::replica::{aof_text, ReplicationStream, PROMPT_MASTER};
use crate::common::scene::only_reply;
use crate::common::{wait_for, Bystander, Conn, Reply, TestServer};

/// The tokens of a reply that grants.
pub fn tokens(reply: &Reply) -> Vec<i64> {
    let tokens: Vec<i64> = reply.list().iter().map(Reply::int).collect();
    assert!(
        tokens.windows(2).all(|pair| pair[0] < pair[1]),
        "{tokens:?}"
    );
    tokens
}

/// Parks a request, so that it is in the queues when this returns.
pub fn park(server: &TestServer, line: &str) -> Conn {
    let parked = server.stat("waits_parked");
    let mut conn = server.conn();
    conn.send_line(line);
    wait_for("a parked request", || server.stat("waits_parked") > parked);
    conn
}

pub fn holder_of(c: &mut Conn, key: &str) -> Option<String> {
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
fn malformed_requests_are_refused() {
    const MISSING: &str = "ERR Number of keys can't be greater than number of args: numkeys";
    const NOT_POSITIVE: &str = "ERR numkeys should be greater than 0: numkeys";
    let server = TestServer::start();
    let mut c = server.conn();
    let many: Vec<String> = (0..1_025).map(|key| format!("k{key}")).collect();
    let line = |count: &str, keys: &[String]| format!("LOCK.MACQUIRE {count} {} o", keys.join(" "));
    assert_eq!(c.line(&line("1024", &many[..1_024])).list().len(), 1_024);
    let error = c.line(&line("1025", &many)).error();
    assert_eq!(
        error,
        "ERR more than 1024 keys in one request: numkeys '1025'"
    );
    for command in ["LOCK.MACQUIRE", "LOCK.MRELEASE", "LOCK.MRENEW"] {
        for (rest, error) in [
            ("0 x o", NOT_POSITIVE),
            ("-1 x o", NOT_POSITIVE),
            ("two x o", NOT_POSITIVE),
            ("2 x o", MISSING),
            ("3 x o", MISSING),
            ("2000 x o", MISSING),
            ("9223372036854775807 x o", MISSING),
            ("9223372036854775808 x o", MISSING),
            ("99999999999999999999999 x o", MISSING),
            ("2 x x o", "ERR the same key is given twice: key 'x'"),
            (
                "2 x y o TOKEN 7",
                "ERR syntax error: unknown option 'TOKEN', expected ",
            ),
            (
                "1 redis_lock:horizon o",
                "ERR keys that begin with 'redis_lock:horizon' or 'redisson_lock_token:' are reserved",
            ),
        ] {
            let reply = c.line(&format!("{command} {rest}")).error();
            let number = rest.split(' ').next().unwrap();
            let named = format!("{error} '{number}'");
            let is_named = reply.starts_with(error) && !error.ends_with("numkeys");
            assert!(is_named || reply == named, "{command} {rest}: {reply}");
        }
        let few = c.line(&format!("{command} 1 x")).error();
        assert!(few.starts_with("ERR wrong number of arguments"), "{few}");
    }
    let error = c.line("LOCK.MACQUIRE 1 x o PX 0").error();
    assert_eq!(
        error,
        "ERR invalid expire time in 'lock.macquire' command: PX '0'"
    );
    let error = c.line("LOCK.MRENEW 1 x o PX 0").error();
    assert_eq!(
        error,
        "ERR invalid expire time in 'lock.mrenew' command: PX '0'"
    );
    assert_eq!(
        c.line("LOCK.MACQUIRE 1 x o READ WRITE").error(),
        "ERR syntax error: more than one of READ, WRITE"
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
    let mut behind = park(&server, "LOCK.ACQUIRE y s READ PX 60000 BLOCK 0");
    assert_eq!(c.line("LOCK.MRELEASE 2 x y a").int(), 2);
    assert_eq!(c.line("LOCK.MRENEW 2 x y b PX 90000").int(), 2);
    assert_stays_silent(&server, &mut writer);
    assert_eq!(c.line("LOCK.MRELEASE 2 x y b").int(), 2);
    assert_eq!(only_reply(&mut writer).list().len(), 2);
    assert_stays_silent(&server, &mut reader);
    assert_eq!(c.line("LOCK.MRELEASE 2 y z w").int(), 2);
    assert_eq!(only_reply(&mut reader).list().len(), 2);
    assert!(only_reply(&mut behind).int() > 0);
    // If both kinds are held, a release has to name one: otherwise nothing is released.
    c.line("LOCK.MACQUIRE 1 v w WRITE");
    c.line("LOCK.MACQUIRE 1 v w READ");
    c.line("LOCK.ACQUIRE u w");
    let mut next = park(&server, "LOCK.ACQUIRE u n PX 60000 BLOCK 0");
    assert!(c.line("LOCK.MRELEASE 2 u v w").is_error());
    assert_eq!(holder_of(&mut c, "u").as_deref(), Some("w"));
    assert_eq!(c.line("LOCK.RELEASE u w").int(), 1);
    assert!(only_reply(&mut next).int() > 0);
}

/// Asserts that the commands of three grants are written, and none between them.
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
fn in_a_cluster_all_keys_are_in_one_slot() {
    let node = one_node(&[]);
    let mut c = node.conn();
    for command in ["LOCK.MACQUIRE", "LOCK.MRELEASE", "LOCK.MRENEW"] {
        let error = c.line(&format!("{command} 2 x y o")).error();
        assert!(error.starts_with("CROSSSLOT"), "{command}: {error}");
        let error = c.line(&format!("{command} 4 x y o")).error();
        assert!(
            error.starts_with("ERR Number of keys"),
            "{command}: {error}"
        );
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
fn while_a_slot_moves_key_by_key_no_part_of_the_keys_is_taken() {
    let (source, target) = two_nodes(&[]);
    let (mut here, mut there) = (source.conn(), target.conn());
    let slot = slot_of(&mut here, "{t}x");
    here.line("LOCK.ACQUIRE {t}x a PX 60000");
    here.line("LOCK.ACQUIRE {t}y b PX 60000");
    begin_move(&source, &target, slot);
    here.line(&format!("MIGRATE 127.0.0.1 {} {{t}}y 0 5000", target.port));
    let incomplete = "TRYAGAIN Multiple keys request during rehashing of slot";
    for request in [
        "LOCK.MACQUIRE 3 {t}x {t}new {t}y",
        "LOCK.MACQUIRE 2 {t}x {t}new",
        "LOCK.MRELEASE 2 {t}x {t}y",
        "LOCK.MRENEW 2 {t}x {t}y",
    ] {
        let error = here.line(&format!("{request} a")).error();
        assert_eq!(error, incomplete, "{request}");
    }
    there.line("ASKING");
    let error = there.line("LOCK.MACQUIRE 2 {t}y {t}x b").error();
    assert_eq!(error, incomplete);
    assert_eq!(here.line("LOCK.MRENEW 1 {t}x a PX 60000").int(), 1);
    migrate_keys(&source, &target, slot);
    there.line("ASKING");
    assert!(there.line("LOCK.MACQUIRE 2 {t}y {t}x b").is_nil());
    end_move(&source, &target, slot);
    assert_eq!(there.line("LOCK.MRELEASE 2 {t}x {t}y a").int(), 1);
}

#[test]
fn a_slot_that_moves_redirects_its_waiters() {
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
