//! Two things at once: a grant, and in the same turn of the event loop something that takes the
//! waiter away, stalls the server, or forbids writes. Prototypes lost replies, answered twice, or
//! ended the server here.
//!
//! Every server that a test starts is asked at its end whether it lives and its books balance.

use std::time::{Duration, Instant};

use crate::common::scene::{assert_stays_silent, only_reply, unload_and_load, Scene};
use crate::common::{module_path, wait_for, Conn, TestServer};

// A grant, then the waiter is taken away.

#[test]
fn client_unblock_timeout_right_after_the_grant_delivers_the_grant() {
    let mut scene = Scene::new();
    scene.exec(&["LOCK.RELEASE k alice", "CLIENT UNBLOCK $BOB TIMEOUT"]);
    scene.assert_bob_is_granted();
    scene.assert_stats(&[("waits_granted", 1), ("grants_undone", 0), ("waiters", 0)]);
}

#[test]
fn client_unblock_error_right_after_the_grant_takes_it_back() {
    let mut scene = Scene::new();
    scene.exec(&["LOCK.RELEASE k alice", "CLIENT UNBLOCK $BOB ERROR"]);
    assert!(only_reply(&mut scene.bob).error().starts_with("UNBLOCKED"));
    scene.assert_becomes_free(scene.first);
    scene.assert_stats(&[("waits_granted", 1), ("grants_undone", 1), ("waiters", 0)]);
}

#[test]
fn a_waiter_killed_right_after_its_grant_leaves_the_lock_free() {
    let mut scene = Scene::new();
    scene.exec(&["LOCK.RELEASE k alice", "CLIENT KILL ID $BOB"]);
    assert!(scene.bob.is_closed());
    scene.assert_becomes_free(scene.first);
    scene.assert_stats(&[("waits_granted", 1), ("grants_undone", 1), ("waiters", 0)]);
}

#[test]
fn a_grant_that_cannot_be_delivered_goes_to_the_next_in_line() {
    for hazard in ["CLIENT KILL ID $BOB", "CLIENT UNBLOCK $BOB ERROR"] {
        let mut scene = Scene::new();
        let (mut carol, mut dave) = (scene.park("carol"), scene.park("dave"));
        scene.exec(&["LOCK.RELEASE k alice", hazard]);
        let token = only_reply(&mut carol).int();
        assert!(token > scene.first);
        scene.assert_held("carol", token);
        assert!(dave.is_silent());
        scene.assert_stats(&[("waits_granted", 2), ("grants_undone", 1), ("waiters", 1)]);
        assert_eq!(carol.line("LOCK.RELEASE k carol").int(), 1);
        assert!(only_reply(&mut dave).int() > token);
    }
}

#[test]
fn an_owner_who_asks_again_in_the_turn_of_its_death_keeps_the_lock_alone() {
    for hazard in ["CLIENT KILL ID $BOB", "CLIENT UNBLOCK $BOB ERROR"] {
        for block in ["", " BLOCK 0"] {
            let mut scene = Scene::new();
            let mut carol = scene.park("carol");
            let again = format!("LOCK.ACQUIRE k bob ONCE PX 60000{block}");
            scene.pipeline_exec(&["LOCK.RELEASE k alice", hazard], &[&again]);
            scene.exec_replies(2);
            let token = scene.alice.recv().int();
            assert!(token > scene.first);
            assert_stays_silent(&mut carol);
            scene.assert_held("bob", token);
            scene.assert_stats(&[("waits_granted", 1), ("grants_undone", 0), ("waiters", 1)]);
            assert_eq!(scene.alice.line("LOCK.RELEASE k bob").int(), 1);
            assert!(only_reply(&mut carol).int() > token);
        }
    }
}

#[test]
fn an_owner_who_asks_again_before_its_old_connection_dies_keeps_the_lock_alone() {
    let mut scene = Scene::new();
    let mut carol = scene.park("carol");
    let again = "LOCK.ACQUIRE k bob ONCE PX 60000";
    let replies = scene.exec(&["LOCK.RELEASE k alice", again, "CLIENT KILL ID $BOB"]);
    let token = replies[1].int();
    assert_stays_silent(&mut carol);
    scene.assert_held("bob", token);
    scene.assert_stats(&[("grants_undone", 0), ("waiters", 1)]);
}

#[test]
fn a_grant_that_is_released_before_its_waiter_dies_is_passed_on_once() {
    let mut scene = Scene::new();
    let (mut carol, mut dave) = (scene.park("carol"), scene.park("dave"));
    for order in [0, 1] {
        let mut lines = vec![
            "LOCK.RELEASE k alice",
            "LOCK.RELEASE k bob",
            "CLIENT KILL ID $BOB",
        ];
        if order == 1 {
            lines.swap(1, 2);
            scene = Scene::new();
            (carol, dave) = (scene.park("carol"), scene.park("dave"));
        }
        scene.exec(&lines);
        let token = only_reply(&mut carol).int();
        assert_stays_silent(&mut dave);
        scene.assert_held("carol", token);
        scene.assert_stats(&[("grants_undone", 0), ("grants_released", 2), ("waiters", 1)]);
    }
}

#[test]
fn a_chain_of_waiters_killed_in_one_turn_ends_at_the_first_who_lives() {
    let mut scene = Scene::new();
    let mut doomed: Vec<Conn> = (0..5).map(|_| scene.server.conn()).collect();
    let mut lines = vec![
        "LOCK.RELEASE k alice".to_string(),
        "CLIENT KILL ID $BOB".to_string(),
    ];
    for (i, conn) in doomed.iter_mut().enumerate() {
        lines.push(format!("CLIENT KILL ID {}", conn.id()));
        conn.send_line(&format!("LOCK.ACQUIRE k doomed{i} PX 60000 BLOCK 0"));
        scene.server.wait_for_waiters(i as u64 + 2);
    }
    let mut carol = scene.park("carol");
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    scene.exec(&lines);
    let token = only_reply(&mut carol).int();
    scene.assert_held("carol", token);
    scene.assert_stats(&[
        ("waits_disconnected", 5),
        ("grants_undone", 1),
        ("waiters", 0),
    ]);
}

// The waiter is taken away, then a release.

#[test]
fn a_waiter_that_was_unblocked_first_is_not_granted() {
    let mut scene = Scene::new();
    scene.exec(&["CLIENT UNBLOCK $BOB TIMEOUT", "LOCK.RELEASE k alice"]);
    assert!(only_reply(&mut scene.bob).is_nil());
    scene.assert_stats(&[("waits_unblocked", 1), ("waits_granted", 0)]);
    scene.assert_becomes_free(scene.first);

    let mut scene = Scene::new();
    scene.exec(&["CLIENT UNBLOCK $BOB ERROR", "LOCK.RELEASE k alice"]);
    assert!(only_reply(&mut scene.bob).error().starts_with("UNBLOCKED"));
    scene.assert_stats(&[("waits_disconnected", 1), ("waits_granted", 0)]);
    scene.assert_becomes_free(scene.first);
}

#[test]
fn a_waiter_that_was_killed_first_is_passed_over() {
    let mut scene = Scene::new();
    let mut carol = scene.park("carol");
    scene.exec(&["CLIENT KILL ID $BOB", "LOCK.RELEASE k alice"]);
    let token = only_reply(&mut carol).int();
    assert!(scene.bob.is_closed());
    scene.assert_held("carol", token);
    scene.assert_stats(&[
        ("waits_disconnected", 1),
        ("waits_granted", 1),
        ("grants_undone", 0),
    ]);
}

#[test]
fn unblocking_or_killing_twice_in_one_turn_answers_once() {
    for (first, second) in [
        ("CLIENT UNBLOCK $BOB TIMEOUT", "CLIENT UNBLOCK $BOB TIMEOUT"),
        ("CLIENT UNBLOCK $BOB TIMEOUT", "CLIENT UNBLOCK $BOB ERROR"),
        ("CLIENT UNBLOCK $BOB ERROR", "CLIENT UNBLOCK $BOB TIMEOUT"),
        ("CLIENT UNBLOCK $BOB ERROR", "CLIENT UNBLOCK $BOB ERROR"),
    ] {
        let mut scene = Scene::new();
        scene.exec(&[first, second]);
        let reply = only_reply(&mut scene.bob);
        assert_eq!(reply.is_error(), first.ends_with("ERROR"), "{reply:?}");
        scene.assert_held("alice", scene.first);
        scene.assert_stats(&[("waiters", 0), ("panics", 0)]);
    }
    for first in [
        "CLIENT UNBLOCK $BOB TIMEOUT",
        "CLIENT UNBLOCK $BOB ERROR",
        "CLIENT KILL ID $BOB",
    ] {
        let mut scene = Scene::new();
        scene.exec(&[first, "LOCK.RELEASE k alice", "CLIENT KILL ID $BOB"]);
        assert!(scene.bob.is_closed());
        scene.assert_becomes_free(scene.first);
        scene.assert_stats(&[("waiters", 0), ("panics", 0)]);
    }
}

#[test]
fn a_grant_between_two_unblocks_is_delivered_or_taken_back_once() {
    let mut scene = Scene::new();
    let timeout = "CLIENT UNBLOCK $BOB TIMEOUT";
    scene.exec(&["LOCK.RELEASE k alice", timeout, timeout]);
    scene.assert_bob_is_granted();

    let mut scene = Scene::new();
    let error = "CLIENT UNBLOCK $BOB ERROR";
    scene.exec(&["LOCK.RELEASE k alice", error, error]);
    assert!(only_reply(&mut scene.bob).is_error());
    scene.assert_becomes_free(scene.first);
    scene.assert_stats(&[("grants_undone", 1), ("panics", 0)]);
}

/// The server is stopped while two sockets become readable, and then serves both in one turn, in the
/// order in which they did.
#[test]
fn a_connection_closed_around_its_grant_does_not_keep_the_lock() {
    for release_first in [false, true] {
        let mut scene = Scene::new();
        let mut carol = scene.park("carol");
        let bob = std::mem::replace(&mut scene.bob, scene.server.conn());
        let status = format!("/proc/{}/stat", scene.server.pid());
        scene.server.signal(libc::SIGSTOP);
        wait_for("a stopped server", || {
            std::fs::read_to_string(&status).is_ok_and(|stat| stat.contains(") T "))
        });
        if release_first {
            scene.alice.send_line("LOCK.RELEASE k alice");
            bob.close();
        } else {
            bob.close();
            scene.alice.send_line("LOCK.RELEASE k alice");
        }
        scene.server.signal(libc::SIGCONT);
        assert_eq!(scene.alice.recv().int(), 1);
        let token = only_reply(&mut carol).int();
        scene.assert_held("carol", token);
        let gone = scene.server.stat("waits_disconnected") + scene.server.stat("grants_undone");
        assert_eq!(gone, 1);
    }
}

// The wait runs out while the server is stalled.

#[test]
fn a_wait_that_ran_out_during_a_stall_is_not_granted() {
    let mut scene = Scene::waiting(TestServer::start(), "BLOCK 150");
    scene
        .alice
        .send_lines(&["DEBUG SLEEP 0.4", "LOCK.RELEASE k alice"]);
    assert!(only_reply(&mut scene.bob).is_nil());
    assert_eq!(scene.alice.recv().text(), "OK");
    assert_eq!(scene.alice.recv().int(), 1);
    scene.assert_stats(&[("waits_timed_out", 1), ("waits_granted", 0)]);
    scene.assert_becomes_free(scene.first);
}

#[test]
fn a_stall_over_the_end_of_the_first_wait_grants_the_second() {
    let mut scene = Scene::waiting(TestServer::start(), "BLOCK 150");
    let mut carol = scene.park("carol");
    scene.exec(&["DEBUG SLEEP 0.4", "LOCK.RELEASE k alice"]);
    let token = only_reply(&mut carol).int();
    assert!(only_reply(&mut scene.bob).is_nil());
    scene.assert_held("carol", token);
    scene.assert_stats(&[("waits_timed_out", 1), ("waits_granted", 1)]);
}

#[test]
fn a_lease_that_ended_during_a_stall_is_over_for_its_owner() {
    let mut scene = Scene::new();
    scene.alice.line("LOCK.RENEW k alice PX 150");
    scene
        .alice
        .send_lines(&["DEBUG SLEEP 0.4", "LOCK.RENEW k alice PX 60000"]);
    assert_eq!(scene.alice.recv().text(), "OK");
    assert_eq!(scene.alice.recv().int(), 0);
    scene.assert_bob_is_granted();
}

// The key is changed around a grant.

#[test]
fn nobody_barges_in_between_del_and_the_grant() {
    for thief in ["eve", "alice"] {
        let mut scene = Scene::new();
        let replies = scene.exec(&["DEL k", &format!("LOCK.ACQUIRE k {thief} PX 60000 BLOCK 0")]);
        assert!(replies[1].is_nil());
        scene.assert_bob_is_granted();
        scene.assert_stats(&[("waits_granted", 1), ("grants", 2), ("grants_lost", 1)]);
    }
}

#[test]
fn a_grant_whose_key_is_deleted_in_its_turn_is_lost_but_answered_once() {
    for loss in ["DEL k", "FLUSHALL", "FLUSHDB ASYNC", "RENAME k other"] {
        let mut scene = Scene::new();
        scene.exec(&["LOCK.RELEASE k alice", loss]);
        let token = only_reply(&mut scene.bob).int();
        scene.assert_becomes_free(token);
        scene.assert_stats(&[
            ("waits_granted", 1),
            ("grants_undone", 0),
            ("grants_lost", 1),
        ]);
    }
}

#[test]
fn a_lost_grant_and_a_dead_waiter_leave_the_next_one_alone() {
    let mut scene = Scene::new();
    let mut carol = scene.park("carol");
    scene.exec(&["LOCK.RELEASE k alice", "DEL k", "CLIENT KILL ID $BOB"]);
    let token = only_reply(&mut carol).int();
    scene.assert_held("carol", token);
    scene.assert_stats(&[("grants_lost", 1), ("grants_undone", 0)]);
}

#[test]
fn of_two_grants_that_die_in_one_turn_the_later_one_is_taken_back() {
    for later_dies_first in [false, true] {
        let mut scene = Scene::new();
        let mut carol = scene.server.conn();
        let mut kills = [
            "CLIENT KILL ID $BOB".into(),
            format!("CLIENT KILL ID {}", carol.id()),
        ];
        carol.send_line("LOCK.ACQUIRE k carol PX 60000 BLOCK 0");
        scene.server.wait_for_waiters(2);
        let mut dave = scene.park("dave");
        if later_dies_first {
            kills.reverse();
        }
        scene.exec(&["LOCK.RELEASE k alice", "LOCK.BREAK k", &kills[0], &kills[1]]);
        let token = only_reply(&mut dave).int();
        scene.assert_held("dave", token);
        scene.assert_stats(&[("grants_broken", 1), ("grants_undone", 1)]);
    }
}

#[test]
fn a_newer_holder_is_not_hurt_by_the_death_of_the_one_before() {
    for end in ["DEL k", "LOCK.BREAK k"] {
        let mut scene = Scene::new();
        let kill = "CLIENT KILL ID $BOB";
        let eve = "LOCK.ACQUIRE k eve PX 60000";
        let replies = scene.exec(&["LOCK.RELEASE k alice", kill, end, eve]);
        let mut carol = scene.park("carol");
        assert_stays_silent(&mut carol);
        scene.assert_held("eve", replies[3].int());
        scene.assert_stats(&[("grants_undone", 0), ("waiters", 1)]);
    }
}

#[test]
fn release_and_purge_in_one_turn_answer_everybody_once() {
    let mut scene = Scene::new();
    let mut carol = scene.park("carol");
    scene.exec(&["LOCK.RELEASE k alice", "LOCK.BREAK k PURGE"]);
    let token = only_reply(&mut scene.bob).int();
    assert!(only_reply(&mut carol).error().starts_with("LOCKBROKEN"));
    scene.assert_becomes_free(token);
    scene.assert_stats(&[
        ("grants_released", 1),
        ("grants_broken", 1),
        ("waits_failed", 1),
    ]);

    let mut scene = Scene::new();
    let mut carol = scene.park("carol");
    let replies = scene.exec(&["LOCK.BREAK k PURGE", "LOCK.RELEASE k alice"]);
    assert!(replies[1].is_nil());
    for conn in [&mut scene.bob, &mut carol] {
        assert!(only_reply(conn).error().starts_with("LOCKBROKEN"));
    }
    scene.assert_becomes_free(scene.first);
    scene.assert_stats(&[
        ("grants_released", 0),
        ("grants_broken", 1),
        ("waits_failed", 2),
    ]);
}

#[test]
fn a_purge_and_a_kill_in_one_turn_answer_nobody_twice() {
    let mut scene = Scene::new();
    let mut carol = scene.park("carol");
    scene.exec(&["LOCK.BREAK k PURGE", "CLIENT KILL ID $BOB"]);
    assert!(only_reply(&mut carol).error().starts_with("LOCKBROKEN"));
    assert!(scene.bob.is_closed());
    scene.assert_becomes_free(scene.first);
    scene.assert_stats(&[
        ("waits_failed", 2),
        ("waits_disconnected", 0),
        ("panics", 0),
    ]);
}

// Writes are refused: CLIENT PAUSE, a failover, a demotion.

/// A server whose writes are propagated somewhere: only then does writing in a pause end it.
fn propagating(how: &str) -> (Scene, Option<TestServer>) {
    if how == "aof" {
        return (Scene::with(&["--appendonly", "yes"]), None);
    }
    let server = TestServer::start();
    let replica = replica_of(&server, false);
    (Scene::on(server), Some(replica))
}

fn replica_of(server: &TestServer, with_module: bool) -> TestServer {
    // What a replica without the module lacks is only its INFO section.
    let master = format!("127.0.0.1 {}", server.port);
    let options = ["--replicaof", &master];
    server.conn().line("CONFIG SET repl-diskless-sync-delay 0");
    let replica = if with_module {
        TestServer::with_module(&module_path(), &options)
    } else {
        TestServer::without_module(&options)
    };
    wait_for("a replica in sync", || {
        replication(&replica).contains("master_link_status:up")
            && replication(server).contains("state=online")
    });
    replica
}

fn replication(server: &TestServer) -> String {
    server.conn().line("INFO replication").text()
}

fn assert_replicated(replica: Option<&TestServer>, owner: &str, token: i64) {
    if let Some(replica) = replica {
        let mut conn = replica.conn();
        wait_for("the grant on the replica", || {
            conn.run(["HMGET", "k", owner, "#token"])
                .list()
                .iter()
                .filter(|value| !value.is_nil())
                .map(|value| value.text())
                .eq(["1".to_string(), format!("t{token}")])
        });
    }
}

#[test]
fn a_lease_that_ends_while_writes_are_paused_is_handed_on_after_the_pause() {
    for how in ["aof", "replica"] {
        let (mut scene, replica) = propagating(how);
        scene.exec(&["LOCK.RENEW k alice PX 50", "CLIENT PAUSE 60000 WRITE"]);
        let alice = &mut scene.alice;
        wait_for("the end of the lease", || alice.line("EXISTS k").int() == 0);
        assert_stays_silent(&mut scene.bob);
        scene.alice.line("CLIENT UNPAUSE");
        let token = scene.assert_bob_is_granted();
        assert_replicated(replica.as_ref(), "bob", token);
        scene.assert_stats(&[("waits_granted", 1), ("panics", 0)]);
    }
}

#[test]
fn a_lease_that_ends_while_all_is_paused_is_handed_on_after_the_pause() {
    const PAUSE: Duration = Duration::from_millis(600);
    for how in ["aof", "replica"] {
        let (mut scene, replica) = propagating(how);
        let start = Instant::now();
        scene.exec(&["LOCK.RENEW k alice PX 50", "CLIENT PAUSE 600 ALL"]);
        let token = scene.bob.recv().int();
        let waited = start.elapsed();
        assert!(
            waited + Duration::from_millis(10) > PAUSE,
            "granted after {waited:?}"
        );
        scene.assert_held("bob", token);
        assert_replicated(replica.as_ref(), "bob", token);
    }
}

#[test]
fn a_wait_that_runs_out_in_a_pause_is_answered_nil_and_never_granted() {
    for mode in ["WRITE", "ALL"] {
        let server = TestServer::with(&["--appendonly", "yes"]);
        let mut scene = Scene::waiting(server, "BLOCK 300");
        scene.exec(&[
            "LOCK.RENEW k alice PX 50",
            &format!("CLIENT PAUSE 700 {mode}"),
        ]);
        assert!(only_reply(&mut scene.bob).is_nil());
        scene.assert_becomes_free(scene.first);
        scene.assert_stats(&[("waits_timed_out", 1), ("waits_granted", 0)]);
    }
}

#[test]
fn a_newcomer_who_asked_during_the_pause_comes_after_those_who_waited() {
    let mut scene = Scene::with(&["--appendonly", "yes"]);
    scene.exec(&["LOCK.RENEW k alice PX 50", "CLIENT PAUSE 60000 WRITE"]);
    let alice = &mut scene.alice;
    wait_for("the end of the lease", || alice.line("EXISTS k").int() == 0);
    let mut eve = scene.server.conn();
    eve.send_line("LOCK.ACQUIRE k eve PX 60000");
    assert_stays_silent(&mut eve);
    scene.alice.line("CLIENT UNPAUSE");
    assert!(eve.recv().is_nil());
    scene.assert_bob_is_granted();
}

#[test]
fn a_transaction_that_pauses_may_itself_hand_the_lock_on() {
    for how in ["aof", "replica"] {
        let (mut scene, replica) = propagating(how);
        let replies = scene.exec(&[
            "CLIENT PAUSE 60000 WRITE",
            "LOCK.ACQUIRE x alice PX 60000",
            "LOCK.RELEASE k alice",
        ]);
        // An absent key may be an expired one that the pause hides: nobody writes over it now.
        assert!(replies[1].error().starts_with("TRYAGAIN"));
        assert_eq!(replies[2].int(), 1);
        let token = scene.bob.recv().int();
        assert!(token > scene.first);
        scene.assert_held("bob", token);
        scene.alice.line("CLIENT UNPAUSE");
        assert_replicated(replica.as_ref(), "bob", token);
    }
}

#[test]
fn a_grant_is_taken_back_only_when_the_pause_is_over() {
    for how in ["aof", "replica"] {
        let (mut scene, replica) = propagating(how);
        let mut carol = scene.park("carol");
        scene.exec(&[
            "CLIENT PAUSE 60000 WRITE",
            "LOCK.RELEASE k alice",
            "CLIENT KILL ID $BOB",
        ]);
        assert!(scene.bob.is_closed());
        assert_stays_silent(&mut carol);
        assert_eq!(scene.alice.line("HGET k bob").text(), "1");
        scene.alice.line("CLIENT UNPAUSE");
        let token = carol.recv().int();
        scene.assert_held("carol", token);
        assert_replicated(replica.as_ref(), "carol", token);
        scene.assert_stats(&[("grants_undone", 1), ("waits_granted", 2)]);
    }
}

/// The lease is over but nobody has touched the key, so the pause finds it still there: the server
/// says "absent" and aborts when something is written over it.
#[test]
fn a_key_that_a_pause_only_hides_is_not_written_over() {
    let server = TestServer::with(&["--appendonly", "yes"]);
    let mut conn = server.conn();
    conn.line("DEBUG SET-ACTIVE-EXPIRE 0");
    let first = conn.line("LOCK.ACQUIRE k alice PX 50").int();
    conn.line("SET later 1 PX 60");
    wait_for("the end of the lease", || {
        conn.line("EXISTS later").int() == 0
    });
    conn.send_lines(&[
        "MULTI",
        "CLIENT PAUSE 60000 WRITE",
        "LOCK.ACQUIRE k bob PX 60000",
        "LOCK.RENEW k alice PX 60000",
        "LOCK.RELEASE k alice",
        "LOCK.BREAK k",
        "EXEC",
    ]);
    for _ in 0..6 {
        conn.recv();
    }
    let replies = conn.recv().list();
    assert!(replies[1].error().starts_with("TRYAGAIN"));
    assert_eq!(replies[2].int(), 0);
    assert!(replies[3].is_nil());
    assert_eq!(replies[4].int(), 0);
    conn.line("CLIENT UNPAUSE");
    assert!(conn.line("LOCK.ACQUIRE k bob PX 60000").int() > first);
}

#[test]
fn a_failover_sends_the_waiters_away_and_the_lock_moves_with_the_data() {
    for with_module in [false, true] {
        let server = TestServer::start();
        let replica = replica_of(&server, with_module);
        let mut scene = Scene::on(server);
        scene.alice.line("FAILOVER");
        assert!(scene.bob.recv().error().starts_with("UNBLOCKED"));
        assert!(scene.bob.is_closed());
        wait_for("the new master", || {
            replication(&replica).contains("role:master")
        });
        let mut there = replica.conn();
        assert_eq!(there.line("HGET k alice").text(), "1");
        assert_eq!(
            there.line("HGET k #token").text(),
            format!("t{}", scene.first)
        );
        if with_module {
            let mut bob = replica.conn();
            bob.send_line("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
            replica.wait_for_waiters(1);
            assert_eq!(there.line("LOCK.RELEASE k alice").int(), 1);
            assert!(only_reply(&mut bob).int() > scene.first);
        }
        scene.assert_stats(&[
            ("waits_disconnected", 1),
            ("waits_granted", 0),
            ("waiters", 0),
        ]);
    }
}

#[test]
fn a_lease_that_ends_in_the_middle_of_a_failover_ends_no_server() {
    for _ in 0..3 {
        let server = TestServer::start();
        let mut replica = replica_of(&server, true);
        let mut scene = Scene::on(server);
        let _carol = scene.park("carol");
        scene.exec(&["LOCK.RENEW k alice PX 20", "FAILOVER"]);
        wait_for("the new master", || {
            replication(&replica).contains("role:master")
        });
        assert!(scene.server.is_alive() && replica.is_alive());
        let mut there = replica.conn();
        wait_for("a free lock", || {
            there.line("LOCK.ACQUIRE k zoe ONCE").0 != redis::Value::Nil
        });
    }
}

/// Taking the grant back would need a write, which a replica does not make; and later it may be too
/// late, because the owner has asked again elsewhere.
#[test]
fn a_grant_in_the_turn_of_a_demotion_is_left_to_its_owner_and_its_lease() {
    let mut scene = Scene::new();
    scene
        .alice
        .send_lines(&["LOCK.RELEASE k alice", "REPLICAOF 127.0.0.1 1"]);
    assert!(scene.bob.recv().error().starts_with("UNBLOCKED"));
    assert!(scene.bob.is_closed());
    assert_eq!(scene.alice.recv().int(), 1);
    assert_eq!(scene.alice.recv().text(), "OK");
    scene.alice.line("REPLICAOF NO ONE");
    let token = scene.alice.line("LOCK.ACQUIRE k bob ONCE").int();
    let mut carol = scene.park("carol");
    assert_stays_silent(&mut carol);
    scene.assert_held("bob", token);
    scene.assert_stats(&[("grants_undone", 0), ("reentries", 1)]);
}

// The one timer.

#[test]
fn a_demoted_server_keeps_no_timer() {
    // Also when a grant was due in that very turn.
    for before in ["PING", "DEL k"] {
        let mut scene = Scene::new();
        scene.exec(&[before, "REPLICAOF 127.0.0.1 1"]);
        assert!(scene.bob.recv().is_error());
        unload_and_load(&mut scene.alice);
    }
}

/// The snapshot would arrive while bob's place is still kept; a replica keeps none.
#[test]
fn a_demoted_server_that_loads_its_masters_data_keeps_no_timer() {
    let master = TestServer::start();
    master.conn().line("CONFIG SET repl-diskless-sync-delay 0");
    let mut scene = Scene::new();
    scene.alice.line("CONFIG SET lock.queue-grace 9000");
    scene
        .alice
        .line(&format!("REPLICAOF 127.0.0.1 {}", master.port));
    assert!(scene.bob.recv().is_error());
    wait_for("a replica in sync", || {
        replication(&scene.server).contains("master_link_status:up")
    });
    scene.assert_stats(&[("places_kept", 0)]);
    unload_and_load(&mut scene.alice);
}

#[test]
fn many_waits_of_every_end_leave_no_timer_behind() {
    let server = TestServer::start();
    let mut alice = server.conn();
    let mut waiters: Vec<Conn> = (0..40).map(|_| server.conn()).collect();
    for (i, conn) in waiters.iter_mut().enumerate() {
        // Leases and waits that end at many different moments, some at once, some together.
        alice.line(&format!("LOCK.ACQUIRE k{i} alice PX {}", 20 + i / 2 * 7));
        conn.send_line(&format!("LOCK.ACQUIRE k{i} bob PX 30 BLOCK {}", 10 + i * 5));
    }
    for conn in &mut waiters {
        only_reply(conn);
    }
    server.wait_for_waiters(0);
    server.check_books();
    unload_and_load(&mut alice);
}
