//! Three primaries and three replicas: keys and their nodes, slots that move under traffic, every kind of fail-over,
//! and a minority that is cut off.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::cluster::{
    begin_move, end_move, forget_late_claims, horizons_beside, keys_in, migrate_keys, move_slots,
    slot_of, Cluster,
};
use crate::common::{wait_for, Conn, TestServer};

/// A node that is silent for this long counts as dead.
const TIMEOUT_MS: u32 = 2_000;

/// A key on the node that serves it; alice holds it twice and bob waits for it.
struct Held {
    key: String,
    token: i64,
    deadline: i64,
    bob: Conn,
}

impl Held {
    fn on(node: &TestServer, key: &str) -> Held {
        let mut alice = node.conn();
        let acquire = ["LOCK.ACQUIRE", key, "alice", "PX", "120000"];
        let token = alice.run(acquire).int();
        assert_eq!(alice.run(acquire).int(), token, "re-entered");
        let deadline = alice.run(["PEXPIRETIME", key]).int();
        let bob = park(node, key, "bob");
        let whole = || alice.line("WAIT 1 1000").int() == 1;
        wait_for("the replica to know", whole);
        Held {
            key: key.to_string(),
            token,
            deadline,
            bob,
        }
    }

    /// Asserts that the hold is on this node as it was. It is handed off there to bob, who asks again. Returns bob's
    /// token.
    fn goes_on_at(&self, node: &TestServer) -> i64 {
        let (mut conn, key) = (node.conn(), self.key.as_str());
        let (fields, deadline) = conn.snapshot_of(key);
        let mut fields: Vec<_> = fields.iter().map(|field| field.text()).collect();
        fields.sort();
        let token = format!("t{}", self.token);
        assert_eq!(fields, ["#token", "2", "alice", token.as_str()]);
        assert_eq!(deadline, self.deadline);
        let mut bob = park(node, key, "bob");
        assert_eq!(conn.run(["LOCK.RELEASE", key, "alice"]).int(), 0);
        assert_eq!(conn.run(["LOCK.RELEASE", key, "alice"]).int(), 1);
        let next = bob.recv().int();
        assert!(next > self.token, "{next} is not above {}", self.token);
        assert_eq!(conn.run(["LOCK.RELEASE", key, "bob"]).int(), 1);
        next
    }
}

fn park(node: &TestServer, key: &str, owner: &str) -> Conn {
    let mut conn = node.conn();
    conn.run(["PING"]);
    conn.send(["LOCK.ACQUIRE", key, owner, "PX", "60000", "BLOCK", "0"]);
    wait_for("a parked request", || {
        let info = node.conn().run(["LOCK.INFO", key]);
        info.field("waiters")
            .is_some_and(|waiters| waiters.int() > 0)
    });
    conn
}

/// The reply to a waiter whose node no longer serves the key, or is no longer a primary.
fn assert_answered(mut waiter: Conn, expected: &[&str]) {
    let response = waiter.try_recv().map(|reply| reply.error());
    let response = response.unwrap_or_else(|| "closed".into());
    assert!(
        expected.iter().any(|code| response.starts_with(code)),
        "{response}, not one of {expected:?}"
    );
}

#[test]
fn every_key_has_one_node_and_waiters_move_with_its_slot_by_themselves() {
    let cluster = Cluster::with(TIMEOUT_MS, &[]);
    for (i, node) in cluster.nodes.iter().enumerate() {
        let mut conn = node.conn();
        for home in 0..3 {
            let key = cluster.key_of(home, "tag");
            let beside = format!("{key}beside");
            for key in [&key, &beside] {
                let slot = slot_of(&mut conn, key);
                let reply = conn.run(["LOCK.ACQUIRE", key, &format!("owner{i}")]);
                if i == home {
                    assert!(reply.int() > 0);
                } else {
                    let port = cluster.nodes[home].port;
                    let expected = format!("MOVED {slot} 127.0.0.1:{port}");
                    assert_eq!(reply.error(), expected, "{key} at node {i}");
                }
            }
        }
    }

    // Subscribers at the slot's owner receive the release message, before and after the move.
    let (source, target) = (&cluster.nodes[0], &cluster.nodes[1]);
    let key = cluster.key_of(0, "moved");
    let channel = format!("redisson_lock__channel:{key}");
    let slot = slot_of(&mut source.conn(), &key);
    let mut before = subscribe(source, &channel);
    acquire_and_release(source, &key);
    assert_eq!(received(&mut before), ["smessage", &channel, "0"]);

    let held = Held::on(source, &key);
    begin_move(source, target, slot);
    migrate_keys(source, target, slot);
    end_move(source, target, slot);
    let moved = Instant::now();
    // No other event follows: the server itself finds the parked client in its regular checks.
    let Held { bob, .. } = held;
    assert_answered(bob, &["MOVED"]);
    println!("redirected after {:?}", moved.elapsed());
    assert_eq!(received(&mut before), ["sunsubscribe", &channel, ""]);

    let mut after = subscribe(target, &channel);
    let mut conn = target.conn();
    assert_eq!(conn.run(["LOCK.RELEASE", &key, "alice", "ALL"]).int(), 1);
    assert_eq!(received(&mut after), ["smessage", &channel, "0"]);
    assert_eq!(horizons_beside(&mut conn, &key).len(), 1);
}

fn acquire_and_release(node: &TestServer, key: &str) {
    let mut conn = node.conn();
    assert!(conn.run(["LOCK.ACQUIRE", key, "zoe"]).int() > 0);
    assert_eq!(conn.run(["LOCK.RELEASE", key, "zoe"]).int(), 1);
}

fn subscribe(node: &TestServer, channel: &str) -> Conn {
    let mut conn = node.conn();
    let answer = conn.run(["SSUBSCRIBE", channel]);
    assert_eq!(answer.list()[0].text(), "ssubscribe");
    conn
}

fn received(subscriber: &mut Conn) -> [String; 3] {
    let message = subscriber.recv().list();
    let text = |i: usize| match message[i].maybe_int() {
        Some(_) => String::new(),
        None => message[i].text(),
    };
    [text(0), text(1), text(2)]
}

/// Six clients take, wait for and release locks of eight slots, while the slots move from node 0 to node 1 and back,
/// key by key.
#[test]
fn slots_move_under_traffic_and_nothing_is_granted_twice() {
    let cluster = Cluster::with(TIMEOUT_MS, &[]);
    let mut conn = cluster.nodes[0].conn();
    let locks: Vec<Lock> = (0..8)
        .map(|i| Lock::new(cluster.key_of(0, &format!("traffic{i}-"))))
        .collect();
    let slots: Vec<i64> = locks
        .iter()
        .map(|lock| slot_of(&mut conn, &lock.key))
        .collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (cluster, locks, done) = (&cluster, &locks, &done);
        let clients: Vec<_> = (0..6)
            .map(|i| scope.spawn(move || Client::new(cluster, i).work(locks, done)))
            .collect();
        for round in 0..4 {
            let [source, target] = [round % 2, (round + 1) % 2].map(|i| &cluster.nodes[i]);
            if round > 0 {
                // Slots that stay.
                let of_source = [0, 10_000][round % 2];
                forget_late_claims(target, source, &cluster.nodes[2], of_source);
            }
            let grants = || locks.iter().map(Lock::grants).sum::<i64>();
            move_slots(source, target, &slots, |slot| {
                // No key of the slot was written after its last key had moved.
                assert_eq!(keys_in(&mut source.conn(), slot), [""; 0]);
                let so_far = grants();
                wait_for("traffic", || grants() > so_far + 5);
            });
        }
        done.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().expect("a client");
        }
    });
    let grants: i64 = locks.iter().map(Lock::grants).sum();
    println!("{grants} grants while {} slots moved", 4 * slots.len());
    for lock in &locks {
        assert!(lock.grants() > 0, "{}", lock.key);
        assert_eq!(horizons_beside(&mut conn, &lock.key).len(), 1);
    }
}

/// A lock and the resource that it protects.
struct Lock {
    key: String,
    inside: AtomicUsize,
    newest: AtomicI64,
    grants: AtomicI64,
}

impl Lock {
    fn new(key: String) -> Lock {
        let (inside, newest, grants) = Default::default();
        Lock {
            key,
            inside,
            newest,
            grants,
        }
    }

    fn grants(&self) -> i64 {
        self.grants.load(Ordering::SeqCst)
    }

    /// The work of a holder: no other client is inside, and its token is the highest so far.
    fn enter(&self, token: i64) {
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
        let before = self.newest.swap(token, Ordering::SeqCst);
        assert!(before < token, "{token} after {before}");
        self.grants.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
        assert_eq!(self.inside.fetch_sub(1, Ordering::SeqCst), 1, "two holders");
    }
}

/// A client that follows its locks from node to node.
struct Client<'a> {
    owner: String,
    conns: Vec<(&'a TestServer, Conn)>,
    at: usize,
}

impl Client<'_> {
    fn new(cluster: &Cluster, number: usize) -> Client<'_> {
        Client {
            owner: format!("client{number}"),
            conns: cluster.nodes[..3]
                .iter()
                .map(|node| (node, node.conn()))
                .collect(),
            at: 0,
        }
    }

    fn work(&mut self, locks: &[Lock], done: &AtomicBool) {
        let owner = self.owner.clone();
        for lock in locks.iter().cycle() {
            if done.load(Ordering::SeqCst) {
                return;
            }
            let key = lock.key.as_str();
            let acquire = [
                "LOCK.ACQUIRE",
                key,
                &owner,
                "PX",
                "60000",
                "BLOCK",
                "2000",
                "ONCE",
            ];
            // Nil after two seconds: the client tries the next lock; the holder of this one waits for its slot.
            if let Some(token) = self.ask(&acquire) {
                lock.enter(token);
                let released = self.ask(&["LOCK.RELEASE", key, &owner, "ALL"]);
                assert_eq!(released, Some(1), "{key}");
            }
        }
    }

    /// The reply of the node that has the key, `None` for nil.
    fn ask(&mut self, words: &[&str]) -> Option<i64> {
        let start = Instant::now();
        let mut last = Vec::new();
        loop {
            let is_late = start.elapsed() >= Duration::from_secs(20);
            assert!(!is_late, "{words:?}: {last:?}");
            let reply = self.conns[self.at].1.run(words);
            if !reply.is_error() {
                return reply.maybe_int();
            }
            let error = reply.error();
            last.push((self.at, error.clone()));
            last.drain(..last.len().saturating_sub(4));
            let mut words_of = error.split(' ');
            match words_of.next() {
                Some("MOVED") => self.follow(words_of.nth(1)),
                Some("ASK") => {
                    let home = self.at;
                    self.follow(words_of.nth(1));
                    self.conns[self.at].1.line("ASKING");
                    let reply = self.conns[self.at].1.run(words);
                    if !reply.is_error() {
                        return reply.maybe_int();
                    }
                    // The slot has not arrived yet. A request for a new lock goes to another slot; otherwise all
                    // clients could wait for the moving one.
                    self.at = home;
                    if words[0] == "LOCK.ACQUIRE" {
                        return None;
                    }
                }
                Some("TRYAGAIN") => {}
                _ => panic!("{words:?}: {error}"),
            }
        }
    }

    fn follow(&mut self, address: Option<&str>) {
        let port = address.and_then(|address| address.rsplit(':').next());
        let port: u16 = port.and_then(|port| port.parse().ok()).expect("a port");
        let at = self.conns.iter().position(|(node, _)| node.port == port);
        self.at = at.expect("a primary");
    }
}

/// Each kind at another primary, and back: Redis 7.0 lets a replica that was just elected count its old votes again.
#[test]
fn locks_survive_every_kind_of_planned_fail_over() {
    let cluster = Cluster::with(TIMEOUT_MS, &[]);
    for (home, how) in ["", "FORCE", "TAKEOVER"].into_iter().enumerate() {
        let key = cluster.key_of(home, "planned");
        let mut last = 0;
        for (old, new) in [(home, home + 3), (home + 3, home)] {
            let held = Held::on(&cluster.nodes[old], &key);
            assert!(held.token > last, "{} is not above {last}", held.token);
            let line = format!("CLUSTER FAILOVER {how}");
            let started = cluster.nodes[new].conn().line(line.trim());
            assert_eq!(started.text(), "OK", "{line} at {new}");
            cluster.wait_for_primary(new);
            cluster.wait_until_whole();
            last = held.goes_on_at(&cluster.nodes[new]);
            assert_answered(held.bob, &["UNBLOCKED", "MOVED", "closed"]);
            cluster.nodes[old].wait_for_waiters(0);
        }
    }
}

#[test]
fn locks_survive_a_primary_that_dies() {
    let mut cluster = Cluster::with(TIMEOUT_MS, &[]);
    let key = cluster.key_of(0, "dying");
    let held = Held::on(&cluster.nodes[0], &key);
    cluster.nodes[0].crash();
    cluster.wait_for_primary(3);
    assert!(std::ptr::eq(cluster.owner_of(&key), &cluster.nodes[3]));
    let last = held.goes_on_at(&cluster.nodes[3]);
    assert_answered(held.bob, &["closed"]);

    // It returns as a replica, and redirects all clients to the new primary.
    cluster.nodes[0].start_again();
    cluster.wait_until_whole();
    let moved = cluster.nodes[0].conn().run(["LOCK.ACQUIRE", &key, "carol"]);
    let port = cluster.nodes[3].port.to_string();
    assert!(moved.error().ends_with(&port));
    let mut conn = cluster.nodes[3].conn();
    assert!(conn.run(["LOCK.ACQUIRE", &key, "carol"]).int() > last);
}

#[test]
fn waiters_of_a_minority_are_answered_and_its_locks_are_kept() {
    let cluster = Cluster::with(TIMEOUT_MS, &[]);
    let key = cluster.key_of(2, "cut");
    let mut held = Held::on(&cluster.nodes[2], &key);
    // Without a majority of primaries no new one is elected.
    for node in &cluster.nodes[..2] {
        node.signal(libc::SIGSTOP);
    }
    let response = held.bob.recv().error();
    assert!(response.starts_with("CLUSTERDOWN"), "{response}");
    cluster.nodes[2].wait_for_waiters(0);
    let mut conn = cluster.nodes[2].conn();
    let refused = conn.run(["LOCK.ACQUIRE", &key, "carol"]).error();
    assert!(refused.starts_with("CLUSTERDOWN"), "{refused}");
    for node in &cluster.nodes[..2] {
        node.signal(libc::SIGCONT);
    }
    cluster.wait_until_whole();
    held.goes_on_at(&cluster.nodes[2]);
}
