//! Nemeses with one server: each is a name, options and a function that causes faults.

use redis_lock_harness::{wait_for, TestServer};

use crate::history::TicketCounters;
use crate::play::{Hand, Nemesis};
use crate::route::{Fixed, Route};

/// One server, and the function that causes its faults.
pub struct One<F> {
    pub server: TestServer,
    /// The process at the begin.
    pid: i32,
    strike: F,
}

/// Starts a server with these options.
pub fn one<F: FnMut(&mut TestServer, &mut Hand)>(options: &[&str], strike: F) -> Box<One<F>> {
    on(TestServer::with(options), strike)
}

/// With this server.
pub fn on<F: FnMut(&mut TestServer, &mut Hand)>(server: TestServer, strike: F) -> Box<One<F>> {
    let pid = server.pid();
    Box::new(One {
        server,
        pid,
        strike,
    })
}

impl<F: FnMut(&mut TestServer, &mut Hand)> Nemesis for One<F> {
    fn route(&self) -> Box<dyn Route> {
        Box::new(Fixed(self.server.port))
    }

    fn strike(&mut self, hand: &mut Hand) {
        (self.strike)(&mut self.server, hand);
    }

    fn counters(&self) -> Option<TicketCounters> {
        if self.server.pid() != self.pid {
            return None;
        }
        Some(ticket_counters(&self.server))
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        finish(self.server)
    }

    fn version(&self) -> String {
        version(&self.server)
    }
}

/// The counters of tickets when no client waits.
pub fn ticket_counters(server: &TestServer) -> TicketCounters {
    wait_for_silence(server);
    // One reply, so that all are of one moment.
    let info = server.conn().run(["INFO", "lock"]).text();
    let of = |name: &str| {
        let name = format!("lock_tickets{name}:");
        let line = info.lines().find_map(|line| line.strip_prefix(&name));
        line.map_or(0, |number| number.trim().parse().unwrap_or(0))
    };
    TicketCounters {
        queued: of("_queued"),
        granted: of("_granted"),
        timed_out: of("_timed_out"),
        withdrawn: of("_withdrawn"),
        taken_over: of("_taken_over"),
        failed: of("_failed"),
        unheard: of("_unheard"),
        waiting: of(""),
    }
}

/// Waits until there are no waiters, checks the counters, and ends the server.
pub fn finish(mut server: TestServer) -> Result<(), String> {
    if server.is_alive() {
        wait_for_silence(&server);
    }
    server.finish()
}

/// Until no client waits, and every wait that ran out is counted: the tickets of processes that died are passed over
/// when their lock is free.
fn wait_for_silence(server: &TestServer) {
    let is_silent = |name: &&str| server.stat(name) == 0;
    wait_for("the end of all waits", || {
        ["waiters", "tickets", "tickets_kept"].iter().all(is_silent)
    });
}

/// Its name and version.
pub fn version(server: &TestServer) -> String {
    let (major, minor, patch) = server.version();
    let name = match server.is_valkey() {
        true => "Valkey",
        false if (major, minor) == (7, 3) => "Redict",
        false => "Redis",
    };
    format!("{name} {major}.{minor}.{patch}")
}
