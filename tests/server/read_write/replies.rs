//! READ and WRITE on real servers: each reply, which holds exclude each other, and what is written to sibling keys.

use crate::common::{wait_for, Bystander, Conn, Reply, TestServer};

/// Owners of `LOCK.INFO`'s holders.
fn holders(c: &mut Conn) -> Vec<String> {
    let info = c.line("LOCK.INFO k");
    let owner = |holder: &Reply| holder.field("owner").unwrap().text();
    let holders = info.field("holders");
    let mut owners: Vec<String> =
        holders.map_or_else(Vec::new, |list| list.list().iter().map(owner).collect());
    owners.sort();
    owners
}

fn mode(c: &mut Conn) -> String {
    c.line("LOCK.INFO k").field("mode").unwrap().text()
}

fn keys(c: &mut Conn) -> Vec<String> {
    let keys = c.line("KEYS *").list();
    let mut keys: Vec<String> = keys.iter().map(Reply::text).collect();
    keys.retain(|key| key != "redis_lock:horizon");
    keys.sort();
    keys
}

/// A parked request.
fn park(server: &TestServer, line: &str) -> Conn {
    let parked = server.stat("waits_parked");
    let mut conn = server.conn();
    conn.send_line(line);
    wait_for("the request is parked", || {
        server.stat("waits_parked") == parked + 1
    });
    conn
}

#[test]
fn readers_share_the_lock_and_its_token() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = c.line("LOCK.ACQUIRE k a READ PX 60000").int();
    assert_eq!(c.line("LOCK.ACQUIRE k b READ PX 70000").int(), token);
    assert_eq!(c.line("LOCK.ACQUIRE k b READ PX 50000").int(), token);
    assert_eq!(holders(&mut c), ["a", "b"]);
    assert_eq!(mode(&mut c), "read");
    let hash = c.line("HGETALL k");
    assert_eq!(hash.field("mode").unwrap().text(), "read");
    assert_eq!(hash.field("b").unwrap().text(), "2");
    assert_eq!(
        keys(&mut c),
        [
            "k",
            "{k}:a:rwlock_timeout:1",
            "{k}:b:rwlock_timeout:1",
            "{k}:b:rwlock_timeout:2",
            "{k}:rwlock_token"
        ]
    );
    for (key, most) in [
        ("k", 70_000),
        ("{k}:a:rwlock_timeout:1", 60_000),
        ("{k}:b:rwlock_timeout:1", 70_000),
        ("{k}:b:rwlock_timeout:2", 50_000),
        ("{k}:rwlock_token", 70_000),
    ] {
        let left = c.run(["PTTL", key]).int();
        assert!((most - 9_000..=most).contains(&left), "{key}: {left}");
    }
    assert_eq!(c.line("GET {k}:a:rwlock_timeout:1").text(), "1");
    assert_eq!(c.line("LOCK.RELEASE k b READ").int(), 0);
    assert_eq!(c.line("LOCK.RELEASE k b").int(), 1);
    assert!(c.line("LOCK.RELEASE k b READ").is_nil());
    assert_eq!(c.line("LOCK.RELEASE k a READ").int(), 1);
    assert_eq!(keys(&mut c), [""; 0], "nothing is left behind");
    assert!(c.line("LOCK.INFO k").is_nil());
}

#[test]
fn once_counts_nothing_and_all_gives_everything_back() {
    let server = TestServer::start();
    let mut c = server.conn();
    for mode in ["READ", "WRITE"] {
        let take = format!("LOCK.ACQUIRE k a {mode} PX 60000");
        let token = c.line(&take).int();
        assert_eq!(c.line(&format!("{take} ONCE")).int(), token);
        assert_eq!(c.line(&take).int(), token);
        let info = c.line("LOCK.INFO k").field("holders").unwrap().list();
        assert_eq!(info[0].field("holds").unwrap().int(), 2, "{mode}");
        assert_eq!(info[0].field("token").unwrap().int(), token);
        assert!(info[0].field("held-ms").unwrap().int() >= 0);
        assert_eq!(c.line(&format!("LOCK.RELEASE k a {mode} ALL")).int(), 1);
        assert_eq!(keys(&mut c), [""; 0]);
    }
}

#[test]
fn a_writer_is_alone() {
    let server = TestServer::start();
    let mut c = server.conn();
    let first = c.line("LOCK.ACQUIRE k w WRITE PX 60000").int();
    for line in [
        "LOCK.ACQUIRE k a READ",
        "LOCK.ACQUIRE k x WRITE",
        "LOCK.RELEASE k a READ",
        "LOCK.RELEASE k w READ",
        "LOCK.RELEASE k w WRITE TOKEN 7",
    ] {
        let bystander = Bystander::of(&server, "k");
        assert!(c.line(line).is_nil(), "{line}");
        bystander.saw_nothing(line);
    }
    assert_eq!(c.line("LOCK.RENEW k w READ").int(), 0);
    assert_eq!(c.line("LOCK.RENEW k w WRITE PX 90000").int(), 1);
    assert!(c.line("PTTL k").int() > 60_000);
    assert_eq!(
        (mode(&mut c), holders(&mut c)),
        ("write".into(), vec!["w".into()])
    );
    let release = format!("LOCK.RELEASE k w WRITE TOKEN {first}");
    assert_eq!(c.line(&release).int(), 1);
    let second = c.line("LOCK.ACQUIRE k a READ").int();
    assert!(second > first);
    assert!(c.line("LOCK.ACQUIRE k w WRITE").is_nil());
}

#[test]
fn readers_at_the_head_enter_together_and_none_passes_a_waiting_writer() {
    let server = TestServer::start();
    let mut c = server.conn();
    let first = c.line("LOCK.ACQUIRE k a READ PX 60000").int();
    let mut writer = park(&server, "LOCK.ACQUIRE k w WRITE PX 60000 BLOCK 0");
    let mut readers: Vec<Conn> = (0..20)
        .map(|n| {
            park(
                &server,
                &format!("LOCK.ACQUIRE k r{n} READ PX 60000 BLOCK 0"),
            )
        })
        .collect();
    let mut last = park(&server, "LOCK.ACQUIRE k x WRITE PX 60000 BLOCK 0");
    assert!(c.line("LOCK.ACQUIRE k late READ").is_nil());
    let info = c.line("LOCK.INFO k WAITERS COUNT 2");
    let queue = info.field("queue").unwrap().list();
    assert_eq!(queue[0].field("mode").unwrap().text(), "write");
    assert_eq!(queue[1].field("mode").unwrap().text(), "read");
    assert_eq!(c.line("LOCK.RELEASE k a READ").int(), 1);
    let wrote = writer.recv().int();
    assert!(wrote > first && readers[0].is_silent());
    assert_eq!(writer.line("LOCK.RELEASE k w WRITE").int(), 1);
    let read = readers[0].recv().int();
    assert!(read > wrote);
    for reader in &mut readers[1..] {
        assert_eq!(reader.recv().int(), read, "all under one token");
    }
    assert_eq!(holders(&mut c).len(), 20);
    for (n, reader) in readers.iter_mut().enumerate() {
        assert!(last.is_silent());
        assert_eq!(reader.line(&format!("LOCK.RELEASE k r{n} READ")).int(), 1);
    }
    assert!(last.recv().int() > read);
    server.check_counters();
}

#[test]
fn a_stream_of_readers_starves_no_writer() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k r0 READ PX 60000");
    let mut writer = park(&server, "LOCK.ACQUIRE k w WRITE PX 60000 BLOCK 0");
    let mut parked = Vec::new();
    for n in 1..10 {
        parked.push(park(
            &server,
            &format!("LOCK.ACQUIRE k r{n} READ PX 60000 BLOCK 0"),
        ));
        assert!(writer.is_silent());
    }
    c.line("LOCK.RELEASE k r0");
    assert!(writer.recv().int() > 0);
    assert!(parked.iter_mut().all(Conn::is_silent));
}

#[test]
fn readers_behind_a_writer_that_leaves_are_granted_at_once() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = c.line("LOCK.ACQUIRE k a READ PX 60000").int();
    // Ended by its timeout, by the end of its connection, by CLIENT UNBLOCK, by RELEASE.
    let mut writer = park(&server, "LOCK.ACQUIRE k w WRITE BLOCK 1000");
    let mut reader = park(&server, "LOCK.ACQUIRE k b READ PX 60000 BLOCK 0");
    assert!(writer.recv().is_nil());
    assert_eq!(reader.recv().int(), token);
    let writer = park(&server, "LOCK.ACQUIRE k w WRITE BLOCK 0");
    let mut reader = park(&server, "LOCK.ACQUIRE k c READ PX 60000 BLOCK 0");
    writer.close();
    assert_eq!(reader.recv().int(), token);
    for n in 0..2 {
        let mut writer = server.conn();
        let id = writer.id();
        let parked = server.stat("waits_parked");
        writer.send_line(&format!("LOCK.ACQUIRE k w{n} WRITE BLOCK 0"));
        wait_for("the writer is parked", || {
            server.stat("waits_parked") > parked
        });
        let mut reader = park(
            &server,
            &format!("LOCK.ACQUIRE k d{n} READ PX 60000 BLOCK 0"),
        );
        if n == 0 {
            assert_eq!(c.line(&format!("CLIENT UNBLOCK {id}")).int(), 1);
        } else {
            assert!(c.line("LOCK.RELEASE k w1").is_nil());
        }
        assert!(writer.recv().is_nil());
        assert_eq!(reader.recv().int(), token);
    }
}

#[test]
fn the_only_reader_may_write_and_a_writer_may_read_on() {
    let server = TestServer::start();
    let mut c = server.conn();
    let read = c.line("LOCK.ACQUIRE k a READ PX 60000").int();
    let wrote = c.line("LOCK.ACQUIRE k a WRITE PX 60000").int();
    assert!(wrote > read, "an upgrade has a token of its own");
    for line in ["LOCK.RELEASE k a", "LOCK.RENEW k a"] {
        let bystander = Bystander::of(&server, "k");
        let error = c.line(line).error();
        assert_eq!(error, "ERR the owner holds READ and WRITE, say which");
        bystander.saw_nothing(line);
    }
    assert_eq!(c.line("LOCK.ACQUIRE k a READ").int(), wrote);
    let mut reader = park(&server, "LOCK.ACQUIRE k b READ PX 60000 BLOCK 0");
    let mut writer = park(&server, "LOCK.ACQUIRE k w WRITE PX 60000 BLOCK 0");
    assert_eq!(c.line("LOCK.RELEASE k a WRITE").int(), 1);
    assert_eq!(reader.recv().int(), wrote, "granted by the downgrade");
    assert!(writer.is_silent());
    assert_eq!(c.line("LOCK.RELEASE k a ALL").int(), 1);
    assert_eq!(c.line("LOCK.RELEASE k b").int(), 1);
    assert!(writer.recv().int() > wrote);
}

#[test]
fn of_two_upgraders_the_second_is_refused_at_once() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k a READ PX 60000");
    c.line("LOCK.ACQUIRE k b READ PX 60000");
    let mut other = park(&server, "LOCK.ACQUIRE k w WRITE BLOCK 0");
    let mut upgrader = park(&server, "LOCK.ACQUIRE k a WRITE PX 60000 BLOCK 0");
    let bystander = Bystander::of(&server, "k");
    let error = c.line("LOCK.ACQUIRE k b WRITE BLOCK 0").error();
    assert!(error.starts_with("DEADLOCK "), "{error}");
    bystander.saw_nothing("the second upgrade");
    assert!(
        c.line("LOCK.ACQUIRE k b WRITE").is_nil(),
        "a request without BLOCK gets nil"
    );
    assert_eq!(c.line("LOCK.RELEASE k b").int(), 1);
    assert!(
        upgrader.recv().int() > 0,
        "before the writer that has waited longer"
    );
    assert!(other.is_silent());
}

#[test]
fn a_dead_reader_does_not_block_although_its_field_exists() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k dead READ PX 60000");
    let token = c.line("LOCK.ACQUIRE k alive READ PX 60000").int();
    assert_eq!(c.line("LOCK.RENEW k dead READ PX 1").int(), 1);
    wait_for("the short lease ends", || {
        c.line("EXISTS {k}:dead:rwlock_timeout:1").int() == 0
    });
    assert_eq!(c.line("HGET k dead").text(), "1", "as Redisson leaves it");
    assert_eq!(holders(&mut c), ["alive"]);
    assert!(c.line("LOCK.RELEASE k dead").is_nil());
    assert_eq!(c.line("LOCK.RENEW k dead READ").int(), 0);
    assert!(c.line("LOCK.ACQUIRE k alive WRITE PX 60000").int() > token);
    assert!(c.line("HGET k dead").is_nil());
    assert_eq!(server.stat("grants_expired"), 1);
}

#[test]
fn a_writer_enters_when_the_last_living_reader_dies() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k a READ PX 3000");
    c.line("LOCK.ACQUIRE k b READ PX 6000");
    c.line("PEXPIRE k 600000");
    let mut writer = park(&server, "LOCK.ACQUIRE k w WRITE PX 60000 BLOCK 0");
    assert!(writer.recv().int() > 0);
    assert!(c.line("PTTL k").int() <= 60_000);
    // For the server a key exists during the millisecond of its deadline.
    wait_for("the readers' timeouts are gone", || {
        keys(&mut c) == ["k", "{k}:rwlock_token"]
    });
}

#[test]
fn one_key_is_one_kind_of_lock_while_it_is_held() {
    let server = TestServer::start();
    let mut c = server.conn();
    let refused = |c: &mut Conn, line: &str, holds: &str| {
        let bystander = Bystander::of(&server, "k");
        assert_eq!(
            c.line(line).error(),
            format!("LOCKTYPE the key holds {holds}"),
            "{line}"
        );
        bystander.saw_nothing(line);
    };
    let exclusive = "an exclusive lock, which is used without READ and WRITE";
    let shared = "a read-write lock, say READ or WRITE";
    c.line("LOCK.ACQUIRE k o PX 60000");
    for line in [
        "LOCK.ACQUIRE k a READ",
        "LOCK.ACQUIRE k o WRITE BLOCK 0",
        "LOCK.RELEASE k o READ",
        "LOCK.RENEW k o WRITE",
    ] {
        refused(&mut c, line, exclusive);
    }
    c.line("LOCK.RELEASE k o");
    c.line("LOCK.ACQUIRE k o READ PX 60000");
    refused(&mut c, "LOCK.ACQUIRE k o", shared);
    refused(&mut c, "LOCK.ACQUIRE k p BLOCK 0", shared);
    assert_eq!(c.line("LOCK.RELEASE k o").int(), 1, "no mode is needed");
    assert!(c.line("LOCK.ACQUIRE k p").int() > 0);
}

#[test]
fn owners_that_look_like_fields_hold_exclusively_only() {
    let server = TestServer::start();
    let mut c = server.conn();
    for owner in ["mode", "a:write"] {
        for line in [
            "LOCK.ACQUIRE k $ READ",
            "LOCK.RELEASE k $ WRITE",
            "LOCK.RENEW k $ READ",
        ] {
            let line = line.replace('$', owner);
            let error = c.line(&line).error();
            assert!(
                error.contains("cannot hold READ or WRITE"),
                "{line}: {error}"
            );
        }
        assert!(c.line(&format!("LOCK.ACQUIRE k {owner}")).int() > 0);
        assert_eq!(holders(&mut c), [owner]);
        assert_eq!(c.line(&format!("LOCK.RELEASE k {owner}")).int(), 1);
    }
}

#[test]
fn force_ends_every_hold_and_deletes_the_sibling_keys() {
    let server = TestServer::start();
    let mut c = server.conn();
    let token = c.line("LOCK.ACQUIRE k a READ PX 60000").int();
    c.line("LOCK.ACQUIRE k b READ PX 60000");
    assert_eq!(c.line("LOCK.BREAK k TOKEN 7").int(), 0);
    let mut waiter = park(&server, "LOCK.ACQUIRE k w WRITE PX 60000 BLOCK 0");
    assert_eq!(c.line(&format!("LOCK.BREAK k TOKEN {token}")).int(), 1);
    assert!(waiter.recv().int() > token);
    assert_eq!(server.stat("grants_broken"), 2);
    assert_eq!(c.line("LOCK.BREAK k PURGE").int(), 1);
    assert_eq!(c.line("LOCK.BREAK k").int(), 0);
    assert_eq!(keys(&mut c), [""; 0]);
}

#[test]
fn withholder_names_the_reader_with_the_latest_deadline() {
    let server = TestServer::start();
    for mut c in [server.conn(), server.conn3()] {
        c.line("LOCK.ACQUIRE k a READ PX 60000");
        c.line("LOCK.ACQUIRE k b READ PX 90000");
        c.line("LOCK.ACQUIRE k b READ PX 5000");
        let refused = c.line("LOCK.ACQUIRE k w WRITE WITHHOLDER").list();
        assert!(refused[0].is_nil());
        assert_eq!((refused[1].text(), refused[2].int()), ("b".into(), 2));
        assert!((80_000..=90_000).contains(&refused[3].int()));
        c.line("LOCK.BREAK k");
        let taken = c.line("LOCK.ACQUIRE k w WRITE PX 7000 WITHHOLDER").list();
        assert_eq!((taken[1].text(), taken[2].int()), ("w".into(), 1));
        assert!(taken[0].int() > 0 && taken[3].int() <= 7_000);
        c.line("LOCK.RELEASE k w");
    }
}

#[test]
fn renewing_sets_every_timeout_and_the_hash() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k a READ PX 60000");
    c.line("LOCK.ACQUIRE k a READ PX 90000");
    c.line("LOCK.ACQUIRE k b READ PX 10000");
    assert_eq!(c.line("LOCK.RENEW k a READ PX 30000").int(), 1);
    for key in [
        "{k}:a:rwlock_timeout:1",
        "{k}:a:rwlock_timeout:2",
        "k",
        "{k}:rwlock_token",
    ] {
        let left = c.run(["PTTL", key]).int();
        assert!((20_000..=30_000).contains(&left), "{key}: {left}");
    }
    assert_eq!(c.line("LOCK.RENEW k a PX 5000").int(), 1);
    assert!(
        (5_001..=10_000).contains(&c.line("PTTL k").int()),
        "b stays"
    );
}

#[test]
fn a_transaction_and_a_script_read_and_write_but_never_wait() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("MULTI");
    c.line("LOCK.ACQUIRE k a READ");
    c.line("LOCK.ACQUIRE k b READ");
    c.line("LOCK.ACQUIRE k b WRITE BLOCK 0");
    c.line("LOCK.RELEASE k b");
    c.line("LOCK.ACQUIRE k a WRITE");
    let done = c.line("EXEC").list();
    assert_eq!(done[0], done[1]);
    assert!(done[2].is_nil());
    assert_eq!(done[3].int(), 1);
    assert!(done[4].int() > done[0].int());
    let script = "return redis.call('LOCK.RELEASE', KEYS[1], 'a', 'WRITE')";
    assert_eq!(c.run(["EVAL", script, "1", "k"]).int(), 1);
    assert_eq!(mode(&mut c), "read");
}

#[test]
fn a_grant_that_does_not_arrive_is_taken_back_alone() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k w WRITE PX 60000");
    let mut readers = Vec::new();
    let mut ids = Vec::new();
    for n in 0..3 {
        let mut reader = server.conn();
        ids.push(reader.id());
        reader.send_line(&format!("LOCK.ACQUIRE k r{n} READ PX 60000 BLOCK 0"));
        server.wait_for_waiters(n + 1);
        readers.push(reader);
    }
    let kill = format!("CLIENT KILL ID {}", ids[1]);
    c.send_lines(&["MULTI", "LOCK.RELEASE k w", &kill, "EXEC"]);
    for _ in 0..4 {
        c.recv();
    }
    let token = readers[0].recv().int();
    assert_eq!(readers[2].recv().int(), token);
    wait_for("the one in between is out", || {
        holders(&mut c) == ["r0", "r2"]
    });
    assert_eq!(server.stat("grants_undone"), 1);
    assert_eq!(c.line("EXISTS {k}:r1:rwlock_timeout:1").int(), 0);
}

#[test]
fn every_removal_of_the_hash_grants_to_waiters() {
    for end in [
        "DEL k",
        "RENAME k elsewhere",
        "FLUSHALL",
        "PEXPIRE k 1",
        "HDEL k mode a b",
    ] {
        let server = TestServer::start();
        let mut c = server.conn();
        let token = c.line("LOCK.ACQUIRE k a READ PX 600000").int();
        c.line("LOCK.ACQUIRE k b READ PX 600000");
        let mut writer = park(&server, "LOCK.ACQUIRE k w WRITE PX 60000 BLOCK 0");
        assert!(!c.line(end).is_error());
        assert!(writer.recv().int() > token, "{end}");
        assert_eq!(holders(&mut c), ["w"]);
    }
}

#[test]
fn an_overwritten_lock_sends_its_waiters_away() {
    for (end, code) in [("SET k v", "WRONGTYPE "), ("HSET k x y", "LOCKTYPE ")] {
        let server = TestServer::start();
        let mut c = server.conn();
        c.line("LOCK.ACQUIRE k a READ PX 600000");
        let mut writer = park(&server, "LOCK.ACQUIRE k w WRITE BLOCK 0");
        c.line(end);
        assert!(writer.recv().error().starts_with(code), "{end}");
    }
}

#[test]
fn many_readers_cost_a_reader_no_more_than_few() {
    let server = TestServer::start();
    let mut c = server.conn();
    let calls = 2_000;
    for n in 0..calls {
        c.send_line(&format!("LOCK.ACQUIRE k r{n} READ PX 600000"));
    }
    let token = c.recv().int();
    for _ in 1..calls {
        assert_eq!(c.recv().int(), token);
    }
    assert_eq!(c.line("HLEN k").int(), calls as i64 + 1);
    assert!(c.line("LOCK.ACQUIRE k w WRITE").is_nil());
    for n in 0..calls {
        c.send_line(&format!("LOCK.RELEASE k r{n} READ"));
    }
    for _ in 0..calls {
        assert_eq!(c.recv().int(), 1);
    }
    assert_eq!(keys(&mut c), [""; 0]);
}

#[test]
fn a_reader_holds_thirty_two_times_and_no_more() {
    let server = TestServer::start();
    let mut c = server.conn();
    for _ in 0..32 {
        assert!(c.line("LOCK.ACQUIRE k a READ PX 600000").int() > 0);
    }
    for refused in [
        "LOCK.ACQUIRE k a READ PX 600000",
        "LOCK.ACQUIRE k a READ PX 600000 BLOCK 0",
        "LOCK.MACQUIRE 2 j k a READ",
    ] {
        let error = c.line(refused).error();
        assert!(
            error.starts_with("ERR the owner has 32 READ holds"),
            "{error}"
        );
    }
    assert!(c.line("LOCK.ACQUIRE k b READ PX 600000").int() > 0);
    assert_eq!(c.line("LOCK.RELEASE k b").int(), 1);
    assert!(c.line("LOCK.ACQUIRE k a READ PX 600000 ONCE").int() > 0);
    assert_eq!(c.line("LOCK.RENEW k a PX 500000").int(), 1);
    for timeout in 1..=32 {
        let left = c
            .line(&format!("PTTL {{k}}:a:rwlock_timeout:{timeout}"))
            .int();
        assert!((1..=500_000).contains(&left), "{timeout}: {left}");
    }
    assert_eq!(c.line("LOCK.RELEASE k a ALL").int(), 1);
    assert_eq!(keys(&mut c), [""; 0]);
    // A script may have counted higher: the module does not read so many keys.
    c.line("HSET k mode read a 2147483647");
    c.line("PEXPIRE k 600000");
    c.line("SET {k}:a:rwlock_timeout:2147483647 1 PX 600000");
    assert_eq!(holders(&mut c), ["a"]);
    assert_eq!(c.line("LOCK.RELEASE k a ALL").int(), 1);
    assert_eq!(keys(&mut c), [""; 0]);
}

#[test]
fn a_session_keeps_and_ends_readers_and_writers() {
    let server = TestServer::with(&["--lock.session-lease", "1000"]);
    let mut c = server.conn();
    let mut session = server.conn();
    let token = session.line("LOCK.ACQUIRE k a READ SESSION").int();
    session.line("LOCK.ACQUIRE k b READ SESSION");
    wait_for("renewals", || server.stat("session_renewals") >= 4);
    assert_eq!(holders(&mut c), ["a", "b"]);
    let holder = c.line("LOCK.INFO k").field("holders").unwrap().list()[0].clone();
    assert_eq!(holder.field("session").unwrap().int(), 1);
    let mut writer = park(&server, "LOCK.ACQUIRE k w WRITE SESSION BLOCK 0");
    session.close();
    assert!(writer.recv().int() > token);
    let mut reader = park(&server, "LOCK.ACQUIRE k r READ PX 60000 BLOCK 0");
    assert!(writer.line("LOCK.ACQUIRE k w READ SESSION").int() > 0);
    writer.close();
    assert!(reader.recv().int() > token);
    wait_for("both of the writer's holds are gone", || {
        holders(&mut c) == ["r"]
    });
    assert_eq!(server.stat("grants_session_ended"), 4);
}

/// Tokens that a former process granted and lost with its data are above those in the data: a new reader gets a token
/// of the present process, and an earlier reader keeps its own.
#[test]
fn a_reader_that_joins_after_a_restart_has_a_token_above_all_before() {
    let mut server = TestServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let first = server.conn().line("LOCK.ACQUIRE k a READ PX 600000").int();
    server.crash_and_restart();
    let mut c = server.conn();
    let second = c.line("LOCK.ACQUIRE k b READ PX 600000").int();
    assert!(second > first);
    let third = c.line("LOCK.ACQUIRE k c READ PX 600000").int();
    assert_eq!(third, second, "readers of one phase share it");
    let of_a = |what: &str, token: i64| format!("LOCK.{what} k a TOKEN {token}");
    assert_eq!(c.line(&of_a("RENEW", first - 1)).int(), 0);
    assert_eq!(c.line(&of_a("RENEW", first)).int(), 1);
    assert_eq!(c.line(&of_a("RELEASE", first)).int(), 1);
    let of_b = format!("LOCK.RELEASE k b TOKEN {}", second + 1);
    assert!(c.line(&of_b).is_nil());
    assert_eq!(c.line("LOCK.RELEASE k b").int(), 1);
    assert_eq!(c.line("LOCK.RELEASE k c").int(), 1);
}

/// An upgrade has a token of its own; the owner's READ hold keeps its token.
#[test]
fn a_reader_may_name_its_former_token_after_an_upgrade() {
    let server = TestServer::start();
    let mut c = server.conn();
    let reads = c.line("LOCK.ACQUIRE k a READ PX 600000").int();
    let writes = c.line("LOCK.ACQUIRE k a WRITE PX 600000").int();
    assert!(writes > reads);
    let line = format!("LOCK.RENEW k a WRITE TOKEN {reads}");
    assert_eq!(c.line(&line).int(), 0, "that was not of the write");
    assert_eq!(c.line("LOCK.RELEASE k a WRITE").int(), 1);
    for token in [reads, writes] {
        let line = format!("LOCK.RENEW k a PX 600000 TOKEN {token}");
        assert_eq!(c.line(&line).int(), 1);
    }
    let line = format!("LOCK.RELEASE k a TOKEN {reads}");
    assert_eq!(c.line(&line).int(), 1);
}
