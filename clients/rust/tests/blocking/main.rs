//! The blocking interface, in programs with and without a runtime.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod family;
mod inside;
mod several;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use redis_lock_client::blocking::{Guard, Lock, Server};
use redis_lock_client::{BreakTarget, BreakWaiters, LostReason, Mode, Released, Search};
use redis_lock_harness::{wait_for, TestServer, Tries};

/// Longer than any test waits for what comes.
pub const LONG: Duration = Duration::from_secs(60);
/// The longest time for a reply, of which a twentieth is for that to a `try_acquire`.
const PATIENT: Duration = Duration::from_secs(100);

/// How the client sees this server.
pub fn client(real: &TestServer) -> Server {
    let server = Server::open(&format!("redis://127.0.0.1:{}", real.port));
    server.unwrap().response_timeout(PATIENT)
}

/// Whether the lock `k` is neither held nor waited for.
pub fn is_free(real: &TestServer) -> bool {
    real.conn().line("LOCK.INFO k").is_nil()
}

/// The result of a thread, which must not block forever.
pub fn soon<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || drop(sender.send(work())));
    match receiver.recv_timeout(LONG) {
        Ok(answer) => answer,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("timed out: {what}"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().unwrap_err())
        }
    }
}

#[test]
fn threads_exclude_each_other() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 25;
    let real = TestServer::start();
    let lock = Lock::new(&client(&real), "k");
    // Read, and written a moment later: without the lock, updates would be lost.
    let count = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    let guard = lock.acquire().unwrap();
                    let read = count.load(Ordering::Relaxed);
                    real.conn().line("PING");
                    count.store(read + 1, Ordering::Relaxed);
                    assert_eq!(guard.release().unwrap(), Released::Yes);
                }
            });
        }
    });
    assert_eq!(count.into_inner(), THREADS * ROUNDS);
}

#[test]
fn a_held_lock_is_refused_and_tokens_rise() {
    let real = TestServer::start();
    let lock = Lock::new(&client(&real), "k");
    let named = lock.clone().owner("worker-7");
    let first = named.try_acquire().unwrap().expect("a free lock");
    assert_eq!(first.owner(), b"worker-7");
    assert!(lock.try_acquire().unwrap().is_none());
    let token = first.token();
    assert_eq!(first.release().unwrap(), Released::Yes);
    assert!(lock.try_acquire().unwrap().unwrap().token() > token);
}

#[test]
fn readers_hold_together() {
    let real = TestServer::start();
    let lock = Lock::new(&client(&real), "k");
    let (reading, writing) = (lock.clone().mode(Mode::Read), lock.mode(Mode::Write));
    let readers = [reading.acquire().unwrap(), reading.acquire().unwrap()];
    assert!(writing.try_acquire().unwrap().is_none());
    drop(readers);
    assert!(writing.acquire_within(LONG).unwrap().is_some());
}

#[test]
fn a_wait_ends_at_its_bound() {
    let real = TestServer::start();
    let server = client(&real);
    let _held = Lock::new(&server, "k").acquire().unwrap();
    let mut tries = Tries::of(&[Duration::from_millis(1), Duration::from_millis(250)]);
    while let Some(bound) = tries.next_case() {
        let begun = Instant::now();
        let got = Lock::new(&server, "k").acquire_within(bound).unwrap();
        assert!(got.is_none());
        tries.took(bound, begun.elapsed(), bound, Duration::from_millis(300));
    }
}

#[test]
fn a_waiter_is_granted_when_the_guard_is_dropped() {
    let real = TestServer::start();
    let server = client(&real);
    let lock = Lock::new(&server, "k");
    let first = lock.acquire().unwrap();
    let waiting = lock.clone();
    let waiter = thread::spawn(move || waiting.acquire().unwrap());
    real.wait_for_waits(1);
    let token = first.token();
    drop(first);
    let second = waiter.join().unwrap();
    assert!(second.token() > token);
    drop(second);
    assert!(server.settled().is_empty());
    assert!(is_free(&real), "settled, and not released");
}

#[test]
fn a_loss_reaches_waiting_and_polling_threads() {
    let real = TestServer::start();
    let server = client(&real);
    let guard = Lock::new(&server, "k").lease(LONG).acquire().unwrap();
    let lost = guard.lost();
    assert_eq!(lost.reason(), None);
    assert_eq!(lost.wait(Duration::from_millis(1)), None);
    let waiting = lost.clone();
    let waiter = thread::spawn(move || waiting.wait(Duration::MAX));
    let was_held = server
        .break_lock("k", BreakTarget::Any, BreakWaiters::Keep)
        .unwrap();
    assert!(was_held);
    assert_eq!(waiter.join().unwrap(), Some(LostReason::Taken));
    assert_eq!(lost.reason(), Some(LostReason::Taken));
    assert_eq!(lost.wait(Duration::ZERO), Some(LostReason::Taken));
    assert_eq!(guard.valid_for(), Duration::ZERO);
    assert_eq!(guard.release().unwrap(), Released::NotHeld);
}

#[test]
fn a_wait_for_a_loss_ends_with_the_release() {
    let real = TestServer::start();
    let lock = Lock::new(&client(&real), "k");
    let release = |guard: Guard| assert_eq!(guard.release().unwrap(), Released::Yes);
    let ends: [fn(Guard); 2] = [drop, release];
    for end in ends {
        let guard = lock.acquire().unwrap();
        let lost = guard.lost();
        let waiter = thread::spawn(move || lost.wait(Duration::MAX));
        end(guard);
        let told = soon("the end of a hold", || waiter.join().unwrap());
        assert_eq!(told, None);
    }
}

#[test]
fn a_lock_is_renewed_while_its_thread_is_blocked() {
    let real = TestServer::start();
    let guard = Lock::new(&client(&real), "k").acquire().unwrap();
    wait_for("a renewal", || real.stat("renewals") > 0);
    assert!(guard.valid_for() > Duration::ZERO);
    assert_eq!(guard.release().unwrap(), Released::Yes);
}

#[test]
fn errors_are_those_of_the_asynchronous_types() {
    let real = TestServer::start();
    real.conn().line("SET k plain");
    let error = Lock::new(&client(&real), "k").acquire().unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
}

#[test]
fn a_server_is_asked_for_its_locks() {
    let real = TestServer::start();
    let server = client(&real).response_timeout(Duration::from_secs(2));
    server.ping().unwrap();
    assert_eq!(server.name(), format!("127.0.0.1:{}/0", real.port));
    assert!(server.info("k", 0).unwrap().is_none());
    let guard = Lock::new(&server, "k").acquire().unwrap();
    let info = server.info("k", 0).unwrap().unwrap();
    assert_eq!(info.holders[0].token, Some(guard.token()));
    assert_eq!(server.module_counters().unwrap()["grants"], 1);
    assert!(server.readiness("k").unwrap().is_primary);
    let mut scan = server.scan(Search::held()).unwrap();
    let mut found = Vec::new();
    while let Some(keys) = scan.step().unwrap() {
        found.extend(keys);
    }
    assert_eq!(found, [b"k"]);
}
