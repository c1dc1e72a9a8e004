//! The sibling keys of a read-write lock: the permissions that they need, their slot in a cluster, and their copies on
//! replicas and in files.

use crate::common::cluster;
use crate::common::replica::{follow, wait_until_in_sync, ReplicationStream};
use crate::common::{wait_for, Bystander, Conn, TestServer};

fn user(server: &TestServer, name: &str, rules: &str) -> Conn {
    let mut admin = server.conn();
    let made = admin.line(&format!("ACL SETUSER {name} reset on nopass +@all {rules}"));
    assert_eq!(made.text(), "OK", "{rules}");
    let mut conn = server.conn();
    assert_eq!(conn.line(&format!("AUTH {name} any")).text(), "OK");
    conn
}

#[test]
fn a_user_needs_the_keys_beside_the_lock() {
    let server = TestServer::start();
    let mut admin = server.conn();
    admin.line("LOCK.ACQUIRE k o READ PX 600000");
    let calls = [
        "LOCK.ACQUIRE k p READ",
        "LOCK.ACQUIRE k p READ BLOCK 0",
        "LOCK.ACQUIRE k p WRITE",
        "LOCK.RENEW k p READ",
        "LOCK.RELEASE k p",
        "LOCK.RELEASE k o READ",
        "LOCK.BREAK k",
    ];
    for (name, rules) in [
        ("alone", "~k"),
        ("reads", "~k %R~{k}*"),
        ("writes", "~k %W~{k}*"),
        ("tokens", "~k ~{k}:rwlock_token"),
        ("timeouts", "~k ~{k}:*:rwlock_timeout:*"),
    ] {
        let mut conn = user(&server, name, rules);
        for call in calls {
            let bystander = Bystander::of(&server, "k");
            let error = conn.line(call).error();
            assert!(error.starts_with("NOPERM "), "{name}: {call}: {error}");
            bystander.saw_nothing(call);
        }
        // An exclusive lock needs none of these permissions.
        assert!(conn
            .line("LOCK.ACQUIRE k p")
            .error()
            .starts_with("LOCKTYPE"));
        let info = conn.line("LOCK.INFO k");
        match name {
            "alone" | "writes" | "timeouts" => {
                assert!(info.error().starts_with("NOPERM "), "{name}")
            }
            _ => assert_eq!(info.field("mode").unwrap().text(), "read", "{name}"),
        }
    }
    let mut conn = user(&server, "both", "~k %RW~{k}:*");
    assert!(conn.line("LOCK.ACQUIRE k p READ PX 600000").int() > 0);
    assert_eq!(conn.line("LOCK.RENEW k p PX 600000").int(), 1);
    assert_eq!(conn.line("LOCK.RELEASE k p").int(), 1);
    assert_eq!(conn.line("LOCK.BREAK k").int(), 1);
    // The grant to a waiter does not check permissions again.
    conn.line("LOCK.ACQUIRE k p WRITE PX 600000");
    let mut waiter = user(&server, "waiter", "~k ~{k}:*");
    waiter.send_line("LOCK.ACQUIRE k q READ BLOCK 0");
    server.wait_for_waiters(1);
    admin.line("ACL SETUSER waiter resetkeys");
    admin.line("LOCK.RELEASE k p");
    wait_for("the waiter is answered or its connection closed", || {
        server.stat("waiters") == 0
    });
}

#[test]
fn in_a_cluster_a_name_whose_keys_have_different_slots_is_refused() {
    let node = cluster::one_node(&[]);
    let mut c = node.conn();
    for name in ["a}b", "a{", "a{}b"] {
        for words in [
            &["LOCK.ACQUIRE", name, "o", "READ"][..],
            &["LOCK.ACQUIRE", name, "o", "WRITE", "BLOCK", "0"],
            &["LOCK.RELEASE", name, "o", "READ"],
            &["LOCK.RENEW", name, "o", "WRITE"],
        ] {
            let error = c.run(words).error();
            assert!(
                error.contains("cannot be READ or WRITE in a cluster"),
                "{error}"
            );
        }
        assert!(c.run(["LOCK.ACQUIRE", name, "o"]).int() > 0);
    }
    for name in ["k", "{tag}k", "x{tag}"] {
        let token = c.run(["LOCK.ACQUIRE", name, "o", "READ"]).int();
        assert!(token > 0, "{name}");
        let slot = cluster::slot_of(&mut c, name);
        let beside = cluster::keys_in(&mut c, slot);
        let ours = beside.iter().filter(|key| key.contains("rwlock")).count();
        assert_eq!(ours % 2, 0, "{beside:?}");
        assert_eq!(c.run(["LOCK.RELEASE", name, "o", "READ"]).int(), 1);
    }
}

/// A reader looks dead to a node without its timeout, which has left already or not arrived yet.
#[test]
fn while_a_slot_moves_no_reader_is_granted_beside_readers() {
    let (source, target) = cluster::two_nodes(&[]);
    let (mut here, mut there) = (source.conn(), target.conn());
    let epochs_differ = |a: &mut Conn, b: &mut Conn| {
        let epoch = |conn: &mut Conn| {
            let info = conn.line("CLUSTER INFO").text();
            let line = info
                .lines()
                .find(|line| line.starts_with("cluster_my_epoch"));
            line.unwrap().to_string()
        };
        epoch(a) != epoch(b)
    };
    wait_for("two epochs", || epochs_differ(&mut here, &mut there));
    let token = here.line("LOCK.ACQUIRE k a READ PX 600000").int();
    let mut writer = source.conn();
    writer.send_line("LOCK.ACQUIRE k w WRITE PX 600000 BLOCK 0");
    source.wait_for_waiters(1);
    let slot = cluster::slot_of(&mut here, "k");
    cluster::begin_move(&source, &target, slot);
    let port = target.port.to_string();
    let mut migrate = |key: &str| {
        let reply = here.run(["MIGRATE", "127.0.0.1", &port, key, "0", "10000"]);
        assert_eq!(reply.text(), "OK", "{key}");
    };
    migrate("{k}:a:rwlock_timeout:1");
    let mut other = source.conn();
    for line in [
        "LOCK.ACQUIRE k x WRITE",
        "LOCK.ACQUIRE k x READ",
        "LOCK.RENEW k a READ",
        "LOCK.RELEASE k a",
        "LOCK.BREAK k",
    ] {
        let error = other.line(line).error();
        assert!(error.starts_with("TRYAGAIN "), "{line}: {error}");
    }
    assert!(other.line("LOCK.ACQUIRE k x").is_nil(), "others wait");
    // The timer settles the key and does not change it.
    other.line("PEXPIRE k 500000");
    assert!(writer.is_silent());
    migrate("k");
    assert_eq!(there.line("ASKING").text(), "OK");
    let error = there.line("LOCK.ACQUIRE k x WRITE").error();
    assert!(error.starts_with("TRYAGAIN "), "{error}");
    cluster::migrate_keys(&source, &target, slot);
    assert!(writer.is_silent());
    cluster::end_move(&source, &target, slot);
    assert!(writer.recv().error().starts_with("MOVED "));
    wait_for("the slot has arrived", || {
        !there.line("LOCK.INFO k").is_error()
    });
    assert!(there.line("LOCK.ACQUIRE k x WRITE").is_nil());
    assert!(there.line("LOCK.ACQUIRE k b READ").int() > token);
    let renew = format!("LOCK.RENEW k a TOKEN {token}");
    assert_eq!(there.line(&renew).int(), 1);
}

/// The replicated commands, without times and tokens.
fn seen(stream: &mut ReplicationStream, server: &TestServer) -> Vec<String> {
    let cut = |line: String| {
        let words = line.split(' ').map(|word| match word.len() {
            13 if word.bytes().all(|b| b.is_ascii_digit()) => "@",
            17.. if word.starts_with("r1") => "r#",
            17.. if word.starts_with("w1") => "w#",
            _ => word,
        });
        words.collect::<Vec<_>>().join(" ")
    };
    stream.until_now(server).into_iter().map(cut).collect()
}

#[test]
fn replicas_get_the_effects_of_a_decision_as_one_unit() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE warm up");
    c.line("LOCK.RELEASE warm up");
    let mut stream = ReplicationStream::attach(&server);
    stream.until_now(&server);
    c.line("LOCK.ACQUIRE k a READ PX 60000");
    assert_eq!(
        seen(&mut stream, &server),
        [
            "MULTI",
            "HSET k mode read a 1",
            "SET {k}:a:rwlock_timeout:1 1 PXAT @",
            "PEXPIREAT k @",
            "SET {k}:rwlock_token r# PXAT @",
            "EXEC",
        ]
    );
    c.line("LOCK.ACQUIRE k b READ PX 50000");
    assert_eq!(
        seen(&mut stream, &server),
        [
            "MULTI",
            "HSET k b 1",
            "SET {k}:b:rwlock_timeout:1 1 PXAT @",
            "EXEC",
        ]
    );
    c.line("LOCK.RELEASE k b");
    assert_eq!(
        seen(&mut stream, &server),
        ["MULTI", "DEL {k}:b:rwlock_timeout:1", "HDEL k b", "EXEC"]
    );
    let mut writer = server.conn();
    writer.send_line("LOCK.ACQUIRE k w WRITE PX 60000 BLOCK 0");
    server.wait_for_waiters(1);
    c.line("LOCK.ACQUIRE k x WRITE");
    assert_eq!(seen(&mut stream, &server), [""; 0], "nothing has changed");
    c.line("LOCK.RELEASE k a");
    writer.recv();
    assert_eq!(
        seen(&mut stream, &server),
        [
            "MULTI",
            "DEL {k}:a:rwlock_timeout:1",
            "DEL k",
            "HSET k mode write w:write 1",
            "PEXPIREAT k @",
            "SET {k}:rwlock_token w# PXAT @",
            "EXEC",
        ]
    );
    c.line("LOCK.RELEASE k w");
    assert_eq!(
        seen(&mut stream, &server),
        [
            "MULTI",
            "DEL k",
            "DEL {k}:rwlock_token",
            "PUBLISH redisson_rwlock:{k} 1",
            "EXEC",
        ]
    );
}

/// A reader, a writer that also reads, and a lock that was released.
fn some_locks(c: &mut Conn) -> i64 {
    c.line("LOCK.ACQUIRE r a READ PX 600000");
    c.line("LOCK.ACQUIRE r a READ PX 600000");
    c.line("LOCK.ACQUIRE r b READ PX 600000");
    c.line("LOCK.ACQUIRE w a READ PX 600000");
    c.line("LOCK.ACQUIRE w a WRITE PX 600000");
    c.line("LOCK.ACQUIRE gone a READ PX 600000");
    c.line("LOCK.RELEASE gone a");
    c.line("LOCK.ACQUIRE w a WRITE PX 600000 ONCE").int()
}

fn check_locks(c: &mut Conn, wrote: i64) {
    let holders = c.line("LOCK.INFO r").field("holders").unwrap().list();
    assert_eq!(holders.len(), 2);
    assert_eq!(c.line("LOCK.RELEASE r a READ").int(), 0);
    assert_eq!(c.line("LOCK.RELEASE r a").int(), 1);
    assert!(c.line("LOCK.ACQUIRE w b READ").is_nil());
    let release = format!("LOCK.RELEASE w a WRITE TOKEN {wrote}");
    assert_eq!(c.line(&release).int(), 1);
    // A new process grants nothing under a token of the former one.
    assert!(c.line("LOCK.ACQUIRE w b READ").int() > wrote);
    assert_eq!(c.line(&format!("LOCK.RENEW w a TOKEN {wrote}")).int(), 1);
    assert_eq!(c.line("LOCK.RELEASE r b").int(), 1);
    assert!(c.line("LOCK.ACQUIRE r c WRITE").int() > wrote);
    assert_eq!(c.line("EXISTS gone {gone}:rwlock_token").int(), 0);
}

#[test]
fn a_restart_loses_nothing() {
    let options = ["--appendonly", "yes", "--appendfsync", "always"];
    let mut server = TestServer::with(&options);
    let wrote = some_locks(&mut server.conn());
    server.crash_and_restart();
    let mut c = server.conn();
    wait_for("the data is loaded", || !c.line("LOCK.INFO r").is_error());
    check_locks(&mut c, wrote);
}

#[test]
fn a_replica_holds_the_same_and_takes_over() {
    let (master, replica) = (TestServer::start(), TestServer::start());
    let wrote = some_locks(&mut master.conn());
    follow(&replica, &master);
    wait_until_in_sync(&replica, &master);
    let mut digests = [&master, &replica].map(|s| s.conn().line("DEBUG DIGEST").text());
    wait_for("the same data", || {
        digests = [&master, &replica].map(|s| s.conn().line("DEBUG DIGEST").text());
        digests[0] == digests[1]
    });
    let mut c = replica.conn();
    c.line("REPLICAOF NO ONE");
    check_locks(&mut c, wrote);
}

#[test]
fn while_writes_are_paused_nothing_is_written_beside_a_lock() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k a READ PX 600000");
    c.line("LOCK.ACQUIRE k b READ PX 600000");
    c.line("MULTI");
    c.line("CLIENT PAUSE 60000 WRITE");
    for line in [
        "LOCK.ACQUIRE k a READ",
        "LOCK.ACQUIRE k c READ",
        "LOCK.RENEW k a",
        "LOCK.RELEASE k a",
    ] {
        c.line(line);
    }
    c.line("CLIENT UNPAUSE");
    let done = c.line("EXEC").list();
    for refused in &done[1..5] {
        assert!(refused.error().starts_with("TRYAGAIN "));
    }
    // Granted to the waiter after the pause.
    let mut writer = server.conn();
    writer.send_line("LOCK.ACQUIRE k w WRITE PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    c.send_lines(&[
        "MULTI",
        "DEL k",
        "CLIENT PAUSE 60000 WRITE",
        "EXEC",
        "CLIENT UNPAUSE",
    ]);
    for _ in 0..5 {
        c.recv();
    }
    assert!(writer.recv().int() > 0);
}

#[test]
fn out_of_memory_no_new_reader_is_granted_and_every_release_works() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k a READ PX 600000");
    c.line("LOCK.ACQUIRE k a READ PX 600000");
    let mut writer = server.conn();
    writer.send_line("LOCK.ACQUIRE k w WRITE PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    c.line("CONFIG SET maxmemory 1");
    assert!(c.line("LOCK.ACQUIRE k b READ").error().starts_with("OOM "));
    assert_eq!(c.line("LOCK.RENEW k a").int(), 1);
    assert_eq!(c.line("LOCK.RELEASE k a").int(), 0);
    assert_eq!(c.line("LOCK.RELEASE k a").int(), 1);
    assert!(writer.recv().int() > 0);
}
