//! A node of a cluster: one horizon for each slot, both kinds of release message, and slots that move to another node
//! with locks and waiters in them.

use crate::common::cluster::{
    self, horizons_beside, id_of, keys_in, one_node, slot_of, start_node,
};
use crate::common::cluster::{wait_until_served, HORIZON};
use crate::common::replica::ReplicationStream;
use crate::common::scene::wait_until_at_rest;
use crate::common::{wait_for, Conn, Reply, TestServer};

/// Two nodes; the first serves every slot, until one is moved.
struct Pair {
    source: TestServer,
    target: TestServer,
    /// Connections to both.
    here: Conn,
    there: Conn,
}

impl Pair {
    fn start() -> Pair {
        let source = one_node(&[]);
        let (target, bus) = start_node(&[]);
        let meet = format!("CLUSTER MEET 127.0.0.1 {} {bus}", target.port);
        source.conn().line(&meet);
        for node in [&source, &target] {
            wait_until_served(node);
        }
        let (here, there) = (source.conn(), target.conn());
        let mut pair = Pair {
            source,
            target,
            here,
            there,
        };
        let target_id = id_of(&pair.target);
        wait_for("the nodes to know each other", || {
            pair.here.line("CLUSTER NODES").text().contains(&target_id)
        });
        pair
    }

    /// Waits until both nodes have epochs of their own and know the latest, so that a claim to a slot is not contested.
    fn wait_until_settled(&mut self) {
        wait_for("the nodes to agree on the epoch", || {
            let infos = [&mut self.here, &mut self.there];
            let [a, b] = infos.map(|conn| conn.line("CLUSTER INFO").text());
            let epoch = |info: &str, name: &str| {
                let line = info.lines().find(|line| line.starts_with(name));
                line.unwrap().split(':').nth(1).unwrap().trim().to_string()
            };
            epoch(&a, "cluster_current_epoch") == epoch(&b, "cluster_current_epoch")
                && epoch(&a, "cluster_my_epoch") != epoch(&b, "cluster_my_epoch")
        });
    }

    /// Starts the migration of the slot.
    fn begin_move(&mut self, slot: i64) {
        self.wait_until_settled();
        cluster::begin_move(&self.source, &self.target, slot);
    }

    fn migrate_keys(&self, slot: i64) {
        cluster::migrate_keys(&self.source, &self.target, slot);
    }

    fn end_move(&self, slot: i64) {
        cluster::end_move(&self.source, &self.target, slot);
    }

    /// A client of the source that is parked on `k`.
    fn park_here(&self, owner: &str) -> Conn {
        let mut waiter = self.source.conn();
        waiter.send_line(&format!("LOCK.ACQUIRE k {owner} PX 60000 BLOCK 0"));
        self.source.wait_for_waiters(1);
        waiter
    }

    /// Redisson holds `k`, so that its slot has no horizon yet; b waits for it; the slot is migrating.
    fn move_a_lock_of_redisson(&mut self) -> (i64, Conn) {
        self.here.line("HSET k uuid:1 1");
        self.here.line("PEXPIRE k 60000");
        let slot = slot_of(&mut self.here, "k");
        let waiter = self.park_here("b");
        self.begin_move(slot);
        (slot, waiter)
    }

    /// Returns when the source's timer has run and settled every key that is due: a lease of another lock has ended and
    /// its waiter was granted.
    fn wait_for_the_timer_of_the_source(&self) {
        let mut conn = self.source.conn();
        conn.line("LOCK.ACQUIRE other x PX 50");
        let token = conn.line("LOCK.ACQUIRE other y PX 60000 BLOCK 0").int();
        assert!(token > 0);
    }
}

#[test]
fn every_lock_has_its_horizon_in_its_own_slot() {
    let node = one_node(&[]);
    let mut conn = node.conn();
    for key in [
        "k", "{tag}a", "a{tag}b", "x{}y", "{", "a}b{c}", "{{x}}", "a{",
    ] {
        let first = conn.run(["LOCK.ACQUIRE", key, "a"]).int();
        let horizons = horizons_beside(&mut conn, key);
        assert_eq!(horizons.len(), 1, "{key}: {horizons:?}");
        let slot = slot_of(&mut conn, key);
        assert_eq!(slot_of(&mut conn, &horizons[0]), slot, "{key}");
        let stored: i64 = conn.run(["GET", &horizons[0]]).text().parse().unwrap();
        assert!(stored > first);

        let mut waiter = node.conn();
        waiter.send(["LOCK.ACQUIRE", key, "b", "BLOCK", "0"]);
        conn.wait_for_waiters_on(key, 1);
        assert_eq!(conn.run(["LOCK.RELEASE", key, "a"]).int(), 1);
        assert!(waiter.recv().int() > first, "{key}");
        assert_eq!(conn.run(["LOCK.RELEASE", key, "b"]).int(), 1);
        assert_eq!(conn.run(["EXISTS", key]).int(), 0);
    }
    assert!(conn.line("EXISTS redis_lock:horizon").int() == 0);
}

#[test]
fn locks_of_one_slot_share_their_horizon_and_it_is_written_once() {
    let node = one_node(&[]);
    let mut stream = ReplicationStream::attach(&node);
    let mut conn = node.conn();
    for number in 0..50 {
        let key = format!("{{tag}}{number}");
        conn.run(["LOCK.ACQUIRE", &key, "a"]);
        conn.run(["LOCK.RELEASE", &key, "a"]);
    }
    let seen = stream.until_now(&node);
    let horizons = seen.iter().filter(|line| line.contains(HORIZON)).count();
    assert_eq!(horizons, 1);
    assert_eq!(horizons_beside(&mut conn, "{tag}").len(), 1);
}

#[test]
fn a_release_is_published_to_both_kinds_of_subscribers_and_not_replicated() {
    let node = one_node(&[]);
    let mut stream = ReplicationStream::attach(&node);
    for (key, channel) in [
        ("k", "redisson_lock__channel:{k}"),
        ("{tag}k", "redisson_lock__channel:{tag}k"),
    ] {
        let mut classic = node.conn();
        classic.run(["SUBSCRIBE", channel]);
        let mut sharded = node.conn();
        let answer = sharded.run(["SSUBSCRIBE", channel]);
        assert_eq!(answer.list()[0].text(), "ssubscribe");
        let mut conn = node.conn();
        conn.run(["LOCK.ACQUIRE", key, "a"]);
        conn.run(["LOCK.RELEASE", key, "a"]);
        for (subscriber, kind) in [(&mut classic, "message"), (&mut sharded, "smessage")] {
            let message: Vec<_> = subscriber.recv().list().iter().map(Reply::text).collect();
            assert_eq!(message, [kind, channel, "0"]);
        }
        // Each replica would send the message to the whole cluster again.
        let seen = stream.until_now(&node);
        assert_eq!(seen.last().unwrap(), &format!("DEL {key}"), "{seen:?}");
        assert!(
            seen.iter().all(|line| !line.contains("PUBLISH")),
            "{seen:?}"
        );
    }
}

#[test]
fn tokens_rise_over_a_crash_of_a_node() {
    let mut node = one_node(&["--appendonly", "yes", "--appendfsync", "always"]);
    let mut last = [("k", 0), ("{tag}k", 0)];
    for _ in 0..3 {
        let mut conn = node.conn();
        for (key, last) in &mut last {
            let key = *key;
            let token = conn.run(["LOCK.ACQUIRE", key, "a"]).int();
            assert!(token > *last);
            *last = token;
            conn.run(["LOCK.RELEASE", key, "a"]);
        }
        node.crash_and_restart();
        wait_until_served(&node);
    }
}

#[test]
fn a_key_of_another_node_is_redirected() {
    let mut pair = Pair::start();
    let expected = format!("MOVED {} 127.0.0.1:", slot_of(&mut pair.here, "k"));
    for line in [
        "LOCK.ACQUIRE k a",
        "LOCK.ACQUIRE k a BLOCK 0",
        "LOCK.RELEASE k a",
        "LOCK.RENEW k a",
        "LOCK.BREAK k",
        "LOCK.INFO k",
    ] {
        let error = pair.there.line(line).error();
        assert!(error.starts_with(&expected), "{line}: {error}");
    }
    // A release message reaches the subscribers of every node.
    let mut subscriber = pair.target.conn();
    subscriber.line("SUBSCRIBE redisson_lock__channel:{k}");
    pair.here.line("LOCK.ACQUIRE k a");
    pair.here.line("LOCK.RELEASE k a");
    assert_eq!(subscriber.recv().list()[2].text(), "0");
}

#[test]
fn a_held_lock_moves_with_its_slot_and_its_waiter_is_redirected() {
    let mut pair = Pair::start();
    let token = pair.here.line("LOCK.ACQUIRE k a PX 60000").int();
    let deadline = pair.here.line("PEXPIRETIME k").int();
    let horizon = horizons_beside(&mut pair.here, "k")[0].clone();
    let reserved: i64 = pair.here.run(["GET", &horizon]).text().parse().unwrap();
    let mut waiter = pair.park_here("b");
    let slot = slot_of(&mut pair.here, "k");

    pair.begin_move(slot);
    pair.migrate_keys(slot);
    // MIGRATE deletes the key here, but the lock is still held at the target.
    pair.wait_for_the_timer_of_the_source();
    assert!(waiter.is_silent());
    assert!(keys_in(&mut pair.here, slot).is_empty());
    pair.end_move(slot);
    let redirected = waiter.recv().error();
    let expected = format!("MOVED {slot} 127.0.0.1:{}", pair.target.port);
    assert_eq!(redirected, expected);
    pair.source.wait_for_waiters(0);

    // The target continues from the source's state.
    let there = &mut pair.there;
    assert_eq!(there.line("LOCK.ACQUIRE k a PX 1000 ONCE").int(), token);
    // MIGRATE passes on the remaining time, so the deadline is later by the duration of the move.
    let moved = there.line("PEXPIRETIME k").int() - deadline;
    assert!((0..1_000).contains(&moved), "{moved} ms");
    assert!(there.line("LOCK.ACQUIRE k b").is_nil());
    assert_eq!(there.line("LOCK.RELEASE k a").int(), 1);
    let next = there.line("LOCK.ACQUIRE k b PX 60000").int();
    assert!(
        next > reserved,
        "{next} is not above the source's {reserved}"
    );
}

#[test]
fn tokens_rise_when_a_slot_moves_there_and_back() {
    let mut pair = Pair::start();
    let mut last = 0;
    let slot = slot_of(&mut pair.here, "k");
    for _ in 0..4 {
        for _ in 0..3 {
            let token = pair.here.line("LOCK.ACQUIRE k a PX 60000").int();
            assert!(token > last, "{token} after {last}");
            last = token;
            assert_eq!(pair.here.line("LOCK.RELEASE k a").int(), 1);
        }
        pair.begin_move(slot);
        pair.migrate_keys(slot);
        pair.end_move(slot);
        std::mem::swap(&mut pair.here, &mut pair.there);
        std::mem::swap(&mut pair.source, &mut pair.target);
    }
}

#[test]
fn a_migrating_slot_hands_off_below_its_horizon() {
    let mut pair = Pair::start();
    let token = pair.here.line("LOCK.ACQUIRE k a PX 60000").int();
    let mut waiter = pair.park_here("b");
    let slot = slot_of(&mut pair.here, "k");
    pair.begin_move(slot);
    assert_eq!(pair.here.line("LOCK.RELEASE k a").int(), 1);
    let second = waiter.recv().int();
    assert!(second > token);
    pair.migrate_keys(slot);
    pair.end_move(slot);
    assert_eq!(pair.there.line("LOCK.ACQUIRE k b ONCE").int(), second);
    assert_eq!(pair.there.line("LOCK.RELEASE k b").int(), 1);
}

#[test]
fn no_horizon_is_written_into_a_migrating_slot() {
    let mut pair = Pair::start();
    let (slot, mut waiter) = pair.move_a_lock_of_redisson();
    for line in ["LOCK.ACQUIRE k uuid:1 ONCE", "LOCK.RENEW k uuid:1"] {
        let refusal = pair.here.line(line).error();
        assert!(refusal.starts_with("TRYAGAIN"), "{refusal}");
    }
    assert_eq!(keys_in(&mut pair.here, slot), ["k"]);
    assert_eq!(pair.here.line("HLEN k").int(), 1);

    // The freed lock can be granted only at the target.
    assert_eq!(pair.here.line("LOCK.RELEASE k uuid:1").int(), 1);
    pair.wait_for_the_timer_of_the_source();
    assert!(waiter.is_silent());
    assert!(keys_in(&mut pair.here, slot).is_empty());
    pair.end_move(slot);
    assert!(waiter.recv().error().starts_with("MOVED"));
    assert!(pair.there.line("LOCK.ACQUIRE k b").int() > 0);
    assert_eq!(horizons_beside(&mut pair.there, "k").len(), 1);
}

#[test]
fn a_new_lock_in_an_importing_slot_is_refused() {
    let mut pair = Pair::start();
    let slot = slot_of(&mut pair.here, "k");
    pair.begin_move(slot);
    let line = "LOCK.ACQUIRE k a PX 60000";
    assert!(pair.here.line(line).error().starts_with("ASK"));
    // The client sends ASKING, as redirected, but that permission does not cover the horizon.
    pair.there.line("ASKING");
    let refusal = pair.there.line(line).error();
    assert!(refusal.starts_with("TRYAGAIN"), "{refusal}");
    assert!(keys_in(&mut pair.there, slot).is_empty());
    pair.end_move(slot);
    assert!(pair.there.line(line).int() > 0);
    assert_eq!(horizons_beside(&mut pair.there, "k").len(), 1);
}

#[test]
fn a_cancelled_migration_leaves_the_lock_to_its_waiter() {
    let mut pair = Pair::start();
    let (slot, mut waiter) = pair.move_a_lock_of_redisson();
    assert_eq!(pair.here.line("LOCK.RELEASE k uuid:1").int(), 1);
    pair.wait_for_the_timer_of_the_source();
    assert!(waiter.is_silent());
    let stable = format!("CLUSTER SETSLOT {slot} STABLE");
    pair.here.line(&stable);
    pair.there.line(&stable);
    assert!(waiter.recv().int() > 0);
}

#[test]
fn a_waiter_is_answered_when_the_cluster_goes_down() {
    let node = one_node(&[]);
    let (mut holder, mut waiter) = (node.conn(), node.conn());
    holder.line("LOCK.ACQUIRE k alice");
    waiter.send_line("LOCK.ACQUIRE k bob BLOCK 0");
    node.wait_for_waiters(1);
    // By its configuration, a cluster that does not cover every slot serves none.
    holder.line("CONFIG SET cluster-require-full-coverage yes");
    let elsewhere = (slot_of(&mut holder, "k") + 1) % 16_384;
    holder.line(&format!("CLUSTER DELSLOTS {elsewhere}"));
    assert!(waiter.recv().error().starts_with("CLUSTERDOWN"));
    node.wait_for_waiters(0);
}

/// Locks whose slot has gone are ignored here: other locks are granted, and no timer stays armed.
#[test]
fn keys_of_a_slot_that_moved_away_do_not_block_other_keys() {
    let mut pair = Pair::start();
    let mut waiters = Vec::new();
    for i in 0..60 {
        let name = format!("{{t}}{i}");
        pair.here
            .run(["LOCK.ACQUIRE", &name, "alice", "PX", "60000"]);
        let mut waiter = pair.source.conn();
        waiter.send(["LOCK.ACQUIRE", &name, "bob", "BLOCK", "0"]);
        waiters.push(waiter);
    }
    pair.source.wait_for_waiters(60);
    let slot = slot_of(&mut pair.here, "{t}");
    pair.begin_move(slot);
    pair.migrate_keys(slot);
    pair.end_move(slot);
    for waiter in &mut waiters {
        assert!(waiter.recv().error().starts_with("MOVED"));
    }
    pair.wait_for_the_timer_of_the_source();
    // Places are kept for a second; afterwards nothing is pending.
    wait_until_at_rest(&mut pair.here);
}
