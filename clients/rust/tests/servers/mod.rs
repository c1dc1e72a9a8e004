//! How the client sees the servers of a test, for several test programs.

use std::time::Duration;

use redis_lock_client::{Server, ServerBuilder};
use redis_lock_harness::proxy::Proxy;
use redis_lock_harness::{wait_for, TestServer};

/// Longer than any test waits for what comes.
pub const LONG: Duration = Duration::from_secs(60);
/// The longest time for a reply, of which a twentieth is for that to a `try_acquire`.
pub const PATIENT: Duration = Duration::from_secs(100);

/// This server's address.
pub fn client(real: &TestServer) -> Server {
    with_timeout(real.port, PATIENT)
}

/// The same with the default response timeout.
pub fn prompt(real: &TestServer) -> Server {
    at(real.port).build().unwrap()
}

/// The proxy's address.
pub fn through(proxy: &Proxy) -> Server {
    with_timeout(proxy.port, PATIENT)
}

/// The server or the proxy at this port.
pub fn at(port: u16) -> ServerBuilder {
    Server::builder(&format!("redis://127.0.0.1:{port}"))
}

/// The same with this response timeout.
pub fn with_timeout(port: u16, timeout: Duration) -> Server {
    at(port).response_timeout(timeout).build().unwrap()
}

/// The server at this URL.
pub fn patient(url: &str) -> Server {
    let server = Server::builder(url).response_timeout(PATIENT);
    server.build().unwrap()
}

/// Blocks the thread, not the runtime, until the condition holds.
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    tokio::task::block_in_place(|| wait_for(what, condition));
}

/// Blocks until so many requests wait, parked or as tickets.
pub fn until_waits(real: &TestServer, count: u64) {
    until(&format!("{count} waits"), || real.waits() == count);
}
