//! Interplay of the kinds of lock: READ and WRITE with several keys, with sessions, and with databases that are
//! swapped, in one tick or under one timer.

use crate::common::scene::only_reply;
use crate::common::{wait_for, Bystander, Conn, TestServer};

/// Parks a request, so that it is in the queues when this returns. Returns the id of the connection, too.
fn park(server: &TestServer, line: &str) -> (Conn, i64) {
    let all_parked = || server.stat("waits_parked") + server.stat("sem_waits_parked");
    let before = all_parked();
    let mut conn = server.conn();
    let id = conn.id();
    conn.send_line(line);
    wait_for("a parked request", || all_parked() > before);
    (conn, id)
}

#[test]
fn a_key_beside_a_lock_is_no_lock() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE warm up");
    for name in [
        "{k}:rwlock_token",
        "{k}:o:rwlock_timeout:1",
        "{k}:p:rwlock_timeout:27",
    ] {
        for line in [
            format!("LOCK.MACQUIRE 2 k {name} o READ"),
            format!("LOCK.MACQUIRE 2 {name} k o WRITE BLOCK 0"),
            format!("LOCK.MRELEASE 2 k {name} o"),
            format!("LOCK.ACQUIRE {name} o"),
            format!("SEM.SET {name} 1"),
            format!("LATCH.SET {name} 1"),
        ] {
            let bystander = Bystander::of(&server, "k");
            let refused = c.line(&line).error();
            let named = "ERR the key is named like one of those beside";
            assert!(refused.starts_with(named), "{line}: {refused}");
            bystander.saw_nothing(&line);
        }
    }
}

#[test]
fn a_grant_that_did_not_arrive_is_taken_back_where_swapdb_has_put_it() {
    let server = TestServer::start();
    let mut c = server.conn();
    for (take, give) in [
        ("LOCK.ACQUIRE k", "LOCK.RELEASE k"),
        ("SEM.ACQUIRE s", "SEM.RELEASE s"),
    ] {
        c.line("SELECT 0");
        c.line("SEM.SET s 1");
        c.line(&format!("{take} a PX 60000")).int();
        let (_parked, id) = park(&server, &format!("{take} b PX 60000 BLOCK 0"));
        c.line("MULTI");
        c.line(&format!("{give} a"));
        c.line(&format!("CLIENT KILL ID {id}"));
        c.line("SWAPDB 0 1");
        assert_eq!(c.line("EXEC").list().len(), 3);
        c.line("SELECT 1");
        wait_for("a lock without holder", || {
            c.line(&format!("{take} c PX 60000")).maybe_int().is_some()
        });
        c.line(&format!("{give} c"));
        c.line("SWAPDB 0 1");
    }
    server.check_counters();
}

#[test]
fn an_upgrader_does_not_wait_for_its_own_lease_that_a_session_renews() {
    let server = TestServer::with(&["--lock.session-lease", "900"]);
    let mut c = server.conn();
    // The other reader's lease ends after several renewals; it is not renewed then.
    c.line("LOCK.ACQUIRE k dead READ PX 1500").int();
    let mut upgrader = server.conn();
    upgrader.line("LOCK.ACQUIRE k u READ SESSION").int();
    upgrader.send_line("LOCK.ACQUIRE k u WRITE SESSION BLOCK 0");
    assert!(only_reply(&mut upgrader).int() > 0);
    assert!(server.stat("session_renewals") >= 2);
}

#[test]
fn a_request_for_several_keys_ends_the_upgrade_that_it_takes_over() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE k u READ PX 60000").int();
    c.line("LOCK.ACQUIRE k other READ PX 60000").int();
    let (mut upgrade, _) = park(&server, "LOCK.ACQUIRE k u WRITE PX 60000 BLOCK 0");
    c.line("MULTI");
    c.line("DEL {k}:other:rwlock_timeout:1");
    c.line("LOCK.MACQUIRE 2 k j u WRITE PX 60000");
    let granted = c.line("EXEC").list();
    assert_eq!(granted[1].list().len(), 2);
    assert!(only_reply(&mut upgrade).is_nil());
    assert_eq!(server.stat("waits_taken_over"), 1);
    server.check_counters();
}

#[test]
fn a_request_for_several_locks_of_another_kind_does_not_send_others_away() {
    let server = TestServer::start();
    let mut c = server.conn();
    c.line("LOCK.ACQUIRE x holder PX 60000").int();
    let (mut several, _) = park(&server, "LOCK.MACQUIRE 2 k x m BLOCK 0");
    // A script takes the free key for reading, as Redisson does.
    c.line("MULTI");
    c.line("HSET k mode read other 1");
    c.line("SET {k}:other:rwlock_timeout:1 1 PX 60000");
    c.line("PEXPIRE k 60000");
    c.line("EXEC");
    let (mut writer, _) = park(&server, "LOCK.ACQUIRE k w WRITE PX 60000 BLOCK 0");
    assert_eq!(c.line("LOCK.RELEASE x holder").int(), 1);
    let response = only_reply(&mut several).error();
    assert!(response.starts_with("LOCKTYPE"), "{response}");
    c.line("DEL {k}:other:rwlock_timeout:1 k");
    assert!(only_reply(&mut writer).int() > 0);
    server.check_counters();
}

#[test]
fn a_permit_waiter_at_a_free_key_is_refused_when_several_keys_become_read_write_locks() {
    let server = TestServer::start();
    let mut c = server.conn();
    let (mut waiter, _) = park(&server, "SEM.ACQUIRE k p BLOCK 0");
    assert_eq!(
        c.line("LOCK.MACQUIRE 2 j k o READ PX 60000").list().len(),
        2
    );
    let response = only_reply(&mut waiter).error();
    assert!(response.starts_with("WRONGTYPE"), "{response}");
}

/// The token that a deleted read-write lock left behind is not granted again after a higher one.
#[test]
fn a_token_left_behind_is_not_used_for_a_later_read_phase() {
    let server = TestServer::start();
    let mut c = server.conn();
    let first = c.line("LOCK.ACQUIRE k r READ PX 600000").int();
    c.line("DEL k");
    let second = c.line("LOCK.ACQUIRE k e PX 600000").int();
    assert!(second > first);
    c.line("LOCK.RELEASE k e");
    // As a Redisson reader begins.
    c.line("HSET k mode read s 1");
    c.line("SET {k}:s:rwlock_timeout:1 1 PX 600000");
    c.line("PEXPIRE k 600000");
    assert!(c.line("LOCK.ACQUIRE k r2 READ PX 600000").int() > second);
}
