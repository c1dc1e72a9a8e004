//! Waits that do not join a long queue.

use redis_lock_client::{Error, Latch, Lock, Mode, MultiLock, Released, Semaphore, Server};
use redis_lock_harness::TestServer;

use crate::servers::{client, until, until_waits};
use crate::{lock, until_free, wait, LEASE};

fn is_full<T: std::fmt::Debug>(asked: Result<T, Error>) {
    let error = asked.unwrap_err();
    assert!(matches!(error, Error::QueueFull { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_refused_at_once_where_as_many_wait_as_it_allows() {
    let real = TestServer::start();
    let server = client(&real);
    let lock = lock(&server);
    // What is free needs no queue.
    let holder = lock.clone().queue(0).acquire().await.unwrap();
    is_full(lock.clone().queue(0).acquire().await);
    is_full(lock.clone().queue(0).acquire_within(LEASE).await);
    assert!(lock.clone().queue(0).try_acquire().await.unwrap().is_none());
    let first = wait(&lock.clone().queue(1));
    until_waits(&real, 1);
    is_full(lock.clone().queue(1).acquire().await);
    is_full(lock.clone().mode(Mode::Exclusive).queue(1).acquire().await);
    let both = ["k", "l"].map(|key| Lock::new(&server, key).queue(1));
    is_full(MultiLock::new(both).unwrap().acquire().await);
    // Of the MultiLock each lock counts.
    assert_eq!(server.statistics().acquisitions_failed, 6);
    assert!(server.settled().await.is_empty());
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    let guard = first.await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    until_free(&real);
    until_free_of(&real, "l");
}

fn until_free_of(real: &TestServer, key: &str) {
    let line = format!("LOCK.INFO {key}");
    until("a free lock", || real.conn().line(&line).is_nil());
}

/// Its own place is no other's.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_asks_again_keeps_its_place() {
    let real = TestServer::start();
    let lock = lock(&client(&real));
    let holder = lock.acquire().await.unwrap();
    let first = wait(&lock.clone().queue(1));
    until_waits(&real, 1);
    real.conn().line("CLIENT KILL TYPE pubsub");
    until("a new subscription", || {
        real.conn()
            .line("PUBSUB CHANNELS lock:tickets:*")
            .list()
            .len()
            == 1
    });
    let second = wait(&lock);
    until_waits(&real, 2);
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    let guard = first.await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    let guard = second.await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_and_latches_have_queues_too() {
    let real = TestServer::start();
    let server = client(&real);
    let permits = Semaphore::new(&server, "s").limit(1);
    let permit = permits.clone().queue(0).acquire().await.unwrap();
    is_full(permits.clone().queue(0).acquire().await);
    assert_eq!(permit.release().await.unwrap(), Released::Yes);
    let latch = Latch::new(&server, "l");
    latch.set(1).await.unwrap();
    is_full(latch.clone().queue(0).wait().await);
    assert!(!latch.clone().queue(0).try_wait().await.unwrap());
    assert_eq!(latch.count_down().await.unwrap(), 0);
    latch.queue(0).wait().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_beyond_the_bound_is_an_error_of_use() {
    let server = Server::open("redis://127.0.0.1:1").unwrap();
    let error = lock(&server).queue(1_000_001).acquire().await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
    let error = Latch::new(&server, "l").queue(1_000_001).wait().await;
    assert!(matches!(error.unwrap_err(), Error::Config { .. }));
}
