//! The outcome of a ticket: each message, the place in the queue that tickets share with parked requests, and a request
//! of the same owner that follows.

use crate::common::scene::only_reply;
use crate::common::scripts::{GIVE, TAKE};
use crate::common::{wait_for, TestServer};
use crate::tickets::scene::{
    assert_silent, granted, leave, message, park, request, subscribe, waiters, Scene,
};

// Granted.

#[test]
fn a_free_lock_is_granted_at_once_without_a_message() {
    let mut scene = Scene::new();
    for line in [
        "LOCK.ACQUIRE free bob BLOCK 0 NOTIFY ch bob",
        "LOCK.ACQUIRE k alice BLOCK 0 NOTIFY ch again",
        "SEM.ACQUIRE permits bob LIMIT 1 BLOCK 0 NOTIFY ch bob",
        "LATCH.WAIT open BLOCK 0 NOTIFY ch bob",
    ] {
        assert!(scene.alice.line(line).int() > 0, "{line}");
    }
    let many = "LOCK.MACQUIRE 2 x y bob BLOCK 0 NOTIFY ch bob";
    assert_eq!(scene.alice.line(many).list().len(), 2);
    scene.assert_no_message();
    scene.assert_stats(&[("tickets_queued", 0), ("tickets", 0)]);
}

#[test]
fn a_request_that_has_to_wait_is_answered_queued_and_a_release_grants_it() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.assert_no_message();
    scene.assert_stats(&[("tickets", 1), ("tickets_queued", 1), ("waiters", 0)]);
    scene.release("alice");
    scene.assert_granted("bob");
    scene.assert_no_message();
    scene.assert_stats(&[("tickets", 0), ("tickets_granted", 1), ("grants", 2)]);
    scene.release("bob");
    scene.assert_no_message();
}

#[test]
fn the_grant_and_its_message_are_in_the_event_of_the_release() {
    let mut scene = Scene::new();
    scene.queue("bob");
    let replies = scene.exec_and_mark(&["LOCK.RELEASE k alice", "HGET k bob"]);
    assert_eq!(replies[1].text(), "1");
    scene.assert_granted("bob");
    assert_eq!(scene.heard(), "now");
}

#[test]
fn withholder_has_queued_as_its_first_element() {
    let mut scene = Scene::new();
    let reply = scene.alice.line(&format!("{} WITHHOLDER", request("bob")));
    let reply = reply.list();
    assert_eq!(
        (reply[0].text().as_str(), reply[1].text().as_str()),
        ("QUEUED", "alice")
    );
    assert!(reply[2].int() == 1 && reply[3].int() > 0);
    scene.release("alice");
    scene.assert_granted("bob");
}

#[test]
fn the_end_of_the_lease_grants_it() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.alice.line("LOCK.RENEW k alice PX 50");
    scene.assert_granted("bob");
    scene.assert_stats(&[("grants_expired", 1)]);
}

#[test]
fn the_lease_begins_at_the_grant() {
    let mut scene = Scene::new();
    scene.ask("LOCK.ACQUIRE k bob PX 60000 BLOCK 0 NOTIFY ch bob");
    scene.alice.line("LOCK.RENEW k alice PX 2000");
    let end = scene.alice.line("PEXPIRETIME k").int();
    scene.assert_granted("bob");
    assert!(scene.alice.line("PEXPIRETIME k").int() >= end + 60_000);
}

#[test]
fn every_other_event_that_frees_the_lock_grants_it() {
    for line in [
        "LOCK.BREAK k",
        "DEL k",
        "UNLINK k",
        "HDEL k alice",
        "RENAME k elsewhere",
        "MOVE k 1",
        "PEXPIREAT k 1",
        "FLUSHALL",
        "FLUSHDB",
        "SWAPDB 0 1",
        "SWAPDB 1 0",
    ] {
        let mut scene = Scene::new();
        scene.queue("bob");
        // Valkey 8.1 leaves the caller of MOVE in the other database.
        assert!(!scene.server.conn().line(line).is_error(), "{line}");
        scene.assert_granted("bob");
        scene.assert_stats(&[("tickets_granted", 1), ("panics", 0)]);
    }
}

#[test]
fn an_unlock_script_of_redisson_hands_off_to_it_and_a_lock_script_waits_for_it() {
    let mut scene = Scene::new();
    scene.release("alice");
    let mut redisson = scene.server.conn();
    let take = ["EVAL", TAKE, "1", "k", "60000", "u:1"];
    assert!(redisson.run(take).is_nil());
    scene.queue("bob");
    scene.queue("carol");
    let give = [
        "EVAL",
        GIVE,
        "2",
        "k",
        "redisson_lock__channel:{k}",
        "60000",
        "u:1",
    ];
    assert_eq!(redisson.run(give).int(), 1);
    scene.assert_granted("bob");
    assert!(redisson.run(take).int() > 0);
    scene.release("bob");
    scene.assert_granted("carol");
}

// One queue.

#[test]
fn tickets_and_parked_requests_are_granted_in_the_order_of_arrival() {
    let mut scene = Scene::new();
    scene.queue("bob");
    let mut carol = scene.park("carol");
    scene.queue("dave");
    scene.queue("erin");
    let mut fred = scene.park("fred");
    assert_eq!(scene.owners(), ["bob", "carol", "dave", "erin", "fred"]);
    scene.release("alice");
    let mut last = scene.assert_granted("bob");
    let mut rises = |token: i64| {
        assert!(token > last);
        last = token;
    };
    scene.release("bob");
    rises(only_reply(&mut carol).int());
    scene.release("carol");
    rises(scene.assert_granted("dave"));
    scene.release("dave");
    rises(scene.assert_granted("erin"));
    assert!(fred.is_silent());
    scene.release("erin");
    rises(only_reply(&mut fred).int());
    scene.assert_no_message();
    scene.assert_stats(&[("tickets_granted", 3), ("waits_granted", 2)]);
}

#[test]
fn a_request_without_block_passes_no_ticket() {
    let mut scene = Scene::new();
    scene.ask("LOCK.MACQUIRE 2 k free bob PX 60000 BLOCK 0 NOTIFY ch bob");
    assert!(scene.alice.line("LOCK.ACQUIRE free carol").is_nil());
    assert_eq!(scene.alice.line("EXISTS free").int(), 0);
    assert!(scene.alice.line("LOCK.RELEASE k bob").is_nil());
    assert!(scene.alice.line("LOCK.ACQUIRE free carol").int() > 0);
}

#[test]
fn lock_info_lists_tickets_with_channel_and_tag() {
    let mut scene = Scene::new();
    scene.ask("LOCK.ACQUIRE k bob BLOCK 60000 NOTIFY ch one");
    let _carol = scene.park("carol");
    let alice_id = scene.alice.id();
    let info = scene.alice.line("LOCK.INFO k");
    assert_eq!(info.field("waiters").unwrap().int(), 2);
    let listed = waiters(&mut scene.alice);
    let field = |at: usize, name: &str| listed[at].field(name).unwrap();
    assert_eq!(field(0, "owner").text(), "bob");
    assert_eq!(field(0, "channel").text(), "ch");
    assert_eq!(field(0, "tag").text(), "one");
    assert_eq!(field(0, "client-id").int(), alice_id);
    assert!((1..=60_000).contains(&field(0, "left-ms").int()));
    assert_eq!(field(1, "owner").text(), "carol");
    assert!(field(1, "channel").is_nil() && field(1, "tag").is_nil());
}

#[test]
fn sem_info_lists_tickets_with_channel_and_tag() {
    let mut scene = Scene::new();
    scene.alice.line("SEM.ACQUIRE s a LIMIT 1 PX 60000");
    scene.ask("SEM.ACQUIRE s b BLOCK 0 NOTIFY ch one");
    let info = scene.alice.line("SEM.INFO s WAITERS");
    assert_eq!(info.field("waiters").unwrap().int(), 1);
    let first = info.field("queue").unwrap().list()[0].clone();
    let field = |name: &str| first.field(name).unwrap().text();
    assert_eq!(
        (
            field("id").as_str(),
            field("channel").as_str(),
            field("tag").as_str()
        ),
        ("b", "ch", "one")
    );
}

#[test]
fn the_queue_of_each_database_is_its_own() {
    let mut scene = Scene::new();
    let mut other = scene.server.conn();
    other.line("SELECT 3");
    other.line("LOCK.ACQUIRE k carol PX 60000");
    assert_eq!(
        other
            .line("LOCK.ACQUIRE k dave PX 60000 BLOCK 0 NOTIFY ch dave")
            .text(),
        "QUEUED"
    );
    scene.queue("bob");
    assert_eq!(other.line("LOCK.RELEASE k carol").int(), 1);
    let token = granted(&scene.heard(), "dave");
    assert_eq!(other.line("HGET k #token").text(), format!("t{token}"));
    scene.assert_held("alice", scene.first);
    // Granted by the timer, which decides in the database of the key.
    other.line("LOCK.ACQUIRE k erin PX 60000 BLOCK 0 NOTIFY ch erin");
    other.line("PEXPIRE k 50");
    granted(&scene.heard(), "erin");
    assert_eq!(other.line("HGET k erin").text(), "1");
    scene.assert_no_message();
}

// Not granted.

#[test]
fn a_block_that_runs_out_is_a_timeout_and_the_place_is_kept() {
    let mut scene = Scene::with(&["--lock.queue-grace", "60000"]);
    scene.ask("LOCK.ACQUIRE k bob PX 60000 BLOCK 40 NOTIFY ch bob");
    scene.queue("carol");
    assert_eq!(scene.heard(), "timeout bob");
    scene.assert_stats(&[("tickets_kept", 1), ("tickets", 1), ("places_kept", 1)]);
    scene.queue("bob");
    scene.assert_stats(&[("tickets_timed_out", 0), ("tickets_taken_over", 1)]);
    assert_eq!(scene.owners(), ["bob", "carol"]);
    scene.release("alice");
    scene.assert_granted("bob");
}

#[test]
fn a_place_is_given_up_after_the_grace_time() {
    let mut scene = Scene::with(&["--lock.queue-grace", "30"]);
    scene.ask("LOCK.ACQUIRE k bob BLOCK 20 NOTIFY ch bob");
    scene.queue("carol");
    assert_eq!(scene.heard(), "timeout bob");
    let server = &scene.server;
    wait_for("the end of the grace time", || {
        server.stat("places_kept") == 0
    });
    scene.queue("bob");
    assert_eq!(scene.owners(), ["carol", "bob"]);
}

#[test]
fn a_release_withdraws_it_without_a_message() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.queue("carol");
    assert!(scene.alice.line("LOCK.RELEASE k bob").is_nil());
    scene.assert_stats(&[("tickets_withdrawn", 1), ("tickets", 1), ("places_kept", 0)]);
    assert_eq!(scene.owners(), ["carol"]);
    scene.release("alice");
    scene.assert_granted("carol");
    scene.assert_no_message();
}

#[test]
fn a_release_after_the_grant_releases() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.release("alice");
    scene.release("bob");
    granted(&scene.heard(), "bob");
    assert_eq!(scene.alice.line("EXISTS k").int(), 0);
    scene.assert_no_message();
}

#[test]
fn a_key_of_another_type_fails_it_with_wrongtype() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.queue("carol");
    scene.alice.line("SET k value");
    assert_eq!(scene.heard(), "failed WRONGTYPE bob");
    assert_eq!(scene.heard(), "failed WRONGTYPE carol");
    assert_eq!(scene.alice.line("GET k").text(), "value");
    scene.assert_stats(&[("tickets_failed", 2), ("tickets", 0)]);
}

#[test]
fn a_hash_of_another_layout_fails_it_with_locktype() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.alice.line("HSET k name Ada");
    assert_eq!(scene.heard(), "failed LOCKTYPE bob");
    assert_eq!(scene.alice.line("HLEN k").int(), 3);
    scene.assert_stats(&[("tickets_failed", 1), ("tickets", 0)]);
}

#[test]
fn a_purge_fails_it_with_lockbroken() {
    let mut scene = Scene::new();
    scene.queue("bob");
    let mut carol = scene.park("carol");
    scene.queue("dave");
    assert_eq!(scene.alice.line("LOCK.BREAK k PURGE").int(), 1);
    assert_eq!(scene.heard(), "failed LOCKBROKEN bob");
    assert_eq!(scene.heard(), "failed LOCKBROKEN dave");
    assert!(only_reply(&mut carol).error().starts_with("LOCKBROKEN"));
    assert_eq!(scene.alice.line("EXISTS k").int(), 0);
    scene.assert_stats(&[("tickets_failed", 2), ("waits_failed", 1)]);
}

// Asking again.

#[test]
fn asking_again_continues_at_the_same_place_with_the_newer_terms() {
    let mut scene = Scene::new();
    let mut other = subscribe(&scene.server, "other");
    scene.queue("bob");
    scene.queue("carol");
    for tag in ["two", "three"] {
        scene.ask(&format!(
            "LOCK.ACQUIRE k bob PX 7000 BLOCK 60000 ONCE NOTIFY other {tag}"
        ));
    }
    assert_eq!(scene.owners(), ["bob", "carol"]);
    let first = waiters(&mut scene.alice)[0].clone();
    assert_eq!(first.field("channel").unwrap().text(), "other");
    assert_eq!(first.field("tag").unwrap().text(), "three");
    assert!(first.field("left-ms").unwrap().int() > 0);
    scene.assert_stats(&[
        ("tickets_taken_over", 2),
        ("tickets_queued", 4),
        ("tickets", 2),
    ]);
    scene.release("alice");
    let token = granted(&message(&mut other), "three");
    scene.assert_held("bob", token);
    assert!(scene.alice.line("PTTL k").int() <= 7_000);
    assert_silent(&scene.server, &mut other, "other");
    scene.assert_no_message();
}

#[test]
fn asking_again_after_the_grant_is_answered_the_token() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.release("alice");
    let token = scene.assert_granted("bob");
    let again = format!("{} ONCE", request("bob"));
    assert_eq!(scene.alice.line(&again).int(), token);
    scene.assert_held("bob", token);
    scene.assert_no_message();
    scene.release("bob");
}

#[test]
fn a_newer_request_may_wait_shorter_than_the_one_it_takes_over() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.ask("LOCK.ACQUIRE k bob BLOCK 30 NOTIFY ch two");
    assert_eq!(scene.heard(), "timeout two");
    scene.assert_stats(&[("tickets_taken_over", 1), ("tickets", 0)]);
    scene.server.wait_for_stat("tickets_timed_out", 1);
}

#[test]
fn a_ticket_takes_over_the_parked_request_of_its_owner() {
    let mut scene = Scene::new();
    let mut bob = scene.park("bob");
    scene.queue("carol");
    scene.queue("bob");
    assert!(only_reply(&mut bob).is_nil());
    assert_eq!(scene.owners(), ["bob", "carol"]);
    scene.assert_stats(&[("waits_taken_over", 1), ("waiters", 0), ("tickets", 2)]);
    scene.release("alice");
    scene.assert_granted("bob");
}

#[test]
fn a_parked_request_takes_over_the_ticket_of_its_owner_without_a_message() {
    let mut scene = Scene::new();
    scene.queue("bob");
    scene.queue("carol");
    let mut bob = scene.park("bob");
    assert_eq!(scene.owners(), ["bob", "carol"]);
    scene.assert_stats(&[("tickets_taken_over", 1), ("waiters", 1), ("tickets", 1)]);
    scene.release("alice");
    assert!(only_reply(&mut bob).int() > scene.first);
    scene.assert_no_message();
}

#[test]
fn a_request_without_block_changes_nothing_for_its_ticket() {
    let mut scene = Scene::new();
    scene.queue("bob");
    assert!(scene.alice.line("LOCK.ACQUIRE k bob PX 1").is_nil());
    scene.assert_stats(&[("tickets", 1), ("tickets_taken_over", 0)]);
    scene.release("alice");
    scene.assert_granted("bob");
    assert!(scene.alice.line("PTTL k").int() > 1_000);
}

// Deadlocks.

#[test]
fn a_ticket_that_would_close_a_circle_is_refused() {
    let mut scene = Scene::new();
    scene.alice.line("LOCK.ACQUIRE l bob PX 60000");
    scene.queue("bob");
    for line in [
        "LOCK.ACQUIRE l alice BLOCK 0 NOTIFY ch alice",
        "LOCK.ACQUIRE l alice BLOCK 0",
        "LOCK.MACQUIRE 2 x l alice BLOCK 0 NOTIFY ch alice",
    ] {
        let error = scene.alice.line(line).error();
        assert!(error.starts_with("DEADLOCK"), "{line}: {error}");
    }
    scene.assert_stats(&[("tickets", 1), ("tickets_queued", 1), ("deadlocks", 3)]);
    scene.release("alice");
    scene.assert_granted("bob");
}

#[test]
fn a_ticket_behind_a_parked_request_closes_a_circle_too() {
    let mut scene = Scene::new();
    scene.alice.line("LOCK.ACQUIRE l bob PX 60000");
    let _bob = park(&scene.server, "LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
    let line = "LOCK.ACQUIRE l alice BLOCK 0 NOTIFY ch alice";
    let error = scene.alice.line(line).error();
    assert!(error.starts_with("DEADLOCK"), "{error}");
    scene.assert_stats(&[("tickets_queued", 0)]);
}

/// The conservation law is checked at the end of every test; here after each way to end at once.
#[test]
fn every_end_is_counted_once() {
    let server = TestServer::with(&["--lock.queue-grace", "60000"]);
    let mut scene = Scene::on(server);
    let gone = subscribe(&scene.server, "gone");
    scene.ask("LOCK.ACQUIRE k unheard BLOCK 0 NOTIFY gone x");
    for owner in ["granted", "withdrawn", "taken", "taken", "failed"] {
        scene.queue(owner);
    }
    scene.ask("LOCK.ACQUIRE k late BLOCK 10 NOTIFY ch late");
    assert_eq!(scene.heard(), "timeout late");
    scene.alice.line("LOCK.RELEASE k withdrawn");
    leave(&scene.server, gone, "gone");
    scene.release("alice");
    granted(&scene.heard(), "granted");
    scene.server.check_counters();
    scene.alice.line("LOCK.BREAK k PURGE");
    let failed: Vec<_> = (0..2).map(|_| scene.heard()).collect();
    assert_eq!(
        failed,
        ["failed LOCKBROKEN taken", "failed LOCKBROKEN failed"]
    );
    scene.server.wait_for_stat("tickets_kept", 0);
    scene.assert_stats(&[
        ("tickets_queued", 7),
        ("tickets_granted", 1),
        ("tickets_timed_out", 1),
        ("tickets_withdrawn", 1),
        ("tickets_taken_over", 1),
        ("tickets_failed", 2),
        ("tickets_unheard", 1),
        ("tickets", 0),
        ("ticket_places", 0),
        ("waits_parked", 0),
    ]);
}
