//! Tickets for each kind of resource: several keys, permits, latches, READ and WRITE, and sessions of these.

use crate::common::{wait_for, Conn, TestServer};
use crate::tickets::scene::{
    assert_held, assert_queued, granted, leave, message, subscribe, Scene,
};

#[test]
fn macquire_is_granted_the_tokens_in_the_order_of_its_keys() {
    let mut scene = Scene::new();
    scene.alice.line("LOCK.ACQUIRE l alice PX 60000");
    scene.ask("LOCK.MACQUIRE 3 m l k bob PX 60000 BLOCK 0 NOTIFY ch b");
    scene.release("alice");
    scene.assert_no_message();
    assert_eq!(scene.alice.line("EXISTS k m").int(), 0);
    assert_eq!(scene.alice.line("LOCK.RELEASE l alice").int(), 1);
    let message = scene.heard();
    let words: Vec<_> = message.split(' ').collect();
    assert_eq!((words[0], words[2]), ("granted", "b"), "{message}");
    let tokens: Vec<i64> = words[1]
        .split(',')
        .map(|token| token.parse().unwrap())
        .collect();
    for (key, token) in ["m", "l", "k"].iter().zip(&tokens) {
        assert!(*token > scene.first);
        assert_held(&mut scene.alice, key, "bob", *token);
    }
    assert_eq!(tokens.len(), 3);
    scene.assert_no_message();
    scene.assert_stats(&[("tickets_granted", 1), ("ticket_places", 0)]);
}

#[test]
fn macquire_that_is_not_heard_holds_no_key_back() {
    let mut scene = Scene::with(&["--lock.queue-grace", "60000"]);
    let gone = subscribe(&scene.server, "gone");
    scene.ask("LOCK.MACQUIRE 2 k l bob PX 60000 BLOCK 0 NOTIFY gone b");
    scene.ask("LOCK.MACQUIRE 2 l k carol PX 60000 BLOCK 0 NOTIFY ch c");
    leave(&scene.server, gone, "gone");
    scene.release("alice");
    assert!(scene.heard().ends_with(" c"));
    assert_eq!(scene.alice.line("LOCK.MRELEASE 2 k l carol").int(), 2);
    assert!(scene.alice.line("LOCK.ACQUIRE l dave").int() > 0);
    scene.assert_stats(&[("tickets_unheard", 1), ("tickets_granted", 1)]);
}

#[test]
fn macquire_fails_at_one_key_and_leaves_the_other_queues() {
    let mut scene = Scene::new();
    scene.ask("LOCK.MACQUIRE 2 k l bob BLOCK 0 NOTIFY ch bob");
    scene.queue("carol");
    scene.alice.line("SET l string");
    assert_eq!(scene.heard(), "failed WRONGTYPE bob");
    assert_eq!(scene.owners(), ["carol"]);
    scene.ask("LOCK.MACQUIRE 2 k m dave BLOCK 30 NOTIFY ch dave");
    assert_eq!(scene.heard(), "timeout dave");
    scene.ask("LOCK.MACQUIRE 2 k m dave BLOCK 0 NOTIFY ch dave");
    assert_eq!(scene.alice.line("LOCK.MRELEASE 2 k m dave").int(), 0);
    scene.assert_stats(&[
        ("tickets", 1),
        ("tickets_withdrawn", 1),
        ("ticket_places", 1),
    ]);
    scene.release("alice");
    scene.assert_granted("carol");
    scene.assert_no_message();
}

#[test]
fn permits_are_granted_to_tickets_and_parked_requests_in_order() {
    let mut scene = Scene::new();
    let c = &mut scene.alice;
    assert!(c.line("SEM.ACQUIRE s a LIMIT 2 PX 60000").int() > 0);
    assert!(c.line("SEM.ACQUIRE s b LIMIT 2 PX 60000").int() > 0);
    assert_queued(c, "SEM.ACQUIRE s c LIMIT 2 PX 60000 BLOCK 0 NOTIFY ch c");
    let mut d = scene.server.conn();
    d.send_line("SEM.ACQUIRE s d PX 60000 BLOCK 0");
    wait_for("a parked request", || scene.server.stat("sem_waiters") == 1);
    for id in ["e", "f", "g"] {
        scene.ask(&format!(
            "SEM.ACQUIRE s {id} PX 60000 BLOCK 0 NOTIFY ch {id}"
        ));
    }
    assert_eq!(scene.alice.line("SEM.RELEASE s a").int(), 1);
    let first = granted(&scene.heard(), "c");
    assert!(d.is_silent());
    assert_eq!(scene.alice.line("SEM.RELEASE s b").int(), 1);
    assert!(d.recv().int() > first);
    // Two more at once.
    scene.alice.line("SEM.SET s 4");
    let tokens = ["e", "f"].map(|id| granted(&scene.heard(), id));
    assert!(first < tokens[0] && tokens[0] < tokens[1]);
    assert!(!scene.alice.line("ZSCORE {s}:timeout f").is_nil());
    scene.assert_no_message();
    assert!(scene.alice.line("SEM.RELEASE s g").is_nil());
    scene.assert_stats(&[
        ("tickets", 0),
        ("tickets_granted", 3),
        ("tickets_withdrawn", 1),
        ("sem_waits_granted", 1),
    ]);
}

#[test]
fn the_end_of_a_permits_lease_and_the_end_of_its_session_grant_tickets() {
    let mut scene = Scene::new();
    let mut holder = scene.server.conn();
    holder.line("SEM.ACQUIRE s a LIMIT 1 SESSION");
    scene.ask("SEM.ACQUIRE s b PX 50 BLOCK 0 NOTIFY ch b");
    scene.ask("SEM.ACQUIRE s c PX 60000 BLOCK 0 NOTIFY ch c");
    holder.close();
    let first = granted(&scene.heard(), "b");
    assert!(granted(&scene.heard(), "c") > first);
}

#[test]
fn a_semaphore_passes_over_a_ticket_that_is_not_heard() {
    let mut scene = Scene::new();
    let gone = subscribe(&scene.server, "gone");
    scene.alice.line("SEM.ACQUIRE s a LIMIT 1 PX 60000");
    scene.ask("SEM.ACQUIRE s b PX 60000 BLOCK 0 NOTIFY gone b");
    scene.ask("SEM.ACQUIRE s c PX 60000 BLOCK 0 NOTIFY ch c");
    leave(&scene.server, gone, "gone");
    assert_eq!(scene.alice.line("SEM.RELEASE s a").int(), 1);
    granted(&scene.heard(), "c");
    scene.assert_stats(&[("tickets_unheard", 1), ("tickets_granted", 1)]);
}

#[test]
fn an_opened_latch_grants_one_to_every_ticket_heard_or_not() {
    let mut scene = Scene::with(&["--lock.queue-grace", "60000"]);
    let gone = subscribe(&scene.server, "gone");
    scene.alice.line("LATCH.SET g 1");
    scene.ask("LATCH.WAIT g BLOCK 0 NOTIFY ch one");
    scene.ask("LATCH.WAIT g BLOCK 0 NOTIFY gone two");
    scene.ask("LATCH.WAIT g BLOCK 0 NOTIFY ch three");
    scene.ask("LATCH.WAIT g BLOCK 20 NOTIFY ch late");
    assert_eq!(scene.heard(), "timeout late");
    leave(&scene.server, gone, "gone");
    assert_eq!(scene.alice.line("LATCH.DOWN g").int(), 0);
    assert_eq!(scene.heard(), "granted 1 one");
    assert_eq!(scene.heard(), "granted 1 three");
    scene.assert_no_message();
    scene.assert_stats(&[
        ("tickets_granted", 3),
        ("tickets_unheard", 0),
        ("tickets", 0),
    ]);
}

#[test]
fn readers_are_granted_together_and_a_writer_after_them() {
    let mut scene = Scene::new();
    let mut other = subscribe(&scene.server, "other");
    scene.alice.line("LOCK.RELEASE k alice");
    scene.alice.line("LOCK.ACQUIRE k w WRITE PX 60000");
    for line in [
        "LOCK.ACQUIRE k r1 READ PX 60000 BLOCK 0 NOTIFY ch r1",
        "LOCK.ACQUIRE k r2 READ PX 60000 BLOCK 0 NOTIFY ch r2",
        "LOCK.ACQUIRE k r3 READ PX 60000 BLOCK 0 NOTIFY other r3",
        "LOCK.ACQUIRE k w2 WRITE PX 60000 BLOCK 0 NOTIFY ch w2",
        "LOCK.ACQUIRE k r4 READ PX 60000 BLOCK 0 NOTIFY ch r4",
    ] {
        scene.ask(line);
    }
    assert_eq!(scene.alice.line("LOCK.RELEASE k w WRITE").int(), 1);
    let token = granted(&scene.heard(), "r1");
    assert_eq!(granted(&scene.heard(), "r2"), token);
    assert_eq!(granted(&message(&mut other), "r3"), token);
    scene.assert_no_message();
    for reader in ["r1", "r2", "r3"] {
        assert_eq!(
            scene
                .alice
                .line(&format!("LOCK.RELEASE k {reader} READ"))
                .int(),
            1
        );
    }
    let next = granted(&scene.heard(), "w2");
    assert!(next > token);
    assert_eq!(scene.alice.line("LOCK.RELEASE k w2 WRITE").int(), 1);
    assert!(granted(&scene.heard(), "r4") > next);
}

/// Its owner holds every key: no key is free, and yet it is the next.
#[test]
fn macquire_is_granted_write_when_its_owner_is_the_only_reader_left() {
    let mut scene = Scene::new();
    for key in ["x", "y"] {
        for reader in ["bob", "carol"] {
            let line = format!("LOCK.ACQUIRE {key} {reader} READ PX 60000");
            assert!(scene.alice.line(&line).int() > 0);
        }
    }
    scene.ask("LOCK.MACQUIRE 2 x y bob WRITE PX 60000 BLOCK 0 NOTIFY ch b");
    assert_eq!(scene.alice.line("LOCK.RELEASE x carol").int(), 1);
    scene.assert_no_message();
    assert_eq!(scene.alice.line("LOCK.RELEASE y carol").int(), 1);
    let message = scene.heard();
    assert!(
        message.starts_with("granted ") && message.ends_with(" b"),
        "{message}"
    );
    for key in ["x", "y"] {
        let hold = scene.alice.run(["HGET", key, "bob:write"]).text();
        assert_eq!(hold, "1", "{key}");
    }
    scene.assert_stats(&[("tickets_granted", 1), ("tickets", 0)]);
}

#[test]
fn a_reader_that_is_not_heard_does_not_keep_the_others_out() {
    let mut scene = Scene::new();
    scene.release("alice");
    scene.alice.line("LOCK.ACQUIRE k w WRITE PX 60000");
    let gone = subscribe(&scene.server, "gone");
    scene.ask("LOCK.ACQUIRE k r1 READ PX 60000 BLOCK 0 NOTIFY gone r1");
    scene.ask("LOCK.ACQUIRE k r2 READ PX 60000 BLOCK 0 NOTIFY ch r2");
    scene.ask("LOCK.ACQUIRE k r3 READ PX 60000 BLOCK 0 NOTIFY gone r3");
    scene.ask("LOCK.ACQUIRE k r4 READ PX 60000 BLOCK 0 NOTIFY ch r4");
    leave(&scene.server, gone, "gone");
    assert_eq!(scene.alice.line("LOCK.RELEASE k w WRITE").int(), 1);
    let token = granted(&scene.heard(), "r2");
    assert_eq!(granted(&scene.heard(), "r4"), token);
    scene.assert_stats(&[("tickets_unheard", 2), ("tickets_granted", 2)]);
}

// Sessions.

/// Waits until the server has closed this connection.
fn close(conn: Conn, id: i64, server: &TestServer) {
    conn.close();
    let mut admin = server.conn();
    wait_for("the end of the connection", || {
        let list = admin.line("CLIENT LIST").text();
        !list
            .lines()
            .any(|line| line.starts_with(&format!("id={id} ")))
    });
}

#[test]
fn sessions_of_several_keys_permits_and_readers_fail_if_their_connection_has_closed() {
    for (before, request, ending) in [
        (
            "LOCK.ACQUIRE x a PX 60000",
            "LOCK.MACQUIRE 2 x y b SESSION BLOCK 0 NOTIFY ch b",
            "LOCK.RELEASE x a",
        ),
        (
            "SEM.ACQUIRE x a LIMIT 1 PX 60000",
            "SEM.ACQUIRE x b SESSION BLOCK 0 NOTIFY ch b",
            "SEM.RELEASE x a",
        ),
        (
            "LOCK.ACQUIRE x a WRITE PX 60000",
            "LOCK.ACQUIRE x b READ SESSION BLOCK 0 NOTIFY ch b",
            "LOCK.RELEASE x a WRITE",
        ),
    ] {
        for closes in [true, false] {
            let mut scene = Scene::new();
            let mut bob = scene.server.conn();
            let id = bob.id();
            assert!(scene.alice.line(before).int() > 0);
            assert_queued(&mut bob, request);
            if closes {
                close(
                    std::mem::replace(&mut bob, scene.server.conn()),
                    id,
                    &scene.server,
                );
            }
            assert_eq!(scene.alice.line(ending).int(), 1);
            let message = scene.heard();
            if closes {
                assert_eq!(message, "failed UNBLOCKED b", "{request}");
            } else {
                assert!(message.starts_with("granted "), "{request}: {message}");
                scene.assert_stats(&[("sessions", 1)]);
                close(bob, id, &scene.server);
            }
            let server = &scene.server;
            wait_for("no session", || server.stat("sessions") == 0);
            wait_for("free keys", || {
                let held = scene.alice.line("LOCK.SCAN 0 COUNT 1000").list()[1].list();
                held.iter()
                    .all(|key| !["x", "y"].contains(&key.text().as_str()))
            });
            scene.assert_no_message();
        }
    }
}

#[test]
fn lock_scan_lists_the_keys_that_tickets_wait_for() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.alice.line("LOCK.ACQUIRE unwaited alice PX 60000");
    scene.ask("LOCK.MACQUIRE 2 k waited carol BLOCK 0 NOTIFY ch carol");
    let found = scene.alice.line("LOCK.SCAN 0 WAITED COUNT 100").list()[1].list();
    let mut found: Vec<_> = found.iter().map(|key| key.text()).collect();
    found.sort();
    assert_eq!(found, ["k", "waited"]);
}
