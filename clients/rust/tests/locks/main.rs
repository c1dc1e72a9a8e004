//! One lock, on real servers: one file a concern.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::Duration;

use redis_lock_client::{Guard, Lock, Server};
use redis_lock_harness::TestServer;

mod basics;
mod election;
mod fail_over;
mod figures;
mod lost;
mod notice;
mod observer;
#[path = "../order/mod.rs"]
mod order;
mod places;
mod queue;
mod replicas;
#[path = "../servers/mod.rs"]
mod servers;
mod session;
mod statistics;
mod storm;
mod tickets;
mod tls;
mod undo;
mod waits;

use servers::until;

/// A lease that no test sees end by itself.
pub const LEASE: Duration = Duration::from_secs(30);
/// A lease for tests that wait for renewals: the first one comes after 4 s, and a busy machine may be late by 6 s more.
pub const RENEWED: Duration = Duration::from_secs(12);

/// The lock `k` of a server.
pub fn lock(server: &Server) -> Lock {
    Lock::new(server, "k").lease(LEASE)
}

/// A wait in a task of its own.
pub fn wait(lock: &Lock) -> tokio::task::JoinHandle<Guard> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

/// Until the lock is neither held nor waited for, nor a place in its queue kept.
pub fn until_free(real: &TestServer) {
    let mut conn = real.conn();
    until("a free lock", || conn.line("LOCK.INFO k").is_nil());
}
