//! Two events at once: a grant, and in the same tick an event that removes the waiter or stalls the server. Prototypes
//! lost replies, answered twice, or ended the server here.
//!
//! At the end of each test its server must be alive and its counters must add up.

use crate::common::barrier::assert_stays_silent;
use crate::common::scene::{only_reply, wait_until_at_rest, Scene};
use crate::common::{has_io_threads, wait_for, Conn, TestServer};

// Grants followed by the removal of the waiter.

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
fn an_undeliverable_grant_goes_to_the_next_waiter() {
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
fn an_owner_that_asks_again_in_the_tick_of_its_death_is_the_only_holder() {
    for hazard in ["CLIENT KILL ID $BOB", "CLIENT UNBLOCK $BOB ERROR"] {
        for block in ["", " BLOCK 0"] {
            let mut scene = Scene::new();
            let mut carol = scene.park("carol");
            let again = format!("LOCK.ACQUIRE k bob ONCE PX 60000{block}");
            scene.pipeline_exec(&["LOCK.RELEASE k alice", hazard], &[&again]);
            scene.exec_replies(2);
            let token = scene.alice.recv().int();
            assert!(token > scene.first);
            assert_stays_silent(&scene.server, &mut carol);
            scene.assert_held("bob", token);
            scene.assert_stats(&[("waits_granted", 1), ("grants_undone", 0), ("waiters", 1)]);
            assert_eq!(scene.alice.line("LOCK.RELEASE k bob").int(), 1);
            assert!(only_reply(&mut carol).int() > token);
        }
    }
}

#[test]
fn an_owner_that_asks_again_before_its_old_connection_dies_is_the_only_holder() {
    let mut scene = Scene::new();
    let mut carol = scene.park("carol");
    let again = "LOCK.ACQUIRE k bob ONCE PX 60000";
    let replies = scene.exec(&["LOCK.RELEASE k alice", again, "CLIENT KILL ID $BOB"]);
    let token = replies[1].int();
    assert_stays_silent(&scene.server, &mut carol);
    scene.assert_held("bob", token);
    scene.assert_stats(&[("grants_undone", 0), ("waiters", 1)]);
}

#[test]
fn a_grant_released_before_its_waiter_dies_is_handed_off_once() {
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
        assert_stays_silent(&scene.server, &mut dave);
        scene.assert_held("carol", token);
        scene.assert_stats(&[("grants_undone", 0), ("grants_released", 2), ("waiters", 1)]);
    }
}

#[test]
fn a_chain_of_waiters_killed_in_one_tick_ends_at_the_first_live_one() {
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

// Removals of the waiter followed by a release.

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
fn unblocking_or_killing_twice_in_one_tick_answers_once() {
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

/// The server is stopped while two sockets become readable, and then serves both in one tick, in the order in which
/// they became so.
#[test]
fn a_connection_closed_around_its_grant_does_not_keep_the_lock() {
    if has_io_threads() {
        // These servers may read the end some ticks later, and a grant that is delivered by then stays.
        return;
    }
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

// Waits that end while the server is stalled.

#[test]
fn a_wait_that_ran_out_during_a_stall_is_not_granted() {
    let mut scene = Scene::waiting(TestServer::start(), "BLOCK 150");
    scene
        .alice
        .send_lines(&["DEBUG SLEEP 0.4", "LOCK.RELEASE k alice"]);
    assert!(only_reply(&mut scene.bob).is_nil());
    assert_eq!(scene.alice.recv().text(), "OK");
    assert_eq!(scene.alice.recv().int(), 1);
    scene.server.wait_for_stat("waits_timed_out", 1);
    scene.assert_stats(&[("waits_granted", 0)]);
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
    scene.server.wait_for_stat("waits_timed_out", 1);
    scene.assert_stats(&[("waits_granted", 1)]);
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

// Changes of the key around a grant.

#[test]
fn a_newcomer_is_not_granted_between_del_and_the_grant() {
    for thief in ["eve", "alice"] {
        let mut scene = Scene::new();
        let replies = scene.exec(&["DEL k", &format!("LOCK.ACQUIRE k {thief} PX 60000 BLOCK 0")]);
        assert!(replies[1].is_nil());
        scene.assert_bob_is_granted();
        scene.assert_stats(&[("waits_granted", 1), ("grants", 2), ("grants_lost", 1)]);
    }
}

#[test]
fn a_grant_whose_key_is_deleted_in_its_tick_is_lost_but_answered_once() {
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
fn of_two_grants_that_die_in_one_tick_the_later_one_is_undone() {
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
        assert_stays_silent(&scene.server, &mut carol);
        scene.assert_held("eve", replies[3].int());
        scene.assert_stats(&[("grants_undone", 0), ("waiters", 1)]);
    }
}

#[test]
fn release_and_purge_in_one_tick_answer_each_waiter_once() {
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
fn a_purge_and_a_kill_in_one_tick_answer_no_waiter_twice() {
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

#[test]
fn waits_that_end_in_all_ways_leave_no_timer_behind() {
    let server = TestServer::start();
    let mut alice = server.conn();
    let mut waiters: Vec<Conn> = (0..40).map(|_| server.conn()).collect();
    for (i, conn) in waiters.iter_mut().enumerate() {
        // Leases and waits that end at many different times, some of them together.
        alice.line(&format!("LOCK.ACQUIRE k{i} alice PX {}", 20 + i / 2 * 7));
        conn.send_line(&format!("LOCK.ACQUIRE k{i} bob PX 30 BLOCK {}", 10 + i * 5));
    }
    for conn in &mut waiters {
        only_reply(conn);
    }
    server.wait_for_waiters(0);
    server.check_counters();
    wait_until_at_rest(&mut alice);
}
