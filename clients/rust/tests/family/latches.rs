//! Latches: counting down at most once, and waits that end at zero.

use std::time::{Duration, Instant};

use redis_lock_client::{Error, Latch, Server};
use redis_lock_harness::proxy::Proxy;
use redis_lock_harness::{TestServer, Tries};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::servers::{client, patient, prompt, through, until, until_waits, with_timeout, LONG};
use crate::{kill_connections, waited};

fn latch(server: &Server) -> Latch {
    Latch::new(server, "l")
}

/// A wait in a task of its own.
fn wait(latch: &Latch) -> JoinHandle<()> {
    let latch = latch.clone();
    tokio::spawn(async move { latch.wait().await.unwrap() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latch_opens_when_it_is_counted_down() {
    let real = TestServer::start();
    let latch = latch(&client(&real));
    assert!(
        latch.try_wait().await.unwrap(),
        "open as long as it is not set"
    );
    assert_eq!(latch.count_down().await.unwrap(), 0);
    latch.set(5).await.unwrap();
    assert_eq!(latch.count().await.unwrap(), 5);
    assert!(!latch.try_wait().await.unwrap());
    let waiters = [wait(&latch), wait(&latch), wait(&latch)];
    until_waits(&real, 3);
    assert_eq!(latch.count_down().await.unwrap(), 4);
    assert_eq!(latch.count_down_by(3).await.unwrap(), 1);
    assert!(!waiters.iter().any(JoinHandle::is_finished));
    assert_eq!(latch.count_down().await.unwrap(), 0);
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert!(latch.try_wait().await.unwrap());
    assert_eq!(latch.count().await.unwrap(), 0);
    latch.set(1).await.unwrap();
    latch.set(0).await.unwrap();
    assert!(latch.wait_within(Duration::MAX).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_where_its_connection_breaks() {
    let real = TestServer::start();
    let latch = latch(&client(&real));
    latch.set(1).await.unwrap();
    let waiter = wait(&latch);
    for _ in 0..3 {
        // Where the wait goes on with a parked connection, its former ticket stays for at most 30 s: a latch's has no
        // owner who could withdraw it.
        until("a wait", || real.waits() > 0);
        let before = waited(&real);
        kill_connections(&real);
        until("another request", || waited(&real) > before);
    }
    assert!(!waiter.is_finished());
    assert_eq!(latch.count_down().await.unwrap(), 0);
    waiter.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_goes_on_on_a_server_that_was_started_again() {
    let mut real = TestServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    // Long enough for a server to start in.
    let latch = latch(&with_timeout(real.port, LONG));
    latch.set(2).await.unwrap();
    let waiter = wait(&latch);
    until_waits(&real, 1);
    real.crash();
    let down = latch.clone();
    let down = tokio::spawn(async move { down.count_down().await.unwrap() });
    tokio::task::block_in_place(|| real.start_again());
    assert_eq!(down.await.unwrap(), 1);
    until_waits(&real, 1);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    waiter.await.unwrap();
}

/// The latch opens and is closed again in one event.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_misses_no_opening() {
    let real = TestServer::start();
    let latch = latch(&client(&real));
    let mut conn = real.conn();
    conn.line("LATCH.SET l 1");
    for _ in 0..3 {
        let waiter = wait(&latch);
        until_waits(&real, 1);
        for line in ["MULTI", "LATCH.DOWN l", "LATCH.SET l 1", "EXEC"] {
            conn.line(line);
        }
        timeout(LONG, waiter).await.expect("an opening").unwrap();
    }
    assert_eq!(real.waits(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_dropped_is_withdrawn() {
    let real = TestServer::start();
    let latch = latch(&client(&real));
    latch.set(1).await.unwrap();
    let waiter = wait(&latch);
    until_waits(&real, 1);
    waiter.abort();
    until_waits(&real, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_holds_while_the_latch_is_closed() {
    let real = TestServer::start();
    let latch = latch(&client(&real));
    latch.set(1).await.unwrap();
    let mut tries = Tries::of(&[0, 300, 1_000].map(Duration::from_millis));
    while let Some(bound) = tries.next_case() {
        let start = Instant::now();
        assert!(!latch.wait_within(bound).await.unwrap());
        tries.took(bound, start.elapsed(), bound, Duration::from_millis(300));
    }
    until_waits(&real, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_of_a_wait_holds_on_a_paused_server() {
    let real = TestServer::start();
    let known = prompt(&real);
    latch(&known).set(1).await.unwrap();
    for is_known in [true, false] {
        let mut tries = Tries::of(&[0, 300, 1_000].map(Duration::from_millis));
        while let Some(bound) = tries.next_case() {
            let server = if is_known {
                known.clone()
            } else {
                prompt(&real)
            };
            real.signal(libc::SIGSTOP);
            let start = Instant::now();
            let end = latch(&server).wait_within(bound).await;
            let took = start.elapsed();
            real.signal(libc::SIGCONT);
            assert!(end.is_err_and(|error| error.is_passing()));
            tries.took(bound, took, bound, Duration::from_millis(300));
        }
    }
    until_waits(&real, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_whose_answer_was_lost_goes_down_once() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let latch = latch(&through(&proxy));
    latch.set(3).await.unwrap();
    proxy.swallow_reply_to("LATCH.DOWN");
    let error = latch.count_down().await.unwrap_err();
    assert!(proxy.has_swallowed());
    assert!(matches!(error, Error::Unheard { .. }), "{error}");
    assert!(!error.is_passing());
    assert_eq!(latch.count().await.unwrap(), 2);
    proxy.swallow_reply_to("LATCH.SET");
    let error = latch.set(7).await.unwrap_err();
    assert!(matches!(error, Error::Unheard { .. }), "{error}");
    assert_eq!(latch.count().await.unwrap(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_is_late_goes_down_once() {
    let real = TestServer::start();
    let proxy = Proxy::before(real.port);
    let latch = latch(&with_timeout(proxy.port, Duration::from_secs(3)));
    latch.set(3).await.unwrap();
    proxy.delay("LATCH.DOWN");
    let error = latch.count_down().await.unwrap_err();
    assert!(matches!(error, Error::Unheard { .. }), "{error}");
    assert_eq!(latch.count().await.unwrap(), 3);
    proxy.let_go();
    let mut conn = real.conn();
    until("the late request", || conn.line("GET l").text() == "2");
    assert_eq!(latch.count_down().await.unwrap(), 1);
}

/// A connection that has ended unnoticed leaves no uncertainty.
#[tokio::test(flavor = "multi_thread")]
async fn a_count_goes_down_where_the_connection_was_closed_before() {
    let mut real = TestServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let latch = latch(&client(&real));
    latch.set(100).await.unwrap();
    for left in (90..100).rev() {
        kill_connections(&real);
        assert_eq!(latch.count_down().await.unwrap(), left);
    }
    tokio::task::block_in_place(|| real.crash_and_restart());
    assert_eq!(latch.count_down().await.unwrap(), 89);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_paused_before_the_request_leaves_no_uncertainty() {
    let real = TestServer::start();
    let latch = latch(&with_timeout(real.port, Duration::from_secs(3)));
    latch.set(3).await.unwrap();
    real.signal(libc::SIGSTOP);
    let start = Instant::now();
    let error = latch.count_down().await.unwrap_err();
    assert!(start.elapsed() < LONG);
    real.signal(libc::SIGCONT);
    assert!(error.is_passing(), "{error}");
    assert_eq!(latch.count_down().await.unwrap(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_may_count_down_without_the_permission_to_wait() {
    let real = TestServer::start();
    let mut conn = real.conn();
    conn.line("LATCH.SET l 2");
    conn.line("ACL SETUSER worker on nopass ~l -@all +latch.down");
    let url = format!("redis://worker:any@127.0.0.1:{}", real.port);
    let latch = latch(&patient(&url));
    assert_eq!(latch.count_down().await.unwrap(), 1);
    for error in [latch.count().await.err(), latch.try_wait().await.err()] {
        assert!(error.unwrap().to_string().contains("NOPERM"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_no_latch_is_an_error() {
    let real = TestServer::start();
    let latch = latch(&client(&real));
    for (line, code) in [("SET l text", "LOCKTYPE"), ("RPUSH l text", "WRONGTYPE")] {
        real.conn().line("DEL l");
        real.conn().line(line);
        for error in [
            latch.try_wait().await.err(),
            latch.count_down().await.err(),
            latch.set(1).await.err(),
            latch.count().await.err(),
        ] {
            let error = error.unwrap().to_string();
            assert!(error.contains(code), "{error}");
        }
    }
}
