//! Bounds on the work of one command and of one step of the timer, whatever data the keys have. What a command reads is
//! counted, not timed: a timeout whose TTL is over is deleted when it is opened (`expired_keys`), and an expired reader
//! that was read is removed from the hash.

use crate::common::barrier::Barrier;
use crate::common::replica::ReplicationStream;
use crate::common::{wait_for, Conn, Reply, TestServer};

/// The most timeouts of other readers that one decision reads.
const STEP: i64 = 250;

fn server() -> (TestServer, Conn) {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("DEBUG SET-ACTIVE-EXPIRE 0");
    (server, c)
}

/// Adds readers whose leases are over; their timeouts are still in the key space.
fn add_dead(c: &mut Conn, key: &str, readers: usize) {
    for first in (0..readers).step_by(500) {
        let mut hset = vec!["HSET".to_string(), key.into(), "mode".into(), "read".into()];
        for number in first..readers.min(first + 500) {
            hset.extend([format!("dead{number}"), "1".into()]);
            let timeout = format!("{{{key}}}:dead{number}:rwlock_timeout:1");
            c.send(["SET", &timeout, "1", "PX", "1"]);
        }
        c.send(hset);
        for _ in first..=readers.min(first + 500) {
            c.recv();
        }
    }
    c.run(["PEXPIRE", key, "600000"]);
    wait_for("the leases are over", || {
        let last = format!("{{{key}}}:dead{}:rwlock_timeout:1", readers - 1);
        c.run(["PEXPIRETIME", &last]).int() < now_ms(c)
    });
}

fn now_ms(c: &mut Conn) -> i64 {
    let time = c.line("TIME").list();
    let part = |at: usize| time[at].text().parse::<i64>().unwrap();
    part(0) * 1_000 + part(1) / 1_000
}

/// A number in the reply to `INFO`.
fn field(info: &Reply, name: &str) -> i64 {
    let info = info.text();
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(found, _)| found.ends_with(name)).unwrap();
    value.trim().parse().unwrap()
}

/// The timeouts that were opened, from the reply to `INFO stats`.
fn opened(info: &Reply) -> i64 {
    field(info, "expired_keys")
}

/// The reply to a command, the timeouts that it opened, and the fields that it removed from `k`. In a transaction
/// nothing runs in between.
fn counted(c: &mut Conn, line: &str) -> (Reply, i64, i64) {
    c.line("MULTI");
    for line in ["INFO stats", "HLEN k", line, "HLEN k", "INFO stats"] {
        c.line(line);
    }
    let done = c.line("EXEC").list();
    let read = opened(&done[4]) - opened(&done[0]);
    let removed = done[1].int() - done[3].int();
    let reply = done.into_iter().nth(2).unwrap();
    (reply, read, removed)
}

#[test]
fn a_stranger_reads_no_reader() {
    let (_server, mut c) = server();
    assert!(c.line("LOCK.ACQUIRE k alive READ PX 600000").int() > 0);
    add_dead(&mut c, "k", 1_200);
    for (line, answer) in [
        ("LOCK.RELEASE k stranger", None),
        ("LOCK.RENEW k stranger", Some(0)),
        ("LOCK.MRELEASE 1 k stranger", Some(0)),
        ("LOCK.MRENEW 1 k stranger", Some(0)),
        ("LOCK.RELEASE k dead7", None),
    ] {
        let (reply, read, removed) = counted(&mut c, line);
        assert_eq!(reply.maybe_int(), answer, "{line}");
        assert!(read <= 1 && removed == 0, "{line}: {read} {removed}");
    }
}

#[test]
fn refused_writers_remove_expired_readers_in_steps_and_never_pass_a_living_one() {
    let (_server, mut c) = server();
    assert!(c.line("LOCK.ACQUIRE k alive READ PX 600000").int() > 0);
    add_dead(&mut c, "k", 1_400);
    for line in [
        "LOCK.ACQUIRE k w WRITE",
        "LOCK.ACQUIRE k w WRITE WITHHOLDER",
        "LOCK.MACQUIRE 1 k w WRITE",
        "LOCK.ACQUIRE k w WRITE",
        "LOCK.ACQUIRE k w WRITE",
    ] {
        let (reply, read, removed) = counted(&mut c, line);
        let is_refused = reply.is_nil() || reply.list().first().is_some_and(Reply::is_nil);
        assert!(is_refused, "{line}: {reply:?}");
        assert!(
            removed <= STEP && read <= 2 * STEP,
            "{line}: {read} {removed}"
        );
    }
    wait_for("the mode and the living reader are left", || {
        c.line("LOCK.ACQUIRE k w WRITE").is_nil() && c.line("HLEN k").int() == 2
    });
    assert_eq!(c.line("LOCK.RELEASE k alive").int(), 1);
    assert!(c.line("LOCK.ACQUIRE k w WRITE").int() > 0);
}

/// Without a living reader the lock is free, but that is known only when all have been read.
#[test]
fn a_writer_is_granted_once_all_readers_are_known_to_be_over() {
    let (_server, mut c) = server();
    let mut subscriber = c.another();
    subscriber.line("SUBSCRIBE redisson_rwlock:{k}");
    add_dead(&mut c, "k", 1_800);
    let (reply, read, removed) = counted(&mut c, "LOCK.ACQUIRE k w WRITE");
    assert!(reply.is_nil());
    assert!(
        read <= 2 * STEP && (1..=STEP).contains(&removed),
        "{read} {removed}"
    );
    // From now on the timer reads on, and deletes what is left.
    wait_for("the lock is known to be free", || {
        c.line("EXISTS k").int() == 0
    });
    assert_eq!(subscriber.recv().list()[0].text(), "message");
    assert!(c.line("LOCK.ACQUIRE k w WRITE").int() > 0);
    // A waiter needs no other command: the timer reads on.
    c.line("LOCK.RELEASE k w");
    add_dead(&mut c, "k", 1_800);
    assert!(c.line("LOCK.ACQUIRE k w WRITE BLOCK 60000").int() > 0);
    c.line("LOCK.RELEASE k w");
    add_dead(&mut c, "k", 1_800);
    let tokens = c.line("LOCK.MACQUIRE 2 k other w WRITE BLOCK 60000");
    assert_eq!(tokens.list().len(), 2);
}

/// The last step reads as many readers as it may, so that it does not know that they were all.
#[test]
fn a_lock_is_deleted_whatever_its_last_step_has_read() {
    let (_server, mut c) = server();
    let mut subscriber = c.another();
    subscriber.line("SUBSCRIBE redisson_rwlock:{k}");
    for steps in [1, 2, 4] {
        c.line("LOCK.ACQUIRE k alive READ PX 600000");
        add_dead(&mut c, "k", steps * STEP as usize);
        assert_eq!(c.line("LOCK.RELEASE k alive").int(), 1);
        wait_for("the end of the key", || c.line("EXISTS k").int() == 0);
        assert_eq!(subscriber.recv().list()[0].text(), "message");
    }
}

/// Some of the expired readers are read before two that live. The server refuses writes, which is seen by a probe.
#[test]
fn a_settling_without_a_grant_writes_nothing() {
    let (server, mut c) = server();
    for number in 0..100 {
        c.line(&format!("LOCK.ACQUIRE k r{number} READ PX 600000"));
    }
    add_dead(&mut c, "k", 700);
    let mut writer = server.conn();
    writer.send_line("LOCK.ACQUIRE k w WRITE BLOCK 0");
    server.wait_for_waiters(1);
    let mut barrier = Barrier::on(&server);
    c.line("MULTI");
    // The waiter's request has removed those that were read first.
    let dead: Vec<String> = (0..700).map(|number| format!("dead{number} 1")).collect();
    c.line(&format!("HSET k {}", dead.join(" ")));
    c.line("CONFIG SET min-replicas-to-write 1");
    c.line("HLEN k");
    let before = c.line("EXEC").list()[2].int();
    barrier.assert_silent(&mut writer);
    assert_eq!(c.line("HLEN k").int(), before);
}

#[test]
fn the_last_release_hands_off_over_many_expired_readers() {
    let (server, mut c) = server();
    c.line("LOCK.ACQUIRE k alive READ PX 600000");
    add_dead(&mut c, "k", 1_800);
    let mut writer = server.conn();
    writer.send_line("LOCK.ACQUIRE k w WRITE BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(c.line("LOCK.RELEASE k alive").int(), 1);
    assert!(writer.recv().int() > 0);
}

#[test]
fn info_and_break_read_one_step() {
    let (server, mut c) = server();
    for number in 0..700 {
        c.send_line(&format!("LOCK.ACQUIRE k r{number} READ PX 600000"));
    }
    (0..700).for_each(|_| drop(c.recv()));
    // Readers that are bound to the calling connection are listed in any case.
    let mut bound = server.conn();
    bound.line("LOCK.ACQUIRE k bound READ SESSION");
    let holders = bound.line("LOCK.INFO k").field("holders").unwrap().list();
    assert_eq!(holders[0].field("owner").unwrap().text(), "bound");
    bound.line("LOCK.RELEASE k bound");
    let info = c.line("LOCK.INFO k");
    assert_eq!(info.field("more-holders").unwrap().int(), 1);
    let listed = info.field("holders").unwrap().list().len() as i64;
    assert!((1..=STEP).contains(&listed), "{listed}");
    assert_eq!(c.line("LOCK.BREAK k").int(), 1);
    assert!(c.line("LOCK.INFO k").is_nil());
    let left = c.line("DBSIZE").int();
    assert!(
        left >= 700 - STEP,
        "timeouts that were not read stay: {left}"
    );
    wait_for("all grants are seen to have ended", || {
        let ended = ["grants_broken", "grants_lost", "grants_released"];
        server.stat("grants") == ended.map(|name| server.stat(name)).iter().sum()
    });
    assert!(c.line("LOCK.ACQUIRE k w WRITE").int() > 0);
    c.line("LOCK.RELEASE k w");
    add_dead(&mut c, "k", 1_200);
    let (info, read, removed) = counted(&mut c, "LOCK.INFO k");
    assert_eq!(info.field("holders").unwrap().list().len(), 0);
    assert_eq!(info.field("more-holders").unwrap().int(), 1);
    assert!(read <= STEP && removed == 0, "{read} {removed}");
}

#[test]
fn a_break_ends_some_readers_of_however_many() {
    const READERS: i64 = 9_000;
    let (_server, mut c) = server();
    for number in 0..READERS {
        c.send_line(&format!("LOCK.ACQUIRE k r{number} READ PX 600000"));
    }
    (0..READERS).for_each(|_| drop(c.recv()));
    let before = c.line("DBSIZE").int();
    assert_eq!(c.line("LOCK.BREAK k").int(), 1);
    // The hash and the token's key are two of them.
    let deleted = before - c.line("DBSIZE").int() - 2;
    assert!((STEP / 2..=STEP).contains(&deleted), "{deleted}");
}

#[test]
fn commands_of_many_keys_share_the_bounds() {
    let (_server, mut c) = server();
    let keys: Vec<String> = (0..500).map(|number| format!("m{number}")).collect();
    let run = |c: &mut Conn, name: &str, rest: &[&str]| {
        let count = keys.len().to_string();
        let words = [name, &count]
            .into_iter()
            .chain(keys.iter().map(String::as_str));
        c.run(words.chain(rest.iter().copied()))
    };
    for key in &keys {
        add_dead(&mut c, key, 8);
    }
    c.line("MULTI");
    c.line("INFO stats");
    run(&mut c, "LOCK.MACQUIRE", &["w", "WRITE"]);
    run(&mut c, "LOCK.MRELEASE", &["stranger"]);
    c.line("INFO stats");
    let done = c.line("EXEC").list();
    assert!(done[1].is_nil() && done[2].int() == 0, "{:?}", &done[1..3]);
    let read = opened(&done[3]) - opened(&done[0]);
    assert!(read <= 2 * 500, "{read}");
    assert_eq!(
        run(&mut c, "LOCK.MACQUIRE", &["w", "WRITE", "BLOCK", "60000"])
            .list()
            .len(),
        500
    );
    run(&mut c, "LOCK.MRELEASE", &["w"]);

    // A count that is written by hand makes no command write as many timeouts.
    assert_eq!(
        run(&mut c, "LOCK.MACQUIRE", &["r", "READ", "PX", "600000"])
            .list()
            .len(),
        500
    );
    for key in &keys {
        c.run(["HSET", key, "r", "1000"]);
    }
    let size = c.line("DBSIZE").int();
    assert_eq!(
        run(&mut c, "LOCK.MRENEW", &["r", "PX", "500000"]).int(),
        500
    );
    let made = c.line("DBSIZE").int() - size;
    assert!(made <= 2 * 500, "{made}");
    assert_eq!(run(&mut c, "LOCK.MRELEASE", &["r", "ALL"]).int(), 500);
    assert_eq!(
        run(&mut c, "LOCK.MACQUIRE", &["w", "WRITE"]).list().len(),
        500
    );
}

#[test]
fn a_release_of_many_keys_deletes_a_limited_number_of_timeouts() {
    let (_server, mut c) = server();
    for words in ["ALL", "FINAL 1"] {
        for key in ["a", "b", "c", "d"] {
            read_as_redisson(&mut c, key, 700);
        }
        c.line("MULTI");
        c.line("DBSIZE");
        c.line(&format!("LOCK.MRELEASE 4 a b c d r {words}"));
        c.line("DBSIZE");
        let done = c.line("EXEC").list();
        assert_eq!(done[1].int(), 4);
        let deleted = done[0].int() - done[2].int();
        assert!(deleted <= 4 * 252, "{words}: {deleted}");
    }
}

/// A release of many keys reads some timeouts of a reader only: the others may last longer.
#[test]
fn a_release_of_many_keys_cuts_no_lease_that_it_has_not_read() {
    let (_server, mut c) = server();
    let keys: Vec<String> = (0..500).map(|number| format!("m{number}")).collect();
    c.line("LOCK.ACQUIRE m0 b READ PX 700000");
    for _ in 0..4 {
        c.line("LOCK.ACQUIRE m0 a READ PX 600000");
    }
    c.line("PEXPIRE {m0}:a:rwlock_timeout:2 900000");
    c.line("PEXPIRE m0 900000");
    let words = ["LOCK.MRELEASE", "500"].into_iter();
    let words = words.chain(keys.iter().map(String::as_str));
    assert_eq!(c.run(words.chain(["b"])).int(), 1);
    assert!(c.line("PTTL m0").int() > 700_000);
    assert!(c.line("LOCK.RELEASE m0 a").int() == 0);
    assert!(c.line("LOCK.ACQUIRE m0 w WRITE").is_nil());
}

/// A script gives each hold of one owner an end of its own, and a command of many keys reads few of them at each.
#[test]
fn a_command_of_many_keys_finds_the_one_hold_that_lasts() {
    let (_server, mut c) = server();
    let run = |c: &mut Conn, name: &str, rest: &str| {
        let keys: Vec<String> = (0..500).map(|number| format!("m{number}")).collect();
        c.line(&format!("{name} 500 {} a {rest}", keys.join(" ")))
    };
    let hold = |c: &mut Conn, key: &str, holds: usize| {
        c.line(&format!("HSET {key} mode read a {holds}"));
        c.line(&format!("PEXPIRE {key} 600000"));
        c.line(&format!("SET {{{key}}}:a:rwlock_timeout:2 1 PX 600000"));
    };
    for (name, rest, left) in [
        ("LOCK.MRELEASE", "", 4),
        ("LOCK.MRENEW", "PX 500000", 5),
        ("LOCK.MACQUIRE", "READ", 6),
    ] {
        c.line("FLUSHALL");
        hold(&mut c, "m0", 5);
        assert!(!run(&mut c, name, rest).is_error());
        assert_eq!(c.line("HGET m0 a").text(), left.to_string(), "{name}");
    }
    // With very many holds at several keys it stays unknown.
    for (name, rest) in [
        ("LOCK.MRELEASE", "ALL"),
        ("LOCK.MRENEW", ""),
        ("LOCK.MACQUIRE", "READ"),
    ] {
        c.line("FLUSHALL");
        hold(&mut c, "m0", 1_000);
        hold(&mut c, "m1", 1_000);
        let error = run(&mut c, name, rest).error();
        assert!(error.starts_with("TRYAGAIN "), "{name}: {error}");
        assert_eq!(c.line("EXISTS m0 m1 m2").int(), 2);
    }
    assert_eq!(c.line("LOCK.RELEASE m0 a ALL").int(), 1);
    assert_eq!(run(&mut c, "LOCK.MRELEASE", "ALL").int(), 1);
}

#[test]
fn one_decision_grants_as_many_readers_as_another() {
    const TICKETS: i64 = 1_500;
    let (server, mut c) = server();
    let mut subscriber = server.conn();
    subscriber.line("SUBSCRIBE ch");
    c.line("LOCK.ACQUIRE k w WRITE PX 600000");
    for number in 0..TICKETS {
        c.send_line(&format!(
            "LOCK.ACQUIRE k r{number} READ PX 600000 BLOCK 600000 NOTIFY ch t"
        ));
    }
    (0..TICKETS).for_each(|_| assert_eq!(c.recv().text(), "QUEUED"));
    let info = c.line("LOCK.INFO k WAITERS COUNT 1000000");
    assert_eq!(info.field("queue").unwrap().list().len(), 1_000);
    // In a transaction no tick is between the release and the count.
    let readers_after = |c: &mut Conn, lines: &[&str]| {
        c.line("MULTI");
        lines.iter().for_each(|line| drop(c.line(line)));
        c.line("HLEN k");
        c.line("EXEC").list().last().unwrap().int() - 1
    };
    let granted = readers_after(&mut c, &["LOCK.RELEASE k w"]);
    assert!((1..=64).contains(&granted), "{granted}");
    wait_for("all are granted", || c.line("HLEN k").int() == TICKETS + 1);
    // As many where thousands read already: the writer between them gives up, and a reader releases.
    c.line("LOCK.ACQUIRE k w WRITE BLOCK 600000 NOTIFY ch t");
    for number in 0..200 {
        c.line(&format!(
            "LOCK.ACQUIRE k more{number} READ PX 600000 BLOCK 600000 NOTIFY ch t"
        ));
    }
    let lines = ["LOCK.RELEASE k w", "LOCK.RELEASE k r0"];
    let more = readers_after(&mut c, &lines) - TICKETS + 1;
    assert!((1..=64).contains(&more), "{more}");
    wait_for("these too", || c.line("HLEN k").int() == TICKETS + 200);
}

#[test]
fn a_release_of_many_keys_asks_for_few_waiters_of_each() {
    const KEYS: i64 = 50;
    let (server, mut c) = server();
    let mut subscriber = server.conn();
    subscriber.line("SUBSCRIBE ch");
    let keys: Vec<String> = (0..KEYS).map(|number| format!("m{number}")).collect();
    let many = |c: &mut Conn, name: &str, rest: &str| {
        c.line(&format!("{name} {KEYS} {} w {rest}", keys.join(" ")))
    };
    many(&mut c, "LOCK.MACQUIRE", "WRITE");
    for key in &keys {
        for number in 0..20 {
            let line = format!("LOCK.ACQUIRE {key} r{number} READ SESSION BLOCK 0 NOTIFY ch t");
            assert_eq!(c.line(&line).text(), "QUEUED");
        }
    }
    c.line("MULTI");
    c.line("CONFIG RESETSTAT");
    many(&mut c, "LOCK.MRELEASE", "");
    c.line("INFO commandstats");
    let stats = c.line("EXEC").list()[2].text();
    let numsub = stats.lines().find(|line| line.contains("numsub:calls="));
    let calls = numsub.and_then(|line| line.split(['=', ',']).nth(1));
    let calls: i64 = calls.unwrap().parse().unwrap();
    // Before each decision also whether a client of Redisson's is subscribed.
    assert!(calls <= 100 + 3 * KEYS, "{calls}");
    wait_for("all grants", || server.stat("tickets") == 0);
}

/// Other locks have taken the keys of all waiting readers but the last.
#[test]
fn waiters_that_cannot_be_granted_fail_in_steps() {
    const TICKETS: i64 = 2_000;
    let (server, mut c) = server();
    let mut subscriber = server.conn();
    subscriber.line("SUBSCRIBE ch");
    c.line("LOCK.ACQUIRE k w WRITE PX 600000");
    for number in 0..TICKETS {
        c.send_line(&format!(
            "LOCK.ACQUIRE k x:{number} READ BLOCK 600000 NOTIFY ch t"
        ));
        c.send_line(&format!("LOCK.ACQUIRE {{k}}:x {number} READ PX 600000"));
    }
    (0..2 * TICKETS).for_each(|_| assert!(!c.recv().is_error()));
    c.line("LOCK.ACQUIRE k last READ PX 600000 BLOCK 600000 NOTIFY ch t");
    c.line("MULTI");
    c.line("LOCK.RELEASE k w");
    c.line("INFO lock");
    c.line("EXISTS k");
    let done = c.line("EXEC").list();
    let failed = field(&done[1], "tickets_failed");
    assert!((1..=500).contains(&failed), "{failed}");
    assert_eq!(
        done[2].int(),
        0,
        "no reader that was not checked is granted"
    );
    wait_for("the end of the queue", || server.stat("tickets") == 0);
    assert_eq!(server.stat("tickets_failed"), TICKETS as u64);
    assert_eq!(c.line("HGETALL k").field("last").unwrap().text(), "1");
}

#[test]
fn a_name_with_many_colons_is_no_read_lock() {
    let (_server, mut c) = server();
    let name = |colons: usize| format!("{{k}}{}", ":x".repeat(colons));
    assert!(c.run(["LOCK.ACQUIRE", &name(16), "o", "READ"]).int() > 0);
    let error = c.run(["LOCK.ACQUIRE", &name(17), "o", "READ"]).error();
    assert!(
        error.starts_with("LOCKTYPE") && error.contains("16"),
        "{error}"
    );
    assert!(c.run(["LOCK.ACQUIRE", &name(17), "o", "WRITE"]).int() > 0);
    assert!(c.run(["LOCK.ACQUIRE", &name(40), "o"]).int() > 0);
}

#[test]
fn a_semaphore_takes_expired_permits_back_in_steps() {
    let (server, mut c) = server();
    c.line("SET s -1800");
    for first in (0..1_800).step_by(600) {
        let mut zadd = vec!["ZADD".to_string(), "{s}:timeout".into()];
        for number in first..first + 600 {
            zadd.extend([
                (1_500_000_000_000i64 + number).to_string(),
                format!("p{number}"),
            ]);
        }
        c.run(zadd);
    }
    c.run(["ZADD", "{s}:timeout", "9000000000000", "held"]);
    let info = c.line("SEM.INFO s");
    let number = |name: &str| info.field(name).unwrap().int();
    assert_eq!(
        (number("permits"), number("free"), number("held")),
        (1, 0, 1)
    );
    assert!(number("next-end-ms") > 0);
    let mut stream = ReplicationStream::attach(&server);
    stream.until_now(&server);
    c.line("SEM.ACQUIRE s me");
    wait_for("the debt is paid", || c.line("GET s").text() == "0");
    assert_eq!(c.line("ZCARD {s}:timeout").int(), 1);
    let removed: Vec<_> = stream
        .until_now(&server)
        .iter()
        .filter(|line| line.starts_with("ZREM"))
        .map(|line| line.split(' ').count() as i64 - 2)
        .collect();
    assert_eq!(removed.iter().sum::<i64>(), 1_800);
    assert!(removed.iter().all(|ids| *ids <= 500), "{removed:?}");
}

/// A renewal writes every timeout of its reader. Their names count: a short command must not make the server write a
/// thousand times its length.
#[test]
fn a_lock_with_a_long_name_has_fewer_holds_of_one_reader() {
    let (server, mut c) = server();
    let name = format!("{{k}}{}", "n".repeat(10_000));
    let acquire = format!("LOCK.ACQUIRE {name} reader READ PX 600000");
    let counted = (0..1_000).take_while(|_| !c.line(&acquire).is_error());
    assert_eq!(counted.count(), 6);
    let refused = c.line(&format!(
        "LOCK.MACQUIRE 2 other{{k}} {name} reader READ PX 600000"
    ));
    assert!(refused
        .error()
        .starts_with("ERR the owner has 32 READ holds"));
    assert!(c.line(&format!("{acquire} ONCE")).int() > 0);
    // Counts of scripts, or of an older version: their timeouts are neither read nor written.
    c.line(&format!("HSET {name} reader 1000"));
    let mut stream = ReplicationStream::attach(&server);
    stream.until_now(&server);
    let renewal = format!("LOCK.RENEW {name} reader PX 500000");
    assert_eq!(c.line(&renewal).int(), 1);
    let written: usize = stream.until_now(&server).iter().map(String::len).sum();
    assert!(written < 20 * renewal.len(), "{written}");
    // As long as the first ones live, the lock is held.
    assert!(c.line(&format!("LOCK.ACQUIRE {name} w WRITE")).is_nil());
}

/// A script of Redisson's counts a hold of a nested reader `r`, which has a timeout of its own.
fn read_as_redisson(c: &mut Conn, key: &str, holds: usize) {
    let script = "redis.call('HSET', KEYS[1], 'mode', 'read', 'r', ARGV[1]) redis.call('PEXPIRE', KEYS[1], 600000) \
                  for n = 1, ARGV[1] do redis.call('SET', '{' .. KEYS[1] .. '}:r:rwlock_timeout:' .. n, 1, 'PX', 600000) end";
    assert!(c
        .run(["EVAL", script, "1", key, &holds.to_string()])
        .is_nil());
}

/// Redisson's readers may be nested deeper than those of the module. A renewal keeps the first timeout, which is the
/// last that a release deletes.
#[test]
fn a_renewal_of_a_thousand_holds_writes_some_and_keeps_the_reader() {
    let (server, mut c) = server();
    read_as_redisson(&mut c, "k", 1_000);
    // The token is made.
    assert_eq!(c.line("LOCK.RENEW k r PX 700000").int(), 1);
    let mut stream = ReplicationStream::attach(&server);
    stream.until_now(&server);
    let renewal = "LOCK.RENEW k r PX 900000";
    for line in [renewal, "LOCK.MRENEW 1 k r PX 900000"] {
        assert_eq!(c.line(line).int(), 1);
        let written = stream.until_now(&server);
        // As the server writes a command: each word with its length.
        let bytes = |line: &String| 6 + line.split(' ').map(|word| word.len() + 7).sum::<usize>();
        let bytes: usize = written.iter().map(bytes).sum();
        assert!(
            bytes <= 8_000,
            "{bytes} bytes in {} commands",
            written.len()
        );
    }
    assert!(c.line("PTTL k").int() > 800_000);
    assert!(c.line("PTTL {k}:r:rwlock_timeout:1").int() > 800_000);
    assert!(c.line("PTTL {k}:r:rwlock_timeout:1000").int() > 800_000);
    // The others end as they would have.
    for from in (2..=1_000).step_by(100) {
        let keys: Vec<_> = (from..from + 100)
            .map(|n| format!("{{k}}:r:rwlock_timeout:{n}"))
            .collect();
        c.line(&format!("DEL {}", keys.join(" ")));
    }
    assert!(c.line("LOCK.ACQUIRE k w WRITE").is_nil());
    for _ in 0..999 {
        c.send_line("LOCK.RELEASE k r");
    }
    (0..999).for_each(|_| assert_eq!(c.recv().int(), 0));
    assert!(c.line("LOCK.ACQUIRE k w WRITE").is_nil());
    assert_eq!(c.line("LOCK.RELEASE k r").int(), 1);
    assert_eq!(c.line("LOCK.RENEW k r").int(), 0);
    // A sole reader's shorter lease is that of the hash.
    read_as_redisson(&mut c, "k", 1_000);
    assert_eq!(c.line("LOCK.RENEW k r PX 1000").int(), 1);
    assert!(c.line("PTTL k").int() <= 1_000);
    assert!(c.line("LOCK.ACQUIRE k w WRITE BLOCK 60000").int() > 0);
}

/// Each expired reader that is removed is written with the name of the lock.
#[test]
fn refusals_at_a_lock_with_a_long_name_remove_fewer_expired_readers() {
    let (server, mut c) = server();
    let key = "n".repeat(10_000);
    add_dead(&mut c, &key, 300);
    c.line(&format!("LOCK.ACQUIRE {key} alive READ PX 600000"));
    let mut stream = ReplicationStream::attach(&server);
    stream.until_now(&server);
    c.line("MULTI");
    c.line(&format!("LOCK.ACQUIRE {key} w WRITE"));
    c.line(&format!("HLEN {key}"));
    let done = c.line("EXEC").list();
    assert!(done[0].is_nil());
    assert!(done[1].int() > 280, "{}", done[1].int());
}

/// The messages and events of many ends and grants are sent in several steps.
#[test]
fn one_event_ends_few_waits_of_a_key_and_grants_few_permits_of_a_long_name() {
    let (server, mut c) = server();
    let mut subscriber = c.another();
    subscriber.line("SUBSCRIBE ch");
    let long = "n".repeat(20_000);
    c.line("LATCH.SET latch 1");
    for (event, wait, left) in [
        ("LATCH.DOWN latch".into(), "LATCH.WAIT latch".into(), 30),
        (
            format!("SEM.SET {long} 50"),
            format!("SEM.ACQUIRE {long} id"),
            47,
        ),
    ] {
        for number in 0..50 {
            let owner = if number > 0 && wait.starts_with("SEM") {
                number.to_string()
            } else {
                String::new()
            };
            let line = format!("{wait}{owner} BLOCK 0 NOTIFY ch {number}");
            assert_eq!(c.line(&line).text(), "QUEUED");
        }
        for line in ["MULTI", &event, "INFO lock"] {
            c.line(line);
        }
        let info = c.line("EXEC").list()[1].text();
        assert!(
            info.contains(&format!("lock_tickets:{left}\r\n")),
            "{event:.20}: {info}"
        );
        wait_for("all have ended", || server.stat("tickets") == 0);
    }
}
