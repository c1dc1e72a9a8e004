//! One lock, on real servers: one file a concern.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::Duration;

use redis_lock_client::{Guard, Lock, Server};
use redis_lock_harness::{wait_for, TestServer};

mod basics;
mod election;
mod figures;
mod lost;
mod notice;
#[path = "../order/mod.rs"]
mod order;
mod places;
mod session;
mod statistics;
mod storm;
mod tickets;
mod tls;
mod undo;
mod waits;

/// Longer than any test waits for what comes.
pub const LONG: Duration = Duration::from_secs(60);
/// The longest time for a reply, of which a twentieth is for that to a `try_acquire`.
const PATIENT: Duration = Duration::from_secs(100);
/// A lease that no test sees end by itself.
pub const LEASE: Duration = Duration::from_secs(30);
/// A lease for tests that wait for renewals: the first one comes after 4 s, and a busy machine may be late by 6 s more.
pub const RENEWED: Duration = Duration::from_secs(12);

/// How the client sees this server.
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

/// The same through a proxy.
pub fn through(proxy: &redis_lock_harness::proxy::Proxy) -> Server {
    open(proxy.port).response_timeout(PATIENT)
}

/// The lock `k` of a server.
pub fn lock(server: &Server) -> Lock {
    Lock::new(server, "k").lease(LEASE)
}

/// A wait in a task of its own.
pub fn wait(lock: &Lock) -> tokio::task::JoinHandle<Guard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

/// Blocks the thread, not the runtime, until the condition holds.
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    tokio::task::block_in_place(|| wait_for(what, condition));
}

/// Until so many requests wait, parked or as tickets.
pub fn until_waited(real: &TestServer, count: u64) {
    until(&format!("{count} waits"), || real.waits() == count);
}

/// Until the lock is neither held nor waited for, nor a place in its queue kept.
pub fn until_free(real: &TestServer) {
    let mut conn = real.conn();
    until("a free lock", || conn.line("LOCK.INFO k").is_nil());
}
