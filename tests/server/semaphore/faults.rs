//! A panic during a decision about a semaphore or a latch: every client gets a reply, no permit is lost, and the server
//! continues to work.

use crate::common::{wait_for, Conn, TestServer};
use crate::lifecycle::faults::fault_module;

const INTERNAL: &str = "ERR internal error";

/// Alice has the only permit of `k`; b and c wait.
fn stage() -> (TestServer, Conn, Conn, Conn) {
    let server = TestServer::with_module(fault_module(), &[]);
    let (mut conn, mut b, mut c) = (server.conn(), server.conn(), server.conn());
    conn.line("SEM.ACQUIRE k a LIMIT 1 PX 60000").int();
    b.send_line("SEM.ACQUIRE k b PX 60000 BLOCK 0");
    wait_for("b", || server.stat("sem_waiters") == 1);
    c.send_line("SEM.ACQUIRE k c PX 60000 BLOCK 0");
    wait_for("c", || server.stat("sem_waiters") == 2);
    (server, conn, b, c)
}

fn assert_internal(conn: &mut Conn) {
    let error = conn.recv().error();
    assert!(error.starts_with(INTERNAL), "{error}");
}

#[test]
fn between_a_decision_and_its_effects() {
    let (server, mut conn, mut b, mut c) = stage();
    conn.line("LOCK.FAULT apply");
    conn.send_line("SEM.RELEASE k a");
    assert_internal(&mut conn);
    assert_internal(&mut b);
    assert_eq!(
        conn.line("SEM.RELEASE k a").int(),
        1,
        "the permit is still held"
    );
    assert!(c.recv().int() > 0);
    assert_eq!(conn.line("SEM.RELEASE k c").int(), 1);
    assert_eq!(conn.line("GET k").text(), "1");
    assert_eq!(server.stat("panics"), 1);
}

#[test]
fn in_the_timer_at_the_end_of_a_lease() {
    let (server, mut conn, mut b, mut c) = stage();
    conn.line("LOCK.FAULT apply");
    conn.send_line("SEM.RENEW k a PX 50");
    assert_internal(&mut conn);
    conn.line("SEM.RENEW k a PX 50");
    conn.line("LOCK.FAULT alarm");
    wait_for("the second panic", || server.stat("panics") == 2);
    assert!(b.recv().int() > 0);
    assert_eq!(conn.line("SEM.RELEASE k b").int(), 1);
    assert!(c.recv().int() > 0);
}

#[test]
fn in_a_disconnect() {
    let (server, mut conn, b, mut c) = stage();
    conn.line("LOCK.FAULT disconnect");
    b.close();
    wait_for("the panic", || server.stat("panics") == 1);
    wait_for("c alone", || server.stat("sem_waiters") == 1);
    conn.line("SEM.RELEASE k a");
    assert!(c.recv().int() > 0);
}

#[test]
fn as_a_latch_opens() {
    let server = TestServer::with_module(fault_module(), &[]);
    let (mut conn, mut waiter) = (server.conn(), server.conn());
    conn.line("LATCH.SET d 1");
    waiter.send_line("LATCH.WAIT d BLOCK 0");
    wait_for("a waiter", || server.stat("latch_waiters") == 1);
    conn.line("LOCK.FAULT apply");
    conn.send_line("LATCH.DOWN d");
    assert_internal(&mut conn);
    assert_internal(&mut waiter);
    assert_eq!(
        conn.line("LATCH.WAIT d").int(),
        0,
        "the latch is still closed"
    );
    waiter.send_line("LATCH.WAIT d BLOCK 0");
    wait_for("a waiter", || server.stat("latch_waiters") == 1);
    assert_eq!(conn.line("LATCH.DOWN d").int(), 0);
    assert_eq!(waiter.recv().int(), 1);
}
