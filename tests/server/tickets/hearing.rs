//! Whether a ticket is heard: channels without subscribers at the request and at the grant, subscribers that die and
//! return, one connection for all, and connections of sessions.

use crate::common::scene::only_reply;
use crate::common::{has_io_threads, module_path, wait_for, Conn, Reply, TestServer};
use crate::tickets::scene::{
    assert_held, assert_queued, assert_silent, granted, leave, message, request, subscribe,
    wait_until_unheard, Scene,
};
use redis::{PushKind, Value};

/// A grace time that keeps places long enough for a slow machine.
const KEPT: [&str; 2] = ["--lock.queue-grace", "60000"];

// At the request.

#[test]
fn a_request_whose_channel_has_no_subscriber_is_refused_even_if_the_lock_is_free() {
    let mut scene = Scene::new();
    for line in [
        "LOCK.ACQUIRE k bob BLOCK 0 NOTIFY none t",
        "LOCK.ACQUIRE free bob BLOCK 0 NOTIFY none t",
        "LOCK.MACQUIRE 2 free k bob BLOCK 0 NOTIFY none t",
        "SEM.ACQUIRE s bob LIMIT 1 BLOCK 0 NOTIFY none t",
        "LATCH.WAIT open BLOCK 0 NOTIFY none t",
    ] {
        let error = scene.alice.line(line).error();
        assert_eq!(
            error, "NOSUBSCRIBER no client is subscribed to the channel",
            "{line}"
        );
    }
    assert_eq!(scene.alice.line("EXISTS free s").int(), 0);
    scene.assert_stats(&[("tickets_queued", 0), ("grants", 1), ("refusals", 0)]);
}

#[test]
fn a_subscription_to_a_pattern_is_none_to_the_channel() {
    let mut scene = Scene::new();
    let mut pattern = scene.server.conn();
    pattern.line("PSUBSCRIBE other*");
    let error = scene
        .alice
        .line("LOCK.ACQUIRE k bob BLOCK 0 NOTIFY other t")
        .error();
    assert!(error.starts_with("NOSUBSCRIBER"), "{error}");
}

#[test]
fn a_refused_request_leaves_the_earlier_one_of_its_owner_in_the_queue() {
    let mut scene = Scene::new();
    scene.queue("bob");
    let error = scene
        .alice
        .line("LOCK.ACQUIRE k bob BLOCK 0 NOTIFY none t")
        .error();
    assert!(error.starts_with("NOSUBSCRIBER"), "{error}");
    scene.release("alice");
    scene.assert_granted("bob");
}

#[test]
fn each_subscriber_gets_the_message() {
    let mut scene = Scene::new();
    let mut second = subscribe(&scene.server, "ch");
    scene.queue("bob");
    scene.release("alice");
    let token = scene.assert_granted("bob");
    assert_eq!(message(&mut second), format!("granted {token} bob"));
}

// At the grant.

/// Bob's channel has lost its subscriber; carol's has one.
fn unheard_bob(options: &[&str]) -> Scene {
    let mut scene = Scene::with(options);
    let gone = subscribe(&scene.server, "gone");
    scene.ask("LOCK.ACQUIRE k bob PX 60000 BLOCK 0 NOTIFY gone bob");
    leave(&scene.server, gone, "gone");
    scene
}

#[test]
fn a_ticket_that_is_not_heard_is_passed_over_in_the_same_event_and_keeps_its_place() {
    let mut scene = unheard_bob(&KEPT);
    scene.queue("carol");
    scene.queue("dave");
    let replies = scene.exec_and_mark(&["LOCK.RELEASE k alice", "HGET k carol"]);
    assert_eq!(replies[1].text(), "1");
    let token = scene.assert_granted("carol");
    assert_eq!(scene.heard(), "now");
    scene.assert_stats(&[
        ("tickets_unheard", 1),
        ("tickets_granted", 1),
        ("places_kept", 1),
        ("grants", 2),
        ("grants_undone", 0),
    ]);
    let mut back = subscribe(&scene.server, "gone");
    scene.ask("LOCK.ACQUIRE k bob PX 60000 BLOCK 0 ONCE NOTIFY gone again");
    assert_eq!(scene.owners(), ["bob", "dave"]);
    scene.release("carol");
    let next = granted(&message(&mut back), "again");
    assert!(next > token);
    scene.assert_held("bob", next);
    scene.assert_no_message();
}

#[test]
fn its_place_is_given_up_after_the_grace_time() {
    let mut scene = unheard_bob(&["--lock.queue-grace", "30"]);
    scene.queue("carol");
    scene.queue("dave");
    scene.release("alice");
    scene.assert_granted("carol");
    let server = &scene.server;
    wait_for("the end of the grace time", || {
        server.stat("places_kept") == 0
    });
    scene.queue("bob");
    assert_eq!(scene.owners(), ["dave", "bob"]);
}

#[test]
fn a_parked_request_behind_it_is_granted() {
    let mut scene = unheard_bob(&KEPT);
    let mut carol = scene.park("carol");
    scene.release("alice");
    let token = only_reply(&mut carol).int();
    scene.assert_held("carol", token);
    scene.assert_stats(&[("tickets_unheard", 1), ("waits_granted", 1)]);
}

#[test]
fn if_no_ticket_is_heard_the_lock_is_free_at_once() {
    let mut scene = unheard_bob(&KEPT);
    scene.release("alice");
    assert_eq!(scene.alice.line("EXISTS k").int(), 0);
    assert!(scene.alice.line("LOCK.ACQUIRE k carol").int() > scene.first);
    scene.assert_stats(&[("tickets_unheard", 1), ("places_kept", 1), ("tickets", 0)]);
}

#[test]
fn it_is_passed_over_at_the_end_of_a_lease_and_after_a_deletion() {
    for line in ["PEXPIRE k 40", "DEL k"] {
        let mut scene = unheard_bob(&KEPT);
        scene.queue("carol");
        scene.alice.line(line);
        scene.assert_granted("carol");
        scene.assert_stats(&[("tickets_unheard", 1), ("tickets_granted", 1)]);
    }
}

/// More than are passed over in one decision and in one tick.
#[test]
fn thousands_that_are_not_heard_are_passed_over() {
    let mut scene = unheard_bob(&["--lock.queue-grace", "0"]);
    let back = subscribe(&scene.server, "gone");
    let lines: Vec<_> = (0..5_000)
        .map(|i| format!("LOCK.ACQUIRE k w{i} BLOCK 0 NOTIFY gone {i}"))
        .collect();
    for chunk in lines.chunks(500) {
        scene
            .alice
            .send_lines(&chunk.iter().map(String::as_str).collect::<Vec<_>>());
        for _ in chunk {
            assert_eq!(scene.alice.recv().text(), "QUEUED");
        }
    }
    leave(&scene.server, back, "gone");
    scene.queue("carol");
    scene.release("alice");
    // Kept for the queue meanwhile.
    assert!(scene.alice.line("LOCK.ACQUIRE k eve").is_nil());
    scene.assert_granted("carol");
    scene.assert_stats(&[("tickets_unheard", 5_001), ("tickets", 0)]);
}

#[test]
fn a_subscriber_killed_in_the_same_transaction_is_not_heard() {
    let mut scene = Scene::with(&KEPT);
    if has_io_threads() {
        // The server closes a killed client a moment later.
        return;
    }
    let mut dying = subscriber_with_id(&scene.server, "dying");
    scene.ask("LOCK.ACQUIRE k bob PX 60000 BLOCK 0 NOTIFY dying bob");
    scene.queue("carol");
    let kill = format!("CLIENT KILL ID {}", dying.1);
    scene
        .alice
        .send_lines(&["MULTI", &kill, "LOCK.RELEASE k alice", "EXEC"]);
    (0..3).for_each(|_| drop(scene.alice.recv()));
    assert_eq!(scene.alice.recv().list()[1].int(), 1);
    scene.assert_granted("carol");
    assert!(dying.0.is_closed());
    scene.assert_stats(&[("tickets_unheard", 1)]);
}

fn subscriber_with_id(server: &TestServer, channel: &str) -> (Conn, i64) {
    let mut conn = server.conn();
    let id = conn.id();
    conn.run(["SUBSCRIBE", channel]);
    (conn, id)
}

#[test]
fn a_killed_subscriber_that_returns_is_heard_again() {
    let mut scene = Scene::with(&KEPT);
    scene.queue("bob");
    scene.alice.line("CLIENT KILL TYPE pubsub");
    wait_until_unheard(&scene.server, "ch");
    // Before the grant: the ticket is still in the queue, and need not be asked for again.
    scene.subscriber = subscribe(&scene.server, "ch");
    scene.release("alice");
    scene.assert_granted("bob");
    scene.assert_stats(&[("tickets_unheard", 0)]);
}

#[test]
fn unsubscribing_is_enough_not_to_be_heard() {
    let mut scene = Scene::with(&KEPT);
    scene.queue("bob");
    scene.subscriber.line("UNSUBSCRIBE ch");
    scene.release("alice");
    assert_eq!(scene.alice.line("EXISTS k").int(), 0);
    scene.assert_stats(&[("tickets_unheard", 1), ("places_kept", 1)]);
}

/// The outcome is the same, but no client reads it.
#[test]
fn other_outcomes_need_no_subscriber() {
    let mut scene = unheard_bob(&KEPT);
    scene.alice.line("LOCK.BREAK k PURGE");
    scene.assert_stats(&[
        ("tickets_failed", 1),
        ("tickets_unheard", 0),
        ("tickets", 0),
    ]);
}

#[test]
fn channel_and_tag_may_be_any_bytes() {
    let mut scene = Scene::new();
    let (channel, tag) = (b"\0\xff\r\n c h".as_slice(), b"t a\0g\r\n\xfe".as_slice());
    let mut subscriber = scene.server.conn();
    subscriber.run([b"SUBSCRIBE".as_slice(), channel]);
    let words = |owner: &'static [u8], channel: &'static [u8], tag: &'static [u8]| {
        let front = [
            b"LOCK.ACQUIRE".as_slice(),
            b"k",
            owner,
            b"BLOCK",
            b"0",
            b"NOTIFY",
        ];
        [&front[..], &[channel, tag]].concat()
    };
    assert_eq!(
        scene.alice.run(words(b"bob", channel, tag)).text(),
        "QUEUED"
    );
    let other = scene.alice.run(words(b"x", b"\0\xff\r\n c H", tag)).error();
    assert!(other.starts_with("NOSUBSCRIBER"), "{other}");
    scene.release("alice");
    let token = scene.alice.line("HGET k #token").text();
    let message = subscriber.recv().list();
    assert_eq!(message[1].bytes(), channel);
    let expected = [b"granted ", &token.as_bytes()[1..], b" ", tag].concat();
    assert_eq!(message[2].bytes(), expected);
    // Both may be empty.
    let mut subscriber = scene.server.conn();
    subscriber.run([b"SUBSCRIBE".as_slice(), b""]);
    assert_eq!(scene.alice.run(words(b"carol", b"", b"")).text(), "QUEUED");
    scene.release("bob");
    let text = subscriber.recv().list()[2].text();
    assert!(
        text.starts_with("granted ") && text.ends_with(' '),
        "{text:?}"
    );
}

// One connection for all, in RESP3.

fn push_of(reply: &Reply) -> Option<String> {
    let Value::Push { kind, data } = &reply.0 else {
        return None;
    };
    assert_eq!(*kind, PushKind::Message);
    Some(Reply(data[1].clone()).text())
}

#[test]
fn one_resp3_connection_subscribes_and_asks() {
    let server = TestServer::start();
    let (mut alice, mut one) = (server.conn(), server.conn3());
    alice.line("LOCK.ACQUIRE k alice PX 60000");
    alice.line("LOCK.ACQUIRE l alice PX 60000");
    one.send_line("SUBSCRIBE ch");
    assert!(matches!(
        one.recv().0,
        Value::Push {
            kind: PushKind::Subscribe,
            ..
        }
    ));
    // The reply comes before the message, and other commands are served meanwhile.
    one.send_lines(&[
        "LOCK.ACQUIRE k bob PX 60000 BLOCK 0 NOTIFY ch k",
        "LOCK.ACQUIRE l bob PX 60000 BLOCK 0 NOTIFY ch l",
        "PING",
    ]);
    for expected in ["QUEUED", "QUEUED", "PONG"] {
        assert_eq!(one.recv().text(), expected);
    }
    alice.line("LOCK.RELEASE l alice");
    granted(&push_of(&one.recv()).expect("a push"), "l");
    alice.line("LOCK.RELEASE k alice");
    granted(&push_of(&one.recv()).expect("a push"), "k");
    assert_eq!(one.line("PING").text(), "PONG");
}

/// The server decides whether a push to the calling client comes before or after the reply: as with PUBLISH.
#[test]
fn a_release_on_the_connection_of_the_subscriber_has_a_reply_and_a_push() {
    let server = TestServer::start();
    let mut one = server.conn3();
    one.send_line("SUBSCRIBE ch");
    one.recv();
    one.line("LOCK.ACQUIRE k alice PX 60000");
    assert_queued(&mut one, &request("bob"));
    let mut is_push = |line: &str| {
        one.send_line(line);
        let both = [one.recv(), one.recv()];
        both.map(|reply| push_of(&reply).is_some())
    };
    let order = is_push("PUBLISH ch x");
    assert_eq!(is_push("LOCK.RELEASE k alice"), order);
    assert_eq!(one.line("LOCK.RELEASE k bob").int(), 1);
}

// Sessions.

#[test]
fn a_session_is_bound_to_the_connection_that_asked() {
    let mut scene = Scene::new();
    let mut bob = scene.server.conn();
    let id = bob.id();
    assert_queued(&mut bob, "LOCK.ACQUIRE k bob SESSION BLOCK 0 NOTIFY ch bob");
    scene.queue("carol");
    scene.release("alice");
    scene.assert_granted("bob");
    let info = scene.alice.line("LOCK.INFO k");
    let holder = info.field("holders").unwrap().list()[0].clone();
    assert_eq!(holder.field("session").unwrap().int(), 1);
    assert_eq!(holder.field("client-id").unwrap().int(), id);
    scene.assert_stats(&[("session_holds", 1)]);
    bob.close();
    scene.assert_granted("carol");
    scene.assert_stats(&[("session_holds", 0), ("grants_session_ended", 1)]);
}

#[test]
fn a_session_whose_connection_closed_before_the_grant_fails_unblocked() {
    let mut scene = Scene::new();
    let mut bob = scene.server.conn();
    let id = bob.id();
    for line in [
        "LOCK.ACQUIRE k bob SESSION BLOCK 0 NOTIFY ch bob",
        "LOCK.ACQUIRE k bill SESSION BLOCK 0 NOTIFY ch bill",
        "LOCK.ACQUIRE k ben PX 60000 BLOCK 0 NOTIFY ch ben",
    ] {
        assert_queued(&mut bob, line);
    }
    bob.close();
    let alice = &mut scene.alice;
    wait_for("the end of the connection", || {
        let list = alice.line("CLIENT LIST").text();
        !list
            .lines()
            .any(|line| line.starts_with(&format!("id={id} ")))
    });
    scene.release("alice");
    assert_eq!(scene.heard(), "failed UNBLOCKED bob");
    assert_eq!(scene.heard(), "failed UNBLOCKED bill");
    // A plain ticket outlives the connection that asked.
    scene.assert_granted("ben");
    scene.assert_stats(&[("tickets_failed", 2), ("session_holds", 0)]);
}

#[test]
fn a_session_whose_connection_closes_in_the_event_of_the_grant_is_not_granted() {
    let mut scene = Scene::new();
    if has_io_threads() {
        // The server closes a killed client a moment later.
        return;
    }
    let mut bob = scene.server.conn();
    let id = bob.id();
    assert_queued(&mut bob, "LOCK.ACQUIRE k bob SESSION BLOCK 0 NOTIFY ch bob");
    scene.queue("carol");
    let kill = format!("CLIENT KILL ID {id}");
    scene
        .alice
        .send_lines(&["MULTI", &kill, "LOCK.RELEASE k alice", "EXEC"]);
    (0..4).for_each(|_| drop(scene.alice.recv()));
    assert_eq!(scene.heard(), "failed UNBLOCKED bob");
    scene.assert_granted("carol");
    scene.assert_stats(&[("session_holds", 0), ("sessions", 0), ("panics", 0)]);
}

// A server that cannot say who is subscribed.

#[test]
fn where_pubsub_is_renamed_every_channel_counts_as_heard() {
    let server = TestServer::without_module(&["--rename-command", "PUBSUB", "elsewhere"]);
    let mut conn = server.conn();
    let path = module_path();
    conn.run(["MODULE", "LOAD", path.to_str().unwrap()]);
    conn.line("LOCK.ACQUIRE k alice PX 60000");
    assert_queued(
        &mut conn,
        "LOCK.ACQUIRE k bob PX 60000 BLOCK 0 NOTIFY none bob",
    );
    assert_queued(&mut conn, &request("carol"));
    assert_eq!(conn.line("LOCK.RELEASE k alice").int(), 1);
    let token: i64 = conn.line("HGET k #token").text()[1..].parse().unwrap();
    assert_held(&mut conn, "k", "bob", token);
    let mut subscriber = subscribe(&server, "ch");
    assert_eq!(conn.line("LOCK.RELEASE k bob").int(), 1);
    assert!(granted(&message(&mut subscriber), "carol") > token);
    assert_silent(&server, &mut subscriber, "ch");
    for (name, value) in [
        ("tickets_granted", 2),
        ("tickets_unheard", 0),
        ("panics", 0),
    ] {
        assert_eq!(server.stat(name), value, "{name}");
    }
}
