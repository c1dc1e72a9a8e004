//! Calls of the server that fail: the client is told, the server lives on, and nothing is half-done.
//!
//! These tests run a build of the module in which a call of the server can be made to fail once
//! (`LOCK.FAULT API function`), whether or not the server would ever let it fail.

use crate::common::{wait_for, Conn, TestServer};
use crate::faults::fault_module;

/// A server where a call can be made to fail, and a connection.
fn stage() -> (TestServer, Conn) {
    let server = TestServer::with_module(fault_module(), &[]);
    let conn = server.conn();
    (server, conn)
}

/// The next call of this function fails.
fn arm(conn: &mut Conn, function: &str) {
    assert_eq!(conn.run(["LOCK.FAULT", "API", function]).text(), "OK");
}

/// The server does not park a client although nothing had said so: its request has left without a trace, and the
/// client is answered once.
#[test]
fn a_client_that_the_server_does_not_park_is_answered_as_without_block() {
    let (server, mut conn) = stage();
    for (before, request, serves, next) in [
        (
            &["LOCK.ACQUIRE k a PX 60000"][..],
            "LOCK.ACQUIRE k b PX 60000 BLOCK 0",
            "LOCK.RELEASE k a",
            "LOCK.RELEASE k first",
        ),
        (
            &["LOCK.ACQUIRE k a READ PX 60000"],
            "LOCK.ACQUIRE k b WRITE PX 60000 BLOCK 0",
            "LOCK.RELEASE k a READ",
            "LOCK.RELEASE k first WRITE",
        ),
        (
            &["LOCK.ACQUIRE k a PX 60000"],
            "LOCK.MACQUIRE 2 m k b PX 60000 BLOCK 0",
            "LOCK.RELEASE k a",
            "LOCK.MRELEASE 2 m k first",
        ),
        (
            &["SEM.SET k 1", "SEM.ACQUIRE k a PX 60000"],
            "SEM.ACQUIRE k b PX 60000 BLOCK 0",
            "SEM.RELEASE k a",
            "SEM.RELEASE k first",
        ),
        (
            &["LATCH.SET k 1"],
            "LATCH.WAIT k BLOCK 0",
            "LATCH.DOWN k",
            "PING",
        ),
    ] {
        for line in before {
            assert!(!conn.line(line).is_error(), "{line}");
        }
        // One in line before it, and one behind.
        let (mut first, mut last) = (server.conn(), server.conn());
        first.send_line(&request.replace(" b ", " first "));
        wait_for("the first in line", || waiters(&server) == 1);
        arm(&mut conn, "RedisModule_BlockClientOnKeys");
        let refused = conn.line(request);
        assert!(refused.is_nil() || refused.int() == 0, "{request}");
        assert_eq!(conn.line("PING").text(), "PONG", "{request}");
        assert_eq!(waiters(&server), 1, "{request}");
        assert_eq!(server.stat("places_kept"), 0, "{request}");
        server.check_books();
        last.send_line(&request.replace(" b ", " last "));
        wait_for("the last in line", || waiters(&server) == 2);
        assert!(conn.line(serves).int() < 2);
        assert!(!first.recv().is_nil(), "{request}");
        assert!(!conn.line(next).is_error(), "{next}");
        assert!(!last.recv().is_nil(), "{request}");
        conn.line("FLUSHALL");
    }
    let alive = ["waiters", "sem_waiters", "latch_waiters"];
    assert!(alive.iter().all(|name| server.stat(name) == 0));
    assert_eq!(server.stat("panics"), 0);
}

/// Parked requests of every kind.
fn waiters(server: &TestServer) -> u64 {
    let names = ["waiters", "sem_waiters", "latch_waiters"];
    names.iter().map(|name| server.stat(name)).sum()
}
