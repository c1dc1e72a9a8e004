//! Locks that are bound to a connection: every end of the connection releases them and hands them off.

use std::os::fd::AsRawFd;

use crate::common::scene::only_reply;
use crate::common::{has_io_threads, replica, wait_for, Conn, Events, Reply, TestServer};

/// A session lease that a test can wait for.
pub const SHORT: [&str; 2] = ["--lock.session-lease", "3000"];

/// A session lease that is not lost when a slow machine stops for a moment.
pub const STEADY: [&str; 2] = ["--lock.session-lease", "6000"];

/// Alice holds `k` by a session, bob waits behind her.
pub struct Bound {
    pub alice: Conn,
    pub alice_id: i64,
    pub bob: Conn,
    pub watcher: Conn,
    pub server: TestServer,
}

impl Bound {
    pub fn on(server: TestServer) -> Bound {
        let mut alice = server.conn();
        let alice_id = alice.id();
        alice.line("LOCK.ACQUIRE k alice SESSION").int();
        let mut bob = server.conn();
        bob.send_line("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
        server.wait_for_waiters(1);
        let watcher = server.conn();
        Bound {
            alice,
            alice_id,
            bob,
            watcher,
            server,
        }
    }

    pub fn new() -> Bound {
        Bound::on(TestServer::start())
    }

    /// Asserts that alice's hold was released, and bob holds the lock.
    pub fn assert_handed_off(mut self, why: &str) {
        assert!(only_reply(&mut self.bob).int() > 0, "{why}");
        assert_eq!(holder(&mut self.watcher, "k").as_deref(), Some("bob"));
        assert_stats(
            &self.server,
            &[
                ("grants_session_ended", 1),
                ("grants_released", 0),
                ("grants_expired", 0),
                ("sessions", 0),
                ("session_holds", 0),
                ("panics", 0),
            ],
        );
    }
}

pub fn assert_stats(server: &TestServer, expected: &[(&str, u64)]) {
    for (name, value) in expected {
        assert_eq!(server.stat(name), *value, "{name}");
    }
}

pub fn field(conn: &mut Conn, key: &str, name: &str) -> Option<Reply> {
    let info = conn.run(["LOCK.INFO", key]);
    info.field("holders")?.list().first()?.field(name)
}

pub fn holder(conn: &mut Conn, key: &str) -> Option<String> {
    field(conn, key, "owner").map(|owner| owner.text())
}

/// The connection that the hold of `k` is bound to.
pub fn bound_to(conn: &mut Conn) -> Option<i64> {
    let bound = field(conn, "k", "session").is_some_and(|session| session.int() == 1);
    bound.then(|| field(conn, "k", "client-id").expect("an id").int())
}

pub fn is_free(conn: &mut Conn, key: &str) -> bool {
    conn.run(["EXISTS", key]).int() == 0
}

// Ends of a connection.

#[test]
fn a_connection_that_is_closed() {
    let mut scene = Bound::new();
    std::mem::replace(&mut scene.alice, scene.server.conn()).close();
    scene.assert_handed_off("closed");
}

#[test]
fn a_connection_that_is_reset() {
    let mut scene = Bound::new();
    let mut alice = std::mem::replace(&mut scene.alice, scene.server.conn());
    let now = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: a live socket, and a valid struct with its size.
    let set = unsafe {
        libc::setsockopt(
            alice.stream().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const now).cast(),
            size_of::<libc::linger>() as u32,
        )
    };
    assert_eq!(set, 0);
    drop(alice);
    scene.assert_handed_off("reset");
}

#[test]
fn a_connection_that_is_killed() {
    let mut scene = Bound::on(TestServer::with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]));
    let line = format!("CLIENT KILL ID {}", scene.alice_id);
    assert_eq!(scene.watcher.line(&line).int(), 1);
    assert!(only_reply(&mut scene.bob).int() > 0);
    let aof = replica::aof_text(&scene.server);
    assert!(aof.iter().any(|line| line.contains(" bob ")), "{aof:#?}");
    // A kill that counted as a change would be sent to replicas, where that id is another client's.
    assert!(!aof.iter().any(|line| line.contains("KILL")), "{aof:#?}");
    assert_stats(
        &scene.server,
        &[("grants_session_ended", 1), ("sessions", 0)],
    );
}

#[test]
fn a_connection_that_kills_itself() {
    let mut scene = Bound::new();
    let id = scene.alice_id.to_string();
    scene
        .alice
        .run(["CLIENT", "KILL", "ID", &id, "SKIPME", "no"]);
    scene.assert_handed_off("killed by itself");
}

#[test]
fn a_connection_that_quits() {
    let mut scene = Bound::new();
    assert_eq!(scene.alice.line("QUIT").text(), "OK");
    scene.assert_handed_off("quit");
}

#[test]
fn a_connection_whose_user_is_deleted() {
    let mut scene = Bound::new();
    scene.watcher.line("ACL SETUSER eve on nopass +@all ~* &*");
    scene.alice.line("AUTH eve x");
    assert_eq!(bound_to(&mut scene.watcher), Some(scene.alice_id));
    scene.watcher.line("ACL DELUSER eve");
    scene.assert_handed_off("its user is gone");
}

#[test]
fn a_connection_that_does_not_read_its_replies() {
    let mut scene = Bound::new();
    let watcher = &mut scene.watcher;
    // Small chunks: some servers send large values without buffering them.
    let mut push = vec!["RPUSH".to_string(), "big".into()];
    push.resize(2_000, "x".repeat(500));
    watcher.run(&push);
    watcher.run([
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "normal 1000000 0 0",
    ]);
    for _ in 0..40 {
        scene.alice.try_send(["LRANGE", "big", "0", "-1"]);
    }
    scene.assert_handed_off("its output buffer is full");
}

#[test]
fn a_connection_that_is_idle_for_too_long() {
    let server = TestServer::start();
    let scene = Bound::on(server);
    // Bob is blocked, and each query uses a connection of its own: only alice is idle.
    scene.server.conn().line("CONFIG SET timeout 1");
    wait_for("the idle connection's end", || {
        holder(&mut scene.server.conn(), "k").as_deref() == Some("bob")
    });
    scene.server.conn().line("CONFIG SET timeout 0");
    assert_stats(
        &scene.server,
        &[("grants_session_ended", 1), ("sessions", 0), ("panics", 0)],
    );
}

#[test]
fn a_connection_that_is_killed_in_a_transaction_of_another_client() {
    let mut scene = Bound::on(TestServer::with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
    ]));
    let kill = format!("CLIENT KILL ID {}", scene.alice_id);
    scene
        .watcher
        .send_lines(&["MULTI", "SET before 1", &kill, "SET after 1", "EXEC"]);
    for _ in 0..4 {
        scene.watcher.recv();
    }
    assert_eq!(scene.watcher.recv().list().len(), 3);
    assert!(only_reply(&mut scene.bob).int() > 0);
    let aof = replica::aof_text(&scene.server);
    assert!(!aof.iter().any(|line| line.contains("KILL")), "{aof:#?}");
    let at = |word: &str| {
        let found = aof.iter().position(|line| line.contains(word));
        found.unwrap_or_else(|| panic!("no {word} in {aof:#?}"))
    };
    // First comes the transaction, in its order, and then the effects of the connection's end. The kill is not
    // replicated: on a replica it would hit another client.
    assert!(
        at("SET before") < at("SET after") && at("SET after") < at(" bob "),
        "{aof:#?}"
    );
    assert_eq!(holder(&mut scene.watcher, "k").as_deref(), Some("bob"));
    assert_stats(&scene.server, &[("grants_session_ended", 1)]);
}

/// The server handles its connections while a script takes too long, but no data changes during the script.
#[test]
fn a_connection_that_is_closed_under_a_long_script() {
    let server = TestServer::with(&["--lua-time-limit", "20"]);
    let mut scene = Bound::on(server);
    let script = "local function ms() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end
                  local start, free, holder = ms(), 0, ''
                  while ms() - start < 1500 do
                      holder = redis.call('HKEYS', KEYS[1])
                      for _, field in ipairs(holder) do if field == 'bob' then free = free + 1 end end
                  end
                  return free";
    let mut busy = scene.server.conn();
    busy.send(["EVAL", script, "1", "k"]);
    wait_for("a busy server", || scene.watcher.line("PING").is_error());
    std::mem::replace(&mut scene.alice, Conn::open(scene.server.port)).close();
    assert_eq!(
        busy.recv().int(),
        0,
        "the lock has another holder during the script"
    );
    scene.assert_handed_off("closed under a script");
}

#[test]
fn events_that_do_not_end_a_connection() {
    let server = TestServer::start();
    let (mut alice, mut watcher) = (server.conn(), server.conn());
    let id = alice.id();
    alice.line("LOCK.ACQUIRE k alice SESSION");
    watcher.line("ACL SETUSER eve on nopass +@all ~* &*");
    for line in ["SELECT 3", "HELLO 3", "HELLO 2", "AUTH eve x", "RESET"] {
        assert!(!alice.line(line).is_error(), "{line}");
        assert_eq!(bound_to(&mut watcher), Some(id), "after {line}");
    }
    assert_stats(&server, &[("sessions", 1), ("session_holds", 1)]);
    alice.close();
    wait_for("a free lock", || is_free(&mut watcher, "k"));
}

// Effects of the end.

#[test]
fn the_whole_hold_is_released_and_published() {
    let server = TestServer::with(&["--notify-keyspace-events", "KEAd"]);
    let (mut alice, mut watcher, mut subscriber) = (server.conn(), server.conn(), server.conn());
    subscriber.line("SUBSCRIBE redisson_lock__channel:{k}");
    let mut events = Events::of(&server);
    for _ in 0..3 {
        alice.line("LOCK.ACQUIRE k alice SESSION").int();
    }
    assert_eq!(field(&mut watcher, "k", "holds").map(|n| n.int()), Some(3));
    alice.close();
    wait_for("a free lock", || is_free(&mut watcher, "k"));
    assert_eq!(subscriber.recv().list()[2].text(), "0");
    let events = events.so_far().join(" ");
    assert!(events.contains("lock.release"), "{events}");
    assert_stats(&server, &[("grants_session_ended", 1), ("reentries", 2)]);
}

#[test]
fn a_waiter_that_asked_for_a_session_is_bound_at_the_grant() {
    let server = TestServer::with(&STEADY);
    let (mut alice, mut bob, mut watcher) = (server.conn(), server.conn(), server.conn());
    alice.line("LOCK.ACQUIRE k alice PX 60000");
    let bob_id = bob.id();
    bob.send_line("LOCK.ACQUIRE k bob SESSION BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(server.stat("session_holds"), 0, "not while it waits");
    alice.line("LOCK.RELEASE k alice");
    bob.recv().int();
    assert_eq!(bound_to(&mut watcher), Some(bob_id));
    assert!(watcher.line("PTTL k").int() <= 6_000);
    let mut carol = server.conn();
    carol.send_line("LOCK.ACQUIRE k carol SESSION BLOCK 0");
    server.wait_for_waiters(1);
    bob.close();
    carol.recv().int();
    carol.close();
    wait_for("a free lock", || is_free(&mut watcher, "k"));
    assert_stats(
        &server,
        &[("grants_session_ended", 2), ("waits_granted", 2)],
    );
}

/// Killed between the grant and its delivery: the grant is undone, and counted as such.
#[test]
fn a_grant_that_did_not_arrive_is_undone_not_released() {
    let server = TestServer::start();
    let (mut alice, mut bob) = (server.conn(), server.conn());
    alice.line("LOCK.ACQUIRE k alice PX 60000");
    let bob_id = bob.id();
    bob.send_line("LOCK.ACQUIRE k bob SESSION BLOCK 0");
    server.wait_for_waiters(1);
    let mut carol = server.conn();
    carol.send_line("LOCK.ACQUIRE k carol PX 60000 BLOCK 0");
    server.wait_for_waiters(2);
    let kill = format!("CLIENT KILL ID {bob_id}");
    alice.send_lines(&["MULTI", "LOCK.RELEASE k alice", &kill, "EXEC"]);
    carol.recv().int();
    let ended = server.stat("grants_session_ended") + server.stat("grants_undone");
    assert_eq!(ended, 1);
    if !has_io_threads() {
        assert_eq!(server.stat("grants_undone"), 1);
    }
    assert_stats(&server, &[("sessions", 0), ("session_holds", 0)]);
}

/// The connection holds the lock as one owner and waits for it as another, in another database than it has selected: it
/// must not be granted the lock that its own end releases.
#[test]
fn a_dying_connection_is_not_granted_its_own_lock() {
    let server = TestServer::start();
    let (mut both, mut carol, mut watcher) = (server.conn(), server.conn(), server.conn());
    both.line("SELECT 3");
    carol.line("SELECT 3");
    watcher.line("SELECT 3");
    let id = both.id();
    both.line("LOCK.ACQUIRE k x SESSION");
    both.line("SELECT 5");
    both.line("LOCK.ACQUIRE other x SESSION");
    both.line("SELECT 3");
    both.send_line("LOCK.ACQUIRE k y SESSION BLOCK 0");
    server.wait_for_waiters(1);
    carol.send_line("LOCK.ACQUIRE k carol PX 60000 BLOCK 0");
    server.wait_for_waiters(2);
    watcher.line(&format!("CLIENT KILL ID {id}"));
    carol.recv().int();
    assert_eq!(holder(&mut watcher, "k").as_deref(), Some("carol"));
    watcher.line("SELECT 5");
    assert!(is_free(&mut watcher, "other"));
    assert_stats(
        &server,
        &[
            ("grants", 3),
            ("grants_session_ended", 2),
            ("grants_undone", 0),
            ("waits_disconnected", 1),
            ("session_holds", 0),
        ],
    );
}

#[test]
fn a_connection_that_waits_for_its_own_lock_is_granted_by_a_release_of_a_third() {
    let server = TestServer::start();
    let (mut conn, mut other) = (server.conn(), server.conn());
    let first = conn.line("LOCK.ACQUIRE k x SESSION").int();
    conn.send_line("LOCK.ACQUIRE k y SESSION BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(server.stat("deadlocks"), 0);
    assert_eq!(other.line("LOCK.RELEASE k x").int(), 1);
    let second = conn.recv().int();
    assert!(second > first);
    // A timeout ends the wait, and the hold stays.
    assert!(conn.line("LOCK.ACQUIRE k z BLOCK 1").is_nil());
    // Cycles of such connections end with the connections, and a closed connection is granted nothing.
    let mut third = server.conn();
    assert!(third.line("LOCK.ACQUIRE l v SESSION").int() > 0);
    conn.send_line("LOCK.ACQUIRE l w BLOCK 0");
    third.send_line("LOCK.ACQUIRE k w2 BLOCK 0");
    server.wait_for_waiters(2);
    conn.close();
    assert!(third.recv().int() > second);
    third.close();
    wait_for("free locks", || other.line("EXISTS l").int() == 0);
    assert_eq!(other.line("HKEYS k").list().len(), 2);
    assert_eq!(server.stat("grants_session_ended"), 2);
}

/// A hundred at once, more in the following ticks: each is granted to its waiter, or free.
#[test]
fn the_end_of_many() {
    const LOCKS: usize = 350;
    let server = TestServer::start();
    let (mut alice, mut watcher) = (server.conn(), server.conn());
    for number in 0..LOCKS {
        alice.send_line(&format!("LOCK.ACQUIRE k{number} alice SESSION"));
    }
    for _ in 0..LOCKS {
        alice.recv().int();
    }
    let mut waiters: Vec<Conn> = Vec::new();
    for number in (0..LOCKS).step_by(50) {
        let mut waiter = server.conn();
        waiter.send_line(&format!("LOCK.ACQUIRE k{number} w SESSION BLOCK 0"));
        waiters.push(waiter);
    }
    server.wait_for_waiters(waiters.len() as u64);
    assert_stats(&server, &[("sessions", 1), ("session_holds", LOCKS as u64)]);
    alice.close();
    for waiter in &mut waiters {
        waiter.recv().int();
    }
    let held = waiters.len() as u64;
    wait_for("all others free", || {
        watcher.line("DBSIZE").int() as u64 == held + 1
    });
    assert_stats(
        &server,
        &[
            ("grants_session_ended", LOCKS as u64),
            ("sessions", held),
            ("session_holds", held),
        ],
    );
}

/// A hundred in a tick, however many connections end in it: other clients are served meanwhile.
#[test]
fn the_end_of_many_connections_at_once() {
    if has_io_threads() {
        // Their threads decide which end comes in which tick.
        return;
    }
    const HOLDS: i64 = 60;
    let server = TestServer::start();
    let mut connections: Vec<Conn> = (0..5).map(|_| server.conn()).collect();
    let mut lines = Vec::new();
    for (number, conn) in connections.iter_mut().enumerate() {
        for hold in 0..HOLDS {
            conn.line(&format!("LOCK.ACQUIRE k{number}-{hold} o SESSION"));
        }
        lines.push(format!("CLIENT KILL ID {}", conn.id()));
    }
    lines.push("DBSIZE".into());
    let (mut other, all) = (server.conn(), 5 * HOLDS + 1);
    other.send_lines(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    connections
        .iter()
        .for_each(|_| assert_eq!(other.recv().int(), 1));
    let left = other.recv().int();
    assert!((all - 100..=all).contains(&left), "{left}");
    wait_for("all free", || other.line("DBSIZE").int() == 1);
}

/// An owner that requests a lock whose release is still pending finds it released: its hold is a new one, and the end
/// of the old connection does not affect it.
#[test]
fn an_owner_that_asks_before_all_holds_are_released() {
    if has_io_threads() {
        // The server frees the connection after the transaction.
        return;
    }
    const LOCKS: usize = 300;
    let server = TestServer::start();
    let (mut alice, mut watcher) = (server.conn(), server.conn());
    let id = alice.id();
    let mut last = 0;
    for number in 0..LOCKS {
        last = alice
            .line(&format!("LOCK.ACQUIRE k{number} alice SESSION"))
            .int();
    }
    let kill = format!("CLIENT KILL ID {id}");
    watcher.send_lines(&[
        "MULTI",
        &kill,
        "LOCK.ACQUIRE k299 alice PX 60000",
        "LOCK.RELEASE k298 alice",
        "LOCK.RENEW k297 alice",
        "EXEC",
    ]);
    for _ in 0..5 {
        watcher.recv();
    }
    let replies = watcher.recv().list();
    assert!(replies[1].int() > last, "a new grant");
    assert!(replies[2].is_nil());
    assert_eq!(replies[3].int(), 0);
    wait_for("the others' release", || watcher.line("DBSIZE").int() == 2);
    assert_eq!(
        field(&mut watcher, "k299", "holds").map(|n| n.int()),
        Some(1)
    );
    assert_stats(
        &server,
        &[("grants_session_ended", LOCKS as u64), ("session_holds", 0)],
    );
}
