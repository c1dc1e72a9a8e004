//! The reply to a parked client, row by row of the table in docs/COMMANDS.md, and the place in the queue that each
//! owner keeps.

use crate::common::barrier::Barrier;
use crate::common::scene::{only_reply, Scene};
use crate::common::{wait_for, Conn, Reply, TestServer};

/// A grace time that keeps places long enough for a slow machine.
const KEPT: [&str; 2] = ["--lock.queue-grace", "60000"];

/// The owners in the order of the queue.
fn queue(conn: &mut Conn) -> Vec<String> {
    let info = conn.line("LOCK.INFO k WAITERS COUNT 1000");
    let field = |waiter: &Reply| waiter.field("owner").expect("an owner").text();
    info.field("queue")
        .map_or_else(Vec::new, |queue| queue.list().iter().map(field).collect())
}

/// The first waiter as `LOCK.INFO` describes it.
fn first_waiter(conn: &mut Conn, field: &str) -> Reply {
    let info = conn.line("LOCK.INFO k WAITERS");
    let queue = info.field("queue").expect("a queue").list();
    queue[0].field(field).expect(field)
}

// The rows of the table.

#[test]
fn granted_is_answered_the_token() {
    let mut scene = Scene::new();
    assert_eq!(scene.alice.line("LOCK.RELEASE k alice").int(), 1);
    scene.assert_bob_is_granted();
    scene.assert_stats(&[("waits_granted", 1), ("waits_parked", 1)]);
}

#[test]
fn the_lease_starts_at_the_grant_not_at_the_request() {
    let server = TestServer::start();
    let mut alice = server.conn();
    alice.line("LOCK.ACQUIRE k alice PX 60000");
    let mut bob = server.conn();
    bob.send_line("LOCK.ACQUIRE k bob PX 10000 BLOCK 0");
    wait_for("a wait longer than nothing", || {
        let info = alice.line("LOCK.INFO k");
        info.field("longest-wait-ms")
            .is_some_and(|ms| ms.int() > 300)
    });
    alice.line("LOCK.RELEASE k alice");
    bob.recv().int();
    assert!(alice.line("PTTL k").int() > 9_800);
}

#[test]
fn a_block_that_timed_out_is_answered_nil() {
    let mut scene = Scene::waiting(TestServer::start(), "BLOCK 40");
    assert!(only_reply(&mut scene.bob).is_nil());
    scene.assert_held("alice", scene.first);
    scene.assert_stats(&[("waiters", 0)]);
    scene.server.wait_for_stat("waits_timed_out", 1);
}

#[test]
fn client_unblock_timeout_is_answered_nil() {
    for unblock in ["CLIENT UNBLOCK $BOB TIMEOUT", "CLIENT UNBLOCK $BOB"] {
        let mut scene = Scene::new();
        let line = unblock.replace("$BOB", &scene.bob_id.to_string());
        assert_eq!(scene.alice.line(&line).int(), 1);
        assert!(only_reply(&mut scene.bob).is_nil());
        scene.assert_held("alice", scene.first);
        scene.assert_stats(&[("waits_unblocked", 1), ("waiters", 0)]);
    }
}

#[test]
fn client_unblock_error_is_answered_an_error_and_the_connection_stays() {
    let mut scene = Scene::new();
    let line = format!("CLIENT UNBLOCK {} ERROR", scene.bob_id);
    assert_eq!(scene.alice.line(&line).int(), 1);
    assert!(only_reply(&mut scene.bob).error().starts_with("UNBLOCKED"));
    scene.assert_stats(&[("waits_disconnected", 1), ("waiters", 0)]);
    scene.alice.line("LOCK.RELEASE k alice");
    assert!(scene.bob.line("LOCK.ACQUIRE k bob").int() > scene.first);
}

#[test]
fn taken_over_by_a_newer_request_is_answered_nil() {
    let mut scene = Scene::new();
    let mut carol = scene.park("carol");
    let mut newer = scene.server.conn();
    let newer_id = newer.id();
    newer.send_line("LOCK.ACQUIRE k bob PX 7000 BLOCK 0");
    assert!(only_reply(&mut scene.bob).is_nil());
    assert_eq!(queue(&mut scene.alice), ["bob", "carol"]);
    assert_eq!(first_waiter(&mut scene.alice, "client-id").int(), newer_id);
    scene.assert_stats(&[("waits_taken_over", 1), ("waits_parked", 3), ("waiters", 2)]);
    scene.alice.line("LOCK.RELEASE k alice");
    assert!(only_reply(&mut newer).int() > scene.first);
    let lease = scene.alice.line("PTTL k").int();
    assert!(
        (1..=7_000).contains(&lease),
        "the newer request's lease: {lease}"
    );
    assert!(carol.is_silent());
}

#[test]
fn a_newer_request_may_wait_shorter_than_the_one_it_takes_over() {
    let mut scene = Scene::new();
    let mut newer = scene.server.conn();
    newer.send_line("LOCK.ACQUIRE k bob BLOCK 50");
    assert!(only_reply(&mut scene.bob).is_nil());
    assert!(only_reply(&mut newer).is_nil());
    scene.assert_stats(&[("waits_taken_over", 1), ("waiters", 0)]);
    scene.server.wait_for_stat("waits_timed_out", 1);
}

#[test]
fn withdrawn_by_release_is_answered_nil() {
    let mut scene = Scene::new();
    let mut carol = scene.park("carol");
    assert!(scene.alice.line("LOCK.RELEASE k bob").is_nil());
    assert!(only_reply(&mut scene.bob).is_nil());
    assert_eq!(queue(&mut scene.alice), ["carol"]);
    scene.assert_stats(&[("waits_withdrawn", 1), ("waiters", 1), ("places_kept", 0)]);
    scene.alice.line("LOCK.RELEASE k alice");
    assert!(only_reply(&mut carol).int() > scene.first);
}

#[test]
fn demotion_is_answered_unblocked_and_the_connection_closed() {
    let mut scene = Scene::new();
    scene.alice.line("REPLICAOF 127.0.0.1 1");
    assert!(scene.bob.recv().error().starts_with("UNBLOCKED"));
    assert!(scene.bob.is_closed());
    scene.assert_stats(&[("waits_disconnected", 1), ("waiters", 0)]);
    let refused = scene.server.conn().line("LOCK.ACQUIRE k carol BLOCK 0");
    assert!(refused.error().starts_with("READONLY"));
}

#[test]
fn overwritten_by_another_type_is_answered_wrongtype() {
    let mut scene = Scene::new();
    let mut carol = scene.park("carol");
    scene.alice.line("SET k value");
    for conn in [&mut scene.bob, &mut carol] {
        assert!(only_reply(conn).error().starts_with("WRONGTYPE"));
    }
    assert_eq!(scene.alice.line("GET k").text(), "value");
    scene.assert_stats(&[("waits_failed", 2), ("waiters", 0)]);
}

#[test]
fn a_hash_of_another_layout_is_answered_locktype() {
    let mut scene = Scene::new();
    scene.alice.line("HSET k name Ada");
    assert!(only_reply(&mut scene.bob).error().starts_with("LOCKTYPE"));
    assert_eq!(scene.alice.line("HLEN k").int(), 3);
    scene.assert_stats(&[("waits_failed", 1), ("waiters", 0)]);
}

#[test]
fn a_purge_is_answered_lockbroken() {
    let mut scene = Scene::new();
    let mut carol = scene.park("carol");
    assert_eq!(scene.alice.line("LOCK.BREAK k PURGE").int(), 1);
    for conn in [&mut scene.bob, &mut carol] {
        assert!(only_reply(conn).error().starts_with("LOCKBROKEN"));
    }
    scene.assert_becomes_free(scene.first);
    scene.assert_stats(&[("waits_failed", 2), ("grants_broken", 1)]);
}

// While writes are refused: the client stays parked, and is granted when writes are possible again.

/// Lets the lease end while the server refuses writes, asserts that no waiter is granted, and makes writes possible
/// again.
fn stays_parked_until_writes_are_possible(
    scene: &mut Scene,
    refuse: impl FnOnce(&mut Scene),
    heal: impl FnOnce(&mut Scene),
) {
    let mut barrier = Barrier::on(&scene.server);
    // Longer than a busy machine takes until it refuses writes.
    scene.alice.line("LOCK.RENEW k alice PX 5000");
    refuse(scene);
    let alice = &mut scene.alice;
    wait_for("the end of the lease", || alice.line("EXISTS k").int() == 0);
    barrier.assert_silent(&mut scene.bob);
    scene.assert_stats(&[("waiters", 1)]);
    scene.server.wait_for_stat("keys_withheld", 1);
    heal(scene);
    scene.assert_bob_is_granted();
    scene.server.wait_for_stat("keys_withheld", 0);
}

#[test]
fn too_few_replicas_keep_it_parked() {
    let mut scene = Scene::new();
    stays_parked_until_writes_are_possible(
        &mut scene,
        |scene| {
            scene.alice.line("CONFIG SET min-replicas-to-write 1");
            let refused = scene.alice.line("LOCK.RELEASE k alice").error();
            assert!(refused.starts_with("NOREPLICAS"), "{refused}");
        },
        |scene| {
            wait_for("refused attempts", || {
                scene.server.stat("grants_withheld") >= 2
            });
            scene.alice.line("CONFIG SET min-replicas-to-write 0");
        },
    );
}

#[test]
fn a_server_out_of_memory_says_so_and_grants_to_waiters() {
    let mut scene = Scene::new();
    scene.assert_stats(&[("out_of_memory", 0)]);
    scene.alice.line("CONFIG SET maxmemory 1");
    let refused = scene.alice.line("LOCK.ACQUIRE other alice").error();
    assert!(refused.starts_with("OOM"), "{refused}");
    scene.assert_stats(&[("out_of_memory", 1)]);
    scene.alice.line("LOCK.RELEASE k alice");
    scene.assert_bob_is_granted();
    scene.assert_stats(&[("keys_withheld", 0), ("grants_withheld", 0)]);
    scene.alice.line("CONFIG SET maxmemory 0");
    scene.assert_stats(&[("out_of_memory", 0)]);
}

#[test]
fn a_disk_that_fails_keeps_it_parked() {
    let mut scene = Scene::new();
    scene.alice.run(["CONFIG", "SET", "save", "3600 1000000"]);
    // A snapshot cannot be renamed onto a directory, not even by root.
    let in_the_way = scene.server.dir().join("dump.rdb");
    let bgsave = |scene: &mut Scene, status: &str| {
        wait_for(status, || {
            scene.alice.line("BGSAVE");
            let info = scene.alice.line("INFO persistence").text();
            info.contains(status)
        });
    };
    stays_parked_until_writes_are_possible(
        &mut scene,
        |scene| {
            std::fs::create_dir(&in_the_way).expect("a directory");
            bgsave(scene, "rdb_last_bgsave_status:err");
            // The lease may be over by now: another key shows the server's error.
            let refused = scene.alice.line("SET other 1").error();
            assert!(refused.starts_with("MISCONF"), "{refused}");
        },
        |scene| {
            std::fs::remove_dir(&in_the_way).expect("the directory");
            bgsave(scene, "rdb_last_bgsave_status:ok");
        },
    );
}

#[test]
fn a_pause_keeps_it_parked() {
    let mut scene = Scene::new();
    stays_parked_until_writes_are_possible(
        &mut scene,
        |scene| {
            scene.alice.line("CLIENT PAUSE 60000 WRITE");
        },
        |scene| {
            scene.alice.line("CLIENT UNPAUSE");
        },
    );
}

#[test]
fn out_of_memory_it_is_granted() {
    for lease_ends in [false, true] {
        let mut scene = Scene::new();
        if lease_ends {
            scene.alice.line("LOCK.RENEW k alice PX 3000");
        }
        scene.alice.line("CONFIG SET maxmemory 1");
        let refused = scene.server.conn().line("LOCK.ACQUIRE new owner");
        assert!(refused.error().starts_with("OOM"), "{refused:?}");
        if !lease_ends {
            assert_eq!(scene.alice.line("LOCK.RELEASE k alice").int(), 1);
        }
        scene.assert_bob_is_granted();
    }
}

// Forms of the reply.

#[test]
fn withholder_names_the_holder_at_the_time_of_the_reply() {
    let mut scene = Scene::waiting(TestServer::start(), "BLOCK 0 WITHHOLDER");
    scene.alice.line("LOCK.RELEASE k alice");
    let reply = only_reply(&mut scene.bob).list();
    let token = reply[0].int();
    assert!(token > scene.first && reply[3].int() > 0);
    assert_eq!((reply[1].text().as_str(), reply[2].int()), ("bob", 1));
    scene.assert_held("bob", token);

    let mut scene = Scene::waiting(TestServer::start(), "BLOCK 40 WITHHOLDER");
    let reply = only_reply(&mut scene.bob).list();
    assert!(reply[0].is_nil() && reply[3].int() > 0);
    assert_eq!((reply[1].text().as_str(), reply[2].int()), ("alice", 1));

    let mut scene = Scene::waiting(TestServer::start(), "BLOCK 0 WITHHOLDER");
    scene.alice.line("LOCK.BREAK k PURGE");
    assert!(only_reply(&mut scene.bob).error().starts_with("LOCKBROKEN"));
}

#[test]
fn resp3_clients_are_answered_in_resp3() {
    let scene = Scene::new();
    let (mut alice, mut bob) = (scene.server.conn3(), scene.server.conn3());
    // He takes over the place of the scene's bob: there is one waiter before and after.
    let parked = |count| {
        wait_for("a parked request", || {
            scene.server.stat("waits_parked") == count
        })
    };
    bob.send_line("LOCK.ACQUIRE k bob BLOCK 0");
    parked(2);
    assert!(alice.line("LOCK.RELEASE k bob").is_nil());
    assert_eq!(bob.raw_line(), "_");
    bob.send_line("LOCK.ACQUIRE k bob BLOCK 0");
    parked(3);
    alice.line("LOCK.RELEASE k alice");
    let token = bob.raw_line();
    assert!(token.starts_with(':') && token[1..].parse::<i64>().is_ok_and(|t| t > scene.first));
}

#[test]
fn resp2_clients_are_answered_a_null_bulk() {
    let mut scene = Scene::waiting(TestServer::start(), "BLOCK 40");
    assert_eq!(scene.bob.raw_line(), "$-1");
}

#[test]
fn commands_sent_after_a_parked_acquire_are_served_after_it() {
    let server = TestServer::start();
    let (mut alice, mut bob) = (server.conn(), server.conn());
    let first = alice.line("LOCK.ACQUIRE k alice").int();
    bob.send_lines(&[
        "LOCK.ACQUIRE k bob BLOCK 0",
        "WAIT 0 0",
        "PING",
        "LOCK.RELEASE k bob",
    ]);
    server.wait_for_waiters(1);
    assert!(bob.is_silent());
    alice.line("LOCK.RELEASE k alice");
    assert!(bob.recv().int() > first);
    assert_eq!(bob.recv().int(), 0);
    assert_eq!(bob.recv().text(), "PONG");
    assert_eq!(bob.recv().int(), 1);
}

#[test]
fn a_client_that_wants_no_replies_is_granted_silently() {
    for (mode, again) in [("CLIENT REPLY OFF", true), ("CLIENT REPLY SKIP", false)] {
        let server = TestServer::start();
        let (mut alice, mut bob) = (server.conn(), server.conn());
        alice.line("LOCK.ACQUIRE k alice");
        bob.send_lines(&[mode, "LOCK.ACQUIRE k bob BLOCK 0"]);
        server.wait_for_waiters(1);
        alice.line("LOCK.RELEASE k alice");
        wait_for("bob's grant", || !alice.line("HGET k bob").is_nil());
        if again {
            assert_eq!(bob.line("CLIENT REPLY ON").text(), "OK");
        }
        assert_eq!(bob.line("LOCK.RELEASE k bob").int(), 1);
    }
}

#[test]
fn the_queue_of_each_database_is_its_own() {
    let mut scene = Scene::new();
    let (mut carol, mut dave) = (scene.server.conn(), scene.server.conn());
    carol.line("SELECT 3");
    dave.line("SELECT 3");
    let there = carol.line("LOCK.ACQUIRE k carol").int();
    dave.send_line("LOCK.ACQUIRE k dave PX 60000 BLOCK 0");
    scene.server.wait_for_waiters(2);
    assert_eq!(carol.line("LOCK.RELEASE k carol").int(), 1);
    let token = only_reply(&mut dave).int();
    assert!(token > there && scene.bob.is_silent());
    assert_eq!(carol.line("HGET k dave").text(), "1");
    // Granted by the timer, which a client of database 0 armed last, not by a command in their database.
    let mut erin = scene.server.conn();
    erin.line("SELECT 3");
    erin.send_line("LOCK.ACQUIRE k erin PX 60000 BLOCK 0");
    scene.server.wait_for_waiters(2);
    carol.line("LOCK.RENEW k dave PX 200");
    assert!(scene.alice.line("LOCK.RELEASE k bob").is_nil());
    assert!(only_reply(&mut scene.bob).is_nil());
    assert!(only_reply(&mut erin).int() > token);
    assert_eq!(carol.line("HGET k erin").text(), "1");
    scene.assert_held("alice", scene.first);
}

// Kept places.

#[test]
fn grants_follow_the_order_of_arrival() {
    let mut scene = Scene::new();
    let mut others: Vec<Conn> = (0..8).map(|i| scene.park(&format!("w{i}"))).collect();
    scene.alice.line("LOCK.RELEASE k alice");
    let mut last = scene.assert_bob_is_granted();
    let mut holder = "bob".to_string();
    for (i, conn) in others.iter_mut().enumerate() {
        assert!(conn.is_silent());
        scene.alice.line(&format!("LOCK.RELEASE k {holder}"));
        let token = only_reply(conn).int();
        assert!(token > last);
        (last, holder) = (token, format!("w{i}"));
    }
}

#[test]
fn a_place_is_kept_after_a_disconnect_and_taken_again() {
    let mut scene = Scene::new();
    scene.alice.line("CONFIG SET lock.queue-grace 60000");
    let carol = scene.park("carol");
    let gone = std::mem::replace(&mut scene.bob, carol);
    gone.close();
    scene.server.wait_for_waiters(1);
    scene.assert_stats(&[("places_kept", 1), ("waits_disconnected", 1)]);
    let mut again = scene.park("bob");
    assert_eq!(queue(&mut scene.alice), ["bob", "carol"]);
    scene.alice.line("LOCK.RELEASE k alice");
    assert!(only_reply(&mut again).int() > scene.first);
    assert!(scene.bob.is_silent());
}

#[test]
fn a_kept_place_is_passed_over_at_a_grant() {
    let mut scene = Scene::waiting(TestServer::with(&KEPT), "BLOCK 40");
    let (mut carol, mut dave) = (scene.park("carol"), scene.park("dave"));
    assert!(only_reply(&mut scene.bob).is_nil());
    scene.alice.line("LOCK.RELEASE k alice");
    assert!(only_reply(&mut carol).int() > scene.first);
    // Passed over, but kept: bob is next when he asks again.
    let mut again = scene.park("bob");
    assert_eq!(queue(&mut scene.alice), ["bob", "dave"]);
    scene.alice.line("LOCK.RELEASE k carol");
    again.recv().int();
    assert!(dave.is_silent());
}

/// Whether the owner asks again after the end of a slice, or before it.
#[test]
fn a_wait_in_slices_has_lasted_since_its_first_request() {
    const SLICES: i64 = 8;
    let mut scene = Scene::waiting(TestServer::with(&KEPT), "BLOCK 40");
    for _ in 1..SLICES {
        assert!(scene.bob.recv().is_nil());
        scene.bob.send_line("LOCK.ACQUIRE k bob BLOCK 40");
    }
    assert!(scene.bob.recv().is_nil());
    scene.bob.send_line("LOCK.ACQUIRE k bob BLOCK 0");
    scene.server.wait_for_waiters(1);
    let mut newer = scene.park("bob");
    assert!(only_reply(&mut scene.bob).is_nil());
    let least = SLICES * 40;
    let info = scene.alice.line("LOCK.INFO k WAITERS");
    let queue = info.field("queue").unwrap().list();
    for waited in [info.field("longest-wait-ms"), queue[0].field("waited-ms")] {
        assert!(waited.unwrap().int() >= least, "{info:?}");
    }
    assert!(scene.server.stat("oldest_wait_ms") >= least as u64);
    scene.alice.line("LOCK.RELEASE k alice");
    only_reply(&mut newer).int();
    assert!(scene.server.stat("wait_ms_max") >= least as u64);
    assert!(scene.server.stat("wait_ms_sum") >= least as u64);
    scene.assert_stats(&[
        ("waits_timed_out", 0),
        ("waits_kept", 0),
        ("waits_taken_over", SLICES as u64 + 1),
    ]);
}

#[test]
fn slices_of_short_blocks_keep_the_place() {
    let mut scene = Scene::waiting(TestServer::with(&KEPT), "BLOCK 40");
    let mut carol = scene.park("carol");
    for _ in 0..4 {
        assert!(scene.bob.recv().is_nil());
        scene.bob.send_line("LOCK.ACQUIRE k bob BLOCK 40");
    }
    assert!(scene.bob.recv().is_nil());
    scene.bob.send_line("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
    scene.server.wait_for_waiters(2);
    assert_eq!(queue(&mut scene.alice), ["bob", "carol"]);
    scene.alice.line("LOCK.RELEASE k alice");
    scene.assert_bob_is_granted();
    assert!(carol.is_silent());
    scene.assert_stats(&[
        ("waits_timed_out", 0),
        ("waits_taken_over", 5),
        ("waits_parked", 7),
    ]);
}

#[test]
fn a_place_is_given_up_after_the_grace_time() {
    let mut scene = Scene::waiting(TestServer::start(), "BLOCK 40");
    scene.alice.line("CONFIG SET lock.queue-grace 30");
    scene.park("carol");
    assert!(only_reply(&mut scene.bob).is_nil());
    let server = &scene.server;
    wait_for("the end of the grace time", || {
        server.stat("places_kept") == 0
    });
    let _carol = scene.park("carol");
    let _again = scene.park("bob");
    assert_eq!(queue(&mut scene.alice), ["carol", "bob"]);
}

#[test]
fn without_grace_no_place_is_kept() {
    let mut scene = Scene::new();
    scene.alice.line("CONFIG SET lock.queue-grace 0");
    let _carol = scene.park("carol");
    scene
        .alice
        .line(&format!("CLIENT KILL ID {}", scene.bob_id));
    scene.server.wait_for_waiters(1);
    scene.assert_stats(&[("places_kept", 0)]);
    let _again = scene.park("bob");
    assert_eq!(queue(&mut scene.alice), ["carol", "bob"]);
}

#[test]
fn a_request_without_block_while_parked_changes_nothing() {
    let mut scene = Scene::new();
    let mut other = scene.server.conn();
    let before = first_waiter(&mut scene.alice, "client-id").int();
    assert!(other.line("LOCK.ACQUIRE k bob PX 1000").is_nil());
    assert_eq!(before, scene.bob_id);
    assert_eq!(first_waiter(&mut scene.alice, "client-id").int(), before);
    assert!(scene.bob.is_silent());
    scene.alice.line("LOCK.RELEASE k alice");
    scene.assert_bob_is_granted();
    assert!(scene.alice.line("PTTL k").int() > 1_000);
}

// Contexts in which no client can be parked.

#[test]
fn in_transactions_and_scripts_block_acts_as_absent() {
    let mut scene = Scene::new();
    let replies = scene.exec(&[
        "LOCK.ACQUIRE k carol BLOCK 0",
        "LOCK.ACQUIRE free carol BLOCK 0",
    ]);
    assert!(replies[0].is_nil() && replies[1].int() > scene.first);
    let script = "return {redis.call('LOCK.ACQUIRE', KEYS[1], 'dave', 'BLOCK', '0') or 'none'}";
    let eval = scene.alice.run(["EVAL", script, "1", "k"]).list();
    assert_eq!(eval[0].text(), "none");
    scene.assert_stats(&[("waiters", 1), ("waits_parked", 1)]);
    assert_eq!(queue(&mut scene.alice), ["bob"]);
}

/// No request would be granted there: every event that ends a wait happens on the master.
#[test]
fn on_a_writable_replica_block_acts_as_absent() {
    let server = TestServer::with(&["--replica-read-only", "no"]);
    let mut conn = server.conn();
    conn.line("REPLICAOF 127.0.0.1 1");
    assert!(conn.line("LOCK.ACQUIRE k a PX 60000").int() > 0);
    assert!(conn.line("LOCK.ACQUIRE k b BLOCK 0").is_nil());
}

#[test]
fn a_release_inside_a_script_hands_the_lock_off() {
    let mut scene = Scene::new();
    let script = "return redis.call('LOCK.RELEASE', KEYS[1], 'alice')";
    assert_eq!(scene.alice.run(["EVAL", script, "1", "k"]).int(), 1);
    scene.assert_bob_is_granted();
}

// The end of the server.

#[test]
fn shutdown_does_not_wait_for_parked_clients() {
    let mut scene = Scene::new();
    let _carol = scene.park("carol");
    scene.server.restart();
    assert!(scene.bob.is_closed());
    assert_eq!(scene.server.stat("waiters"), 0);
}
