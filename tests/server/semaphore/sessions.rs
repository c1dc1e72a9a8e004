//! Permits that are bound to a connection.

use crate::common::barrier::assert_stays_silent;
use crate::common::scene::only_reply;
use crate::common::{wait_for, Conn, TestServer};
use crate::session::endings::{assert_stats, SHORT, STEADY};

fn parked(server: &TestServer, line: &str) -> Conn {
    let mut conn = server.conn();
    conn.send_line(line);
    wait_for("a waiter", || server.stat("sem_waiters") == 1);
    conn
}

fn end_of(conn: &mut Conn, id: &str) -> i64 {
    let score = conn.run(["ZSCORE", "{k}:timeout", id]).text();
    score.parse().expect("a score")
}

#[test]
fn the_end_of_the_connection_hands_the_permit_off() {
    let server = TestServer::start();
    let mut alice = server.conn();
    assert!(alice.line("SEM.ACQUIRE k a SESSION LIMIT 1").int() > 0);
    let mut bob = parked(&server, "SEM.ACQUIRE k b SESSION BLOCK 0");
    assert_stays_silent(&server, &mut bob);
    alice.close();
    assert!(only_reply(&mut bob).int() > 0);
    assert_stats(&server, &[("sem_grants_session_ended", 1), ("sessions", 1)]);
    bob.close();
    let mut c = server.conn();
    wait_for("a free permit", || c.line("GET k").text() == "1");
    assert_eq!(c.line("EXISTS {k}:timeout").int(), 0);
    assert_stats(
        &server,
        &[("sem_grants_session_ended", 2), ("session_holds", 0)],
    );
}

#[test]
fn the_server_keeps_the_lease_as_long_as_the_connection_lives() {
    let server = TestServer::with(&STEADY);
    let mut alice = server.conn();
    alice.line("SEM.ACQUIRE k a SESSION LIMIT 1");
    let first = end_of(&mut alice, "a");
    let mut bob = parked(&server, "SEM.ACQUIRE k b BLOCK 0");
    wait_for("renewals", || server.stat("session_renewals") > 1);
    assert!(bob.is_silent());
    assert!(end_of(&mut alice, "a") > first);
    assert_eq!(alice.line("SEM.RENEW k a").int(), 1, "it stays bound");
    assert!(end_of(&mut alice, "a") < first + 20_000);
    alice.close();
    assert!(only_reply(&mut bob).int() > 0);
}

#[test]
fn a_lease_of_its_own_ends_the_session() {
    let server = TestServer::start();
    for line in ["SEM.RENEW k a PX 60000", "SEM.ACQUIRE k a PX 60000"] {
        let (mut alice, mut c) = (server.conn(), server.conn());
        alice.line("SEM.ACQUIRE k a SESSION LIMIT 1");
        assert_eq!(server.stat("session_holds"), 1);
        alice.line(line);
        assert_eq!(server.stat("session_holds"), 0, "{line}");
        alice.close();
        c.line("PING");
        assert!(c.line("SEM.ACQUIRE k b").is_nil(), "{line}");
        assert_eq!(c.line("SEM.RELEASE k a").int(), 1);
    }
}

#[test]
fn the_session_moves_to_the_connection_that_asks_last() {
    let server = TestServer::start();
    let (mut first, mut second) = (server.conn(), server.conn());
    let token = first.line("SEM.ACQUIRE k a SESSION LIMIT 1").int();
    assert_eq!(second.line("SEM.ACQUIRE k a SESSION").int(), token);
    first.close();
    wait_for("the end of the first", || server.stat("sessions") == 1);
    assert!(server.conn().line("SEM.ACQUIRE k b").is_nil());
    second.close();
    let mut c = server.conn();
    wait_for("a free permit", || c.line("GET k").text() == "1");
}

#[test]
fn many_permits_of_one_connection_are_returned_in_portions() {
    let server = TestServer::start();
    let (mut alice, mut c) = (server.conn(), server.conn());
    alice.line("SEM.SET k 500");
    for i in 0..300 {
        alice.line(&format!("SEM.ACQUIRE k a{i} SESSION"));
    }
    alice.close();
    wait_for("all of them", || c.line("GET k").text() == "500");
    assert_stats(
        &server,
        &[("sem_grants_session_ended", 300), ("session_holds", 0)],
    );
}

#[test]
fn a_session_needs_a_connection() {
    let server = TestServer::start();
    let mut c = server.conn();
    let script = "return redis.call('SEM.ACQUIRE', KEYS[1], 'a', 'SESSION', 'LIMIT', '1')";
    assert!(c.run(["EVAL", script, "1", "k"]).is_error());
    assert_eq!(c.line("EXISTS k").int(), 0);
    assert!(c.line("SEM.ACQUIRE k a SESSION EX 1").is_error());
    c.line("MULTI");
    c.line("SEM.ACQUIRE k a SESSION LIMIT 1");
    assert!(c.line("EXEC").list()[0].int() > 0);
    c.close();
    let mut c = server.conn();
    wait_for("a free permit", || c.line("GET k").text() == "1");
}

#[test]
fn a_lost_permit_is_no_longer_renewed() {
    let server = TestServer::with(&SHORT);
    let mut alice = server.conn();
    alice.line("SEM.ACQUIRE k a SESSION LIMIT 1");
    alice.line("ZREM {k}:timeout a");
    alice.line("INCR k");
    wait_for("the end of the binding", || {
        server.stat("session_losses") == 1
    });
    assert_eq!(alice.line("EXISTS {k}:timeout").int(), 0);
    assert_stats(&server, &[("session_holds", 0)]);
}
