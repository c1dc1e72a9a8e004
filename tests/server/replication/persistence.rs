//! Restarts: the locks in the files are held afterwards, with the module and without it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::ending::{rewrite_aof, Ending, AOF_ALWAYS, ENDINGS};
use crate::common::scene::Scene;
use crate::common::{module_path, wait_for, Conn, TestServer};

/// The holder as in `LOCK.INFO`: owner, holds, token.
fn holder_of(conn: &mut Conn, key: &str) -> (String, i64, i64) {
    let info = conn.run(["LOCK.INFO", key]);
    let holder = info.field("holders").unwrap().list()[0].clone();
    let number = |name: &str| holder.field(name).unwrap().int();
    let owner = holder.field("owner").unwrap().text();
    (owner, number("holds"), number("token"))
}

#[test]
fn holds_counts_leases_and_tokens_survive_and_waiters_do_not() {
    for ending in ENDINGS {
        let mut server = TestServer::with(ending.options());
        let mut conn = server.conn();
        let first = conn.line("LOCK.ACQUIRE k a PX 60000").int();
        conn.line("LOCK.ACQUIRE freed a PX 60000");
        ending.half_way(&server);
        conn.line("LOCK.ACQUIRE k a PX 70000");
        conn.line("LOCK.RELEASE freed a");
        let second = conn.line("LOCK.ACQUIRE late a PX 80000").int();
        conn.line("LOCK.RENEW late a PX 90000");
        let mut waiter = server.conn();
        waiter.send_line("LOCK.ACQUIRE k b BLOCK 0");
        server.wait_for_waiters(1);
        let before = [conn.snapshot_of("k"), conn.snapshot_of("late")];

        ending.restart(&mut server);

        assert!(waiter.is_closed(), "{ending:?}");
        let mut conn = server.conn();
        let after = [conn.snapshot_of("k"), conn.snapshot_of("late")];
        assert_eq!(after, before, "{ending:?}");
        assert_eq!(server.stat("waiters"), 0);
        assert_eq!(holder_of(&mut conn, "k"), ("a".into(), 2, first));
        assert_eq!(holder_of(&mut conn, "late"), ("a".into(), 1, second));
        assert!(conn.line("LOCK.INFO freed").is_nil());

        // The server continues with the former state.
        assert!(conn.line("LOCK.ACQUIRE k b").is_nil());
        assert_eq!(conn.line("LOCK.ACQUIRE k a PX 60000 ONCE").int(), first);
        assert_eq!(
            conn.run(["LOCK.RELEASE", "late", "a", "TOKEN", &second.to_string()])
                .int(),
            1
        );
        let mut waiter = server.conn();
        waiter.send_line("LOCK.ACQUIRE k b BLOCK 0");
        server.wait_for_waiters(1);
        assert_eq!(conn.line("LOCK.RELEASE k a ALL").int(), 1);
        assert!(waiter.recv().int() > second, "{ending:?}");
    }
}

#[test]
fn a_server_without_the_module_loads_the_same_files_and_hands_them_back() {
    for ending in ENDINGS {
        let mut server = TestServer::with(ending.options());
        let mut conn = server.conn();
        let token = conn.line("LOCK.ACQUIRE k a PX 60000").int();
        ending.half_way(&server);
        conn.line("LOCK.ACQUIRE k a PX 70000");
        conn.line("LOCK.ACQUIRE freed a PX 60000");
        conn.line("LOCK.RELEASE freed a");
        let before = conn.snapshot_of("k");

        server.set_module(None);
        ending.restart(&mut server);
        let mut conn = server.conn();
        assert!(conn.line("LOCK.INFO k").is_error());
        assert_eq!(conn.snapshot_of("k"), before, "{ending:?}");
        assert_eq!(conn.line("EXISTS freed").int(), 0);
        // The commands of Redisson's unlock script for a hold of two.
        conn.line("HINCRBY k a -1");
        if matches!(ending, Ending::ShutdownWithRdb) {
            conn.run(["CONFIG", "SET", "save", "3600 1"]);
        }

        server.set_module(Some(&module_path()));
        ending.restart(&mut server);
        let mut conn = server.conn();
        assert_eq!(holder_of(&mut conn, "k"), ("a".into(), 1, token));
        assert_eq!(conn.line("LOCK.RELEASE k a").int(), 1);
        assert!(conn.line("LOCK.ACQUIRE k b").int() > token, "{ending:?}");
    }
}

fn wait_until_past(deadline_ms: i64) {
    wait_for("the end of the lease", || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        now.as_millis() as i64 > deadline_ms
    });
}

#[test]
fn a_lock_whose_lease_ran_out_while_the_server_was_down_is_free() {
    let mut server = TestServer::with(&AOF_ALWAYS);
    let mut conn = server.conn();
    let token = conn.line("LOCK.ACQUIRE k a PX 400").int();
    let kept = conn.line("LOCK.ACQUIRE kept a PX 60000").int();
    let deadline = conn.line("PEXPIRETIME k").int();
    server.crash();
    wait_until_past(deadline);
    server.start_again();
    let mut conn = server.conn();
    assert!(conn.line("LOCK.INFO k").is_nil());
    assert_eq!(conn.line("LOCK.RENEW k a").int(), 0);
    assert!(conn.line("LOCK.RELEASE k a").is_nil());
    assert!(conn.line("LOCK.ACQUIRE k b").int() > token);
    assert_eq!(holder_of(&mut conn, "kept").2, kept);
}

#[test]
fn a_waiter_of_a_restored_lock_is_granted_at_the_end_of_its_lease() {
    let mut server = TestServer::with(&AOF_ALWAYS);
    let mut conn = server.conn();
    let token = conn.line("LOCK.ACQUIRE k a PX 1500").int();
    let deadline = conn.line("PEXPIRETIME k").int();
    server.crash_and_restart();
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k b BLOCK 0");
    assert!(waiter.recv().int() > token);
    wait_until_past(deadline - 1);
}

#[test]
fn a_reload_keeps_waiters_and_their_locks() {
    let server = TestServer::start();
    let mut conn = server.conn();
    let token = conn.line("LOCK.ACQUIRE k a PX 60000").int();
    let mut waiters = [server.conn(), server.conn()];
    for (place, waiter) in waiters.iter_mut().enumerate() {
        waiter.send_line(&format!("LOCK.ACQUIRE k w{place} PX 60000 BLOCK 0"));
        server.wait_for_waiters(place as u64 + 1);
    }
    let before = conn.snapshot_of("k");
    assert_eq!(conn.line("DEBUG RELOAD").text(), "OK");
    assert_eq!(conn.snapshot_of("k"), before);
    assert_eq!(server.stat("waiters"), 2);
    assert!(waiters.iter_mut().all(Conn::is_silent));

    assert_eq!(conn.line("LOCK.RELEASE k a").int(), 1);
    let first = waiters[0].recv().int();
    assert!(first > token);
    assert!(waiters[1].is_silent());
    assert_eq!(conn.line("LOCK.RELEASE k w0").int(), 1);
    assert!(waiters[1].recv().int() > first);
}

#[test]
fn a_reload_that_finds_the_lock_free_grants_it() {
    let server = TestServer::start();
    let mut conn = server.conn();
    let token = conn.line("LOCK.ACQUIRE k a PX 60000").int();
    conn.line("RENAME k elsewhere");
    conn.line("SAVE");
    conn.line("RENAME elsewhere k");
    let mut waiter = server.conn();
    waiter.send_line("LOCK.ACQUIRE k b BLOCK 0");
    server.wait_for_waiters(1);
    assert_eq!(conn.line("DEBUG RELOAD NOSAVE").text(), "OK");
    assert!(waiter.recv().int() > token);
    assert_eq!(holder_of(&mut conn, "elsewhere"), ("a".into(), 1, token));
}

#[test]
fn an_aof_reloaded_in_place_keeps_the_waiters_too() {
    let mut s = Scene::with(&AOF_ALWAYS);
    assert_eq!(s.alice.line("DEBUG LOADAOF").text(), "OK");
    assert_eq!(holder_of(&mut s.alice, "k"), ("alice".into(), 1, s.first));
    assert_eq!(s.alice.line("LOCK.RELEASE k alice").int(), 1);
    assert!(s.bob.recv().int() > s.first);
}

#[test]
fn a_rewrite_of_the_aof_affects_no_waiter() {
    let mut s = Scene::with(&AOF_ALWAYS);
    rewrite_aof(&s.server);
    assert!(s.bob.is_silent());
    assert_eq!(s.alice.line("LOCK.RELEASE k alice").int(), 1);
    assert!(s.bob.recv().int() > s.first);
}
