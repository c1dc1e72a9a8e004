//! A process with a low limit of open files: idle connections are closed for a new one.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use redis_lock_client::{Lock, Server};
use redis_lock_harness::process::tame;
use redis_lock_harness::{wait_for, TestServer};

/// The URL of the server, for the run with few open files.
const URL: &str = "LOCK_FEW_FILES_URL";
const WAITERS: usize = 10;

#[test]
fn idle_connections_make_room() {
    let server = TestServer::start();
    let done = tame(&mut Command::new("sh"))
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().expect("this test's own program"))
        .args(["inside", "--exact", "--ignored", "--nocapture"])
        .env(URL, format!("redis://127.0.0.1:{}", server.port))
        .output()
        .expect("a run inside");
    let told = String::from_utf8_lossy(&done.stdout);
    let failed = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by idle_connections_make_room"]
async fn inside() {
    let Ok(url) = std::env::var(URL) else {
        println!("not run: this needs a server and a limit");
        return;
    };
    let server = Server::open(&url).unwrap().parked_waits();
    let lock = Lock::new(&server, "k");
    let held = lock.acquire().await.unwrap();
    let waiters: Vec<_> = (0..WAITERS)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    wait_for("connections of all waiters", || {
        server.statistics().connections >= WAITERS as u64
    });
    held.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    let other = Server::open(&url).unwrap();
    let guard = Lock::new(&other, "other").try_acquire().await;
    let guard = guard.expect("a connection").expect("a free lock");
    assert!(guard.valid_for() > Duration::ZERO);
    drop(files);
    guard.release().await.unwrap();
}
