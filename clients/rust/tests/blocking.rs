//! The locks of programs without an executor, and of blocking calls within one.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redis_lock_client::{
    block_on, BreakTarget, BreakWaiters, Guard, Lock, LostReason, Released, Server,
};
use redis_lock_harness::{wait_for, TestServer};
use tokio::runtime::{Builder, Handle, Runtime};

/// Longer than any test waits for what comes.
const LONG: Duration = Duration::from_secs(60);
/// More operations than tokio grants a task before it must yield (128).
const ROUNDS: usize = 200;

/// How the client sees this server.
fn client(real: &TestServer) -> Server {
    let server = Server::builder(&format!("redis://127.0.0.1:{}", real.port));
    let server = server.response_timeout(Duration::from_secs(100));
    server.build().unwrap()
}

/// The result of a thread, which must not block forever.
fn soon<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
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
                    let guard = block_on(lock.acquire()).unwrap();
                    let read = count.load(Ordering::Relaxed);
                    real.conn().line("PING");
                    count.store(read + 1, Ordering::Relaxed);
                    assert_eq!(block_on(guard.release()).unwrap(), Released::Yes);
                }
            });
        }
    });
    assert_eq!(count.into_inner(), THREADS * ROUNDS);
}

#[test]
fn a_loss_reaches_waiting_and_polling_threads() {
    let real = TestServer::start();
    let server = client(&real);
    let guard = block_on(Lock::new(&server, "k").lease(LONG).acquire()).unwrap();
    let lost = guard.lost();
    assert_eq!(lost.reason(), None);
    assert_eq!(lost.wait(Duration::from_millis(1)), None);
    let waiting = lost.clone();
    let waiter = thread::spawn(move || waiting.wait(Duration::MAX));
    let broken = server.break_lock("k", BreakTarget::Any, BreakWaiters::Keep);
    assert!(block_on(broken).unwrap());
    assert_eq!(waiter.join().unwrap(), Some(LostReason::Taken));
    assert_eq!(lost.reason(), Some(LostReason::Taken));
    assert_eq!(lost.wait(Duration::ZERO), Some(LostReason::Taken));
    assert_eq!(guard.valid_for(), Duration::ZERO);
    assert_eq!(block_on(guard.release()).unwrap(), Released::NotHeld);
}

#[test]
fn a_wait_for_a_loss_ends_with_the_release() {
    let real = TestServer::start();
    let lock = Lock::new(&client(&real), "k");
    let release = |guard: Guard| assert_eq!(block_on(guard.release()).unwrap(), Released::Yes);
    let ends: [fn(Guard); 2] = [drop, release];
    for end in ends {
        let guard = block_on(lock.acquire()).unwrap();
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
    let server = client(&real);
    let guard = block_on(Lock::new(&server, "k").acquire()).unwrap();
    wait_for("a renewal", || real.stat("renewals") > 0);
    assert!(guard.valid_for() > Duration::ZERO);
    drop(guard);
    assert!(block_on(server.settled()).is_empty());
    assert!(
        real.conn().line("LOCK.INFO k").is_nil(),
        "settled, and not released"
    );
}

fn many_rounds(lock: &Lock) {
    for _ in 0..ROUNDS {
        let guard = block_on(lock.acquire()).unwrap();
        assert_eq!(block_on(guard.release()).unwrap(), Released::Yes);
    }
}

#[test]
fn blocking_calls_within_an_executor() {
    let real = TestServer::start();
    let lock = Lock::new(&client(&real), "k");
    let of_task = lock.clone();
    soon("a blocking task", move || {
        let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
        let task = runtime.spawn_blocking(move || many_rounds(&of_task));
        runtime.block_on(task).unwrap();
    });
    let of_task = lock.clone();
    soon("a task of the only thread", move || {
        let runtime = Builder::new_current_thread().build().unwrap();
        let task = runtime.spawn(async move { many_rounds(&of_task) });
        runtime.block_on(task).unwrap();
    });
    soon("two tasks", move || {
        let runtime = Builder::new_multi_thread().build().unwrap();
        // The waits of one and the holds of the other are on different threads.
        let tasks =
            [lock.clone(), lock].map(|lock| runtime.spawn(async move { many_rounds(&lock) }));
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
    });
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// How a client sees this server whose requests are those of this runtime.
fn of(runtime: &Handle, real: &TestServer) -> Server {
    let server = Server::builder(&format!("redis://127.0.0.1:{}", real.port));
    let server = server.response_timeout(Duration::from_secs(100));
    server.runtime(runtime.clone()).build().unwrap()
}

/// A runtime on one thread is blocked until the server has served a renewal, and a later acquisition within
/// `block_on` waits for no task of it.
#[test]
fn a_program_that_blocks_the_runtime_of_its_requests_keeps_its_locks() {
    let real = TestServer::start();
    let runtime = runtime();
    let server = of(runtime.handle(), &real);
    runtime.block_on(async {
        let kept = Lock::new(&server, "kept").lease(Duration::from_secs(3));
        let kept = kept.acquire().await.unwrap();
        // That of the thread is the one that tracks keys.
        let clients = real.conn().line("CLIENT LIST").text();
        let of_runtime =
            |line: &str| line.contains(" flags=N ") && line.contains("cmd=lock.acquire");
        assert!(clients.lines().any(of_runtime), "{clients}");
        let renewals = real.stat("renewals");
        wait_for("a renewal", || real.stat("renewals") > renewals);
        let other = Lock::new(&server, "other");
        let other = block_on(other.acquire()).unwrap();
        assert_eq!(block_on(other.release()).unwrap(), Released::Yes);
        assert_eq!(kept.lost().reason(), None);
        assert_eq!(kept.release().await.unwrap(), Released::Yes);
    });
}

/// A hold outlives the runtime that has asked for it, and so does the server.
#[test]
fn a_lock_is_held_and_released_without_the_runtime_that_has_asked_for_it() {
    let real = TestServer::start();
    let first = runtime();
    let server = of(first.handle(), &real);
    let lock = Lock::new(&server, "k");
    let (held, dropped) = first.block_on(async {
        let held = lock.acquire().await.unwrap();
        let dropped = Lock::new(&server, "dropped").acquire().await.unwrap();
        (held, dropped)
    });
    drop(first);
    drop(dropped);
    let free = block_on(server.settled());
    assert!(free.is_empty(), "{free:?}");
    assert!(real.conn().line("LOCK.INFO dropped").is_nil());
    // Of another runtime, and of none.
    let released = runtime().block_on(held.release());
    assert_eq!(released.unwrap(), Released::Yes);
    let again = block_on(lock.acquire()).unwrap();
    assert_eq!(block_on(again.release()).unwrap(), Released::Yes);
}

#[test]
fn a_dropped_guard_is_released_before_the_next_request() {
    let real = TestServer::start();
    let server = client(&real);
    let lock = Lock::new(&server, "k");
    runtime().block_on(async {
        for _ in 0..ROUNDS {
            drop(lock.try_acquire().await.unwrap().expect("a free lock"));
        }
        assert!(server.settled().await.is_empty());
    });
}

/// The runtime of its requests, on one thread, is blocked right after, until the lock is free.
#[test]
fn a_dropped_guard_is_released_while_the_runtime_of_the_requests_is_blocked() {
    let real = TestServer::start();
    let runtime = runtime();
    let server = of(runtime.handle(), &real);
    runtime.block_on(async {
        drop(
            Lock::new(&server, "k")
                .lease(LONG * 10)
                .acquire()
                .await
                .unwrap(),
        );
        let mut conn = real.conn();
        wait_for("a free lock", || conn.line("LOCK.INFO k").is_nil());
    });
}

/// The program's connections break, those of the thread too, before each attempt.
#[test]
fn an_attempt_over_broken_connections_is_repeated() {
    let real = TestServer::start();
    let runtime = runtime();
    let server = of(runtime.handle(), &real);
    runtime.block_on(async {
        let lock = Lock::new(&server, "k");
        for _ in 0..20 {
            // The thread opens its connection for this release.
            drop(lock.try_acquire().await.unwrap().expect("a free lock"));
            assert!(server.settled().await.is_empty());
            real.conn().line("CLIENT KILL TYPE normal");
        }
    });
}

/// A destructor of the thread's locals, at which those of tokio are gone.
#[test]
fn a_guard_may_be_dropped_at_the_end_of_its_thread() {
    thread_local! {
        static HELD: RefCell<Vec<Guard>> = const { RefCell::new(Vec::new()) };
    }
    let real = TestServer::start();
    let server = client(&real);
    let of_thread = server.clone();
    let held = move || {
        // Before those of tokio, so dropped after them.
        HELD.with(|held| held.borrow_mut().reserve(1));
        let guard = block_on(Lock::new(&of_thread, "k").acquire()).unwrap();
        HELD.with(|held| held.borrow_mut().push(guard));
    };
    thread::spawn(held).join().unwrap();
    assert!(block_on(server.settled()).is_empty());
    assert!(real.conn().line("LOCK.INFO k").is_nil());
}
