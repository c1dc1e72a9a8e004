//! Proof that a parked client got no reply, without a wait of fixed length.
//!
//! The module grants in two ways: within the command that frees a key, or by its timer (keys to settle, leases that
//! end, retries while writes are refused). A parked request that runs out after the longest retry interval is answered
//! by that timer too, and what is due is settled in the same call. So its reply marks that all that was due before was
//! decided, however slow the machine is; an `ECHO` behind it marks that the replies were written. (`PING` is refused
//! while the disk fails.)

use crate::{Conn, TestServer};

/// Longer than `RETRY_MS` of the module (20 ms): a key that could not be settled was tried again by then.
const BLOCK_MS: &str = "25";

/// A database that no test uses, so that flushes, swaps and sizes of the others are not touched.
const DATABASE: &str = "15";

/// A client that waits for a latch which stays closed. Waiting writes nothing and is possible while writes are refused
/// or paused; making the latch is not, so a test makes its barrier before.
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

    /// Returns when all that is due now was decided and its replies were written.
    pub fn pass(&mut self) {
        let reply = self.conn.run(["LATCH.WAIT", "barrier", "BLOCK", BLOCK_MS]);
        assert_eq!(reply.int(), 0, "the wait for a closed latch");
        assert_eq!(self.conn.line("ECHO barrier").text(), "barrier");
    }

    /// Asserts that nothing that happened until now gave this client a reply.
    pub fn assert_silent(&mut self, parked: &mut Conn) {
        self.pass();
        assert!(parked.is_silent(), "unexpected: {:?}", parked.recv());
    }
}

/// Asserts that nothing that happened until now gave this client a reply. Where writes are refused or paused at the
/// time, a [`Barrier`] is made before.
pub fn assert_stays_silent(server: &TestServer, parked: &mut Conn) {
    Barrier::on(server).assert_silent(parked);
}
