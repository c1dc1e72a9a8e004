//! The database of a client: a command about another database leaves the client, its transaction and its script where
//! they were, on the server, its replica and in its AOF, while the module follows key events.

use crate::common::barrier::Barrier;
use crate::common::ending::rewrite_aof;
use crate::common::replica::{aof_text, follow, wait_until_in_sync, PROMPT_MASTER};
use crate::common::scene::Scene;
use crate::common::{Conn, TestServer};

/// Commands about database 10. `m`, `full` and `gone` are there, the TTL of `gone` in database 10 is over.
const ABOUT_ANOTHER: [&str; 12] = [
    "MOVE m 10",
    "MOVE gone 10",
    "MOVE full 10",
    "MOVE absent 10",
    "COPY m c DB 10",
    "COPY m full DB 10 REPLACE",
    "COPY m full DB 10",
    "COPY m gone DB 10",
    "COPY m gone DB 10 REPLACE",
    "RENAME m other",
    "RESTORE gone 0 x",
    "EXISTS gone",
];

/// A client that has the number of each database in its key `here`, and the keys of [`ABOUT_ANOTHER`].
fn prepared(server: &TestServer) -> Conn {
    let mut c = server.conn();
    c.line("DEBUG SET-ACTIVE-EXPIRE 0");
    for db in [10, 3, 0] {
        c.line(&format!("SELECT {db}"));
        c.line(&format!("SET here {db}"));
    }
    refill(&mut c);
    c
}

/// Makes the keys again; the client stays in database 0.
fn refill(c: &mut Conn) {
    for db in [10, 3, 0] {
        c.line(&format!("SELECT {db}"));
        c.line("DEL m c other gone full");
        for key in ["full", "gone"] {
            c.line(&format!("SET {key} v{db}"));
        }
        if db != 10 {
            c.line(&format!("SET m v{db}"));
        }
    }
    c.run([
        "EVAL",
        "redis.call('SELECT', 10); redis.call('PEXPIRE', 'gone', 1); return 1",
        "0",
    ]);
    let mut other = c.another();
    other.line("SELECT 10");
    crate::common::wait_for("the end of a TTL", || other.line("PTTL gone").int() == -2);
}

fn database_of(c: &mut Conn) -> String {
    c.line("GET here").text()
}

/// Everything that runs one of the commands, and each says afterwards which database it is in.
fn assert_stays(c: &mut Conn, command: &str) {
    let words: Vec<String> = command.split(' ').map(|word| format!("'{word}'")).collect();
    let call = words.join(", ");
    refill(c);
    c.line(command);
    assert_eq!(database_of(c), "0", "{command}");
    refill(c);
    for line in [
        "MULTI", command, "GET here", "SELECT 3", command, "GET here", "SELECT 0", "EXEC",
    ] {
        let reply = c.line(line);
        if line == "EXEC" {
            let replies = reply.list();
            assert_eq!(replies[1].text(), "0", "{command} in MULTI");
            assert_eq!(replies[4].text(), "3", "{command} in MULTI behind SELECT");
        }
    }
    assert_eq!(database_of(c), "0", "{command} in MULTI");
    for (before, expected) in [("", "0"), ("redis.call('SELECT', 3); ", "3")] {
        refill(c);
        let script = format!("{before}redis.pcall({call}); return redis.call('GET', 'here')");
        assert_eq!(
            c.run(["EVAL", &script, "0"]).text(),
            expected,
            "{command} in a script"
        );
        assert_eq!(database_of(c), "0", "{command} in a script");
    }
    refill(c);
    c.line("DEL fence");
    let token = c.line("LOCK.ACQUIRE fence o PX 600000").int();
    c.line(&format!("LOCK.IF fence {token} {command}"));
    assert_eq!(database_of(c), "0", "{command} under LOCK.IF");
    c.line("LOCK.RELEASE fence o");
}

#[test]
fn a_command_about_another_database_leaves_its_client_where_it_was() {
    let scene = Scene::with(&["--save", ""]);
    let mut c = prepared(&scene.server);
    for command in ABOUT_ANOTHER {
        assert_stays(&mut c, command);
    }
    for command in ["SWAPDB 3 10", "FLUSHDB", "FLUSHALL", "SWAPDB 0 10"] {
        c.line("SET here 0");
        c.line(command);
        let list = c.line("CLIENT INFO").text();
        assert!(list.contains(" db=0 "), "{command}: {list}");
    }
}

#[test]
fn events_that_are_published_change_no_database_either() {
    let server = TestServer::with(&["--notify-keyspace-events", "KEA"]);
    let mut c = prepared(&server);
    for command in ABOUT_ANOTHER {
        assert_stays(&mut c, command);
    }
}

/// What the commands do reaches the replica and the AOF in their own databases.
#[test]
fn a_command_about_another_database_is_replicated_in_its_own() {
    let options = ["--appendonly", "yes", "--appendfsync", "always"];
    let server = TestServer::with(&[&options[..], &PROMPT_MASTER[..]].concat());
    let mut scene = Scene::on(server);
    let replica = TestServer::with(&["--notify-keyspace-events", "KEA"]);
    follow(&replica, &scene.server);
    rewrite_aof(&scene.server);
    let mut c = prepared(&scene.server);
    for command in ABOUT_ANOTHER {
        assert_stays(&mut c, command);
        wait_until_in_sync(&replica, &scene.server);
        let digest = c.line("DEBUG DIGEST").text();
        assert_eq!(
            replica.conn().line("DEBUG DIGEST").text(),
            digest,
            "{command}"
        );
    }
    assert!(aof_text(&scene.server)
        .iter()
        .any(|entry| entry == "MOVE m 10"));
    scene.alice.line("LOCK.RELEASE k alice");
    c.line("DEBUG SET-ACTIVE-EXPIRE 1");
    for key in ["gone", "c"] {
        c.line(&format!("DEL {key}"));
    }
    let digest = c.line("DEBUG DIGEST").text();
    assert_eq!(c.line("DEBUG LOADAOF").text(), "OK");
    assert_eq!(c.line("DEBUG DIGEST").text(), digest);
}

/// The changes that no event of a type reports, and that are no removal.
#[test]
fn a_key_that_appears_or_gets_another_ttl_is_noticed() {
    let server = TestServer::start();
    let mut c = server.conn();
    for way in ["RENAME other k", "COPY other k", "RESTORE k 0", "MOVE k 0"] {
        c.line("FLUSHALL");
        c.line("SET other 1");
        let mut waiter = server.conn();
        waiter.send_line("SEM.ACQUIRE k id PX 600000 BLOCK 0");
        server.wait_for_stat("sem_waiters", 1);
        match way {
            "RESTORE k 0" => {
                let dump = c.line("DUMP other").bytes();
                c.run([&b"RESTORE"[..], b"k", b"0", &dump])
            }
            "MOVE k 0" => {
                for line in ["SELECT 1", "SET k 1", way] {
                    c.line(line);
                }
                c.line("SELECT 0")
            }
            way => c.line(way),
        };
        assert!(waiter.recv().int() > 0, "{way}");
    }
    // The server itself ends no lease here, so only the new TTL can be the cause.
    c.line("DEBUG SET-ACTIVE-EXPIRE 0");
    c.line("LOCK.ACQUIRE shorter o PX 600000");
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE shorter p PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    c.line("PEXPIRE shorter 1");
    assert!(waiter.recv().int() > 0);
    c.line("DEBUG SET-ACTIVE-EXPIRE 1");
}

/// A semaphore's permits are in a key of their own.
#[test]
fn permits_that_appear_again_are_noticed() {
    let server = TestServer::start();
    let mut c = server.conn();
    // The server itself ends no lease here, so only what the module has seen can be the cause.
    c.line("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut barrier = Barrier::on(&server);
    for way in ["RENAME", "RESTORE"] {
        c.line("SEM.SET s 1");
        c.line("SEM.ACQUIRE s a PX 3000");
        let mut waiter = server.conn();
        waiter.send_line("SEM.ACQUIRE s b PX 600000 BLOCK 0");
        server.wait_for_stat("sem_waiters", 1);
        let dump = c.line("DUMP {s}:timeout").bytes();
        let commands: [&[&[u8]]; 2] = match way {
            "RENAME" => [
                &[b"RENAME", b"{s}:timeout", b"t"],
                &[b"RENAME", b"t", b"{s}:timeout"],
            ],
            _ => [
                &[b"DEL", b"{s}:timeout"],
                &[b"RESTORE", b"{s}:timeout", b"0", &dump],
            ],
        };
        for command in commands {
            assert!(!c.run(command).is_error());
            barrier.assert_silent(&mut waiter);
        }
        assert!(waiter.recv().int() > 0, "{way}");
        c.line("DEL s {s}:timeout");
    }
}

#[test]
fn a_horizon_with_a_ttl_is_stored_again_without_one() {
    const HORIZON: &str = "redis_lock:horizon";
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k o PX 600000");
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k p PX 600000 BLOCK 0");
    server.wait_for_waiters(1);
    c.line(&format!("PEXPIRE {HORIZON} 600000"));
    crate::common::wait_for("a horizon without an end", || {
        c.line("LOCK.ACQUIRE other o");
        c.line("LOCK.RELEASE other o");
        c.line(&format!("PTTL {HORIZON}")).int() == -1
    });
}
