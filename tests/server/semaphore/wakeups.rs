//! Every event that frees a permit, or makes the key no semaphore, while a request is parked; and the waiters' fate
//! while the server cannot grant.

use crate::common::barrier::{assert_stays_silent, Barrier};
use crate::common::scene::only_reply;
use crate::common::{wait_for, Conn, TestServer};

/// Alice has the only permit of `k`, bob waits.
struct Scene {
    alice: Conn,
    bob: Conn,
    server: TestServer,
}

impl Scene {
    fn new() -> Scene {
        Scene::on(TestServer::start())
    }

    fn on(server: TestServer) -> Scene {
        let mut alice = server.conn();
        assert_eq!(alice.line("SEM.SET k 1").int(), 1);
        alice.line("SEM.ACQUIRE k alice PX 60000").int();
        let bob = server.conn();
        let mut scene = Scene { alice, bob, server };
        scene.park("SEM.ACQUIRE k bob PX 60000 BLOCK 0");
        scene
    }

    fn park(&mut self, line: &str) {
        self.bob.send_line(line);
        self.wait_for_waiters(1);
    }

    fn wait_for_waiters(&self, count: u64) {
        wait_for("waiters", || self.server.stat("sem_waiters") == count);
    }

    fn run(&mut self, lines: &[&str]) {
        for line in lines {
            let reply = self.alice.line(line);
            assert!(!reply.is_error(), "{line}: {reply:?}");
        }
    }

    /// Asserts bob's only reply: a token, and the set has his permit.
    fn assert_bob_is_granted(&mut self) {
        assert!(only_reply(&mut self.bob).int() > 0);
        assert!(!self.alice.line("ZSCORE {k}:timeout bob").is_nil());
        assert_eq!(self.server.stat("sem_waits_granted"), 1);
        assert_eq!(self.server.stat("panics"), 0);
    }
}

fn hands_off(lines: &[&str]) -> Scene {
    let mut scene = Scene::new();
    scene.run(lines);
    scene.assert_bob_is_granted();
    scene
}

// Events that free a permit.

#[test]
fn release() {
    let mut scene = hands_off(&["SEM.RELEASE k alice"]);
    assert_eq!(scene.alice.line("GET k").text(), "0");
}

#[test]
fn more_permits() {
    hands_off(&["SEM.SET k 2"]);
}

#[test]
fn the_end_of_the_lease() {
    let scene = hands_off(&["SEM.RENEW k alice PX 50"]);
    assert_eq!(scene.server.stat("sem_grants_expired"), 1);
}

/// The timer is armed for one permit; another one expires sooner.
#[test]
fn the_first_end_of_many() {
    let mut scene = Scene::new();
    scene.run(&["SEM.SET k 0", "SEM.SET k 1"]);
    scene.run(&["ZADD {k}:timeout 922337203685477 other"]);
    scene.run(&["SEM.RENEW k alice PX 100"]);
    scene.assert_bob_is_granted();
}

#[test]
fn a_later_deadline() {
    let mut scene = Scene::new();
    scene.run(&[
        "SEM.RENEW k alice PX 2000",
        "SET later 1 PX 2100",
        "SEM.RENEW k alice PX 60000",
    ]);
    wait_for("the end of the first lease", || {
        scene.alice.line("EXISTS later").int() == 0
    });
    assert_stays_silent(&scene.server, &mut scene.bob);
    scene.run(&["SEM.RELEASE k alice"]);
    scene.assert_bob_is_granted();
}

/// Like Redisson's updateLeaseTime: only the set is changed.
#[test]
fn a_lease_shortened_by_another_client() {
    let mut scene = Scene::new();
    let now = scene.alice.line("TIME").list();
    let now_s: i64 = now[0].text().parse().expect("seconds");
    let soon_ms = (now_s + 1) * 1_000;
    scene.run(&[&format!("ZADD {{k}}:timeout XX {soon_ms} alice")]);
    scene.assert_bob_is_granted();
}

#[test]
fn ends_in_the_order_of_time() {
    let mut scene = Scene::new();
    scene.run(&["SEM.RELEASE k alice"]);
    scene.assert_bob_is_granted();
    scene.run(&["SEM.RELEASE k bob", "SEM.SET k 20"]);
    for i in 0..20 {
        scene.run(&[&format!("SEM.ACQUIRE k h{i} PX {}", 400 - i * 10)]);
    }
    let mut waiters: Vec<Conn> = (0..20).map(|_| scene.server.conn()).collect();
    for (i, conn) in waiters.iter_mut().enumerate() {
        conn.send_line(&format!("SEM.ACQUIRE k w{i} PX 60000 BLOCK 0"));
        wait_for("a waiter", || {
            let s = |name: &str| scene.server.stat(name);
            s("sem_waits_parked") + s("sem_grants") >= 22 + i as u64
        });
    }
    for conn in &mut waiters {
        assert!(conn.recv().int() > 0);
    }
    assert_eq!(scene.alice.line("ZCARD {k}:timeout").int(), 20);
}

#[test]
fn a_number_written_by_another_client() {
    hands_off(&["INCRBY k 1"]);
    hands_off(&["SET k 5"]);
    hands_off(&["MULTI", "INCR k", "EXEC"]);
}

// The semaphore is deleted: a request with a LIMIT creates it again.

#[test]
fn the_key_is_deleted() {
    for lines in [
        &["DEL k"][..],
        &["DEL k {k}:timeout"],
        &["FLUSHALL"],
        &["FLUSHDB"],
        &["SWAPDB 0 1"],
        &["RENAME k elsewhere"],
        &["PEXPIRE k 20"],
    ] {
        let mut scene = Scene::new();
        let id = scene.bob.id_while_parked(&scene.server);
        scene.run(&[&format!("CLIENT UNBLOCK {id}")]);
        assert!(only_reply(&mut scene.bob).is_nil());
        scene.park("SEM.ACQUIRE k bob LIMIT 3 PX 60000 BLOCK 0");
        scene.run(lines);
        scene.assert_bob_is_granted();
        assert_eq!(scene.alice.line("GET k").text(), "2", "{lines:?}");
        assert_eq!(scene.alice.line("ZCARD {k}:timeout").int(), 1, "{lines:?}");
    }
}

#[test]
fn a_request_without_limit_waits_for_the_next_semaphore() {
    let mut scene = Scene::new();
    scene.run(&["DEL k"]);
    assert_stays_silent(&scene.server, &mut scene.bob);
    scene.run(&["SEM.SET k 1"]);
    scene.assert_bob_is_granted();
    let mut scene = Scene::new();
    scene.run(&["DEL k"]);
    assert!(scene.alice.line("SEM.ACQUIRE k zoe LIMIT 1").is_nil());
    scene.assert_bob_is_granted();
}

#[test]
fn another_value_at_the_key() {
    for (lines, code) in [
        (&["SET k hello"][..], "LOCKTYPE"),
        (&["MULTI", "DEL k", "HSET k f v", "EXEC"], "WRONGTYPE"),
        (&["LPUSH l x", "RENAME l k"], "WRONGTYPE"),
        (
            &["MULTI", "DEL {k}:timeout", "SADD {k}:timeout x", "EXEC"],
            "WRONGTYPE",
        ),
    ] {
        let mut scene = Scene::new();
        scene.run(lines);
        let error = only_reply(&mut scene.bob).error();
        assert!(error.starts_with(code), "{error} after {lines:?}");
        assert_eq!(scene.server.stat("sem_waits_failed"), 1);
    }
}

// Other ends of a wait.

#[test]
fn a_bounded_wait() {
    let mut scene = Scene::new();
    let mut carol = scene.server.conn();
    assert!(carol.line("SEM.ACQUIRE k carol BLOCK 30").is_nil());
    scene.server.wait_for_stat("sem_waits_timed_out", 1);
    scene.run(&["SEM.RELEASE k alice"]);
    scene.assert_bob_is_granted();
}

#[test]
fn client_unblock() {
    let mut scene = Scene::new();
    let id = scene.bob.id_while_parked(&scene.server);
    scene.run(&[&format!("CLIENT UNBLOCK {id} ERROR")]);
    assert!(only_reply(&mut scene.bob).error().starts_with("UNBLOCKED"));
    assert_eq!(scene.server.stat("sem_waits_disconnected"), 1);
    scene.run(&["SEM.RELEASE k alice"]);
    assert_eq!(scene.alice.line("GET k").text(), "1");
}

#[test]
fn a_grant_that_cannot_be_delivered_goes_to_the_next() {
    for kill in ["CLIENT KILL ID $BOB", "CLIENT UNBLOCK $BOB ERROR"] {
        let mut scene = Scene::new();
        let mut carol = scene.server.conn();
        carol.send_line("SEM.ACQUIRE k carol PX 60000 BLOCK 0");
        scene.wait_for_waiters(2);
        let id = scene.bob.id_while_parked(&scene.server);
        let kill = kill.replace("$BOB", &id.to_string());
        scene
            .alice
            .send_lines(&["MULTI", "SEM.RELEASE k alice", &kill, "EXEC"]);
        for _ in 0..4 {
            scene.alice.recv();
        }
        assert!(only_reply(&mut carol).int() > 0);
        assert!(scene.alice.line("ZSCORE {k}:timeout bob").is_nil());
        assert_eq!(scene.alice.line("GET k").text(), "0");
        assert_eq!(scene.server.stat("sem_grants_undone"), 1);
    }
}

/// Without another waiter behind the closed connection the permit is free again.
#[test]
fn a_permit_that_no_waiter_can_receive_is_returned() {
    let mut scene = Scene::new();
    let id = scene.bob.id_while_parked(&scene.server);
    let kill = format!("CLIENT KILL ID {id}");
    scene
        .alice
        .send_lines(&["MULTI", "SEM.RELEASE k alice", &kill, "EXEC"]);
    for _ in 0..4 {
        scene.alice.recv();
    }
    let alice = &mut scene.alice;
    wait_for("a free permit", || alice.line("GET k").text() == "1");
    assert_eq!(scene.alice.line("EXISTS {k}:timeout").int(), 0);
}

#[test]
fn an_owner_that_asks_again_keeps_its_grant_in_flight() {
    let mut scene = Scene::new();
    let id = scene.bob.id_while_parked(&scene.server);
    let kill = format!("CLIENT KILL ID {id}");
    scene.alice.send_lines(&[
        "MULTI",
        "SEM.RELEASE k alice",
        &kill,
        "SEM.ACQUIRE k bob",
        "EXEC",
    ]);
    for _ in 0..4 {
        scene.alice.recv();
    }
    let replies = scene.alice.recv().list();
    assert!(replies[2].int() > 0);
    assert!(scene.alice.line("SEM.ACQUIRE k zoe").is_nil());
    assert_eq!(scene.server.stat("sem_grants_undone"), 0);
}

// Grants while writes are refused.

#[test]
fn paused_writes() {
    let mut scene = Scene::new();
    let mut barrier = Barrier::on(&scene.server);
    scene.run(&["SEM.RENEW k alice PX 5000", "CLIENT PAUSE 60000 WRITE"]);
    wait_for("the end of the lease", || {
        let info = scene.alice.line("SEM.INFO k");
        info.field("free").is_some_and(|free| free.int() == 1)
    });
    barrier.assert_silent(&mut scene.bob);
    scene.run(&["CLIENT UNPAUSE"]);
    scene.assert_bob_is_granted();
}

#[test]
fn too_few_replicas() {
    let mut scene = Scene::new();
    let mut barrier = Barrier::on(&scene.server);
    scene.run(&[
        "SEM.RENEW k alice PX 5000",
        "CONFIG SET min-replicas-to-write 1",
    ]);
    wait_for("the end of the lease", || {
        let info = scene.alice.line("SEM.INFO k");
        info.field("free").is_some_and(|free| free.int() == 1)
    });
    barrier.assert_silent(&mut scene.bob);
    scene.run(&["CONFIG SET min-replicas-to-write 0"]);
    scene.assert_bob_is_granted();
}

#[test]
fn out_of_memory_refuses_callers_and_still_grants_to_waiters() {
    let mut scene = Scene::new();
    scene.run(&["CONFIG SET maxmemory 1"]);
    assert!(scene
        .alice
        .line("SEM.ACQUIRE k zoe")
        .error()
        .starts_with("OOM"));
    assert!(scene.alice.line("SEM.SET k 9").error().starts_with("OOM"));
    scene.run(&["SEM.RELEASE k alice"]);
    scene.assert_bob_is_granted();
}

#[test]
fn the_server_becomes_a_replica() {
    let mut scene = Scene::new();
    scene.run(&["REPLICAOF 127.0.0.1 1"]);
    assert!(only_or_closed(&mut scene.bob));
    assert_eq!(scene.server.stat("sem_waiters"), 0);
    scene.run(&["REPLICAOF NO ONE"]);
    assert_eq!(scene.alice.line("SEM.RELEASE k alice").int(), 1);
}

/// Asserts an `-UNBLOCKED` error, or the end of the connection.
fn only_or_closed(conn: &mut Conn) -> bool {
    conn.try_recv()
        .is_none_or(|reply| reply.error().starts_with("UNBLOCKED"))
}

#[test]
fn the_startup_delay() {
    let mut server = TestServer::with(&["--appendonly", "yes"]);
    let mut c = server.conn();
    let token = c.line("SEM.ACQUIRE k alice LIMIT 2 PX 600000").int();
    server.add_option("--lock.startup-delay", "60000");
    server.restart();
    let mut c = server.conn();
    let again = c.line("SEM.ACQUIRE k alice PX 600000").int();
    assert!(again > token, "the token before the restart is lost");
    assert_eq!(c.line("SEM.ACQUIRE k alice PX 600000").int(), again);
    let error = c.line("SEM.ACQUIRE k bob").error();
    assert!(error.starts_with("LOCKDELAY"), "{error}");
    let mut bob = server.conn();
    bob.send_line("SEM.ACQUIRE k bob BLOCK 0");
    wait_for("a waiter", || server.stat("sem_waiters") == 1);
    assert_stays_silent(&server, &mut bob);
    c.line("CONFIG SET lock.startup-delay 0");
    assert!(only_reply(&mut bob).int() > again);
    assert_eq!(server.stat("sem_adoptions"), 1);
}

/// The id of a connection that is blocked.
trait Parked {
    fn id_while_parked(&mut self, server: &TestServer) -> i64;
}

impl Parked for Conn {
    fn id_while_parked(&mut self, server: &TestServer) -> i64 {
        let info = server.conn().line("SEM.INFO k WAITERS");
        let queue = info.field("queue").expect("a queue").list();
        queue[0].field("client-id").expect("an id").int()
    }
}

/// A key that the module itself creates concerns waiters for another kind of resource, too.
#[test]
fn a_free_key_becomes_another_resource() {
    for line in ["LOCK.ACQUIRE k x", "LOCK.ACQUIRE k x READ"] {
        let server = TestServer::start();
        let (mut c, mut waiter) = (server.conn(), server.conn());
        waiter.send_line("SEM.ACQUIRE k bob BLOCK 0");
        wait_for("a waiter", || server.stat("sem_waiters") == 1);
        assert!(c.line(line).int() > 0);
        assert!(only_reply(&mut waiter).error().starts_with("WRONGTYPE"));
    }
    for line in ["SEM.SET k 2", "LATCH.SET k 2"] {
        let server = TestServer::start();
        let (mut c, mut waiter) = (server.conn(), server.conn());
        // The request waits for the other key.
        c.line("LOCK.ACQUIRE other x");
        waiter.send_line("LOCK.MACQUIRE 2 k other bob BLOCK 0");
        server.wait_for_waiters(1);
        assert_eq!(c.line(line).int(), 2);
        assert!(only_reply(&mut waiter).error().starts_with("WRONGTYPE"));
    }
    let server = TestServer::start();
    let (mut c, mut waiter) = (server.conn(), server.conn());
    waiter.send_line("SEM.ACQUIRE k bob BLOCK 0");
    wait_for("a waiter", || server.stat("sem_waiters") == 1);
    let refused = c.line("LATCH.SET k 2").error();
    assert!(
        refused.starts_with("LOCKTYPE"),
        "a waiter waits for a semaphore"
    );
    c.line("SEM.SET k 2");
    assert!(only_reply(&mut waiter).int() > 0);
    assert_eq!(c.line("GET k").text(), "1");
}
