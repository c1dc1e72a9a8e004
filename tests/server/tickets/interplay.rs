//! Tickets and another event in one tick, and requests of one owner for different keys or kinds.

use crate::common::scene::only_reply;
use crate::common::{Conn, TestServer};
use crate::tickets::scene::{
    assert_queued, granted, leave, message, park, request, subscribe, wait_until_unheard, Scene,
};

/// The lease of alice ends unnoticed, and then another client asks without `BLOCK`.
fn ends_unnoticed(scene: &mut Scene) -> Conn {
    let mut carol = scene.server.conn();
    carol.send_lines(&[
        "PEXPIRE k 1",
        "DEBUG SLEEP 0.05",
        "LOCK.ACQUIRE k carol PX 60000",
    ]);
    assert_eq!(carol.recv().int(), 1);
    assert_eq!(carol.recv().text(), "OK");
    carol
}

#[test]
fn a_request_that_finds_the_lease_ended_hands_off_to_the_ticket() {
    let mut scene = Scene::new();
    scene.queue("bob");
    let mut carol = ends_unnoticed(&mut scene);
    assert!(carol.recv().is_nil());
    scene.assert_granted("bob");
}

#[test]
fn a_request_that_finds_the_lease_ended_is_granted_if_no_ticket_is_heard() {
    let mut scene = Scene::new();
    let gone = subscribe(&scene.server, "gone");
    scene.ask("LOCK.ACQUIRE k bob PX 60000 BLOCK 0 NOTIFY gone bob");
    leave(&scene.server, gone, "gone");
    let mut carol = ends_unnoticed(&mut scene);
    let token = carol.recv().int();
    scene.assert_held("carol", token);
    scene.assert_stats(&[("tickets_unheard", 1)]);
}

#[test]
fn a_deletion_and_a_withdrawal_in_one_tick_grant_the_next_ticket() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.queue("carol");
    let replies = scene.exec_and_mark(&["DEL k", "LOCK.RELEASE k alice", "LOCK.RELEASE k bob"]);
    assert_eq!(replies[0].int(), 1);
    assert!(replies[1].is_nil() && replies[2].is_nil());
    assert_eq!(scene.heard(), "now");
    scene.assert_granted("carol");
    scene.assert_no_message();
}

#[test]
fn a_string_over_the_lock_after_the_grant_leaves_one_message() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.queue("carol");
    scene.exec_and_mark(&["LOCK.RELEASE k alice", "SET k value"]);
    granted(&scene.heard(), "bob");
    assert_eq!(scene.heard(), "now");
    assert_eq!(scene.heard(), "failed WRONGTYPE carol");
    scene.assert_no_message();
    scene.assert_stats(&[
        ("grants_lost", 1),
        ("tickets_granted", 1),
        ("tickets_failed", 1),
    ]);
}

#[test]
fn asking_and_withdrawing_in_one_transaction_leaves_nothing() {
    let mut scene = Scene::new();
    let replies = scene.exec_and_mark(&[
        &request("bob"),
        "LOCK.RELEASE k bob",
        "LOCK.RELEASE k alice",
    ]);
    assert!(replies[1].is_nil());
    assert_eq!(scene.heard(), "now");
    assert_eq!(scene.alice.line("EXISTS k").int(), 0);
    scene.assert_no_message();
    scene.assert_stats(&[("tickets_withdrawn", 1), ("tickets", 0), ("places_kept", 0)]);
}

/// More channels than are asked for before one decision.
#[test]
fn hundreds_of_channels_without_subscribers_are_passed_over_and_the_lock_is_kept_meanwhile() {
    let mut scene = Scene::with(&["--lock.queue-grace", "60000"]);
    let mut all = scene.server.conn();
    for i in 0..350 {
        all.line(&format!("SUBSCRIBE c{i}"));
        scene.ask(&format!(
            "LOCK.ACQUIRE k w{i} PX 60000 BLOCK 0 NOTIFY c{i} t"
        ));
    }
    scene.queue("carol");
    all.close();
    (0..350).for_each(|i| wait_until_unheard(&scene.server, &format!("c{i}")));
    let replies = scene.exec_and_mark(&["LOCK.RELEASE k alice", "LOCK.ACQUIRE k eve"]);
    assert_eq!(replies[0].int(), 1);
    assert!(replies[1].is_nil(), "{replies:?}");
    assert_eq!(scene.heard(), "now");
    scene.assert_granted("carol");
    scene.assert_stats(&[("tickets_unheard", 350), ("tickets_granted", 1)]);
}

#[test]
fn thousands_that_time_out_together_get_a_message_each() {
    let mut scene = Scene::new();
    let lines: Vec<_> = (0..2_000)
        .map(|i| format!("LOCK.ACQUIRE k w{i} BLOCK 400 NOTIFY ch {i}"))
        .collect();
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    scene.alice.send_lines(&lines);
    for _ in &lines {
        assert_eq!(scene.alice.recv().text(), "QUEUED");
    }
    let mut tags: Vec<usize> = lines
        .iter()
        .map(|_| {
            scene
                .heard()
                .strip_prefix("timeout ")
                .expect("a timeout")
                .parse()
                .unwrap()
        })
        .collect();
    tags.sort_unstable();
    assert!(tags.into_iter().eq(0..2_000));
    scene.server.wait_for_stat("tickets_timed_out", 2_000);
    scene.assert_stats(&[("tickets", 0)]);
}

/// The end of the session hands the lock off while the server still knows the connection.
#[test]
fn a_session_that_ends_does_not_grant_the_ticket_of_its_own_connection() {
    for closes_by_itself in [true, false] {
        let mut scene = Scene::new();
        scene.release("alice");
        let mut one = scene.server.conn();
        let id = one.id();
        one.line("LOCK.ACQUIRE k alice SESSION");
        assert_queued(&mut one, "LOCK.ACQUIRE k bob SESSION BLOCK 0 NOTIFY ch bob");
        assert_queued(
            &mut one,
            "LOCK.ACQUIRE k ben PX 60000 BLOCK 0 NOTIFY ch ben",
        );
        if closes_by_itself {
            one.close();
        } else {
            scene.alice.line(&format!("CLIENT KILL ID {id}"));
        }
        assert_eq!(scene.heard(), "failed UNBLOCKED bob");
        scene.assert_granted("ben");
        scene.assert_no_message();
        scene.assert_stats(&[
            ("session_holds", 0),
            ("grants_session_ended", 1),
            ("grants", 3),
        ]);
    }
}

// One owner, several requests.

#[test]
fn a_request_for_one_key_takes_over_the_ticket_for_several() {
    let mut scene = Scene::new();
    scene.ask("LOCK.MACQUIRE 2 k l bob PX 60000 BLOCK 0 NOTIFY ch both");
    scene.queue("bob");
    scene.assert_stats(&[
        ("tickets", 1),
        ("ticket_places", 1),
        ("tickets_taken_over", 1),
    ]);
    assert!(
        scene.alice.line("LOCK.ACQUIRE l carol").int() > 0,
        "l is not reserved"
    );
    scene.ask("LOCK.MACQUIRE 2 k m bob PX 60000 BLOCK 0 NOTIFY ch again");
    scene.assert_stats(&[
        ("tickets", 1),
        ("ticket_places", 2),
        ("tickets_taken_over", 2),
    ]);
    scene.release("alice");
    assert!(scene.heard().ends_with(" again"));
    scene.assert_no_message();
}

#[test]
fn asking_again_for_a_permit_keeps_the_place() {
    let mut scene = Scene::new();
    scene.alice.line("SEM.ACQUIRE s a LIMIT 1 PX 60000");
    for line in [
        "SEM.ACQUIRE s b PX 60000 BLOCK 0 NOTIFY ch one",
        "SEM.ACQUIRE s c PX 60000 BLOCK 0 NOTIFY ch c",
        "SEM.ACQUIRE s b PX 60000 BLOCK 0 NOTIFY ch two",
    ] {
        scene.ask(line);
    }
    assert_eq!(scene.alice.line("SEM.RELEASE s a").int(), 1);
    let token = granted(&scene.heard(), "two");
    let again = "SEM.ACQUIRE s b PX 60000 BLOCK 0 NOTIFY ch three";
    assert_eq!(scene.alice.line(again).int(), token);
    assert_eq!(scene.alice.line("SEM.RELEASE s b").int(), 1);
    granted(&scene.heard(), "c");
    scene.assert_no_message();
}

/// Otherwise the limit could be passed in two steps: a parked request, and a ticket that takes it over.
#[test]
fn a_request_of_one_kind_that_takes_over_the_other_counts_against_its_own_limit() {
    let mut scene = Scene::with(&["--lock.max-tickets", "1", "--lock.max-waiters", "1"]);
    scene.queue("bob");
    let mut carol = scene.park("carol");
    for line in [&request("carol"), "LOCK.ACQUIRE k bob BLOCK 0"] {
        let error = scene.alice.line(line).error();
        assert!(error.starts_with("LOCKBUSY"), "{line}: {error}");
    }
    assert!(carol.is_silent());
    scene.assert_stats(&[("tickets", 1), ("waiters", 1)]);
    scene.queue("bob");
    scene.release("alice");
    scene.assert_granted("bob");
    scene.release("bob");
    carol.recv().int();
}

// Clients.

#[test]
fn a_user_with_three_commands_a_key_and_a_channel_may_wait() {
    let server = TestServer::start();
    let mut admin = server.conn();
    let rules = "ACL SETUSER app reset on nopass +lock.acquire +lock.release +publish ~k &ch";
    assert_eq!(admin.line(rules).text(), "OK");
    let mut subscriber = subscribe(&server, "ch");
    admin.line("LOCK.ACQUIRE k alice PX 60000");
    let mut app = server.conn();
    app.line("AUTH app any");
    assert_queued(&mut app, &request("bob"));
    assert_queued(&mut app, &request("carol"));
    assert_eq!(admin.line("LOCK.RELEASE k alice").int(), 1);
    let first = granted(&message(&mut subscriber), "bob");
    assert_eq!(app.line("LOCK.RELEASE k bob").int(), 1);
    assert!(granted(&message(&mut subscriber), "carol") > first);
}

#[test]
fn a_client_that_wants_no_replies_gets_its_message() {
    let mut scene = Scene::new();
    let mut bob = scene.server.conn();
    bob.send_lines(&["CLIENT REPLY OFF", &request("bob"), "CLIENT REPLY ON"]);
    assert_eq!(bob.recv().text(), "OK");
    scene.release("alice");
    scene.assert_granted("bob");
    assert_eq!(only_reply_to_ping(&mut bob), "PONG");
}

fn only_reply_to_ping(conn: &mut Conn) -> String {
    conn.send_line("PING");
    only_reply(conn).text()
}

#[test]
fn a_ticket_behind_a_parked_request_that_times_out_moves_up() {
    let mut scene = Scene::new();
    let mut bob = park(&scene.server, "LOCK.ACQUIRE k bob BLOCK 40");
    scene.queue("carol");
    assert!(only_reply(&mut bob).is_nil());
    scene.release("alice");
    scene.assert_granted("carol");
}
