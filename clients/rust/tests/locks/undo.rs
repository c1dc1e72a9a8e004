//! An abandoned acquisition leaves neither a waiter nor a lock. The lease is so long here that only an undo can have
//! freed a lock.

use std::time::Duration;

use redis_lock_client::{BreakTarget, Lock, LostReason, Mode, Released};
use redis_lock_harness::TestServer;

use crate::servers::{client, through, until, until_waits, with_timeout};
use crate::{lock, until_free, wait};
use redis_lock_harness::proxy::Proxy;

/// The place of a waiter whose connection ends is kept for a minute.
const PLACES_STAY: [&str; 2] = ["--lock.queue-grace", "60000"];

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_dropped_is_withdrawn() {
    let real = TestServer::with(&PLACES_STAY);
    let server = client(&real);
    let holder = lock(&server).acquire().await.unwrap();
    let dropped = wait(&lock(&server));
    until_waits(&real, 1);
    dropped.abort();
    until("an empty queue", || {
        real.waits() + real.stat("places_kept") == 0
    });
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    until_free(&real);
    assert_eq!(real.stat("grants"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_is_dropped_keeps_what_is_read() {
    let real = TestServer::with(&PLACES_STAY);
    let server = client(&real);
    let worker = lock(&server).owner("worker-7");
    let other = lock(&server).mode(Mode::Read).acquire().await.unwrap();
    let reader = worker.clone().mode(Mode::Read).acquire().await.unwrap();
    let upgrade = wait(&worker.clone().mode(Mode::Write));
    // Of a named owner, a request without a reply would be left to itself.
    until("its place", || server.statistics().waiting == 1);
    upgrade.abort();
    until("an empty queue", || {
        real.waits() + real.stat("places_kept") == 0
    });
    assert_eq!(reader.release().await.unwrap(), Released::Yes);
    assert_eq!(other.release().await.unwrap(), Released::Yes);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_dropped_at_any_moment_leaves_nothing() {
    let real = TestServer::start();
    let server = with_timeout(real.port, Duration::from_secs(3));
    for i in 0..200 {
        let busy = i % 2 == 0;
        let holder = match busy {
            true => Some(lock(&server).acquire().await.unwrap()),
            false => None,
        };
        let moment = Duration::from_micros(20 * i);
        let dropped = tokio::time::timeout(moment, lock(&server).acquire()).await;
        drop((holder, dropped));
        until_free(&real);
    }
}

/// The grant is the reply to the first request of the ticket, and nothing has read it yet.
#[tokio::test]
async fn a_wait_of_a_named_owner_that_is_dropped_right_after_its_grant_is_undone() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let server = through(&proxy);
    let holder = lock(&client(&real)).acquire().await.unwrap();
    let worker = lock(&server).owner("worker-7");
    let mut waiting = Box::pin(worker.acquire());
    proxy.delay("NOTIFY");
    while !proxy.has_delayed() {
        let moment = Duration::from_millis(5);
        assert!(tokio::time::timeout(moment, &mut waiting).await.is_err());
    }
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    proxy.let_go();
    let mut conn = real.conn();
    redis_lock_harness::wait_for("the grant", || !conn.line("LOCK.INFO k").is_nil());
    // The reply has been read before those to later requests on the connection.
    for _ in 0..2 {
        server.ping().await.unwrap();
    }
    drop(waiting);
    redis_lock_harness::wait_for("a free lock", || conn.line("LOCK.INFO k").is_nil());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_arrives_after_the_release_grants_nothing() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let server = with_timeout(proxy.port, Duration::from_secs(2));
    proxy.delay("LOCK.ACQUIRE");
    let guard = lock(&server).acquire().await.unwrap();
    assert!(proxy.has_delayed());
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    until_free(&real);
    proxy.let_go();
    until("the late request", || real.stat("finals_refused") == 1);
    assert_eq!(real.stat("grants"), 1);
    assert!(real.conn().line("LOCK.INFO k").is_nil());
}

/// Nor does it break the next hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_steal_that_arrives_after_the_release_grants_nothing() {
    let real = TestServer::start();
    let other = lock(&client(&real)).acquire().await.unwrap();
    let proxy = Proxy::before(real.port);
    let server = with_timeout(proxy.port, Duration::from_secs(2));
    proxy.delay("LOCK.BREAK");
    let guard = lock(&server)
        .steal(BreakTarget::Any)
        .await
        .unwrap()
        .expect("the lock");
    assert!(proxy.has_delayed() && guard.token() > other.token());
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    let next = lock(&client(&real)).acquire().await.unwrap();
    proxy.let_go();
    until("the late request", || real.stat("finals_refused") == 1);
    assert_eq!(real.stat("grants_broken"), 1);
    assert_eq!(next.release().await.unwrap(), Released::Yes);
    let grant = BreakTarget::Token(other.token());
    assert!(lock(&server).steal(grant).await.unwrap().is_none());
    for lock in [lock(&server).session(), lock(&server).mode(Mode::Write)] {
        let error = lock.steal(BreakTarget::Any).await.unwrap_err();
        assert!(error.to_string().contains("an exclusive lock"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_arrives_after_it_was_given_up_grants_nothing() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let server = with_timeout(proxy.port, Duration::from_secs(2));
    proxy.delay("LOCK.ACQUIRE");
    let given_up = wait(&lock(&server));
    until("a request under way", || proxy.has_delayed());
    given_up.abort();
    until("a withdrawal", || {
        real.conn()
            .line("INFO commandstats")
            .text()
            .contains("lock.release")
    });
    proxy.let_go();
    until("the late request", || real.stat("finals_refused") == 1);
    assert_eq!(real.stat("grants"), 0);
}

/// By the end of the wait the request that was granted can no longer be served.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_reply_was_lost_long_before_the_end_is_undone() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let server = with_timeout(proxy.port, Duration::from_secs(2));
    let lock = lock(&server);
    // The request is not to fail by the opening of its connection.
    for _ in 0..20 {
        if server.ping().await.is_ok() {
            break;
        }
    }
    proxy.swallow_reply_to("LOCK.ACQUIRE");
    let acquired = tokio::spawn(async move { lock.acquire_within(Duration::from_secs(6)).await });
    until("a reply that is lost", || proxy.has_swallowed());
    proxy.lose(true);
    assert!(acquired.await.unwrap().unwrap_err().is_passing());
    proxy.lose(false);
    until_free(&real);
}

/// A renewal was served and its reply lost, so the lease is longer than the one that was confirmed last.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_goes_on_until_the_end_of_a_lease_that_was_perhaps_set() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let server = with_timeout(proxy.port, Duration::from_secs(3));
    let lease = Duration::from_secs(12);
    let guard = lock(&server).lease(lease).acquire().await.unwrap();
    let acquired = tokio::time::Instant::now();
    proxy.swallow_reply_to("LOCK.RENEW");
    until("a renewal", || proxy.has_swallowed());
    proxy.lose(true);
    let released = tokio::spawn(guard.release());
    // sleep: longer than the lease that was confirmed
    tokio::time::sleep_until(acquired + lease).await;
    assert!(!real.conn().line("LOCK.INFO k").is_nil());
    proxy.lose(false);
    // The caller has waited for the response timeout alone.
    assert!(released.await.unwrap().unwrap_err().is_passing());
    assert!(server.settled().await.is_empty());
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_attempt_at_a_stopped_server_is_an_error_that_leaves_nothing() {
    let real = TestServer::start();
    let server = with_timeout(real.port, Duration::from_secs(1));
    let lock = lock(&server);
    assert_eq!(
        lock.acquire().await.unwrap().release().await.unwrap(),
        Released::Yes
    );
    real.signal(libc::SIGSTOP);
    let moment = Duration::from_millis(50);
    for lock in [&lock, &lock.clone().mode(Mode::Write)] {
        assert!(lock.acquire_within(moment).await.unwrap_err().is_passing());
        assert!(lock.try_acquire().await.unwrap_err().is_passing());
        let session = lock.clone().session().try_acquire().await;
        assert!(session.unwrap_err().is_passing());
    }
    real.signal(libc::SIGCONT);
    server.settled().await;
    until_free(&real);
}

/// It names the token of its own hold, and so does not affect the next one under the same name.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_arrives_late_leaves_the_owners_next_hold_alone() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let server = with_timeout(proxy.port, Duration::from_secs(3));
    let lock = lock(&server).owner("worker-7");
    for is_dropped in [false, true] {
        let first = lock.acquire().await.unwrap();
        proxy.delay("LOCK.RELEASE");
        match is_dropped {
            true => drop(first),
            false => drop(first.release().await.unwrap()),
        }
        let next = lock.acquire().await.unwrap();
        assert!(proxy.has_delayed());
        let served = releases(&real);
        proxy.let_go();
        until("the late release", || releases(&real) > served);
        assert_eq!(next.release().await.unwrap(), Released::Yes);
        until_free(&real);
    }
}

/// How many releases the server has served.
fn releases(real: &TestServer) -> u64 {
    let told = real.info_field("commandstats", "cmdstat_lock.release");
    let calls = told.split(',').next().unwrap_or_default();
    calls.trim_start_matches("calls=").parse().unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_dropped_where_the_connection_has_just_broken_is_released() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let guard = lock(&through(&proxy)).acquire().await.unwrap();
    proxy.swallow_reply_to("LOCK.RELEASE");
    drop(guard);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_dropped_goes_on() {
    let real = TestServer::start();
    let server = client(&real);
    for moment in [0, 10, 50, 100, 500] {
        let guard = lock(&server).acquire().await.unwrap();
        drop(tokio::time::timeout(Duration::from_micros(moment), guard.release()).await);
        until_free(&real);
    }
    let guard = lock(&server).acquire().await.unwrap();
    drop(guard.release());
    until_free(&real);
}

#[test]
fn a_guard_dropped_outside_of_a_runtime_is_released() {
    let real = TestServer::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = client(&real);
    let guard = runtime.block_on(lock(&server).acquire()).unwrap();
    drop(guard);
    redis_lock_harness::wait_for("a free lock", || real.conn().line("LOCK.INFO k").is_nil());
    let guard = runtime.block_on(lock(&server).acquire()).unwrap();
    drop(runtime);
    drop(guard);
    redis_lock_harness::wait_for("a free lock", || real.conn().line("LOCK.INFO k").is_nil());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_is_renewed_though_the_runtime_that_took_it_is_gone() {
    let real = TestServer::start();
    let lock = lock(&client(&real));
    let guard = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(lock.acquire()).unwrap()
    })
    .join()
    .unwrap();
    until("a renewal", || real.stat("renewals") > 0);
    assert!(!guard.valid_for().is_zero());
    real.conn().line("LOCK.BREAK k");
    assert_eq!(guard.lost().await, Some(LostReason::Taken));
}

/// With few files to open, and no runtime: all go through one connection.
#[test]
fn a_thousand_guards_that_are_dropped_outside_of_a_runtime_are_released() {
    let real = TestServer::start();
    let server = client(&real);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let guards: Vec<_> = runtime.block_on(async {
        let mut guards = Vec::new();
        for n in 0..1_000 {
            let lock = Lock::new(&server, format!("k{n}"));
            guards.push(lock.acquire().await.unwrap());
        }
        guards
    });
    let received = real.info_field("stats", "total_connections_received");
    drop(runtime);
    drop(guards);
    let settled = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    assert!(settled.block_on(server.settled()).is_empty());
    assert_eq!(real.conn().line("DBSIZE").int(), 1, "the horizon");
    let now = real.info_field("stats", "total_connections_received");
    let opened = now.parse::<u64>().unwrap() - received.parse::<u64>().unwrap();
    assert!(opened < 10, "{opened} connections");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_cannot_be_released_is_reported() {
    let mut real = TestServer::start();
    let server = with_timeout(real.port, Duration::from_secs(3));
    let guard = lock(&server)
        .lease(Duration::from_millis(300))
        .acquire()
        .await
        .unwrap();
    let owner = guard.owner().to_vec();
    real.crash();
    drop(guard);
    let failed = server.settled().await;
    assert_eq!(failed.len(), 1);
    assert_eq!((&failed[0].key[..], &failed[0].owner), (&b"k"[..], &owner));
    assert!(failed[0].error.is_passing(), "{}", failed[0].error);
    assert!(server.settled().await.is_empty(), "told once");
    real.start_again();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_may_wait_until_all_is_given_back() {
    let real = TestServer::with(&PLACES_STAY);
    let server = client(&real);
    let guard = lock(&server).acquire().await.unwrap();
    let waiter = wait(&lock(&server));
    until_waits(&real, 1);
    waiter.abort();
    assert!(waiter.await.is_err());
    drop(guard);
    server.settled().await;
    assert!(real.conn().line("LOCK.INFO k").is_nil());
    assert_eq!(real.stat("places_kept"), 0);
}
