//! A grant, and in the same tick the server refuses writes: `CLIENT PAUSE`, a failover, a demotion. On a server that
//! propagates writes, a write in a pause would end the server.

use std::time::{Duration, Instant};

use crate::common::barrier::{assert_stays_silent, Barrier};
use crate::common::scene::{only_reply, wait_until_at_rest, Scene};
use crate::common::{module_path, wait_for, TestServer};

/// A server that propagates its writes: only then does a write in a pause end it.
fn propagating(how: &str) -> (Scene, Option<TestServer>) {
    if how == "aof" {
        return (Scene::with(&["--appendonly", "yes"]), None);
    }
    let server = TestServer::start();
    let replica = replica_of(&server, false);
    (Scene::on(server), Some(replica))
}

fn replica_of(server: &TestServer, with_module: bool) -> TestServer {
    // A replica without the module lacks only its INFO section.
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
fn a_lease_that_ends_while_writes_are_paused_is_handed_off_after_the_pause() {
    for how in ["aof", "replica"] {
        let (mut scene, replica) = propagating(how);
        let mut barrier = Barrier::on(&scene.server);
        scene.exec(&["LOCK.RENEW k alice PX 50", "CLIENT PAUSE 60000 WRITE"]);
        let alice = &mut scene.alice;
        wait_for("the end of the lease", || alice.line("EXISTS k").int() == 0);
        barrier.assert_silent(&mut scene.bob);
        scene.alice.line("CLIENT UNPAUSE");
        let token = scene.assert_bob_is_granted();
        assert_replicated(replica.as_ref(), "bob", token);
        scene.assert_stats(&[("waits_granted", 1), ("panics", 0)]);
    }
}

#[test]
fn a_lease_that_ends_while_all_is_paused_is_handed_off_after_the_pause() {
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
        scene.server.wait_for_stat("waits_timed_out", 1);
        scene.assert_stats(&[("waits_granted", 0)]);
    }
}

#[test]
fn a_newcomer_during_a_pause_comes_after_the_waiters() {
    let mut scene = Scene::with(&["--appendonly", "yes"]);
    let mut barrier = Barrier::on(&scene.server);
    scene.exec(&["LOCK.RENEW k alice PX 50", "CLIENT PAUSE 60000 WRITE"]);
    let alice = &mut scene.alice;
    wait_for("the end of the lease", || alice.line("EXISTS k").int() == 0);
    let mut eve = scene.server.conn();
    eve.send_line("LOCK.ACQUIRE k eve PX 60000");
    barrier.assert_silent(&mut eve);
    scene.alice.line("CLIENT UNPAUSE");
    assert!(eve.recv().is_nil());
    scene.assert_bob_is_granted();
}

#[test]
fn a_transaction_that_pauses_writes_may_hand_the_lock_off() {
    for how in ["aof", "replica"] {
        let (mut scene, replica) = propagating(how);
        let replies = scene.exec(&[
            "CLIENT PAUSE 60000 WRITE",
            "LOCK.ACQUIRE x alice PX 60000",
            "LOCK.RELEASE k alice",
        ]);
        // An absent key may be an expired one that the pause hides, so it is not overwritten now.
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
fn a_grant_is_undone_only_after_the_pause() {
    for how in ["aof", "replica"] {
        let (mut scene, replica) = propagating(how);
        let mut carol = scene.park("carol");
        let mut barrier = Barrier::on(&scene.server);
        scene.exec(&[
            "CLIENT PAUSE 60000 WRITE",
            "LOCK.RELEASE k alice",
            "CLIENT KILL ID $BOB",
        ]);
        assert!(scene.bob.is_closed());
        barrier.assert_silent(&mut carol);
        assert_eq!(scene.alice.line("HGET k bob").text(), "1");
        scene.alice.line("CLIENT UNPAUSE");
        let token = carol.recv().int();
        scene.assert_held("carol", token);
        assert_replicated(replica.as_ref(), "carol", token);
        scene.assert_stats(&[("grants_undone", 1), ("waits_granted", 2)]);
    }
}

/// The lease is over but no command has accessed the key, so it still exists in the pause: the server reports it as
/// absent and aborts when it is overwritten.
#[test]
fn a_key_hidden_by_a_pause_is_not_written_over() {
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

/// Undoing the grant would need a write, which a replica does not make; and later it may be too late, because the owner
/// may have asked again at another server.
#[test]
fn a_grant_in_the_tick_of_a_demotion_is_kept_until_its_lease_ends() {
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
    assert_stays_silent(&scene.server, &mut carol);
    scene.assert_held("bob", token);
    scene.assert_stats(&[("grants_undone", 0), ("reentries", 1)]);
}

#[test]
fn a_demoted_server_keeps_no_timer() {
    // Also if a grant was due in the same tick.
    for before in ["PING", "DEL k"] {
        let mut scene = Scene::new();
        scene.exec(&[before, "REPLICAOF 127.0.0.1 1"]);
        assert!(scene.bob.recv().is_error());
        wait_until_at_rest(&mut scene.alice);
    }
}

/// The snapshot would arrive while bob's place is still kept; a replica keeps no places.
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
    wait_until_at_rest(&mut scene.alice);
}
