//! Locks that are lost, and locks that are not: the report to the holder, and its time.

use std::future::IntoFuture;
use std::time::{Duration, Instant};

use redis_lock_client::{Guard, LostReason, Mode, Released, Server};
use redis_lock_harness::{TestServer, Tries};

use crate::servers::{client, through, until, until_waits, LONG};
use crate::{lock, until_free, wait, RENEWED};
use redis_lock_harness::proxy::Proxy;

const SHORT: Duration = Duration::from_millis(1_500);
const MARGIN: Duration = Duration::from_millis(400);
/// The latest report of a loss without a confirmation, a moment after the margin begins.
const LATEST: Duration = Duration::from_millis(1_400);

/// Loss without a confirmation: not before the margin of the lease begins, counted from the last confirmation. The rest
/// of the lease is then the margin. Returns the time until the report.
async fn lost_after_a_fault(guard: &Guard) -> Duration {
    let since = Instant::now();
    let valid_until = since + guard.valid_for();
    assert_eq!(guard.lost().await, Some(LostReason::Unconfirmed));
    let told = Instant::now();
    assert!(told + MARGIN + Duration::from_millis(5) >= valid_until);
    assert!(guard.valid_for() <= MARGIN);
    // sleep: the margin itself is the fact under test
    tokio::time::sleep(MARGIN).await;
    assert_eq!(guard.valid_for(), Duration::ZERO);
    told - since
}

/// A hold that has been renewed.
async fn held(real: &TestServer, server: &Server) -> Guard {
    loop {
        let renewals = real.stat("renewals");
        let lock = lock(server).lease(SHORT).margin(MARGIN);
        let guard = lock.acquire().await.unwrap();
        let lost = tokio::spawn(guard.lost().into_future());
        // Lost before: a busy machine has not run this process for most of the lease.
        until("a renewal", || {
            real.stat("renewals") > renewals || lost.is_finished()
        });
        if !lost.is_finished() {
            return guard;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_server_dies_is_lost_when_its_lease_is_over() {
    let mut tries = Tries::of(&["dies"]);
    while let Some(case) = tries.next_case() {
        let mut real = TestServer::start();
        let guard = held(&real, &client(&real)).await;
        real.crash();
        let told = lost_after_a_fault(&guard).await;
        tries.took(case, told, Duration::ZERO, LATEST);
        drop(guard);
        real.start_again();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_of_a_paused_server_is_lost_when_its_lease_is_over() {
    let real = TestServer::start();
    let mut tries = Tries::of(&["paused"]);
    while let Some(case) = tries.next_case() {
        let guard = held(&real, &client(&real)).await;
        real.signal(libc::SIGSTOP);
        let told = lost_after_a_fault(&guard).await;
        real.signal(libc::SIGCONT);
        tries.took(case, told, Duration::ZERO, LATEST);
        // A loss is final, even if the server renews the lock late.
        assert_eq!(guard.lost().await, Some(LostReason::Unconfirmed));
        let _ = guard.release().await.unwrap();
        until_free(&real);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_behind_a_cut_network_is_lost_when_its_lease_is_over() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let mut tries = Tries::of(&["cut"]);
    while let Some(case) = tries.next_case() {
        let guard = held(&real, &through(&proxy)).await;
        proxy.cut(true);
        let told = lost_after_a_fault(&guard).await;
        proxy.cut(false);
        tries.took(case, told, Duration::ZERO, LATEST);
        drop(guard);
        until_free(&real);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_server_starts_again_without_data_is_lost() {
    let mut real = TestServer::start();
    let guard = lock(&client(&real)).acquire().await.unwrap();
    real.crash_and_restart();
    assert_eq!(guard.lost().await, Some(LostReason::Taken));
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_whose_server_starts_again_with_its_data_is_not_lost() {
    let mut real = TestServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let guard = lock(&client(&real)).lease(RENEWED).acquire().await.unwrap();
    real.crash_and_restart();
    until("a renewal", || real.stat("renewals") > 0);
    assert!(!guard.valid_for().is_zero());
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

/// The server notifies the change, long before a renewal is due.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_is_reported_before_a_renewal_is_due() {
    for end in [
        "DEL k",
        "LOCK.BREAK k",
        "FLUSHALL",
        "SET k other",
        "PEXPIRE k 1",
        "RENAME k other",
    ] {
        let real = TestServer::start();
        let server = client(&real);
        let lock = lock(&server).lease(10 * LONG);
        for lock in [lock.clone(), lock.mode(Mode::Write)] {
            let guard = lock.acquire().await.unwrap();
            until_watched(&real, 1);
            let mut conn = real.conn();
            conn.line(end);
            let told = tokio::time::timeout(LONG, guard.lost()).await;
            assert!(told.is_ok(), "{end}");
            assert_eq!(guard.valid_for(), Duration::ZERO);
            assert_eq!(real.stat("renewals"), 0, "{end}");
            conn.line("FLUSHALL");
        }
    }
}

/// Changes by other clients and renewals are no loss, and the next loss is still reported.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_of_the_key_is_not_always_a_loss() {
    let real = TestServer::start();
    let server = client(&real);
    let guard = lock(&server).acquire().await.unwrap();
    let mut looks = 0;
    for change in ["LOCK.RENEW k {} PX 30000", "LOCK.ACQUIRE k {} PX 30000"] {
        let owner = String::from_utf8(guard.owner().to_vec()).unwrap();
        until_watched(&real, 1);
        real.conn().line(&change.replace("{}", &owner));
        let looked = until_looked(&real, looks);
        looks = looked;
    }
    assert!(!guard.valid_for().is_zero());
    real.conn().line("LOCK.BREAK k");
    assert_eq!(guard.lost().await, Some(LostReason::Taken));
}

/// Without the permission to read the key the loss is found by the next renewal, after one attempt to read.
#[tokio::test(flavor = "multi_thread")]
async fn without_the_permission_to_read_a_renewal_finds_the_loss() {
    let real = TestServer::start();
    real.conn()
        .line("ACL SETUSER default -hexists -client|tracking");
    let guard = lock(&client(&real)).lease(RENEWED).acquire().await.unwrap();
    until("a renewal", || real.stat("renewals") > 0);
    real.conn().line("DEL k");
    assert_eq!(guard.lost().await, Some(LostReason::Taken));
    let refused = real.info_field("errorstats", "errorstat_NOPERM");
    assert_eq!(refused, "count=2", "one for each command");
}

/// Waits until the server tracks this number of keys.
fn until_watched(real: &TestServer, keys: u64) {
    until("a key to be told of", || {
        let told = real.info_field("stats", "tracking_total_keys");
        told.parse::<u64>().unwrap() == keys
    });
}

/// Waits until the holder has read its field again; returns the number of reads.
fn until_looked(real: &TestServer, before: u64) -> u64 {
    let mut looks = 0;
    until("another look", || {
        let told = real.info_field("commandstats", "cmdstat_hexists");
        let calls = told.split(',').next().unwrap().trim_start_matches("calls=");
        looks = calls.parse().unwrap();
        looks > before
    });
    looks
}

/// A refused renewal is reported at once, not after the margin.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_is_refused_for_good_is_a_loss_at_once() {
    let cases = [
        (&["SET k other"][..], "WRONGTYPE"),
        (&["DEL k", "HSET k other data"], "LOCKTYPE"),
        (&["ACL SETUSER default -lock.renew"], "NOPERM"),
        (&["REPLICAOF 127.0.0.1 1"], "READONLY"),
    ];
    // At the same time, because two of them wait for a renewal.
    let cases = cases.map(|(end, expected)| async move {
        let real = TestServer::start();
        let guard = lock(&client(&real)).lease(RENEWED).acquire().await.unwrap();
        for line in end {
            real.conn().line(line);
        }
        let Some(LostReason::Refused { code, .. }) = guard.lost().await else {
            panic!("{end:?}: {:?}", guard.lost().await);
        };
        assert_eq!(code, expected);
        assert_eq!(guard.valid_for(), Duration::ZERO);
    });
    for case in cases.map(tokio::spawn) {
        case.await.unwrap();
    }
}

/// Behind a cut network a holder stops within its margin: then the next owner has the lock after it, never beside it.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_stops_within_its_margin_is_never_beside_the_next() {
    let real = TestServer::start();
    let (lease, grace) = (Duration::from_secs(12), Duration::from_millis(400));
    let proxy = Proxy::before(real.port);
    let terms = lock(&through(&proxy)).lease(lease).margin(lease / 2);
    let holder = terms.acquire().await.unwrap();
    let next = wait(&lock(&client(&real)));
    until_waits(&real, 1);
    proxy.cut(true);
    let stopped = tokio::spawn(async move {
        holder.lost().await;
        // sleep: the time that a holder takes to stop
        tokio::time::sleep(grace).await;
        Instant::now()
    });
    let next = next.await.unwrap();
    let granted = Instant::now();
    assert!(stopped.is_finished());
    assert!(stopped.await.unwrap() < granted);
    proxy.cut(false);
    assert_eq!(next.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_lose_no_lock() {
    let real = TestServer::start();
    let guard = lock(&client(&real)).lease(RENEWED).acquire().await.unwrap();
    while real.stat("renewals") < 2 {
        real.conn().line("CLIENT KILL TYPE normal SKIPME yes");
        // sleep: the interval of the faults
        tokio::time::sleep(SHORT / 2).await;
        assert!(guard.valid_for() > Duration::ZERO);
    }
    assert_eq!((real.stat("grants"), real.stat("grants_expired")), (1, 0));
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_whose_reply_is_lost_is_sent_again() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let guard = lock(&through(&proxy))
        .lease(RENEWED)
        .acquire()
        .await
        .unwrap();
    proxy.swallow_reply_to("LOCK.RENEW");
    until("a lost reply", || proxy.has_swallowed());
    until("another renewal", || real.stat("renewals") > 1);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_released_lock_is_never_lost() {
    let real = TestServer::start();
    let guard = lock(&client(&real)).lease(SHORT).acquire().await.unwrap();
    let lost = guard.lost();
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    let waited = tokio::time::timeout(2 * SHORT, lost).await;
    // And its watchers end with it.
    assert_eq!(waited, Ok(None));
}

/// Time is counted from before a request is sent: a server that is paused for a part of the lease starts its count
/// later than the client, never earlier.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_never_counts_a_longer_lease_than_its_server() {
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
            // sleep: the server stands still for so long
            tokio::time::sleep(SHORT / 12).await;
            real.signal(libc::SIGCONT);
            guard = Some(acquire.await.unwrap());
        }
        let held = guard.as_ref().unwrap();
        let is_paused = i % 3 == 0;
        if is_paused {
            real.signal(libc::SIGSTOP);
        }
        // sleep: the server stands still for so long, in every third round
        tokio::time::sleep(SHORT / 25).await;
        let (asked, believed) = (Instant::now(), held.valid_for());
        if is_paused {
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

/// A late grant, or a late reply: there is no guard whose lease is over already.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_takes_longer_than_its_lease_is_asked_for_anew() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let lease = Duration::from_secs(6);
    let lock = lock(&through(&proxy)).lease(lease);
    let held = lock.acquire().await.unwrap();
    assert_eq!(held.release().await.unwrap(), Released::Yes);
    proxy.cut(true);
    let late = tokio::spawn(async move {
        let guard = lock.acquire().await.unwrap();
        (guard.valid_for(), guard)
    });
    // sleep: the cut lasts longer than the lease
    tokio::time::sleep(lease + lease / 6).await;
    proxy.cut(false);
    let (left, guard) = late.await.unwrap();
    assert!(!left.is_zero());
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}
