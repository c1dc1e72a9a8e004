//! Permits that are held: renewed, lost, given back.

use std::time::{Duration, Instant};

use redis_lock_client::{Error, LostReason, Permit, Released, Semaphore};
use redis_lock_harness::{TestServer, Tries};

use crate::semaphores::{single, until_free};
use crate::servers::{client, until, until_waits, LONG};

async fn held(real: &TestServer) -> Permit {
    let semaphore = single(&client(real));
    semaphore.acquire().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_is_renewed_beyond_its_lease() {
    let real = TestServer::start();
    // A renewal after 4 s, and a busy machine may be late by 6 s more.
    let semaphore = single(&client(&real)).lease(Duration::from_secs(12));
    let permit = semaphore.acquire().await.unwrap();
    for renewals in 1..=3 {
        until("a renewal", || real.stat("sem_renewals") >= renewals);
    }
    assert!(!permit.valid_for().is_zero());
    assert_eq!(real.stat("sem_grants_expired"), 0);
    let other = semaphore.try_acquire().await.unwrap();
    assert!(other.is_none());
    assert_eq!(permit.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_ends_in_the_server_is_lost() {
    let ends = [
        "DEL s",
        "FLUSHALL",
        "DEL {s}:timeout",
        "SEM.RELEASE s worker-7",
    ];
    // At the same time, because each waits for a renewal.
    let cases = ends.map(|end| async move {
        let real = TestServer::start();
        let permit = single(&client(&real))
            .owner("worker-7")
            .acquire()
            .await
            .unwrap();
        real.conn().line(end);
        assert_eq!(permit.lost().await, Some(LostReason::Taken), "{end}");
        assert_eq!(permit.valid_for(), Duration::ZERO);
        assert_eq!(permit.release().await.unwrap(), Released::NotHeld);
    });
    for case in cases.map(tokio::spawn) {
        case.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_whose_key_holds_something_else_is_lost() {
    let real = TestServer::start();
    let permit = held(&real).await;
    real.conn().line("DEL s");
    real.conn().line("RPUSH s other");
    let Some(LostReason::Refused { code, .. }) = permit.lost().await else {
        panic!("another reason");
    };
    assert_eq!(code, "WRONGTYPE");
}

/// No earlier than the margin before the lease's end, counted from the last confirmation, and not much later.
#[tokio::test(flavor = "multi_thread")]
async fn a_permit_of_a_paused_server_is_lost_when_its_lease_is_over() {
    let real = TestServer::start();
    let semaphore = single(&client(&real)).lease(Duration::from_secs(2));
    // Longer than what a try may be late.
    let mut tries = Tries::of(&[Duration::from_millis(900)]);
    while let Some(margin) = tries.next_case() {
        let permit = semaphore.clone().margin(margin).acquire().await.unwrap();
        let renewals = real.stat("sem_renewals");
        until("a renewal", || real.stat("sem_renewals") > renewals);
        real.signal(libc::SIGSTOP);
        let start = Instant::now();
        // The server counts whole milliseconds.
        let soonest = permit
            .valid_for()
            .saturating_sub(margin + Duration::from_millis(5));
        assert_eq!(permit.lost().await, Some(LostReason::Unconfirmed));
        let took = start.elapsed();
        assert!(permit.valid_for() <= margin);
        real.signal(libc::SIGCONT);
        tries.took(margin, took, soonest, Duration::from_millis(300));
        assert_eq!(permit.release().await.unwrap(), Released::Yes);
        until_free(&real);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_margin_and_a_lease_are_checked() {
    let real = TestServer::start();
    let lease = Duration::from_secs(30);
    let semaphore = single(&client(&real)).lease(lease);
    let error = semaphore.clone().margin(lease).try_acquire().await;
    assert!(error.is_err_and(|error| error.to_string().contains("margin")));
    let error = semaphore.lease(Duration::ZERO).try_acquire().await;
    assert!(error.is_err_and(|error| error.to_string().contains("lease")));
}

/// In the order of requests: a later one for fewer permits waits behind.
#[tokio::test(flavor = "multi_thread")]
async fn several_permits_are_granted_in_one_step_or_none() {
    let real = TestServer::start();
    let server = client(&real);
    let permits = Semaphore::new(&server, "s").limit(3);
    let held = async || permits.info().await.unwrap().map(|info| info.held);
    let two = permits.clone().count(2).acquire().await.unwrap();
    assert_eq!((two.count(), held().await), (2, Some(2)));
    let more = permits.clone().count(2);
    assert!(more.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(async move { more.acquire().await.unwrap() });
    until_waits(&real, 1);
    assert!(permits.try_acquire().await.unwrap().is_none());
    let (owner, token) = (two.owner().to_vec(), two.token());
    assert_eq!(two.leave(LONG).await.unwrap(), Released::Yes);
    let two = permits.clone().count(2).resume(owner, token).await.unwrap();
    assert_eq!((two.count(), held().await), (2, Some(2)));
    assert_eq!(two.release().await.unwrap(), Released::Yes);
    let next = waiting.await.unwrap();
    assert_eq!((next.count(), held().await), (2, Some(2)));
    drop(next);
    assert!(server.settled().await.is_empty());
    assert_eq!(held().await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_permits_than_there_are_wait_until_there_are_enough() {
    let real = TestServer::start();
    let permits = Semaphore::new(&client(&real), "s");
    permits.set(1).await.unwrap();
    let three = permits.clone().count(3);
    assert!(three.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn(async move { three.acquire().await.unwrap() });
    until_waits(&real, 1);
    permits.set(3).await.unwrap();
    let held = waiting.await.unwrap();
    assert_eq!(held.count(), 3);
    assert_eq!(held.release().await.unwrap(), Released::Yes);
    for wrong in [
        permits.clone().count(0),
        permits.clone().count(65),
        permits.limit(1).count(2),
    ] {
        let error = wrong.try_acquire().await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error}");
    }
}
