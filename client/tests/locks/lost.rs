//! Locks that are lost, and those that are not: what the holder is told, and when.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use redis_lock_client::{Guard, LostReason, Released};
use redis_lock_harness::TestServer;

use crate::proxy::Proxy;
use crate::{client, lock, through, until, until_free};

const SHORT: Duration = Duration::from_millis(600);

/// Lost for want of a confirmation: neither before the lease is over, counted from the last confirmation,
/// nor much later.
async fn assert_lost_in_time(guard: &Guard, since: Instant) {
    let valid_until = Instant::now() + guard.valid_for();
    assert_eq!(guard.lost().await, LostReason::Unconfirmed);
    let told = Instant::now();
    assert!(told + Duration::from_millis(5) >= valid_until);
    assert!(
        since.elapsed() < SHORT + Duration::from_millis(300),
        "{:?}",
        since.elapsed()
    );
    assert_eq!(guard.valid_for(), Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_server_dies_is_lost_when_its_lease_is_over() {
    let mut real = TestServer::start();
    let guard = lock(&client(&real)).lease(SHORT).acquire().await.unwrap();
    until("a renewal", || real.stat("renewals") > 0);
    real.crash();
    assert_lost_in_time(&guard, Instant::now()).await;
    drop(guard);
    real.start_again();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_server_stands_still_is_lost_when_its_lease_is_over() {
    let real = TestServer::start();
    let guard = lock(&client(&real)).lease(SHORT).acquire().await.unwrap();
    until("a renewal", || real.stat("renewals") > 0);
    real.signal(libc::SIGSTOP);
    assert_lost_in_time(&guard, Instant::now()).await;
    real.signal(libc::SIGCONT);
    // A loss is a loss, though the server may renew it late.
    assert_eq!(guard.lost().await, LostReason::Unconfirmed);
    guard.release().await.unwrap();
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_behind_a_cut_network_is_lost_when_its_lease_is_over() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let guard = lock(&through(&proxy)).lease(SHORT).acquire().await.unwrap();
    until("a renewal", || real.stat("renewals") > 0);
    proxy.cut(true);
    assert_lost_in_time(&guard, Instant::now()).await;
    proxy.cut(false);
    drop(guard);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_server_starts_again_without_data_is_lost() {
    let mut real = TestServer::start();
    let lease = Duration::from_secs(6);
    let guard = lock(&client(&real)).lease(lease).acquire().await.unwrap();
    real.crash_and_restart();
    assert_eq!(guard.lost().await, LostReason::Taken);
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_server_starts_again_with_its_data_is_not_lost() {
    let mut real = TestServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let lease = Duration::from_secs(6);
    let guard = lock(&client(&real)).lease(lease).acquire().await.unwrap();
    real.crash_and_restart();
    until("a renewal", || real.stat("renewals") > 0);
    assert!(guard.valid_for() > lease / 2);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_ends_in_the_server_is_lost() {
    let real = TestServer::start();
    for end in [
        "PEXPIRE k 1",
        "DEL k",
        "FLUSHALL",
        "LOCK.BREAK k",
        "SET k other",
    ] {
        let guard = lock(&client(&real)).lease(SHORT).acquire().await.unwrap();
        real.conn().line(end);
        let why = guard.lost().await;
        // Of a key that is no lock the server says neither yes nor no.
        let expected = match end {
            "SET k other" => LostReason::Unconfirmed,
            _ => LostReason::Taken,
        };
        assert_eq!(why, expected, "{end}");
        drop(guard);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_lose_no_lock() {
    let real = TestServer::start();
    let guard = lock(&client(&real)).lease(SHORT).acquire().await.unwrap();
    let start = Instant::now();
    while start.elapsed() < 5 * SHORT {
        real.conn().line("CLIENT KILL TYPE normal SKIPME yes");
        tokio::time::sleep(SHORT / 7).await;
        assert!(guard.valid_for() > Duration::ZERO);
    }
    assert_eq!((real.stat("grants"), real.stat("grants_expired")), (1, 0));
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_whose_reply_is_lost_is_sent_again() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let guard = lock(&through(&proxy)).lease(SHORT).acquire().await.unwrap();
    for _ in 0..5 {
        proxy.swallow_reply_to("LOCK.RENEW");
        until("a lost reply", || proxy.has_swallowed());
        let renewals = real.stat("renewals");
        until("another renewal", || real.stat("renewals") > renewals);
    }
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_lock_is_never_lost() {
    let real = TestServer::start();
    let guard = lock(&client(&real)).lease(SHORT).acquire().await.unwrap();
    let lost = guard.lost();
    guard.release().await.unwrap();
    let waited = tokio::time::timeout(2 * SHORT, lost.into_future()).await;
    assert!(waited.is_err(), "{waited:?}");
}

/// Time is counted from before a request is sent: a server that stands still for a part of the lease has
/// begun its own count later than the client, never earlier.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_believes_to_hold_a_lock_for_longer_than_its_server_does() {
    let real = TestServer::start();
    let mut guard = None;
    let mut conn = real.conn();
    for i in 0..60 {
        if i % 10 == 0 {
            // The grant itself is late, too.
            drop(guard.take());
            until_free(&real);
            real.signal(libc::SIGSTOP);
            let acquire = tokio::spawn({
                let lock = lock(&client(&real)).lease(SHORT);
                async move { lock.acquire().await.unwrap() }
            });
            tokio::time::sleep(SHORT / 5).await;
            real.signal(libc::SIGCONT);
            guard = Some(acquire.await.unwrap());
        }
        let held = guard.as_ref().unwrap();
        let stands_still = i % 3 == 0;
        if stands_still {
            real.signal(libc::SIGSTOP);
        }
        tokio::time::sleep(SHORT / 9).await;
        let (asked, believed) = (Instant::now(), held.valid_for());
        if stands_still {
            real.signal(libc::SIGCONT);
        }
        let left = conn.line("PTTL k").int();
        let left = Duration::from_millis(u64::try_from(left).unwrap_or_default());
        // Milliseconds are whole ones.
        let served = left + asked.elapsed() + Duration::from_millis(2);
        assert!(
            believed <= served,
            "{i}: {believed:?} believed, {served:?} served"
        );
    }
}

/// Granted late, or told late: a guard whose lease is over already would be one too many.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_takes_longer_than_its_lease_is_asked_for_anew() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let lease = Duration::from_millis(300);
    let lock = lock(&through(&proxy)).lease(lease);
    for round in 0..3 {
        let held = lock.try_acquire().await.unwrap().unwrap();
        assert_eq!(held.release().await.unwrap(), Released::Yes);
        proxy.cut(true);
        let late = lock.clone();
        let late = tokio::spawn(async move {
            let guard = late.try_acquire().await.unwrap().unwrap();
            (guard.valid_for(), guard)
        });
        tokio::time::sleep(lease * 2).await;
        proxy.cut(false);
        let (left, guard) = late.await.unwrap();
        assert!(!left.is_zero(), "round {round}");
        assert_eq!(guard.release().await.unwrap(), Released::Yes);
    }
}
