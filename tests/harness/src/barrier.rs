//! Proof that a parked client got no reply, without a wait of fixed length.
//!
//! The module grants in two ways: within the command that frees a key, and by its timer (keys to settle, leases that
//! end, retries while writes are refused). The timer also answers a parked request whose wait ends, and the same call
//! settles all keys that are due. So the reply to a wait longer than the longest retry interval proves that everything
//! due before was decided, however slow the machine is. The reply to an `ECHO` sent after it proves that the replies
//! were written. (`PING` is refused while the disk fails.)

use crate::{Conn, TestServer};

/// Longer than `RETRY_MS` of the module (20 ms): by then the module has tried again to settle a key.
const BLOCK_MS: &str = "25";

/// A database that no test uses, so that flushes, swaps and sizes of the others do not concern it.
const DATABASE: &str = "15";

/// A client that waits for a latch that stays closed. Waiting writes nothing and is possible while writes are refused
/// or paused. Creating the latch is not, so a test creates its barrier before.
pub struct Barrier {
    conn: Conn,
}

impl Barrier {
    pub fn on(server: &TestServer) -> Barrier {
        let mut conn = server.conn();
        conn.run(["SELECT", DATABASE]);
        let made = conn.run(["LATCH.SET", "barrier", "1"]);
        assert!(!made.is_error(), "no latch for the barrier: {made:?}");
        Barrier { conn }
    }

    /// Returns when everything that is due now was decided and its replies were written.
    pub fn pass(&mut self) {
        let reply = self.conn.run(["LATCH.WAIT", "barrier", "BLOCK", BLOCK_MS]);
        assert_eq!(reply.int(), 0, "the wait for a closed latch");
        assert_eq!(self.conn.line("ECHO barrier").text(), "barrier");
    }

    /// Asserts that no event until now gave this client a reply.
    pub fn assert_silent(&mut self, parked: &mut Conn) {
        self.pass();
        assert!(parked.is_silent(), "unexpected: {:?}", parked.recv());
    }
}

/// Asserts that no event until now gave this client a reply. If writes are refused or paused at the time, the test
/// needs a [`Barrier`] created before.
pub fn assert_stays_silent(server: &TestServer, parked: &mut Conn) {
    Barrier::on(server).assert_silent(parked);
}
