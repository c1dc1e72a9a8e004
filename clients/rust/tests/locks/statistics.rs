//! The numbers that a program reads about its own locks.

use std::time::Duration;

use redis_lock_client::{Lock, LostReason, Released, Server, Statistics};
use redis_lock_harness::TestServer;

use crate::servers::{client, until, with_timeout};
use crate::{lock, wait, RENEWED};

/// The numbers that are not zero.
fn told(server: &Server) -> Vec<(&'static str, u64)> {
    let all = server.statistics();
    all.iter().filter(|(_, value)| *value > 0).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn known_actions_give_known_numbers() {
    let real = TestServer::start();
    let server = client(&real);
    let lock = lock(&server);
    assert_eq!(server.statistics(), Statistics::default());

    let first = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let waiter = wait(&lock);
    until("its place", || server.statistics().waiting == 1);
    let now = [
        ("acquisitions", 1),
        ("acquisitions_refused", 1),
        ("waits", 1),
        // The one that requests share, and that of the messages.
        ("connections", 2),
        ("holds", 1),
        ("waiting", 1),
    ];
    assert_eq!(told(&server), now);

    assert_eq!(first.release().await.unwrap(), Released::Yes);
    let second = waiter.await.unwrap();
    real.conn().line("LOCK.BREAK k");
    assert_eq!(second.lost().await, Some(LostReason::Taken));
    assert_eq!(server.statistics().losses, 1);
    // What is known to be over is not released.
    drop(second);
    drop(lock.acquire().await.unwrap());
    assert!(server.clone().settled().await.is_empty());
    real.conn().line("SET plain x");
    assert!(Lock::new(&server, "plain").acquire().await.is_err());
    let after = [
        ("acquisitions", 3),
        ("acquisitions_refused", 1),
        ("acquisitions_failed", 1),
        ("waits", 1),
        // The renewal that the change of the key has called for.
        ("renewals_failed", 1),
        ("losses", 1),
        ("releases", 2),
        ("connections", 2),
    ];
    assert_eq!(told(&server), after);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_dropped_waits_no_more() {
    let real = TestServer::start();
    let server = client(&real);
    let _first = lock(&server).acquire().await.unwrap();
    let waiter = wait(&lock(&server));
    until("its place", || server.statistics().waiting == 1);
    waiter.abort();
    assert!(waiter.await.is_err());
    assert!(server.settled().await.is_empty());
    let now = server.statistics();
    assert_eq!((now.waits, now.waiting), (1, 0));
    assert_eq!((now.acquisitions, now.releases), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_are_counted_as_confirmed_or_not() {
    let mut real = TestServer::start();
    let server = with_timeout(real.port, Duration::from_secs(3));
    let lock = lock(&server).lease(RENEWED / 2);
    let guard = lock.acquire().await.unwrap();
    until("a renewal", || server.statistics().renewals > 0);
    assert!(real.stat("renewals") >= server.statistics().renewals);
    assert_eq!(server.statistics().renewals_failed, 0);

    real.crash();
    assert_eq!(guard.lost().await, Some(LostReason::Unconfirmed));
    assert_eq!(server.statistics().losses, 1);
    assert!(server.statistics().renewals_failed > 0);
    drop(guard);
    assert_eq!(server.settled().await.len(), 1);
    let now = server.statistics();
    assert_eq!((now.releases, now.releases_failed), (0, 1));
    assert_eq!((now.holds, now.connections), (0, 1));
    real.start_again();
}
