//! Locks on one real server.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use redis_lock_client::{Lock, LostReason, Released, Server};
use redis_lock_harness::TestServer;

const LEASE: Duration = Duration::from_secs(10);
const LONG: Duration = Duration::from_secs(60);

fn server(real: &TestServer) -> Server {
    Server::open(&format!("redis://127.0.0.1:{}", real.port)).expect("a URL")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_had_by_one_at_a_time_and_its_tokens_rise() {
    let real = TestServer::start();
    let lock = Lock::new(&server(&real), "k").lease(LEASE);
    let first = lock.try_acquire().await.unwrap().expect("a free lock");
    assert!(lock.try_acquire().await.unwrap().is_none());
    let token = first.token();
    assert_eq!(first.release().await.unwrap(), Released::Yes);
    let second = lock.try_acquire().await.unwrap().expect("a free lock");
    assert!(second.token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_granted_when_the_holder_drops_its_guard() {
    let real = TestServer::start();
    let lock = Lock::new(&server(&real), "k").lease(LEASE);
    let first = lock.acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire_within(LONG).await.unwrap().is_some() }
    });
    tokio::task::block_in_place(|| real.wait_for_waiters(1));
    drop(first);
    assert!(waiter.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_lock_is_told_as_lost() {
    let real = TestServer::start();
    let lock = Lock::new(&server(&real), "k").lease(Duration::from_millis(300));
    let guard = lock.acquire().await.unwrap();
    real.conn().line("LOCK.BREAK k");
    assert_eq!(guard.lost().await, LostReason::Taken);
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_module_the_error_says_what_to_load() {
    let real = TestServer::without_module(&[]);
    let error = Lock::new(&server(&real), "k")
        .try_acquire()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("loadmodule"), "{error}");
}
