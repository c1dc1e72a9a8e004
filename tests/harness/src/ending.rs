//! Ways to end a server that leave all data in its files.

use crate::{wait_for, TestServer};

/// An AOF that has every write before its reply.
pub const AOF_ALWAYS: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

const PLAIN_AOF_ALWAYS: [&str; 6] = [
    "--appendonly",
    "yes",
    "--appendfsync",
    "always",
    "--aof-use-rdb-preamble",
    "no",
];

/// One of these ways.
#[derive(Clone, Copy, Debug)]
pub enum Ending {
    /// SIGKILL, with an AOF that is synced at each write.
    CrashWithAof,
    /// SIGKILL after a rewrite of the AOF, with more written after it.
    CrashWithRewrittenAof,
    /// The same with a base file of plain commands.
    CrashWithPlainAof,
    /// SHUTDOWN, which saves an RDB file.
    ShutdownWithRdb,
}

/// All of them.
pub const ENDINGS: [Ending; 4] = [
    Ending::CrashWithAof,
    Ending::CrashWithRewrittenAof,
    Ending::CrashWithPlainAof,
    Ending::ShutdownWithRdb,
];

impl Ending {
    /// The options of the server.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Ending::CrashWithAof | Ending::CrashWithRewrittenAof => &AOF_ALWAYS,
            Ending::CrashWithPlainAof => &PLAIN_AOF_ALWAYS,
            Ending::ShutdownWithRdb => &[],
        }
    }

    /// Called when half of the test's data is written.
    pub fn half_way(self, server: &TestServer) {
        match self {
            Ending::CrashWithAof => {}
            Ending::CrashWithRewrittenAof | Ending::CrashWithPlainAof => rewrite_aof(server),
            Ending::ShutdownWithRdb => {
                server.conn().run(["CONFIG", "SET", "save", "3600 1"]);
            }
        }
    }

    /// Ends the server and starts it again.
    pub fn restart(self, server: &mut TestServer) {
        match self {
            Ending::ShutdownWithRdb => server.restart(),
            _ => server.crash_and_restart(),
        }
    }
}

/// Rewrites the AOF, and waits until that is done.
pub fn rewrite_aof(server: &TestServer) {
    server.conn().line("BGREWRITEAOF");
    let field = |name| server.info_field("persistence", name);
    wait_for("the rewrite of the AOF", || {
        field("aof_rewrite_in_progress") == "0"
            && field("aof_rewrite_scheduled") == "0"
            && server.log().contains("AOF rewrite finished successfully")
    });
}
