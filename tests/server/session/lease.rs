//! Locks that are bound to a connection, while it lives: to which one, under what lease, where not, and the behaviour
//! when the server refuses writes or the lock is lost.

use std::time::{Duration, Instant};

use crate::common::barrier::Barrier;
use crate::common::scene::{has_timer_or_parked, only_reply};
use crate::common::{patience, replica, wait_for, Conn, Reply, TestServer};
use crate::lifecycle::settings::{NUMBERS, SWITCHES};
use crate::session::endings::{
    assert_stats, bound_to, field, holder, is_free, Bound, SHORT, STEADY,
};

// Which holds are bound.

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
fn contexts_in_which_a_session_is_refused() {
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
        assert_eq!(
            error, "ERR syntax error: more than one of EX, PX, SESSION",
            "{terms}"
        );
    }
    assert_eq!(
        conn.line("LOCK.RENEW k a SESSION").error(),
        "ERR syntax error: unknown option 'SESSION', expected READ, WRITE, EX, PX, TOKEN, NOTE"
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
    let server = TestServer::with(&STEADY);
    let (mut alice, mut watcher) = (server.conn(), server.conn());
    let token = alice.line("LOCK.ACQUIRE k alice SESSION").int();
    // Renewals for more than a lease; the lease exists at each check, and is never longer.
    let (mut rises, mut last) = (0, 6_001);
    wait_for("four renewals", || {
        let left = watcher.line("PTTL k").int();
        assert!(left > 0 && left <= 6_000, "{left}");
        rises += u32::from(left > last);
        last = left;
        server.stat("session_renewals") >= 4
    });
    assert!(rises >= 1, "{rises}");
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
    let server = TestServer::with(&STEADY);
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

/// Ticks of two seconds: there are too few of them to renew all holds in small portions. None is lost, and none is
/// granted to another owner.
#[test]
fn long_ticks_lose_no_hold() {
    const EACH: u64 = 500;
    let server = TestServer::with(&["--lock.session-lease", "18000"]);
    let (mut alice, mut bob) = (server.conn(), server.conn());
    let ask = |conn: &mut Conn, form: &str| -> Vec<Reply> {
        let lines: Vec<String> = (0..EACH)
            .map(|number| form.replace('#', &number.to_string()))
            .collect();
        conn.send_lines(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        lines.iter().map(|_| conn.recv()).collect()
    };
    for form in [
        "LOCK.ACQUIRE k# alice SESSION",
        "LOCK.ACQUIRE r# alice READ SESSION",
        "SEM.ACQUIRE s# alice SESSION LIMIT 1",
    ] {
        assert!(ask(&mut alice, form).iter().all(|token| token.int() > 0));
    }
    // Each takes a third of the lease.
    for renewals in 1..=2 {
        wait_for("a renewal of each", || {
            bob.line("DEBUG SLEEP 2");
            server.stat("session_renewals") >= renewals * 3 * EACH
        });
    }
    for form in [
        "LOCK.ACQUIRE k# bob",
        "LOCK.ACQUIRE r# bob WRITE",
        "SEM.ACQUIRE s# bob",
    ] {
        assert!(ask(&mut bob, form).iter().all(Reply::is_nil), "{form}");
    }
    assert_stats(
        &server,
        &[("session_losses", 0), ("session_holds", 3 * EACH)],
    );
}

#[test]
fn more_holds_than_can_be_renewed_are_refused() {
    let server = TestServer::with(&["--lock.session-lease", "60000"]);
    let (mut alice, mut bob) = (server.conn(), server.conn());
    assert_eq!(server.stat("max_session_holds"), 300_000);
    let names = |from: u32| (from..from + 100).map(|number| format!("k{number}"));
    for from in (0..1_000).step_by(100) {
        let words = ["LOCK.MACQUIRE".to_string(), "100".to_string()];
        let words = words.into_iter().chain(names(from));
        let words = words.chain(["alice", "SESSION"].map(String::from));
        assert!(alice.run(words).is_array());
    }
    bob.line("LOCK.ACQUIRE w bob PX 60000");
    alice.send_line("LOCK.ACQUIRE w alice SESSION BLOCK 0");
    server.wait_for_waiters(1);
    bob.line("CONFIG SET lock.session-lease 100");
    assert_eq!(server.stat("max_session_holds"), 500);
    for line in [
        "LOCK.ACQUIRE l bob SESSION",
        "LOCK.ACQUIRE l bob READ SESSION BLOCK 0",
        "LOCK.MACQUIRE 2 l m bob SESSION",
        "SEM.ACQUIRE s bob SESSION LIMIT 1",
    ] {
        let error = bob.line(line).error();
        assert!(
            error.starts_with("LOCKBUSY too many holds"),
            "{line}: {error}"
        );
    }
    bob.line("CONFIG SET lock.session-lease 60000");
    assert!(bob.line("LOCK.ACQUIRE k0 alice SESSION ONCE").int() > 0);
    bob.line("LOCK.RELEASE w bob");
    assert!(alice.recv().int() > 0);
    assert_stats(
        &server,
        &[("busy", 3), ("sem_busy", 1), ("session_holds", 1_001)],
    );
}

/// A frozen server does not renew. A lease that ended meanwhile stays ended, although the connection lives.
#[test]
fn a_lease_that_ended_while_the_server_was_frozen_is_not_renewed() {
    let mut scene = Bound::on(TestServer::with(&SHORT));
    scene.server.signal(libc::SIGSTOP);
    let frozen = Instant::now();
    wait_for("the end of the lease", || {
        frozen.elapsed() > Duration::from_millis(3_100)
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
fn a_pause_postpones_the_end() {
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
        scene.assert_handed_off(mode);
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
fn too_few_replicas_postpone_the_end() {
    let mut scene = Bound::new();
    let mut barrier = Barrier::on(&scene.server);
    scene.watcher.line("CONFIG SET min-replicas-to-write 1");
    std::mem::replace(&mut scene.alice, scene.server.conn()).close();
    barrier.assert_silent(&mut scene.bob);
    assert_eq!(scene.server.stat("session_holds"), 1);
    scene.watcher.line("CONFIG SET min-replicas-to-write 0");
    scene.assert_handed_off("replicas are there again");
}

/// Renewals are refused like other writes; a lease that ends first ends the hold.
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

/// A refused renewal is repeated before the lease ends.
#[test]
fn too_few_replicas_for_a_moment_end_nothing() {
    let server = TestServer::with(&["--lock.session-lease", "6000"]);
    let (mut alice, mut watcher) = (server.conn(), server.conn());
    alice.line("LOCK.ACQUIRE k alice SESSION");
    watcher.line("CONFIG SET min-replicas-to-write 1");
    // The renewal was due at 4,000.
    wait_for("a refusal", || watcher.line("PTTL k").int() < 3_700);
    assert_eq!(server.stat("session_renewals"), 0);
    watcher.line("CONFIG SET min-replicas-to-write 0");
    wait_for("a renewal", || server.stat("session_renewals") == 1);
    assert!(watcher.line("PTTL k").int() > 4_000);
    assert_stats(&server, &[("session_losses", 0), ("session_holds", 1)]);
}

/// After a demotion no lock is bound: the end of the hold is that in the new primary's data.
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
fn a_replica_has_the_locks_of_the_primary() {
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
fn a_lost_lock_is_no_longer_bound() {
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
    let server = TestServer::with(&STEADY);
    let (mut alice, mut watcher) = (server.conn(), server.conn());
    alice.line("LOCK.ACQUIRE k alice SESSION");
    watcher.line("SWAPDB 0 1");
    watcher.line("SELECT 1");
    let renewals = server.stat("session_renewals");
    wait_for("a renewal over there", || {
        server.stat("session_renewals") > renewals
    });
    assert_eq!(holder(&mut watcher, "k").as_deref(), Some("alice"));
    alice.close();
    wait_for("a free lock", || is_free(&mut watcher, "k"));
    assert_stats(
        &server,
        &[("grants_session_ended", 1), ("session_losses", 0)],
    );
}

/// Each setting is changed while there are a session, a queue and a permit, and changed back.
#[test]
fn settings_that_are_changed_and_changed_back_lose_nothing() {
    let server = TestServer::with(&STEADY);
    let (mut alice, mut bob, mut carol) = (server.conn(), server.conn(), server.conn());
    let mut watcher = server.conn();
    let token = alice.line("LOCK.ACQUIRE k alice SESSION").int();
    bob.send_line("LOCK.ACQUIRE k bob PX 60000 BLOCK 0");
    server.wait_for_waiters(1);
    carol.line("SEM.ACQUIRE permits carol SESSION LIMIT 1");
    for (name, _, least, most) in NUMBERS {
        let set = |watcher: &mut Conn, value: &str| {
            assert_eq!(watcher.run(["CONFIG", "SET", name, value]).text(), "OK");
        };
        let now = watcher.run(["CONFIG", "GET", name]).list()[1].text();
        // A renewal with the longest session lease would be the last one for years.
        let most = match name {
            "lock.session-lease" => "9000",
            _ => most,
        };
        for value in [least, most] {
            set(&mut watcher, value);
            watcher.line("SET other 1");
            set(&mut watcher, &now);
        }
    }
    for (name, _) in SWITCHES {
        for value in ["yes", "no", "yes", "no"] {
            assert_eq!(watcher.run(["CONFIG", "SET", name, value]).text(), "OK");
        }
    }
    assert_stats(&server, &[("session_holds", 2), ("waiters", 1)]);
    let renewals = server.stat("session_renewals");
    wait_for("renewals", || {
        server.stat("session_renewals") >= renewals + 2
    });
    assert_eq!(bound_to(&mut watcher), Some(alice.id()));
    assert_eq!(alice.line("LOCK.ACQUIRE k alice ONCE").int(), token);
    alice.close();
    assert!(bob.recv().int() > token);
    carol.close();
}

#[test]
fn clients_without_sessions_cost_no_extra_work() {
    let server = TestServer::start();
    let mut watcher = server.conn();
    for _ in 0..10 {
        let mut conn = server.conn();
        conn.line("LOCK.ACQUIRE k alice PX 60000");
        conn.line("LOCK.RELEASE k alice");
    }
    assert!(!has_timer_or_parked(&mut watcher));
}
