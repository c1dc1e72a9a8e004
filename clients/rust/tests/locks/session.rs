//! Holds that are bound to a connection.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use redis_lock_client::{Error, Guard, Lock, LostReason, Mode, Released, Server};
use redis_lock_harness::proxy::Proxy;
use redis_lock_harness::{process, wait_for, TestServer};
use tokio::time::timeout;

use crate::servers::{client, patient, through, until, with_timeout, LONG};
use crate::until_free;

/// A server that renews bound holds for so long.
fn server(lease_ms: u64) -> TestServer {
    let real = TestServer::start();
    let set = format!("CONFIG SET lock.session-lease {lease_ms}");
    assert_eq!(real.conn().line(&set).text(), "OK");
    real
}

fn bound(server: &Server) -> Lock {
    Lock::new(server, "k").session()
}

/// The connection that the lock is bound to.
fn connection(real: &TestServer) -> i64 {
    let info = real.conn().line("LOCK.INFO k");
    let holder = &info.field("holders").unwrap().list()[0];
    assert_eq!(holder.field("session").unwrap().int(), 1);
    holder.field("client-id").unwrap().int()
}

fn wait(server: &Server) -> tokio::task::JoinHandle<Guard> {
    let lock = bound(server);
    tokio::spawn(async move { lock.acquire().await.unwrap() })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_renews_it_while_the_connection_lives() {
    let real = server(30_000);
    let server = client(&real);
    let guard = bound(&server).acquire().await.unwrap();
    assert!(guard.valid_for() <= Duration::from_secs(30));
    // That of the server, or the client's question for the lease, which comes at the same time.
    let renewals = || real.stat("session_renewals") + real.stat("renewals");
    until("a renewal", || renewals() > 1);
    assert!(!guard.valid_for().is_zero());
    assert!(bound(&server).try_acquire().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    until_free(&real);
    assert_eq!(real.stat("grants_released"), 1);
}

/// Left, it outlives its connection, which is closed no sooner.
#[tokio::test(flavor = "multi_thread")]
async fn it_may_be_left_held() {
    let real = server(60_000);
    let proxy = Proxy::before(real.port);
    let guard = bound(&through(&proxy)).acquire().await.unwrap();
    proxy.delay("LOCK.RENEW");
    let left = tokio::spawn(guard.leave(LONG));
    until("a request under way", || proxy.has_delayed());
    proxy.let_go();
    assert_eq!(left.await.unwrap().unwrap(), Released::Yes);
    until("no session", || real.stat("sessions") == 0);
    assert!(bound(&client(&real)).try_acquire().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_the_connection_is_the_end_of_the_hold() {
    let real = server(600_000);
    let server = client(&real);
    // A reader's field is not watched.
    let reader = Lock::new(&server, "k").mode(Mode::Read).session();
    let guard = reader.acquire().await.unwrap();
    let writer = Lock::new(&server, "k").mode(Mode::Write).session();
    let next = tokio::spawn(async move { writer.acquire().await.unwrap() });
    until("a waiter", || real.waits() == 1);
    let kill = format!("CLIENT KILL ID {}", connection(&real));
    real.conn().line(&kill);
    // The next renewal is minutes away.
    let told = timeout(LONG, guard.lost()).await;
    assert_eq!(told, Ok(Some(LostReason::Disconnected)));
    assert!(guard.valid_for().is_zero());
    let next = next.await.unwrap();
    assert!(next.token() > guard.token());
    assert_eq!(guard.release().await.unwrap(), Released::NotHeld);
    drop(next);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_guard_frees_the_lock_at_once() {
    let real = server(60_000);
    let server = client(&real);
    drop(bound(&server).acquire().await.unwrap());
    until_free(&real);
    let guard = bound(&server).acquire().await.unwrap();
    let waiting = wait(&server);
    until("a waiter", || real.waits() == 1);
    waiting.abort();
    until("none", || real.waits() == 0);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_server_keeps_the_connection_but_not_the_lease() {
    let real = server(18_000);
    let server = client(&real);
    let guard = bound(&server).acquire().await.unwrap();
    real.signal(libc::SIGSTOP);
    let why = guard.lost().await;
    let left = guard.valid_for();
    real.signal(libc::SIGCONT);
    assert_eq!(why, Some(LostReason::Unconfirmed));
    assert!(!left.is_zero(), "told before the end");
    // The holder has yet to stop: its connection is still there.
    assert_eq!(real.conn().line("EXISTS k").int(), 1);
    drop(guard);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_a_writer_are_bound_too() {
    let real = server(60_000);
    let server = client(&real);
    let lock = Lock::new(&server, "k");
    let (one, other) = (
        lock.clone().mode(Mode::Read).session(),
        lock.clone().mode(Mode::Read).session(),
    );
    let readers = [one.acquire().await.unwrap(), other.acquire().await.unwrap()];
    let writer = lock.mode(Mode::Write).session();
    assert!(writer.try_acquire().await.unwrap().is_none());
    drop(readers);
    let guard = writer.acquire_within(LONG).await.unwrap().expect("free");
    assert!(guard.valid_for() > Duration::from_secs(30));
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_permission_to_read_the_lease_nothing_is_held() {
    let real = server(60_000);
    let made = "ACL SETUSER app reset on nopass ~* +lock.acquire +lock.renew +lock.release";
    assert_eq!(real.conn().line(made).text(), "OK");
    let app = patient(&format!("redis://app:x@127.0.0.1:{}", real.port));
    let error = bound(&app).acquire().await.unwrap_err();
    assert!(
        matches!(&error, Error::Refused { code, .. } if code == "NOPERM"),
        "{error}"
    );
    until_free(&real);
}

/// The server does not notice the end of the connection, and renews the hold.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_released_after_a_break_of_the_network_that_outlasts_its_lease() {
    let real = server(6_000);
    for is_dropped in [true, false] {
        let proxy = Proxy::before(real.port);
        let server = with_timeout(proxy.port, Duration::from_secs(1));
        let guard = bound(&server).acquire().await.unwrap();
        // The connection that the hold is bound to ends on the client's side only.
        proxy.delay("LOCK.RENEW");
        until("a renewal that is held back", || proxy.has_delayed());
        proxy.lose(true);
        assert_eq!(guard.lost().await, Some(LostReason::Unconfirmed));
        match is_dropped {
            true => drop(guard),
            false => drop(guard.release().await.unwrap_err()),
        }
        let left = server.settled().await;
        assert_eq!(left.len(), 1, "{left:?}");
        proxy.lose(false);
        until_free(&real);
        proxy.let_go();
    }
}

/// The confirmation of the grant has no reply, and by the end of the wait that request can no longer be served.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_was_never_confirmed_is_undone() {
    let real = server(500);
    let proxy = Proxy::before(real.port);
    let server = with_timeout(proxy.port, Duration::from_secs(1));
    // The lease of a lock is not that of its session.
    let lock = Lock::new(&server, "k").lease(Duration::MAX).session();
    proxy.delay("LOCK.RENEW");
    let acquired = tokio::spawn(async move { lock.acquire_within(Duration::from_secs(5)).await });
    until("a confirmation that is held back", || proxy.has_delayed());
    proxy.lose(true);
    assert!(acquired.await.unwrap().unwrap_err().is_passing());
    proxy.lose(false);
    until_free(&real);
    proxy.let_go();
}

/// The guard renews the lock and reports its loss by the lease that the server has now.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_set_shorter_is_that_of_the_next_renewal() {
    let real = server(30_000);
    let server = client(&real);
    let guard = bound(&server).acquire().await.unwrap();
    let set = real.conn().line("CONFIG SET lock.session-lease 15000");
    assert_eq!(set.text(), "OK");
    let renewals = || server.statistics().renewals;
    until("a renewal", || renewals() > 0);
    assert!(guard.valid_for() < Duration::from_secs(15));
    let (first, begun) = (renewals(), Instant::now());
    until("another renewal", || renewals() > first);
    // A third of the lease lies between the two, less the time in which the first one was noticed.
    assert!(begun.elapsed() > Duration::from_secs(1));
    assert!(!guard.valid_for().is_zero());
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}

/// `LOCK.INFO` lists all readers, so N readers that each read it would receive N times N holders.
#[tokio::test(flavor = "multi_thread")]
async fn readers_read_their_lease_together() {
    let real = server(30_000);
    let server = client(&real);
    let lock = Lock::new(&server, "k").mode(Mode::Read).session();
    let count = 30;
    let mut readers = Vec::new();
    for _ in 0..count {
        readers.push(lock.acquire().await.unwrap());
    }
    until("a renewal of each", || {
        server.statistics().renewals >= count
    });
    let calls = real.info_field("commandstats", "cmdstat_lock.info");
    let calls = calls.split(',').next().unwrap_or_default();
    let calls: u64 = calls.trim_start_matches("calls=").parse().unwrap();
    assert!(calls < count, "{calls} requests");
    for reader in readers {
        assert!(!reader.valid_for().is_zero());
        assert_eq!(reader.release().await.unwrap(), Released::Yes);
    }
}

/// The server, for the program that is stopped.
const URL: &str = "LOCK_STOPPED_URL";

/// What the program says when it watches the clock.
const READY: &str = "it holds";

/// The server renews the hold, so the program asks it before it reports a loss.
#[test]
fn a_program_that_stood_still_keeps_what_the_server_has_kept() {
    let real = server(2_000);
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["session::inside", "--exact", "--ignored", "--nocapture"]);
    program.env(URL, format!("redis://127.0.0.1:{}", real.port));
    let mut program = process::spawn(program.stdout(Stdio::piped())).unwrap();
    let told = BufReader::new(program.stdout.take().unwrap());
    let mut told = told.lines().map_while(Result::ok);
    assert!(told.any(|line| line.contains(READY)), "a hold");
    let signal = |name: &str| {
        let line = format!("kill {name} {}", program.id());
        let sent = process::tame(Command::new("sh").args(["-c", &line])).status();
        assert!(sent.unwrap().success());
    };
    signal("-STOP");
    let before = real.stat("session_renewals");
    // More than a lease.
    wait_for("renewals by the server", || {
        real.stat("session_renewals") >= before + 9
    });
    signal("-CONT");
    assert!(program.wait().unwrap().success());
    until_free(&real);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "run by a_program_that_stood_still_keeps_what_the_server_has_kept"]
async fn inside() {
    let Ok(url) = std::env::var(URL) else {
        println!("not run: nothing stops this program");
        return;
    };
    let server = Server::open(&url).unwrap();
    let guard = bound(&server).acquire().await.unwrap();
    let mut last = Instant::now();
    println!("{READY}");
    wait_for("a time in which this program did not run", || {
        std::mem::replace(&mut last, Instant::now()).elapsed() > Duration::from_secs(4)
    });
    let renewals = server.statistics().renewals;
    until("a renewal", || server.statistics().renewals > renewals);
    assert_eq!(guard.lost().reason(), None);
    assert_eq!(guard.release().await.unwrap(), Released::Yes);
}
