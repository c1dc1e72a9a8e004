//! Semaphores and latches, on real servers.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use redis_lock_harness::TestServer;

mod latches;
mod permits;
mod places;
mod semaphores;
#[path = "../servers/mod.rs"]
mod servers;

use servers::until;

/// The place of a waiter whose connection ends is kept for a minute: only a withdrawal gives it up earlier.
pub const PLACES_STAY: [&str; 2] = ["--lock.queue-grace", "60000"];

/// Blocks until a gauge or counter of `INFO lock` has this value.
pub fn until_stat(real: &TestServer, name: &str, value: u64) {
    until(&format!("{name} = {value}"), || real.stat(name) == value);
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
