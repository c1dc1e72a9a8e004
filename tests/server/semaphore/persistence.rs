//! Semaphores and latches over restarts, on replicas and in a cluster.

use crate::common::barrier::assert_stays_silent;
use crate::common::cluster::{begin_move, end_move, migrate_keys, one_node, slot_of, two_nodes};
use crate::common::replica::{follow, wait_until_in_sync, ReplicationStream};
use crate::common::{wait_for, Conn, TestServer};

/// The commands that these lines replicate.
fn replicated(stream: &mut ReplicationStream, server: &TestServer, lines: &[&str]) -> Vec<String> {
    let mut c = server.conn();
    stream.until_now(server);
    for line in lines {
        let reply = c.line(line);
        assert!(!reply.is_error(), "{line}: {reply:?}");
    }
    stream.until_now(server)
}

fn end_of(c: &mut Conn, id: &str) -> String {
    c.run(["ZSCORE", "{k}:timeout", id]).text()
}

#[test]
fn replicas_get_the_effects() {
    let server = TestServer::start();
    let mut stream = ReplicationStream::attach(&server);
    let mut c = server.conn();
    c.line("SEM.ACQUIRE warm up LIMIT 1");
    let made = replicated(&mut stream, &server, &["SEM.ACQUIRE k a LIMIT 2 PX 60000"]);
    let add = format!("ZADD {{k}}:timeout {} a", end_of(&mut c, "a"));
    let publish = "PUBLISH redisson_sc:{k} 1";
    assert_eq!(made, ["MULTI", "SET k 1", &add, publish, "EXEC"]);
    let taken = replicated(&mut stream, &server, &["SEM.ACQUIRE k b PX 60000"]);
    let add = format!("ZADD {{k}}:timeout {} b", end_of(&mut c, "b"));
    assert_eq!(taken, ["MULTI", "SET k 0", &add, "EXEC"]);
    let renewed = replicated(&mut stream, &server, &["SEM.RENEW k b PX 70000"]);
    let add = format!("ZADD {{k}}:timeout {} b", end_of(&mut c, "b"));
    assert_eq!(renewed, [add]);
    let nothing = [
        "SEM.ACQUIRE k c",
        "SEM.RENEW k c",
        "SEM.RELEASE k c",
        "SEM.SET k 1 NX",
    ];
    assert_eq!(replicated(&mut stream, &server, &nothing), [""; 0]);
    let mut waiter = server.conn();
    waiter.send_line("SEM.ACQUIRE k c PX 60000 BLOCK 0");
    wait_for("a waiter", || server.stat("sem_waiters") == 1);
    let handed = replicated(&mut stream, &server, &["SEM.RELEASE k a"]);
    waiter.recv().int();
    let add = format!("ZADD {{k}}:timeout {} c", end_of(&mut c, "c"));
    assert_eq!(handed, ["MULTI", "ZREM {k}:timeout a", &add, "EXEC"]);
    c.line("PEXPIRE k 600000");
    let freed = replicated(&mut stream, &server, &["SEM.RELEASE k b"]);
    let ttl = format!("PEXPIREAT k {}", c.line("PEXPIRETIME k").int());
    let publish = "PUBLISH redisson_sc:{k} 1";
    assert_eq!(
        freed,
        [
            "MULTI",
            "ZREM {k}:timeout b",
            "SET k 1",
            &ttl,
            publish,
            "EXEC"
        ]
    );
}

#[test]
fn replicas_get_latches() {
    let server = TestServer::start();
    let mut stream = ReplicationStream::attach(&server);
    let made = replicated(&mut stream, &server, &["LATCH.SET d 2"]);
    let response = "PUBLISH redisson_countdownlatch__channel__{d} 1";
    assert_eq!(made, ["MULTI", "SET d 2", response, "EXEC"]);
    assert_eq!(
        replicated(&mut stream, &server, &["LATCH.DOWN d"]),
        ["SET d 1"]
    );
    let opened = replicated(&mut stream, &server, &["LATCH.DOWN d"]);
    let response = "PUBLISH redisson_countdownlatch__channel__{d} 0";
    assert_eq!(opened, ["MULTI", "DEL d", response, "EXEC"]);
    assert_eq!(
        replicated(&mut stream, &server, &["LATCH.DOWN d", "LATCH.WAIT d"]),
        [""; 0]
    );
}

#[test]
fn a_replica_has_the_permits_and_grants_them_when_it_is_promoted() {
    let (master, replica) = (TestServer::start(), TestServer::start());
    follow(&replica, &master);
    let mut c = master.conn();
    let first = c.line("SEM.ACQUIRE k a LIMIT 2 PX 60000").int();
    c.line("SEM.ACQUIRE k b PX 1");
    wait_until_in_sync(&replica, &master);
    let mut r = replica.conn();
    assert!(r.line("SEM.ACQUIRE k c").error().starts_with("READONLY"));
    let mut info = |field: &str| {
        let info = r.line("SEM.INFO k");
        info.field(field).expect(field).int()
    };
    assert_eq!(info("permits"), 2);
    wait_for("the end of b's permit", || info("free") == 1);
    assert_eq!(r.line("LATCH.WAIT none BLOCK 0").int(), 1);
    r.line("REPLICAOF NO ONE");
    assert!(r.line("SEM.ACQUIRE k c").int() > first, "b's is over");
    assert!(r.line("SEM.ACQUIRE k d").is_nil());
    assert_eq!(r.line("SEM.RELEASE k a").int(), 1);
}

#[test]
fn a_replica_replies_at_once_whether_a_latch_is_open() {
    let (master, replica) = (TestServer::start(), TestServer::start());
    follow(&replica, &master);
    master.conn().line("LATCH.SET d 1");
    wait_until_in_sync(&replica, &master);
    let (mut r, mut subscriber) = (replica.conn(), replica.conn());
    subscriber.line("SUBSCRIBE ch");
    for options in ["BLOCK 0", "BLOCK 0 NOTIFY ch t"] {
        assert_eq!(r.line(&format!("LATCH.WAIT d {options}")).int(), 0);
        assert_eq!(r.line(&format!("LATCH.WAIT none {options}")).int(), 1);
    }
    assert_eq!(replica.stat("tickets_queued"), 0);
}

#[test]
fn permits_and_latches_survive_a_crash() {
    let mut server = TestServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut c = server.conn();
    let first = c.line("SEM.ACQUIRE k a LIMIT 3 PX 600000").int();
    c.line("SEM.ACQUIRE k b PX 600000");
    c.line("SEM.ACQUIRE k c PX 50");
    c.line("SEM.RELEASE k b");
    c.line("LATCH.SET d 2");
    c.line("LATCH.DOWN d");
    let end = end_of(&mut c, "a");
    server.crash_and_restart();
    let mut c = server.conn();
    assert_eq!(end_of(&mut c, "a"), end);
    for owner in ["w0", "w1"] {
        let acquire = format!("SEM.ACQUIRE k {owner} PX 600000 BLOCK 0");
        assert!(server.conn().line(&acquire).int() > first);
    }
    let mut third = server.conn();
    third.send_line("SEM.ACQUIRE k w2 PX 600000 BLOCK 0");
    wait_for("a waiter", || server.stat("sem_waiters") == 1);
    assert_stays_silent(&server, &mut third);
    assert_eq!(c.line("LATCH.WAIT d").int(), 0);
    assert_eq!(c.line("LATCH.DOWN d").int(), 0);
}

#[test]
fn both_keys_of_a_semaphore_are_in_one_slot_or_it_is_refused() {
    let node = one_node(&[]);
    let mut c = node.conn();
    for key in ["k", "{tag}a", "a{tag}b"] {
        assert!(c.line(&format!("SEM.ACQUIRE {key} a LIMIT 1")).int() > 0);
        assert_eq!(c.line(&format!("SEM.RELEASE {key} a")).int(), 1);
    }
    for call in [
        "SEM.SET x{}y 1",
        "SEM.ACQUIRE x{}y a LIMIT 1 BLOCK 0",
        "SEM.RELEASE x{}y a",
        "SEM.RENEW x{}y a",
        "SEM.INFO x{}y",
    ] {
        let error = c.line(call).error();
        assert!(error.contains("in another slot"), "{call}: {error}");
    }
    assert_eq!(c.line("EXISTS x{}y").int(), 0);
    assert_eq!(c.line("LATCH.SET x{}y 1").int(), 1, "a latch is one key");
}

#[test]
fn a_slot_that_moves_redirects_its_waiters() {
    let (source, target) = two_nodes(&[]);
    let (mut here, mut there) = (source.conn(), target.conn());
    let slot = slot_of(&mut here, "k");
    here.line("SEM.ACQUIRE k a LIMIT 1 PX 600000");
    let (mut waiter, mut other_waiter) = (source.conn(), source.conn());
    waiter.send_line("SEM.ACQUIRE k b LIMIT 1 BLOCK 0");
    here.line("LATCH.SET {k}d 1");
    other_waiter.send_line("LATCH.WAIT {k}d BLOCK 0");
    wait_for("both", || {
        source.stat("sem_waiters") + source.stat("latch_waiters") == 2
    });
    begin_move(&source, &target, slot);
    migrate_keys(&source, &target, slot);
    // A key that is absent here is at the target: no latch is open here, and no semaphore is created.
    here.line("LOCK.ACQUIRE other x PX 50");
    assert!(here.line("LOCK.ACQUIRE other y BLOCK 0").int() > 0);
    assert!(waiter.is_silent() && other_waiter.is_silent());
    end_move(&source, &target, slot);
    let moved = format!("MOVED {slot} 127.0.0.1:{}", target.port);
    assert_eq!(waiter.recv().error(), moved);
    assert_eq!(other_waiter.recv().error(), moved);
    source.wait_for_stat("keys_withheld", 0);
    assert!(there.line("SEM.ACQUIRE k b").is_nil());
    assert_eq!(there.line("SEM.RELEASE k a").int(), 1);
    assert!(there.line("SEM.ACQUIRE k b").int() > 0);
}

/// One of the two keys has moved, the other has not: the module decides nothing with one key of a semaphore.
#[test]
fn a_semaphore_with_one_key_moved_is_refused() {
    let (source, target) = two_nodes(&[]);
    let (mut here, mut there) = (source.conn(), target.conn());
    let slot = slot_of(&mut here, "k");
    here.line("SEM.ACQUIRE k a LIMIT 2 PX 600000");
    begin_move(&source, &target, slot);
    let port = target.port.to_string();
    let done = here.run(["MIGRATE", "127.0.0.1", &port, "{k}:timeout", "0", "20000"]);
    assert_eq!(done.text(), "OK");
    for call in [
        "SEM.ACQUIRE k b",
        "SEM.RELEASE k a",
        "SEM.RENEW k a",
        "SEM.SET k 5",
    ] {
        let error = here.line(call).error();
        assert!(error.starts_with("TRYAGAIN"), "{call}: {error}");
    }
    migrate_keys(&source, &target, slot);
    assert!(here.line("SEM.ACQUIRE k b").error().starts_with("ASK"));
    end_move(&source, &target, slot);
    let there_at = |conn: &mut Conn, line: &str| {
        let mut reply = conn.line(line);
        wait_for("the slot", || {
            reply = conn.line(line);
            !reply.is_error()
        });
        reply
    };
    assert!(there_at(&mut there, "SEM.ACQUIRE k b").int() > 0);
    assert_eq!(there.line("SEM.RELEASE k a").int(), 1);
    assert_eq!(there.line("GET k").text(), "1");
}

/// An expired key is hidden, not deleted, while writes are paused. Writing it then ends the server.
#[test]
fn a_transaction_that_paused_writes_creates_nothing() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("DEBUG SET-ACTIVE-EXPIRE 0");
    for make in ["SEM.SET k 2", "LATCH.SET k 2"] {
        assert_eq!(c.line(make).int(), 2);
        let end = c.line("TIME").list()[0].text().parse::<i64>().unwrap() * 1_000 + 1_000;
        c.line(&format!("PEXPIREAT k {end}"));
        wait_for("the end of the key", || {
            c.line("TIME").list()[0].text().parse::<i64>().unwrap() * 1_000 > end
        });
        for line in ["MULTI", "CLIENT PAUSE 60000 WRITE", make, "CLIENT UNPAUSE"] {
            c.line(line);
        }
        assert!(c.line("EXEC").list()[1].error().starts_with("TRYAGAIN "));
        assert_eq!(c.line(make).int(), 2, "and afterwards it is created");
        c.line("DEL k");
    }
}

/// Otherwise the permits would expire with a TTL that their semaphore no longer has.
#[test]
fn the_set_follows_the_ttl_of_the_string() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("SEM.SET k 2");
    c.line("PEXPIRE k 600000");
    c.line("SEM.ACQUIRE k a PX 60000");
    let ends = |c: &mut Conn| {
        let [string, set] = ["k", "{k}:timeout"].map(|key| c.run(["PEXPIRETIME", key]).int());
        assert_eq!(string, set);
        set
    };
    assert!(ends(&mut c) > 0);
    c.line("PEXPIRE k 900000");
    assert_eq!(c.line("SEM.RENEW k a PX 60000").int(), 1);
    ends(&mut c);
    let mut stream = ReplicationStream::attach(&server);
    c.line("PERSIST k");
    let response = replicated(&mut stream, &server, &["SEM.RENEW k a PX 60000"]);
    assert_eq!(ends(&mut c), -1);
    assert!(
        response.contains(&"PERSIST {k}:timeout".into()),
        "{response:?}"
    );
}
