//! Semaphores and latches, on real servers.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::Duration;

use redis_lock_client::Server;
use redis_lock_harness::proxy::Proxy;
use redis_lock_harness::{wait_for, TestServer};

mod latches;
mod permits;
mod places;
mod semaphores;

/// Longer than any test waits for what comes.
pub const LONG: Duration = Duration::from_secs(60);
/// The longest time for a reply, of which a twentieth is for that to a `try_acquire`.
const PATIENT: Duration = Duration::from_secs(100);
/// The place of a waiter whose connection ends is kept for a minute: only a withdrawal gives it up earlier.
pub const PLACES_STAY: [&str; 2] = ["--lock.queue-grace", "60000"];

/// This server's address.
pub fn client(real: &TestServer) -> Server {
    open(real.port).response_timeout(PATIENT)
}

/// The same with the default response timeout.
pub fn prompt(real: &TestServer) -> Server {
    open(real.port)
}

fn open(port: u16) -> Server {
    Server::open(&format!("redis://127.0.0.1:{port}")).unwrap()
}

/// The proxy's address.
pub fn through(proxy: &Proxy) -> Server {
    open(proxy.port).response_timeout(PATIENT)
}

/// Blocks the thread, not the runtime, until the condition holds.
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    tokio::task::block_in_place(|| wait_for(what, condition));
}

/// Blocks until a gauge or counter of `INFO lock` has this value.
pub fn until_stat(real: &TestServer, name: &str, value: u64) {
    until(&format!("{name} = {value}"), || real.stat(name) == value);
}

/// Blocks until so many requests wait, parked or as tickets.
pub fn until_waits(real: &TestServer, count: u64) {
    until(&format!("{count} waits"), || real.waits() == count);
}

/// How many requests have waited so far, parked or as tickets.
pub fn waited(real: &TestServer) -> u64 {
    let all = ["sem_waits_parked", "latch_waits_parked", "tickets_queued"];
    all.iter().map(|name| real.stat(name)).sum()
}

/// Ends every connection but the one that asks for it.
pub fn kill_connections(real: &TestServer) {
    real.conn().line("CLIENT KILL TYPE pubsub");
    real.conn().line("CLIENT KILL TYPE normal SKIPME yes");
}
