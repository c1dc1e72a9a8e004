//! Acquisitions of permits: limits, order, bounds, withdrawals.

use std::time::{Duration, Instant};

use redis_lock_client::{Error, Permit, Released, Semaphore, Server};
use redis_lock_harness::proxy::Proxy;
use redis_lock_harness::{TestServer, Tries};
use tokio::task::JoinHandle;

use crate::servers::{client, through, until, until_waits, with_timeout};
use crate::{kill_connections, until_stat, waited, PLACES_STAY};

/// The semaphore `s`, with one permit.
pub fn single(server: &Server) -> Semaphore {
    Semaphore::new(server, "s").limit(1)
}

/// A wait in a task of its own.
fn wait(semaphore: &Semaphore) -> JoinHandle<Permit> {
    let semaphore = semaphore.clone();
    tokio::spawn(async move { semaphore.acquire().await.unwrap() })
}

/// Until all permits are free, and no wait or place in the queue is left.
pub fn until_free(real: &TestServer) {
    let mut conn = real.conn();
    until("free permits", || {
        let info = conn.line("SEM.INFO s");
        info.is_nil()
            || info.field("held").unwrap().int() + info.field("waiters").unwrap().int() == 0
    });
    until_stat(real, "sem_places_kept", 0);
}

/// One permit of `s` is held, by this owner.
fn assert_held_once(real: &TestServer, permit: &Permit) {
    let mut conn = real.conn();
    let info = conn.line("SEM.INFO s");
    assert_eq!(info.field("held").unwrap().int(), 1);
    let score = conn.run([b"ZSCORE", &b"{s}:timeout"[..], permit.owner()]);
    assert!(!score.is_nil());
}

/// It is asked for once: a wait goes on where it is deleted and created again. The second wait begins as a ticket.
#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_that_nobody_has_created_is_an_error() {
    let real = TestServer::start();
    let server = client(&real);
    let missing = Semaphore::new(&server, "s");
    let looked = |times: u32| {
        let stats = real.conn().line("INFO commandstats").text();
        stats.contains(&format!("cmdstat_exists:calls={times},"))
    };
    for _ in 0..2 {
        let told = [
            missing.try_acquire().await.map(drop),
            missing.acquire().await.map(drop),
        ];
        for told in told {
            let error = told.unwrap_err();
            assert!(matches!(error, Error::NoSemaphore { .. }), "{error}");
            assert!(!error.is_passing());
            let text = error.to_string();
            assert!(text.contains("no semaphore s: create it"), "{text}");
        }
        until_free(&real);
        // The messages of the server are received from now on.
        let held = single(&server).acquire().await.unwrap();
        let wait = wait(&single(&server));
        until_waits(&real, 1);
        drop(held);
        drop(wait.await.unwrap());
        until_free(&real);
        real.conn().line("DEL s");
    }
    assert!(looked(4));
    let held = single(&server).acquire().await.unwrap();
    let waiting = wait(&missing);
    until_waits(&real, 1);
    // It waits before it looks whether the semaphore exists.
    until("a look for the semaphore", || looked(5));
    real.conn().line("DEL s {s}:timeout");
    drop(held);
    real.conn().line("SEM.SET s 1");
    drop(waiting.await.unwrap());
}

/// A user that may not look for it waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_missing_semaphore_is_waited_for_without_the_permission_to_look() {
    let real = TestServer::start();
    real.conn().line("ACL SETUSER default -exists");
    let missing = Semaphore::new(&client(&real), "s");
    assert!(missing.try_acquire().await.unwrap().is_none());
    let waiting = wait(&missing);
    until_waits(&real, 1);
    real.conn().line("SEM.SET s 1");
    drop(waiting.await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_permits_limits_the_holders() {
    let real = TestServer::start();
    let semaphore = Semaphore::new(&client(&real), "s");
    assert!(semaphore.info().await.unwrap().is_none());
    semaphore.set(2).await.unwrap();
    let first = semaphore.try_acquire().await.unwrap().expect("a permit");
    let second = semaphore.acquire().await.unwrap();
    assert_ne!(first.owner(), second.owner());
    assert_ne!(first.token(), second.token());
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    let info = semaphore.info().await.unwrap().unwrap();
    assert_eq!((info.permits, info.free, info.held), (2, 0, 2));
    assert_eq!((info.waiters, info.longest_wait), (0, Duration::ZERO));
    let left = info.next_end.unwrap();
    assert!(
        left <= Duration::from_secs(30) && left > first.valid_for() / 2,
        "{left:?}"
    );
    semaphore.set(1).await.unwrap();
    assert_eq!(semaphore.info().await.unwrap().unwrap().free, -1);
    assert_eq!(first.release().await.unwrap(), Released::Yes);
    assert!(semaphore.try_acquire().await.unwrap().is_none(), "owed");
    assert_eq!(second.release().await.unwrap(), Released::Yes);
    drop(semaphore.try_acquire().await.unwrap().expect("a permit"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_makes_a_semaphore_and_changes_none() {
    let real = TestServer::start();
    let semaphore = Semaphore::new(&client(&real), "s");
    let _first = semaphore.clone().limit(2).acquire().await.unwrap();
    let _second = semaphore.clone().limit(5).acquire().await.unwrap();
    let third = semaphore.clone().limit(5).try_acquire().await.unwrap();
    assert!(third.is_none());
    assert_eq!(semaphore.info().await.unwrap().unwrap().permits, 2);
    let error = semaphore.limit(0).try_acquire().await.unwrap_err();
    assert!(!error.is_passing(), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_are_served_first_come_first_served() {
    let real = TestServer::start();
    let semaphore = single(&client(&real));
    let mut holder = semaphore.acquire().await.unwrap();
    let mut waiters = Vec::new();
    for count in 1..=5 {
        waiters.push(wait(&semaphore));
        until_waits(&real, count);
    }
    while !waiters.is_empty() {
        assert!(semaphore.try_acquire().await.unwrap().is_none());
        assert_eq!(holder.release().await.unwrap(), Released::Yes);
        holder = waiters.remove(0).await.unwrap();
        assert!(!waiters.iter().any(JoinHandle::is_finished));
        assert_held_once(&real, &holder);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_loses_its_connection_keeps_its_place() {
    let real = TestServer::start();
    let semaphore = single(&client(&real));
    let holder = semaphore.acquire().await.unwrap();
    let first = wait(&semaphore);
    until_waits(&real, 1);
    let second = wait(&semaphore);
    until_waits(&real, 2);
    let before = waited(&real);
    kill_connections(&real);
    until("both wait again", || {
        waited(&real) >= before + 2 && real.waits() == 2
    });
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    let first = first.await.unwrap();
    assert!(!second.is_finished());
    assert_held_once(&real, &first);
    assert_eq!(first.release().await.unwrap(), Released::Yes);
    assert_eq!(
        second.await.unwrap().release().await.unwrap(),
        Released::Yes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_dropped_is_withdrawn() {
    let real = TestServer::with(&PLACES_STAY);
    let server = client(&real);
    let holder = single(&server).acquire().await.unwrap();
    let dropped = wait(&single(&server));
    until_waits(&real, 1);
    dropped.abort();
    until("an empty queue", || {
        real.waits() + real.stat("sem_places_kept") == 0
    });
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    until_free(&real);
    assert_eq!(real.stat("sem_grants"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquisition_dropped_at_any_moment_leaves_nothing() {
    let real = TestServer::start();
    let server = with_timeout(real.port, Duration::from_secs(1));
    for i in 0..100 {
        let holder = match i % 2 {
            0 => Some(single(&server).acquire().await.unwrap()),
            _ => None,
        };
        let moment = Duration::from_micros(40 * i);
        let dropped = tokio::time::timeout(moment, single(&server).acquire()).await;
        drop((holder, dropped));
        until_free(&real);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_that_arrives_after_it_was_given_up_grants_nothing() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let server = with_timeout(proxy.port, Duration::from_secs(2));
    proxy.delay("SEM.ACQUIRE");
    let given_up = wait(&single(&server));
    until("a request under way", || proxy.has_delayed());
    given_up.abort();
    until("a withdrawal", || {
        let stats = real.conn().line("INFO commandstats");
        stats.text().contains("sem.release")
    });
    proxy.let_go();
    until_stat(&real, "finals_refused", 1);
    assert_eq!(real.stat("sem_grants"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_whose_reply_was_lost_is_repeated() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let semaphore = single(&through(&proxy));
    proxy.swallow_reply_to("SEM.ACQUIRE");
    let permit = semaphore.try_acquire().await.unwrap().expect("a permit");
    assert!(proxy.has_swallowed());
    assert_eq!(real.stat("sem_grants"), 1);
    assert_held_once(&real, &permit);
    proxy.swallow_reply_to("SEM.RELEASE");
    assert_eq!(permit.release().await.unwrap(), Released::Yes);
    assert!(proxy.has_swallowed());
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_holds_while_all_permits_are_held() {
    let real = TestServer::start();
    let semaphore = single(&client(&real));
    let _holder = semaphore.acquire().await.unwrap();
    let mut tries = Tries::of(&[0, 300, 1_000].map(Duration::from_millis));
    while let Some(bound) = tries.next_case() {
        let start = Instant::now();
        assert!(semaphore.acquire_within(bound).await.unwrap().is_none());
        tries.took(bound, start.elapsed(), bound, Duration::from_millis(300));
    }
    until_waits(&real, 0);
}
