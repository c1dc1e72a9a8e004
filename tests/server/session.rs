//! Locks that are bound to a connection: whatever ends it, they are released and handed on; while it lives
//! the server keeps their lease.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use crate::common::scene::{assert_stays_silent, only_reply, unload_and_load};
use crate::common::{patience, replica, wait_for, Conn, Events, Reply, TestServer};

/// A session lease that a test can wait for.
const SHORT: [&str; 2] = ["--lock.session-lease", "300"];

/// Alice holds `k` by a session, bob waits behind her.
struct Bound {
    alice: Conn,
    alice_id: i64,
    bob: Conn,
    watcher: Conn,
    server: TestServer,
}

impl Bound {
    fn on(server: TestServer) -> Bound {
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

    fn new() -> Bound {
        Bound::on(TestServer::start())
    }

    /// Alice's hold was released, and bob has the lock.
    fn assert_handed_on(mut self, why: &str) {
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

fn assert_stats(server: &TestServer, expected: &[(&str, u64)]) {
    for (name, value) in expected {
        assert_eq!(server.stat(name), *value, "{name}");
    }
}

fn field(conn: &mut Conn, key: &str, name: &str) -> Option<Reply> {
    let info = conn.run(["LOCK.INFO", key]);
    info.field("holders")?.list().first()?.field(name)
}

fn holder(conn: &mut Conn, key: &str) -> Option<String> {
    field(conn, key, "owner").map(|owner| owner.text())
}

/// Whose connection the hold of `k` is bound to.
fn bound_to(conn: &mut Conn) -> Option<i64> {
    let bound = field(conn, "k", "session").is_some_and(|session| session.int() == 1);
    bound.then(|| field(conn, "k", "client-id").expect("an id").int())
}

fn is_free(conn: &mut Conn, key: &str) -> bool {
    conn.run(["EXISTS", key]).int() == 0
}

// What ends a connection.

#[test]
fn a_connection_that_is_closed() {
    let mut scene = Bound::new();
    std::mem::replace(&mut scene.alice, scene.server.conn()).close();
    scene.assert_handed_on("closed");
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
    scene.assert_handed_on("reset");
}

#[test]
fn a_connection_that_is_killed() {
    let mut scene = Bound::new();
    let line = format!("CLIENT KILL ID {}", scene.alice_id);
    assert_eq!(scene.watcher.line(&line).int(), 1);
    scene.assert_handed_on("killed");
}

#[test]
fn a_connection_that_kills_itself() {
    let mut scene = Bound::new();
    let id = scene.alice_id.to_string();
    scene
        .alice
        .run(["CLIENT", "KILL", "ID", &id, "SKIPME", "no"]);
    scene.assert_handed_on("killed by itself");
}

#[test]
fn a_connection_that_quits() {
    let mut scene = Bound::new();
    assert_eq!(scene.alice.line("QUIT").text(), "OK");
    scene.assert_handed_on("quit");
}

#[test]
fn a_connection_whose_user_is_deleted() {
    let mut scene = Bound::new();
    scene.watcher.line("ACL SETUSER eve on nopass +@all ~* &*");
    scene.alice.line("AUTH eve x");
    assert_eq!(bound_to(&mut scene.watcher), Some(scene.alice_id));
    scene.watcher.line("ACL DELUSER eve");
    scene.assert_handed_on("its user is gone");
}

#[test]
fn a_connection_that_does_not_read_its_replies() {
    let mut scene = Bound::new();
    let watcher = &mut scene.watcher;
    watcher.line("SETRANGE big 4000000 x");
    watcher.run([
        "CONFIG",
        "SET",
        "client-output-buffer-limit",
        "normal 1000000 0 0",
    ]);
    for _ in 0..20 {
        scene.alice.try_send(["GET", "big"]);
    }
    scene.assert_handed_on("its output buffer is full");
}

#[test]
fn a_connection_that_is_idle_for_too_long() {
    let server = TestServer::start();
    let scene = Bound::on(server);
    // The watcher asks all the time, and bob is blocked: only alice is idle.
    let mut watcher = scene.server.conn();
    watcher.line("CONFIG SET timeout 1");
    wait_for("the idle connection's end", || {
        holder(&mut watcher, "k").as_deref() == Some("bob")
    });
    watcher.line("CONFIG SET timeout 0");
    scene.assert_stats_after_end();
}

impl Bound {
    fn assert_stats_after_end(&self) {
        assert_stats(
            &self.server,
            &[("grants_session_ended", 1), ("sessions", 0), ("panics", 0)],
        );
    }
}

#[test]
fn a_connection_that_is_killed_in_somebody_elses_transaction() {
    let mut scene = Bound::on(TestServer::with(&["--appendonly", "yes"]));
    let kill = format!("CLIENT KILL ID {}", scene.alice_id);
    scene
        .watcher
        .send_lines(&["MULTI", "SET before 1", &kill, "SET after 1", "EXEC"]);
    for _ in 0..4 {
        scene.watcher.recv();
    }
    assert_eq!(scene.watcher.recv().list().len(), 3);
    let aof = replica::aof_text(&scene.server);
    let at = |word: &str| {
        let found = aof.iter().position(|line| line.contains(word));
        found.unwrap_or_else(|| panic!("no {word} in {aof:#?}"))
    };
    // What the transaction did and what the end of the connection did stand in the order in which they
    // happened. (With threads that read and write, the client is let go of a moment later.)
    if !crate::common::has_io_threads() {
        assert!(
            at("SET before") < at(" bob ") && at(" bob ") < at("SET after"),
            "{aof:#?}"
        );
    }
    scene.assert_handed_on("killed in a transaction");
}

/// The server looks after its connections while a script takes too long, but nothing changes under it.
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
        "the lock changed hands under the script"
    );
    scene.assert_handed_on("closed under a script");
}

#[test]
fn what_does_not_end_a_connection() {
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

// What happens at the end.

#[test]
fn the_whole_hold_is_released_and_published() {
    let server = TestServer::with(&["--notify-keyspace-events", "KEAd"]);
    let (mut alice, mut watcher, mut listener) = (server.conn(), server.conn(), server.conn());
    listener.line("SUBSCRIBE redisson_lock__channel:{k}");
    let mut events = Events::of(&server);
    for _ in 0..3 {
        alice.line("LOCK.ACQUIRE k alice SESSION").int();
    }
    assert_eq!(field(&mut watcher, "k", "holds").map(|n| n.int()), Some(3));
    alice.close();
    wait_for("a free lock", || is_free(&mut watcher, "k"));
    assert_eq!(listener.recv().list()[2].text(), "0");
    let events = events.so_far().join(" ");
    assert!(events.contains("lock.release"), "{events}");
    assert_stats(&server, &[("grants_session_ended", 1), ("reentries", 2)]);
}

#[test]
fn a_waiter_that_asked_for_a_session_is_bound_at_the_grant() {
    let server = TestServer::with(&SHORT);
    let (mut alice, mut bob, mut watcher) = (server.conn(), server.conn(), server.conn());
    alice.line("LOCK.ACQUIRE k alice PX 60000");
    let bob_id = bob.id();
    bob.send_line("LOCK.ACQUIRE k bob SESSION BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(server.stat("session_holds"), 0, "not while it waits");
    alice.line("LOCK.RELEASE k alice");
    bob.recv().int();
    assert_eq!(bound_to(&mut watcher), Some(bob_id));
    assert!(watcher.line("PTTL k").int() <= 300);
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

/// Killed between the grant and its delivery: the grant is taken back, and counted as that.
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
    if !crate::common::has_io_threads() {
        assert_eq!(server.stat("grants_undone"), 1);
    }
    assert_stats(&server, &[("sessions", 0), ("session_holds", 0)]);
}

/// It holds the lock as one owner and waits for it as another, in another database than it has selected:
/// it must not be handed what it leaves behind.
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

/// A hundred at once, more in the turns that follow: every one to its waiter, or free.
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

// Who is bound.

#[test]
fn the_binding_moves_to_the_connection_that_asked_last() {
    let server = TestServer::start();
    let (mut first, mut second, mut watcher) = (server.conn(), server.conn(), server.conn());
    let (first_id, second_id) = (first.id(), second.id());
    let token = first.line("LOCK.ACQUIRE k alice SESSION").int();
    assert_eq!(bound_to(&mut watcher), Some(first_id));
    let again = second.line("LOCK.ACQUIRE k alice SESSION ONCE").int();
    assert_eq!(again, token);
    assert_eq!(bound_to(&mut watcher), Some(second_id));
    first.close();
    wait_for("one connection fewer", || {
        let list = watcher.line("CLIENT LIST").text();
        !list.contains(&format!("id={first_id} "))
    });
    assert_eq!(bound_to(&mut watcher), Some(second_id));
    second.close();
    wait_for("a free lock", || is_free(&mut watcher, "k"));
}

#[test]
fn a_lease_of_its_own_ends_the_binding() {
    for line in [
        "LOCK.ACQUIRE k alice ONCE PX 60000",
        "LOCK.ACQUIRE k alice EX 60",
        "LOCK.RENEW k alice PX 60000",
        "LOCK.RENEW k alice EX 60",
    ] {
        let server = TestServer::start();
        let (mut alice, mut watcher) = (server.conn(), server.conn());
        alice.line("LOCK.ACQUIRE k alice SESSION");
        assert!(watcher.line(line).int() > 0, "{line}");
        assert_eq!(bound_to(&mut watcher), None, "{line}");
        assert!(watcher.line("PTTL k").int() > 50_000, "{line}");
        let id = alice.id();
        watcher.line(&format!("CLIENT KILL ID {id}"));
        assert!(alice.is_closed());
        assert_eq!(
            holder(&mut watcher, "k").as_deref(),
            Some("alice"),
            "{line}"
        );
        assert_stats(&server, &[("sessions", 0), ("grants_session_ended", 0)]);
        assert_eq!(
            field(&mut watcher, "k", "session").map(|s| s.int()),
            Some(0)
        );
    }
}

#[test]
fn without_a_lease_of_its_own_it_stays_bound_under_the_sessions() {
    let server = TestServer::with(&["--lock.session-lease", "20000"]);
    let (mut alice, mut other, mut watcher) = (server.conn(), server.conn(), server.conn());
    let id = alice.id();
    alice.line("LOCK.ACQUIRE k alice SESSION");
    for line in [
        "LOCK.RENEW k alice",
        "LOCK.ACQUIRE k alice",
        "LOCK.ACQUIRE k alice ONCE",
    ] {
        assert!(other.line(line).int() > 0, "{line}");
        assert_eq!(bound_to(&mut watcher), Some(id), "{line}");
        let left = watcher.line("PTTL k").int();
        assert!((10_000..=20_000).contains(&left), "{line}: {left}");
    }
    other.close();
    assert_eq!(bound_to(&mut watcher), Some(id));
    assert_eq!(alice.line("LOCK.RELEASE k alice").int(), 0);
    assert_eq!(alice.line("LOCK.RELEASE k alice").int(), 1);
    assert_stats(&server, &[("session_holds", 0), ("grants_released", 1)]);
}

#[test]
fn where_a_session_is_refused() {
    let server = TestServer::start();
    let mut conn = server.conn();
    let script = "return redis.call('LOCK.ACQUIRE', KEYS[1], 'a', 'SESSION')";
    let error = conn.run(["EVAL", script, "1", "k"]).error();
    assert!(
        error.contains("SESSION is not allowed from scripts"),
        "{error}"
    );
    let library = "#!lua name=l\nredis.register_function('f', function(keys)
                       return redis.call('LOCK.ACQUIRE', keys[1], 'a', 'SESSION') end)";
    conn.run(["FUNCTION", "LOAD", library]);
    let error = conn.line("FCALL f 1 k").error();
    assert!(
        error.contains("SESSION is not allowed from scripts"),
        "{error}"
    );
    for terms in ["SESSION EX 1", "PX 5 SESSION", "SESSION SESSION"] {
        let error = conn.line(&format!("LOCK.ACQUIRE k a {terms}")).error();
        assert_eq!(error, "ERR syntax error", "{terms}");
    }
    assert_eq!(
        conn.line("LOCK.RENEW k a SESSION").error(),
        "ERR syntax error"
    );
    assert!(is_free(&mut conn, "k"));
    assert_stats(
        &server,
        &[("grants", 0), ("sessions", 0), ("session_holds", 0)],
    );
}

#[test]
fn a_transaction_may_ask_for_a_session() {
    let server = TestServer::start();
    let (mut alice, mut watcher) = (server.conn(), server.conn());
    let id = alice.id();
    alice.send_lines(&[
        "MULTI",
        "LOCK.ACQUIRE k alice SESSION",
        "LOCK.ACQUIRE k2 alice SESSION",
        "EXEC",
    ]);
    for _ in 0..3 {
        alice.recv();
    }
    assert_eq!(alice.recv().list().len(), 2);
    assert_eq!(bound_to(&mut watcher), Some(id));
    alice.close();
    wait_for("free locks", || {
        is_free(&mut watcher, "k") && is_free(&mut watcher, "k2")
    });
}

// The lease.

#[test]
fn the_server_renews_at_a_third_as_long_as_the_connection_lives() {
    let server = TestServer::with(&SHORT);
    let (mut alice, mut watcher) = (server.conn(), server.conn());
    let token = alice.line("LOCK.ACQUIRE k alice SESSION").int();
    // More than three leases' worth of renewals; at each look the lease is there, and never longer.
    let (mut rises, mut last) = (0, 301);
    wait_for("twelve renewals", || {
        let left = watcher.line("PTTL k").int();
        assert!(left > 0 && left <= 300, "{left}");
        rises += u32::from(left > last);
        last = left;
        server.stat("session_renewals") >= 12
    });
    assert!(rises >= 3, "{rises}");
    assert_eq!(
        field(&mut watcher, "k", "token").map(|t| t.int()),
        Some(token)
    );
    assert_stats(
        &server,
        &[("grants", 1), ("renewals", 0), ("session_losses", 0)],
    );
    alice.close();
    wait_for("a free lock", || is_free(&mut watcher, "k"));
}

#[test]
fn the_setting_counts_from_the_next_renewal_on() {
    let server = TestServer::with(&SHORT);
    let (mut alice, mut watcher) = (server.conn(), server.conn());
    alice.line("LOCK.ACQUIRE k alice SESSION");
    watcher.line("CONFIG SET lock.session-lease 60000");
    wait_for("a long lease", || watcher.line("PTTL k").int() > 50_000);
    assert!(watcher.line("CONFIG SET lock.session-lease 99").is_error());
    let lease = watcher.line("CONFIG GET lock.session-lease").list();
    assert_eq!(lease[1].text(), "60000");
    alice.close();
    wait_for("a free lock", || is_free(&mut watcher, "k"));
}

/// A frozen server does not renew. What ended meanwhile stays ended, although the connection lives.
#[test]
fn a_lease_that_ended_while_the_server_was_frozen_is_not_renewed() {
    let mut scene = Bound::on(TestServer::with(&SHORT));
    scene.server.signal(libc::SIGSTOP);
    let frozen = Instant::now();
    wait_for("the end of the lease", || {
        frozen.elapsed() > Duration::from_millis(400)
    });
    scene.server.signal(libc::SIGCONT);
    assert!(only_reply(&mut scene.bob).int() > 0);
    assert_eq!(scene.alice.line("LOCK.RENEW k alice").int(), 0);
    assert_stats(
        &scene.server,
        &[("grants_expired", 1), ("grants_session_ended", 0)],
    );
    wait_for("the binding's end", || {
        scene.server.stat("session_holds") == 0
    });
}

#[test]
fn after_a_crash_the_hold_ends_within_the_lease() {
    let options = [
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--lock.session-lease",
        "1500",
    ];
    let mut server = TestServer::with(&options);
    let mut alice = server.conn();
    alice.line("LOCK.ACQUIRE k alice SESSION");
    wait_for("a renewal", || server.stat("session_renewals") > 0);
    server.crash();
    let crash = Instant::now();
    server.start_again();
    let mut bob = server.conn();
    bob.send_line("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
    bob.recv().int();
    let took = crash.elapsed();
    assert!(
        took < Duration::from_millis(1_500) + patience() / 4,
        "{took:?}"
    );
    assert_stats(
        &server,
        &[("sessions", 0), ("session_renewals", 0), ("panics", 0)],
    );
}

// While writes are refused.

#[test]
fn a_pause_puts_the_end_off() {
    for mode in ["WRITE", "ALL"] {
        let mut scene = Bound::new();
        scene.watcher.line(&format!("CLIENT PAUSE 600 {mode}"));
        std::mem::replace(&mut scene.alice, Conn::open(scene.server.port)).close();
        if mode == "WRITE" {
            wait_for("the end of the connection", || {
                let list = scene.watcher.line("CLIENT LIST").text();
                !list.contains(&format!("id={} ", scene.alice_id))
            });
            assert!(scene.bob.is_silent());
            scene.watcher.line("CLIENT UNPAUSE");
        }
        scene.assert_handed_on(mode);
    }
}

#[test]
fn a_pause_longer_than_the_lease_ends_the_hold() {
    let mut scene = Bound::on(TestServer::with(&SHORT));
    scene.watcher.line("CLIENT PAUSE 60000 WRITE");
    wait_for("the end of the lease", || {
        field(&mut scene.watcher, "k", "owner").is_none()
    });
    assert!(scene.bob.is_silent());
    scene.watcher.line("CLIENT UNPAUSE");
    assert!(only_reply(&mut scene.bob).int() > 0);
    assert_stats(&scene.server, &[("grants_expired", 1), ("panics", 0)]);
    wait_for("the binding's end", || {
        scene.server.stat("session_holds") == 0
    });
    drop(scene.alice);
    assert_eq!(holder(&mut scene.watcher, "k").as_deref(), Some("bob"));
}

#[test]
fn too_few_replicas_put_the_end_off() {
    let mut scene = Bound::new();
    scene.watcher.line("CONFIG SET min-replicas-to-write 1");
    std::mem::replace(&mut scene.alice, scene.server.conn()).close();
    assert_stays_silent(&mut scene.bob);
    assert_eq!(scene.server.stat("session_holds"), 1);
    scene.watcher.line("CONFIG SET min-replicas-to-write 0");
    scene.assert_handed_on("replicas are there again");
}

/// Renewals are writes like any other; and when the lease has ended first, that ends the hold.
#[test]
fn too_few_replicas_for_longer_than_the_lease_end_the_hold() {
    let mut scene = Bound::on(TestServer::with(&SHORT));
    scene.watcher.line("CONFIG SET min-replicas-to-write 1");
    wait_for("the end of the lease", || {
        field(&mut scene.watcher, "k", "owner").is_none()
    });
    drop(std::mem::replace(&mut scene.alice, scene.server.conn()));
    scene.watcher.line("CONFIG SET min-replicas-to-write 0");
    assert!(only_reply(&mut scene.bob).int() > 0);
    assert_stats(
        &scene.server,
        &[("grants_expired", 1), ("grants_session_ended", 0)],
    );
    wait_for("the binding's end", || {
        scene.server.stat("session_holds") == 0
    });
}

/// After a demotion nothing is bound: the new primary's data says when the hold ends.
#[test]
fn a_replica_renews_and_releases_nothing() {
    let server = TestServer::with(&["--lock.session-lease", "1000"]);
    let (mut alice, mut watcher) = (server.conn(), server.conn());
    alice.line("LOCK.ACQUIRE k alice SESSION");
    alice.line("LOCK.ACQUIRE long alice PX 60000");
    alice.line("LOCK.ACQUIRE long alice SESSION");
    watcher.line("REPLICAOF 127.0.0.1 1");
    wait_for("nothing bound", || server.stat("session_holds") == 0);
    let renewals = server.stat("session_renewals");
    alice.close();
    wait_for("the end of the lease", || {
        field(&mut watcher, "k", "owner").is_none()
    });
    assert_eq!(holder(&mut watcher, "long").as_deref(), Some("alice"));
    assert_stats(
        &server,
        &[("session_renewals", renewals), ("grants_session_ended", 0)],
    );
    watcher.line("REPLICAOF NO ONE");
    assert_eq!(holder(&mut watcher, "long").as_deref(), Some("alice"));
}

// Data, databases, the module itself.

#[test]
fn a_replica_has_what_the_primary_has() {
    let (master, follower) = (TestServer::start(), TestServer::start());
    replica::follow(&follower, &master);
    let mut alice = master.conn();
    for number in 0..20 {
        alice.line(&format!("LOCK.ACQUIRE k{number} alice SESSION"));
    }
    let mut bob = master.conn();
    bob.send_line("LOCK.ACQUIRE k7 bob PX 60000 BLOCK 0");
    master.wait_for_waiters(1);
    alice.close();
    bob.recv().int();
    replica::wait_until_in_sync(&follower, &master);
    let digest = |server: &TestServer| server.conn().line("DEBUG DIGEST").text();
    assert_eq!(digest(&follower), digest(&master));
    assert!(is_free(&mut follower.conn(), "k8"));
}

#[test]
fn a_lock_that_went_away_is_bound_no_more() {
    for line in [
        "DEL k",
        "RENAME k other",
        "FLUSHALL",
        "FLUSHDB",
        "SET k 1",
        "HDEL k alice",
    ] {
        let server = TestServer::with(&SHORT);
        let (mut alice, mut watcher) = (server.conn(), server.conn());
        alice.line("LOCK.ACQUIRE k alice SESSION");
        assert!(!watcher.line(line).is_error(), "{line}");
        wait_for(line, || server.stat("session_holds") == 0);
        watcher.line("DEL k");
        watcher.line("LOCK.ACQUIRE k alice PX 60000").int();
        drop(alice);
        wait_for("the connection's end", || {
            server.info_field("clients", "connected_clients") == "2"
        });
        assert_eq!(
            holder(&mut watcher, "k").as_deref(),
            Some("alice"),
            "{line}"
        );
        assert_stats(&server, &[("grants_session_ended", 0), ("panics", 0)]);
    }
}

#[test]
fn bindings_follow_their_locks_into_the_other_database() {
    let server = TestServer::with(&SHORT);
    let (mut alice, mut watcher) = (server.conn(), server.conn());
    alice.line("LOCK.ACQUIRE k alice SESSION");
    watcher.line("SWAPDB 0 1");
    watcher.line("SELECT 1");
    let renewals = server.stat("session_renewals");
    wait_for("renewals over there", || {
        server.stat("session_renewals") > renewals + 4
    });
    assert_eq!(holder(&mut watcher, "k").as_deref(), Some("alice"));
    alice.close();
    wait_for("a free lock", || is_free(&mut watcher, "k"));
    assert_stats(
        &server,
        &[("grants_session_ended", 1), ("session_losses", 0)],
    );
}

#[test]
fn the_module_can_be_unloaded_when_nothing_is_bound_or_it_is_drained() {
    let server = TestServer::start();
    let (mut alice, mut watcher) = (server.conn(), server.conn());
    alice.line("LOCK.ACQUIRE k alice SESSION");
    alice.line("LOCK.RELEASE k alice");
    unload_and_load(&mut watcher);

    alice.line("LOCK.ACQUIRE k alice SESSION");
    assert!(watcher.line("MODULE UNLOAD lock").is_error());
    watcher.line("CONFIG SET lock.drain yes");
    let refused = alice.line("LOCK.ACQUIRE k2 alice SESSION").error();
    assert!(refused.starts_with("LOCKBUSY"), "{refused}");
    assert_stats(&server, &[("session_holds", 0), ("busy", 1)]);
    unload_and_load(&mut watcher);
    assert_eq!(bound_to(&mut watcher), None);
    assert_eq!(holder(&mut watcher, "k").as_deref(), Some("alice"));
    assert!(watcher.line("PTTL k").int() <= 10_000);
}

#[test]
fn nobody_pays_for_sessions_who_has_none() {
    let server = TestServer::start();
    let mut watcher = server.conn();
    for _ in 0..10 {
        let mut conn = server.conn();
        conn.line("LOCK.ACQUIRE k alice PX 60000");
        conn.line("LOCK.RELEASE k alice");
    }
    // No timer is armed: the module can be unloaded at once.
    assert_eq!(watcher.line("MODULE UNLOAD lock").text(), "OK");
    let path = crate::common::module_path();
    watcher.run(["MODULE", "LOAD", &path.to_string_lossy()]);
}
