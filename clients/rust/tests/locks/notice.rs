//! How long it takes from a server's death to the notice that the lock is lost. `make bench-notice`
//! measures it, for clients/rust/README.md.

use std::time::{Duration, Instant};

use redis_lock_client::{Lock, LostReason};
use redis_lock_harness::TestServer;

use crate::servers::client;

/// Holders a server, each at another point between two renewals when it dies.
const HOLDERS: u32 = 20;

/// From death to notice, shortest first, and the longest time from the end of what was valid to the notice.
async fn notices(lease: Duration, signal: i32) -> (Vec<Duration>, Duration) {
    let mut real = TestServer::start();
    let mut holders = Vec::new();
    for i in 0..HOLDERS {
        // Each with connections of its own, as if each were a program.
        let lock = Lock::new(&client(&real), format!("k{i}")).lease(lease);
        let lock = lock.margin(Duration::ZERO);
        holders.push(lock.acquire().await.unwrap());
        // sleep: spreads the renewals of the holders, a measurement
        tokio::time::sleep(lease / 3 / HOLDERS).await;
    }
    let death = Instant::now();
    real.signal(signal);
    let waiting = holders
        .iter()
        .map(|guard| (Instant::now() + guard.valid_for(), guard.lost()));
    let waiting: Vec<_> = waiting.collect();
    let told = waiting.into_iter().map(|(end, lost)| {
        tokio::spawn(async move {
            assert_eq!(lost.await, Some(LostReason::Unconfirmed));
            (
                death.elapsed(),
                Instant::now().saturating_duration_since(end),
            )
        })
    });
    let (mut notices, mut latest) = (Vec::new(), Duration::ZERO);
    for told in told.collect::<Vec<_>>() {
        let (notice, late) = told.await.unwrap();
        notices.push(notice);
        latest = latest.max(late);
    }
    notices.sort();
    match signal {
        libc::SIGSTOP => real.signal(libc::SIGCONT),
        _ => tokio::task::block_in_place(|| real.crash_and_restart()),
    }
    (notices, latest)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn measure() {
    let leases: &[u64] = &[1, 3, 10];
    println!(
        "| Lease | The server | Notice after: min | median | max | latest behind the lease's end |"
    );
    println!("|---:|---|---:|---:|---:|---:|");
    for seconds in leases {
        for (what, signal) in [
            ("killed (`-9`)", libc::SIGKILL),
            ("stopped (`-STOP`)", libc::SIGSTOP),
        ] {
            let lease = Duration::from_secs(*seconds);
            let (notices, late) = notices(lease, signal).await;
            let of = |i: usize| notices[i].as_secs_f64();
            let (least, most) = (notices[0], notices[notices.len() - 1]);
            println!(
                "| {seconds} s | {what} | {:.2} s | {:.2} s | {:.2} s | {:.1} ms |",
                of(0),
                of(notices.len() / 2),
                most.as_secs_f64(),
                late.as_secs_f64() * 1e3
            );
            // A renewal was confirmed no longer ago than a third of the lease, and counts from before it was sent.
            let slack = Duration::from_millis(200);
            assert!(
                least + slack > lease * 2 / 3 && most < lease + slack,
                "{notices:?}"
            );
        }
    }
}
