//! Nemeses with one server: each is a name, options and a function that causes faults.

use redis_lock_harness::{wait_for, TestServer};

use crate::play::{Hand, Nemesis};
use crate::route::{Fixed, Route};

/// One server, and the function that causes its faults.
pub struct One<F> {
    pub server: TestServer,
    strike: F,
}

/// Starts a server with these options.
pub fn one<F: FnMut(&mut TestServer, &mut Hand)>(options: &[&str], strike: F) -> Box<One<F>> {
    on(TestServer::with(options), strike)
}

/// With this server.
pub fn on<F: FnMut(&mut TestServer, &mut Hand)>(server: TestServer, strike: F) -> Box<One<F>> {
    Box::new(One { server, strike })
}

impl<F: FnMut(&mut TestServer, &mut Hand)> Nemesis for One<F> {
    fn route(&self) -> Box<dyn Route> {
        Box::new(Fixed(self.server.port))
    }

    fn strike(&mut self, hand: &mut Hand) {
        (self.strike)(&mut self.server, hand);
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        finish(self.server)
    }

    fn version(&self) -> String {
        version(&self.server)
    }
}

/// Waits until there are no waiters, checks the counters, and ends the server.
pub fn finish(mut server: TestServer) -> Result<(), String> {
    if server.is_alive() {
        wait_for("the end of all waits", || server.stat("waiters") == 0);
    }
    server.finish()
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
