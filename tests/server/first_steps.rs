//! The two windows of the README: park, release, hand-off.

use crate::common::TestServer;

#[test]
fn a_second_owner_is_parked_and_handed_the_lock() {
    let server = TestServer::start();
    let (mut a, mut b) = (server.conn(), server.conn());
    let first = a.line("LOCK.ACQUIRE k alice PX 30000").int();
    b.send_line("LOCK.ACQUIRE k bob PX 30000 BLOCK 0");
    server.wait_for_waiters(1);
    assert!(b.is_silent());
    assert_eq!(a.line("LOCK.RELEASE k alice").int(), 1);
    assert!(b.recv().int() > first);
    assert_eq!(a.line("HGET k bob").text(), "1");
    assert_eq!(b.line("LOCK.RELEASE k bob").int(), 1);
    assert_eq!(a.line("EXISTS k").int(), 0);
}
