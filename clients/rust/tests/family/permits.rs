//! Permits that are held: renewed, lost, given back.

use std::time::{Duration, Instant};

use redis_lock_client::{LostReason, Permit, Released};
use redis_lock_harness::{TestServer, Tries};

use crate::semaphores::{single, until_free};
use crate::servers::{client, until};

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
