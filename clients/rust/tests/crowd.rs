//! Thousands of waits of one process, on one subscription that breaks. A program of its own: all tests of a program
//! share the thread of the crate, and others measure how soon it reports a loss.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod order;

use std::time::{Duration, Instant};

use redis_lock_client::{Guard, Lock, Released, Server};
use redis_lock_harness::{wait_for, TestServer};

use crate::order::{joined, until_connections, waits, Order, Waits};

/// A lease that no test sees end by itself.
const LEASE: Duration = Duration::from_secs(30);

/// The most waiters that `LOCK.INFO` lists.
const LISTED: usize = 1_000;

/// The owners that wait for `k`, in the order of the queue.
fn queue(real: &TestServer, count: usize) -> Vec<Vec<u8>> {
    let info = real
        .conn()
        .line(&format!("LOCK.INFO k WAITERS COUNT {count}"));
    let waiters = info.field("queue").unwrap().list().to_vec();
    let owners = waiters.iter().map(|waiter| waiter.field("owner").unwrap());
    owners.map(|owner| owner.bytes().to_vec()).collect()
}

fn client(real: &TestServer) -> Server {
    Server::open(&format!("redis://127.0.0.1:{}", real.port)).unwrap()
}

fn lock(server: &Server) -> Lock {
    Lock::new(server, "k").lease(LEASE)
}

/// Blocks the thread, not the runtime, until the condition holds.
fn until(what: &str, condition: impl FnMut() -> bool) {
    tokio::task::block_in_place(|| wait_for(what, condition));
}

fn until_waited(real: &TestServer, count: u64) {
    until(&format!("{count} waits"), || real.waits() == count);
}

fn until_free(real: &TestServer) {
    let mut conn = real.conn();
    until("a free lock", || conn.line("LOCK.INFO k").is_nil());
}

/// A holder, and this many waits behind it.
async fn crowd(real: &TestServer, server: &Server, count: usize) -> (Guard, Order, Waits) {
    let holder = lock(server).acquire().await.unwrap();
    let order = Order::default();
    let waits = waits(&lock(server), count, &order);
    until_waited(real, count as u64);
    (holder, order, waits)
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_waits_share_two_connections_and_their_order_outlives_the_subscription() {
    const WAITS: usize = 10_000;
    let real = TestServer::start();
    let server = client(&real);
    let (holder, order, tasks) = crowd(&real, &server, WAITS).await;
    assert_eq!(real.stat("tickets"), WAITS as u64);
    until_connections(&real, 2);
    let expected = queue(&real, LISTED);
    assert_eq!(expected.len(), LISTED);

    let queued = real.stat("tickets_queued");
    let start = Instant::now();
    assert_eq!(real.conn().line("CLIENT KILL TYPE pubsub").int(), 1);
    until("all asked again", || {
        real.stat("tickets_queued") >= queued + WAITS as u64
    });
    println!("{WAITS} tickets asked again in {:?}", start.elapsed());
    assert_eq!(real.stat("tickets"), WAITS as u64);
    assert_eq!(queue(&real, LISTED), expected);

    let start = Instant::now();
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    joined(tasks).await;
    println!("{WAITS} grants in {:?}", start.elapsed());
    assert_eq!(order.lock().unwrap()[..LISTED], expected);
    assert_eq!(real.stat("grants"), WAITS as u64 + 1);
    until_connections(&real, 2);
    assert_eq!(server.statistics().waiting, 0);
    until_free(&real);
}

/// Subscriptions are killed while grants are made: messages die with them.
#[tokio::test(flavor = "multi_thread")]
async fn no_grant_is_lost_while_subscriptions_are_killed() {
    const WAITS: usize = 300;
    let real = TestServer::start();
    let server = client(&real);
    let (holder, order, tasks) = crowd(&real, &server, WAITS).await;
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    let mut conn = real.conn();
    let mut killed = 0;
    while tasks.iter().any(|task| !task.is_finished()) {
        let done = order.lock().unwrap().len();
        killed += conn.line("CLIENT KILL TYPE pubsub").int();
        until("a grant", || {
            order.lock().unwrap().len() > done || done == WAITS
        });
    }
    joined(tasks).await;
    println!("{killed} subscriptions killed");
    assert!(killed > 5);
    assert_eq!(order.lock().unwrap().len(), WAITS);
    assert_eq!(real.stat("grants"), WAITS as u64 + 1);
    until_free(&real);
}
