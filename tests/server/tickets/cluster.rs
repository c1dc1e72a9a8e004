//! Tickets in a cluster: shard channels of the key's slot, and slots that move to another node.

use crate::common::cluster::{
    begin_move, end_move, migrate_keys, move_slot, moves_atomically, one_node, slot_of, two_nodes,
    AtomicMove,
};
use crate::common::{wait_for, Conn, TestServer};
use crate::tickets::scene::{assert_queued, granted, message, request};

/// A client that is subscribed to this shard channel.
fn shard_subscribe(node: &TestServer, channel: &str) -> Conn {
    let mut conn = node.conn();
    let reply = conn.run(["SSUBSCRIBE", channel]).list();
    assert_eq!(reply[0].text(), "ssubscribe");
    conn
}

fn ticket(owner: &str) -> String {
    request(owner).replace(" ch ", " {k}ch ")
}

#[test]
fn the_channel_must_be_in_the_slot_of_the_key() {
    let node = one_node(&[]);
    let mut conn = node.conn();
    conn.line("SUBSCRIBE ch");
    let mut conn = node.conn();
    for line in [
        "LOCK.ACQUIRE k bob BLOCK 0 NOTIFY ch t",
        "LOCK.MACQUIRE 2 k {k}l bob BLOCK 0 NOTIFY ch t",
        "SEM.ACQUIRE k bob LIMIT 1 BLOCK 0 NOTIFY ch t",
        "LATCH.WAIT k BLOCK 0 NOTIFY ch t",
    ] {
        let error = conn.line(line).error();
        assert_eq!(
            error, "CROSSSLOT the channel of NOTIFY does not hash to the slot of the key",
            "{line}"
        );
    }
    assert_eq!(conn.line("EXISTS k").int(), 0);
}

#[test]
fn only_subscribers_of_the_shard_channel_are_heard_and_get_the_message() {
    let node = one_node(&[]);
    let mut conn = node.conn();
    let mut plain = node.conn();
    plain.line("SUBSCRIBE {k}ch");
    let token = conn.line("LOCK.ACQUIRE k alice PX 60000").int();
    let error = conn.line(&ticket("bob")).error();
    assert!(error.starts_with("NOSUBSCRIBER"), "{error}");
    let mut subscriber = shard_subscribe(&node, "{k}ch");
    assert_queued(&mut conn, &ticket("bob"));
    let many = "LOCK.MACQUIRE 2 {k}l k carol BLOCK 0 NOTIFY {k}ch carol";
    assert_queued(&mut conn, many);
    assert_eq!(conn.line("LOCK.RELEASE k alice").int(), 1);
    assert!(granted(&message(&mut subscriber), "bob") > token);
    assert_eq!(conn.line("LOCK.RELEASE k bob").int(), 1);
    assert!(message(&mut subscriber).ends_with(" carol"));
    assert_eq!(conn.line("ECHO x").text(), "x");
    assert!(plain.is_silent());
    // The subscriber leaves: nothing is granted.
    assert_queued(&mut conn, &ticket("dave"));
    subscriber.close();
    wait_for("a channel without subscribers", || {
        conn.line("PUBSUB SHARDNUMSUB {k}ch").list()[1].int() == 0
    });
    assert_eq!(conn.line("LOCK.MRELEASE 2 k {k}l carol").int(), 2);
    assert_eq!(conn.line("EXISTS k").int(), 0);
    assert_eq!(node.stat("tickets_unheard"), 1);
}

#[test]
fn a_key_of_another_node_is_redirected_before_its_channel_is_checked() {
    let (_source, target) = two_nodes(&["--lock.queue-grace", "60000"]);
    let error = target
        .conn()
        .line("LOCK.ACQUIRE k bob BLOCK 0 NOTIFY ch t")
        .error();
    assert!(error.starts_with("MOVED"), "{error}");
}

/// What a subscriber of the source gets when the slot of its channel leaves: the server ends the subscription.
fn assert_ends(source: &TestServer, subscriber: &mut Conn) {
    let end = subscriber.recv().list();
    assert_eq!(end[0].text(), "sunsubscribe", "{end:?}");
    wait_for("no tickets at the source", || source.stat("tickets") == 0);
    assert_eq!(source.stat("tickets_failed"), 2);
    assert_eq!(source.stat("tickets_granted"), 0);
}

/// The tickets of a slot end when it moves, and their owners ask at the new node.
fn check_that_tickets_end(move_slot: impl FnOnce(&TestServer, &TestServer, i64)) {
    let (source, target) = two_nodes(&["--lock.queue-grace", "60000"]);
    let (mut here, mut there) = (source.conn(), target.conn());
    let slot = slot_of(&mut here, "k");
    let token = here.line("LOCK.ACQUIRE k alice PX 60000").int();
    let mut subscriber = shard_subscribe(&source, "{k}ch");
    assert_queued(&mut here, &ticket("bob"));
    assert_queued(&mut here, &ticket("carol"));
    move_slot(&source, &target, slot);
    assert_ends(&source, &mut subscriber);
    let mut subscriber = shard_subscribe(&target, "{k}ch");
    assert_queued(&mut there, &ticket("bob"));
    assert_eq!(there.line("LOCK.RELEASE k alice").int(), 1);
    assert!(granted(&message(&mut subscriber), "bob") > token);
}

#[test]
fn a_slot_that_moves_ends_the_subscription_and_its_tickets() {
    check_that_tickets_end(move_slot);
}

#[test]
fn a_slot_that_moves_atomically_ends_the_subscription_and_its_tickets() {
    if moves_atomically(&TestServer::start()) {
        check_that_tickets_end(|source, target, slot| {
            AtomicMove::begin(source, target, slot).wait_until_done();
        });
    }
}

#[test]
fn in_a_migrating_slot_a_release_still_hands_off() {
    let (source, target) = two_nodes(&["--lock.queue-grace", "60000"]);
    let mut here = source.conn();
    let slot = slot_of(&mut here, "k");
    let token = here.line("LOCK.ACQUIRE k alice PX 60000").int();
    let mut subscriber = shard_subscribe(&source, "{k}ch");
    assert_queued(&mut here, &ticket("bob"));
    begin_move(&source, &target, slot);
    assert_eq!(here.line("LOCK.RELEASE k alice").int(), 1);
    let next = granted(&message(&mut subscriber), "bob");
    assert!(next > token);
    migrate_keys(&source, &target, slot);
    end_move(&source, &target, slot);
    assert_eq!(target.conn().line("LOCK.ACQUIRE k bob ONCE").int(), next);
}

/// By its configuration, a cluster that does not cover every slot serves none.
#[test]
fn a_cluster_that_is_down_fails_it_when_a_grant_is_due() {
    let node = one_node(&[]);
    let mut conn = node.conn();
    let mut subscriber = shard_subscribe(&node, "{k}ch");
    conn.line("LOCK.ACQUIRE k alice PX 5000");
    assert_queued(&mut conn, &ticket("bob"));
    conn.line("CONFIG SET cluster-require-full-coverage yes");
    let elsewhere = (slot_of(&mut conn, "k") + 1) % 16_384;
    conn.line(&format!("CLUSTER DELSLOTS {elsewhere}"));
    assert_eq!(message(&mut subscriber), "failed CLUSTERDOWN bob");
    assert_eq!(node.stat("tickets_failed"), 1);
}

/// Requests for each kind of resource, in the slot of `k`, and what makes them wait.
const KINDS: [(&[&str], &str); 7] = [
    (
        &["LOCK.ACQUIRE {k}x a PX 60000"],
        "LOCK.ACQUIRE {k}x b BLOCK 0 NOTIFY {k}ch t",
    ),
    (
        &["LOCK.ACQUIRE {k}x a READ PX 60000"],
        "LOCK.ACQUIRE {k}x b WRITE BLOCK 0 NOTIFY {k}ch t",
    ),
    (
        &["LOCK.ACQUIRE {k}x a PX 60000"],
        "LOCK.MACQUIRE 2 {k}x {k}y b BLOCK 0 NOTIFY {k}ch t",
    ),
    (
        &["LOCK.ACQUIRE {k}y a PX 60000"],
        "LOCK.MACQUIRE 2 {k}x {k}y b BLOCK 0 NOTIFY {k}ch t",
    ),
    (
        &["SEM.SET {k}x 1", "SEM.ACQUIRE {k}x a PX 60000"],
        "SEM.ACQUIRE {k}x b BLOCK 0 NOTIFY {k}ch t",
    ),
    (
        &["SEM.ACQUIRE {k}x a LIMIT 1 PX 60000"],
        "SEM.ACQUIRE {k}x b LIMIT 1 BLOCK 0 NOTIFY {k}ch t",
    ),
    (
        &["LATCH.SET {k}x 1"],
        "LATCH.WAIT {k}x BLOCK 0 NOTIFY {k}ch t",
    ),
];

fn tickets_of_all_kinds_end(move_it: impl Fn(&TestServer, &TestServer, i64)) {
    let (source, target) = two_nodes(&["--lock.queue-grace", "60000"]);
    let mut here = source.conn();
    let slot = slot_of(&mut here, "k");
    let mut subscriber = shard_subscribe(&source, "{k}ch");
    for (at, (before, request)) in KINDS.iter().enumerate() {
        let own = |line: &str| {
            line.replace("{k}x", &format!("{{k}}x{at}"))
                .replace("{k}y", &format!("{{k}}y{at}"))
        };
        for line in *before {
            assert!(here.line(&own(line)).int() > 0, "{line}");
        }
        assert_queued(&mut here, &own(request));
    }
    move_it(&source, &target, slot);
    assert_eq!(subscriber.recv().list()[0].text(), "sunsubscribe");
    wait_for("no tickets at the source", || source.stat("tickets") == 0);
    assert_eq!(source.stat("tickets_failed"), KINDS.len() as u64);
}

#[test]
fn tickets_of_all_kinds_end_when_their_slot_moves() {
    tickets_of_all_kinds_end(move_slot);
}

#[test]
fn tickets_of_all_kinds_end_when_their_slot_moves_atomically() {
    if !moves_atomically(&TestServer::start()) {
        return;
    }
    tickets_of_all_kinds_end(|source, target, slot| {
        AtomicMove::begin(source, target, slot).wait_until_done()
    });
}
