//! The figures of clients/rust/README.md about connections, memory and losses, measured on this machine (`make
//! bench-waits`).

use std::time::{Duration, Instant};

use redis_lock_client::{Lock, Released};
use redis_lock_harness::TestServer;

use crate::servers::{client, until_waits};
use crate::{lock, LEASE};

fn field(real: &TestServer, section: &str, field: &str) -> u64 {
    real.info_field(section, field).parse().unwrap()
}

/// Resident memory of this process, in kB.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kb = line.unwrap().trim().trim_end_matches(" kB");
    kb.parse().unwrap()
}

/// Eight tasks, one lock.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn connections_of_contested_acquisitions() {
    let real = TestServer::start();
    let server = client(&real);
    let before = field(&real, "stats", "total_connections_received");
    let start = Instant::now();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let lock = lock(&server);
            tokio::spawn(async move {
                for _ in 0..500 {
                    assert_eq!(
                        lock.acquire().await.unwrap().release().await.unwrap(),
                        Released::Yes
                    );
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let took = start.elapsed();
    let opened = field(&real, "stats", "total_connections_received") - before - 1;
    let waited = server.statistics().waits;
    println!(
        "4000 acquisitions by 8 tasks, {waited} of them waited: {opened} connections opened, {took:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn a_thousand_waits() {
    let real = TestServer::start();
    let server = client(&real);
    let holder = lock(&server).acquire().await.unwrap();
    let before = memory();
    let waits: Vec<_> = (0..1_000)
        .map(|_| {
            let lock = lock(&server);
            tokio::spawn(async move { lock.acquire().await.unwrap().release().await.unwrap() })
        })
        .collect();
    until_waits(&real, 1_000);
    let (grown, connected) = (
        memory() - before,
        field(&real, "clients", "connected_clients"),
    );
    println!(
        "1000 waits: {} kB each, {connected} connections",
        grown / 1_000
    );
    drop(holder);
    for wait in waits {
        assert_eq!(wait.await.unwrap(), Released::Yes);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn from_the_end_of_a_lock_to_the_notice() {
    let real = TestServer::start();
    let server = client(&real);
    let mut conn = real.conn();
    for end in ["LOCK.BREAK k", "DEL k"] {
        let mut told = Vec::new();
        for _ in 0..50 {
            let guard = Lock::new(&server, "k")
                .lease(LEASE)
                .acquire()
                .await
                .unwrap();
            // sleep: longer than a hold must last to be watched, and than the interval of the watch
            tokio::time::sleep(Duration::from_millis(150)).await;
            let ended = Instant::now();
            conn.line(end);
            guard.lost().await;
            told.push(ended.elapsed());
        }
        told.sort();
        println!("{end}: median {:?}, longest {:?}", told[25], told[49]);
    }
}
