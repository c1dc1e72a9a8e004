//! Atomic slot migration (Redis 8.4, Valkey 9) with locks that are held, waited for and changed during the move: a
//! child of the source writes a snapshot of the slot, later changes follow it, and then the slot passes to the target
//! at once.

use std::sync::OnceLock;

use crate::common::cluster::{
    horizons_beside, keys_in, moves_atomically, slot_of, two_nodes, AtomicMove,
};
use crate::common::{wait_for, Conn, Reply, TestServer};

/// Two nodes; the slot of `k` moves between them, that of `other` stays.
struct Pair {
    source: TestServer,
    target: TestServer,
    here: Conn,
    there: Conn,
    slot: i64,
}

impl Pair {
    /// `None` if the server cannot move slots atomically.
    fn start() -> Option<Pair> {
        can_move().then(|| Pair::with(&[]))
    }

    fn with(options: &[&str]) -> Pair {
        let (source, target) = two_nodes(options);
        let (mut here, there) = (source.conn(), target.conn());
        let slot = slot_of(&mut here, "k");
        Pair {
            source,
            target,
            here,
            there,
            slot,
        }
    }

    fn begin(&self) -> AtomicMove {
        AtomicMove::begin(&self.source, &self.target, self.slot)
    }

    /// The snapshot takes this long for each key, so that a test acts while it is written.
    fn slow_down(&mut self, ms_per_key: u32) {
        let line = format!("CONFIG SET rdb-key-save-delay {}", ms_per_key * 1_000);
        assert_eq!(self.here.line(&line).text(), "OK");
    }

    /// Starts the move, and waits until the child runs.
    fn begin_slowly(&self) -> AtomicMove {
        let mut moving = self.begin();
        wait_for("the snapshot", || moving.is_snapshotting());
        moving
    }

    fn swap(&mut self) {
        std::mem::swap(&mut self.here, &mut self.there);
        std::mem::swap(&mut self.source, &mut self.target);
    }

    fn park_here(&self, key: &str, owner: &str) -> Conn {
        let waiters = self.source.stat("waiters");
        let mut waiter = self.source.conn();
        waiter.send_line(&format!("LOCK.ACQUIRE {key} {owner} PX 60000 BLOCK 0"));
        self.source.wait_for_waiters(waiters + 1);
        waiter
    }

    /// Many connections: with them the server needs a second to go through all and redirect the parked ones.
    fn crowd(&self) -> Vec<Conn> {
        (0..400).map(|_| self.source.conn()).collect()
    }

    /// Asserts that the slot has the same content at the target as it had at the source.
    fn assert_arrived(&mut self, keys: &[&str], before: &[(Vec<Reply>, i64)]) {
        for (key, before) in keys.iter().zip(before) {
            assert_eq!(self.there.snapshot_of(key), *before, "{key}");
        }
    }

    fn assert_moved(&self, waiter: &mut Conn) {
        let expected = format!("MOVED {} 127.0.0.1:{}", self.slot, self.target.port);
        assert_eq!(waiter.recv().error(), expected);
    }
}

/// The result for all tests; determined once.
fn can_move() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| moves_atomically(&TestServer::start()))
}

/// The horizon of the slot.
fn stored(conn: &mut Conn) -> i64 {
    let horizons = horizons_beside(conn, "k");
    assert_eq!(horizons.len(), 1);
    conn.run(["GET", &horizons[0]]).text().parse().unwrap()
}

#[test]
fn held_locks_move_there_and_back_and_their_waiters_are_redirected() {
    let Some(mut pair) = Pair::start() else {
        return;
    };
    for _ in 0..3 {
        let token = pair.here.line("LOCK.ACQUIRE k alice PX 60000").int();
        pair.here.line("LOCK.ACQUIRE k alice PX 60000");
        let before = pair.here.snapshot_of("k");
        let reserved = stored(&mut pair.here);
        let mut bob = pair.park_here("k", "bob");

        pair.begin().wait_until_done();
        pair.assert_moved(&mut bob);
        pair.source.wait_for_waiters(0);
        pair.assert_arrived(&["k"], &[before]);
        assert_eq!(stored(&mut pair.there), reserved);
        wait_for("an empty slot at the source", || {
            keys_in(&mut pair.here, pair.slot).is_empty()
        });
        wait_for("no tracked grant of it at the source", || {
            pair.source.stat("grants_tracked") == 0
        });
        let there = &mut pair.there;
        assert_eq!(there.line("LOCK.ACQUIRE k alice PX 1 ONCE").int(), token);
        assert!(there.line("LOCK.ACQUIRE k bob").is_nil());
        assert_eq!(there.line("LOCK.RELEASE k alice ALL").int(), 1);
        let next = there.line("LOCK.ACQUIRE k bob PX 60000").int();
        assert!(next > reserved, "{next} is not above {reserved}");
        assert_eq!(there.line("LOCK.RELEASE k bob").int(), 1);
        pair.swap();
    }
}

#[test]
fn changes_during_the_move_of_a_slot_arrive() {
    let Some(mut pair) = Pair::start() else {
        return;
    };
    for line in [
        "LOCK.ACQUIRE {k}handed alice PX 60000",
        "LOCK.ACQUIRE {k}freed alice PX 60000",
        "LOCK.ACQUIRE {k}entered alice PX 60000",
        "LOCK.ACQUIRE {k}deleted alice PX 60000",
        // These leases end while the snapshot is written; keys of the other slot come first or last.
        "LOCK.ACQUIRE {other}a alice PX 700",
        "LOCK.ACQUIRE {k}ended alice PX 700",
        "LOCK.ACQUIRE {other}b alice PX 700",
    ] {
        assert!(pair.here.line(line).int() > 0, "{line}");
    }
    let parked = [
        "{other}a",
        "{k}ended",
        "{other}b",
        "{k}handed",
        "{k}deleted",
    ];
    let mut waiters = parked.map(|key| pair.park_here(key, "bob"));
    pair.slow_down(400);
    let mut moving = pair.begin_slowly();
    for line in [
        "LOCK.RELEASE {k}handed alice",
        "LOCK.RELEASE {k}freed alice",
        "LOCK.ACQUIRE {k}entered alice PX 90000",
        "DEL {k}deleted",
        "LOCK.ACQUIRE {k}new carol PX 60000",
        "EVAL return(redis.call('LOCK.ACQUIRE',KEYS[1],'carol','PX','60000')) 1 {k}script",
    ] {
        assert!(pair.here.line(line).int() > 0, "{line}");
    }
    pair.here.line("MULTI");
    pair.here.line("LOCK.ACQUIRE {k}multi carol PX 60000");
    pair.here.line("LOCK.ACQUIRE {k}multi carol PX 60000");
    assert!(pair.here.line("EXEC").list()[1].int() > 0);
    for (waiter, key) in waiters.iter_mut().zip(parked) {
        assert!(waiter.recv().int() > 0, "{key}");
    }
    // The target grants no request yet, not even one with ASKING.
    pair.there.line("ASKING");
    let moved = pair.there.line("LOCK.ACQUIRE {k}freed dave").error();
    assert!(moved.starts_with("MOVED"), "{moved}");
    assert!(
        moving.is_snapshotting(),
        "the snapshot was already complete"
    );

    let keys = [
        "{k}handed",
        "{k}freed",
        "{k}entered",
        "{k}deleted",
        "{k}ended",
        "{k}new",
    ];
    let keys = [&keys[..], &["{k}script", "{k}multi"]].concat();
    let before: Vec<_> = keys.iter().map(|key| pair.here.snapshot_of(key)).collect();
    let reserved = stored(&mut pair.here);
    moving.wait_until_done();
    pair.assert_arrived(&keys, &before);
    assert_eq!(stored(&mut pair.there), reserved);
    let holders = ["bob", "", "alice", "bob", "bob", "carol", "carol", "carol"];
    for (key, holder) in keys.iter().zip(holders) {
        let held = pair.there.run(["HEXISTS", key, holder]).int();
        assert_eq!(held, i64::from(!holder.is_empty()), "{key}");
    }
}

/// The first token of a slot is granted, with its horizon, while the snapshot is written.
#[test]
fn a_horizon_written_during_a_slot_move_is_moved() {
    let Some(mut pair) = Pair::start() else {
        return;
    };
    for i in 0..4 {
        pair.here.line(&format!("SET {{k}}{i} x"));
    }
    // Redisson holds it.
    pair.here.line("HSET k uuid:1 1");
    pair.here.line("PEXPIRE k 60000");
    let mut bob = pair.park_here("k", "bob");
    assert_eq!(horizons_beside(&mut pair.here, "k"), [""; 0]);
    pair.slow_down(400);
    let mut moving = pair.begin_slowly();
    // Without a command of the module: the timer grants it.
    pair.here.line("DEL k");
    let token = bob.recv().int();
    let reserved = stored(&mut pair.here);
    assert!(
        moving.is_snapshotting(),
        "the snapshot was already complete"
    );
    moving.wait_until_done();
    assert_eq!(stored(&mut pair.there), reserved);
    let there = &mut pair.there;
    assert_eq!(there.line("LOCK.ACQUIRE k bob ONCE").int(), token);
    assert_eq!(there.line("LOCK.RELEASE k bob").int(), 1);
    assert!(there.line("LOCK.ACQUIRE k carol").int() > reserved);
}

/// Leases end before, during and after the slot's move: an owner granted by the source holds the lock at the target,
/// all others are redirected.
#[test]
fn leases_that_end_around_the_move_are_granted_at_one_node() {
    let Some(mut pair) = Pair::start() else {
        return;
    };
    let _crowd = pair.crowd();
    let keys: Vec<String> = (0..40).map(|i| format!("{{k}}{i}")).collect();
    let mut waiters = Vec::new();
    for key in &keys {
        pair.here.run(["LOCK.ACQUIRE", key, "alice", "PX", "60000"]);
        waiters.push(pair.park_here(key, "bob"));
    }
    pair.slow_down(5);
    // The last owners' leases are still running.
    for (i, key) in keys[..35].iter().enumerate() {
        let lease = (30 * i + 1).to_string();
        pair.here.run(["LOCK.RENEW", key, "alice", "PX", &lease]);
    }
    pair.begin().wait_until_done();
    let (mut granted, mut moved) = (0, 0);
    for (waiter, key) in waiters.iter_mut().zip(&keys) {
        let reply = waiter.recv();
        let there = &mut pair.there;
        if reply.is_error() {
            assert!(reply.error().starts_with("MOVED"), "{reply:?}");
            there.run(["LOCK.RELEASE", key, "alice"]);
            assert!(there.run(["LOCK.ACQUIRE", key, "bob"]).int() > 0);
            moved += 1;
        } else {
            let held = there.run(["LOCK.ACQUIRE", key, "bob", "PX", "60000", "ONCE"]);
            assert_eq!(held.int(), reply.int(), "{key}");
            granted += 1;
        }
    }
    println!("{granted} granted by the source, {moved} redirected");
    assert!(granted > 0 && moved > 0, "both must occur");
}

#[test]
fn a_cancelled_move_leaves_everything_at_the_source() {
    let Some(mut pair) = Pair::start() else {
        return;
    };
    let first = pair.here.line("LOCK.ACQUIRE k alice PX 60000").int();
    pair.here.line("LOCK.ACQUIRE {k}2 alice PX 60000");
    let mut bob = pair.park_here("k", "bob");
    pair.slow_down(700);
    let mut moving = pair.begin_slowly();
    assert_eq!(pair.here.line("LOCK.RELEASE k alice").int(), 1);
    let second = bob.recv().int();
    let mut carol = pair.park_here("k", "carol");
    moving.cancel();
    wait_for("the end of the move", || moving.is_over());
    assert_eq!(pair.here.line("LOCK.RELEASE k bob").int(), 1);
    let third = carol.recv().int();
    assert!(first < second && second < third);
    wait_for("nothing of it at the target", || {
        keys_in(&mut pair.there, pair.slot).is_empty()
    });
    let moved = pair.there.line("LOCK.ACQUIRE k dave").error();
    assert!(moved.starts_with("MOVED"), "{moved}");

    // The next attempt moves everything.
    pair.slow_down(0);
    let reserved = stored(&mut pair.here);
    pair.begin().wait_until_done();
    assert_eq!(stored(&mut pair.there), reserved);
    let there = &mut pair.there;
    assert_eq!(there.line("LOCK.ACQUIRE k carol ONCE").int(), third);
    assert_eq!(there.line("LOCK.RELEASE k carol").int(), 1);
    assert!(there.line("LOCK.ACQUIRE k dave").int() > reserved);
}

/// The slot returns, without the lock, before the source has gone through its parked clients: the waiter is answered
/// with a grant or a redirection, long before the end of the lease that it saw.
#[test]
fn a_waiter_whose_slot_returns_soon_is_answered() {
    let Some(mut pair) = Pair::start() else {
        return;
    };
    let _crowd = pair.crowd();
    let token = pair.here.line("LOCK.ACQUIRE k alice PX 600000").int();
    let mut bob = pair.park_here("k", "bob");
    pair.begin().wait_until_done();
    assert_eq!(pair.there.line("LOCK.RELEASE k alice").int(), 1);
    pair.swap();
    pair.begin().wait_until_done();
    let response = bob.recv();
    match response.maybe_int() {
        Some(next) => assert!(next > token),
        None => assert!(response.error().starts_with("MOVED")),
    }
}

/// Valkey 9 has databases in a cluster: the lock and the horizon of its slot are in different ones.
#[test]
fn a_lock_of_another_database_moves_with_its_horizon() {
    if !can_move() || !TestServer::start().is_valkey() {
        return;
    }
    let mut pair = Pair::with(&["--cluster-databases", "4"]);
    let select =
        |conn: &mut Conn, db: u32| assert_eq!(conn.line(&format!("SELECT {db}")).text(), "OK");
    for conn in [&mut pair.here, &mut pair.there] {
        select(conn, 2);
    }
    assert!(pair.here.line("LOCK.ACQUIRE k alice PX 60000").int() > 0);
    let mut bob = pair.source.conn();
    select(&mut bob, 2);
    bob.send_line("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
    pair.source.wait_for_waiters(1);
    pair.slow_down(800);
    let mut moving = pair.begin_slowly();
    pair.here.line("DEL k");
    let token = bob.recv().int();
    assert!(
        moving.is_snapshotting(),
        "the snapshot was already complete"
    );
    let reserved = stored(&mut pair.source.conn());
    let before = pair.here.snapshot_of("k");
    moving.wait_until_done();
    pair.assert_arrived(&["k"], &[before]);
    assert_eq!(stored(&mut pair.target.conn()), reserved);
    assert_eq!(pair.there.line("LOCK.ACQUIRE k bob ONCE").int(), token);
    assert_eq!(pair.there.line("LOCK.RELEASE k bob").int(), 1);
    assert!(pair.there.line("LOCK.ACQUIRE k carol").int() > reserved);
}
