//! Blocking calls from threads that belong to an executor.

use redis_lock_client::blocking::{Lock, Server};
use redis_lock_client::Released;
use redis_lock_harness::{wait_for, TestServer};
use tokio::runtime::Builder;

use crate::{client, soon};

/// More operations than tokio grants a task before it must yield (128).
const ROUNDS: usize = 200;

fn many_rounds(lock: &Lock) {
    for _ in 0..ROUNDS {
        let guard = lock.acquire().unwrap();
        assert_eq!(guard.release().unwrap(), Released::Yes);
    }
}

#[test]
fn in_a_blocking_task() {
    let real = TestServer::start();
    let lock = Lock::new(&client(&real), "k");
    soon("a blocking task", move || {
        let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
        let task = runtime.spawn_blocking(move || many_rounds(&lock));
        runtime.block_on(task).unwrap();
    });
}

#[test]
fn in_a_task_of_a_runtime_with_one_thread() {
    let real = TestServer::start();
    let lock = Lock::new(&client(&real), "k");
    soon("a task", move || {
        let runtime = Builder::new_current_thread().build().unwrap();
        let task = runtime.spawn(async move { many_rounds(&lock) });
        runtime.block_on(task).unwrap();
    });
}

#[test]
fn in_tasks_of_a_runtime_with_several_threads() {
    let real = TestServer::start();
    let lock = Lock::new(&client(&real), "k");
    soon("two tasks", move || {
        let runtime = Builder::new_multi_thread().build().unwrap();
        let tasks = [lock.clone(), lock].map(|lock| {
            // The waits of one and the holds of the other are on different threads.
            runtime.spawn(async move { many_rounds(&lock) })
        });
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
    });
}

#[test]
fn beside_the_asynchronous_interface() {
    let real = TestServer::start();
    let server = redis_lock_client::Server::open(&format!("redis://127.0.0.1:{}", real.port));
    let lock = redis_lock_client::Lock::new(&server.clone().unwrap(), "k");
    let blocking = Server::from(server.unwrap());
    let _open = blocking.clone();
    soon("both interfaces", move || {
        let runtime = Builder::new_current_thread().build().unwrap();
        let guard = runtime.block_on(lock.acquire()).unwrap();
        assert!(Lock::new(&blocking, "k").try_acquire().unwrap().is_none());
        drop(guard);
        assert!(blocking.settled().is_empty());
        let guard = Lock::from(lock.clone()).acquire().unwrap();
        let refused = runtime.block_on(lock.try_acquire()).unwrap();
        assert!(refused.is_none());
        let released = runtime.block_on(async move { guard.release().unwrap() });
        assert_eq!(released, Released::Yes);
    });
    // The shared connection, and that of this question. The server may not yet have seen the end of an earlier one.
    wait_for("two connections", || {
        let clients = real.conn().line("CLIENT LIST TYPE NORMAL").text();
        clients.lines().count() == 2
    });
}
