//! The figures of docs/REDLOCK.md, measured on this machine:
//! `cargo test --release -p redis-lock --test several figures:: -- --ignored --nocapture --test-threads 1`.

use std::time::{Duration, Instant};

use crate::fleet::{measured, soon, timed, Fleet};
use redis_lock_client::{Lock, MultiLock, RedLock, Released};

const LEASE: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(60);
const PAIRS: usize = 300;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn a_pair_of_acquire_and_release() {
    let fleet = Fleet::of_three(LEASE);
    let servers = fleet.hasty();
    let one = Lock::new(&servers[0], "one").lease(LEASE);
    let multi = MultiLock::new(servers.iter().map(|server| Lock::new(server, "multi"))).unwrap();
    let red = RedLock::new(&servers, "red").unwrap().lease(LEASE);
    let (mut of_one, mut of_multi, mut of_red) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..PAIRS {
        of_one.push(
            timed(async { one.acquire().await.unwrap().release().await })
                .await
                .1,
        );
        let pair = async { multi.acquire().await.unwrap().release().await };
        of_multi.push(timed(pair).await.1);
        of_red.push(
            timed(async { red.acquire().await.unwrap().release().await })
                .await
                .1,
        );
    }
    measured("a pair, Lock on one server", of_one);
    measured("a pair, MultiLock on three", of_multi);
    measured("a pair, RedLock on three", of_red);
}

/// At all phases of the renewal.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn two_of_three_die() {
    let (mut told, mut back) = (Vec::new(), Vec::new());
    for phase in 0..20_u32 {
        let mut fleet = Fleet::of_three(LEASE);
        let servers = fleet.hasty();
        let red = RedLock::new(&servers, "k").unwrap().lease(LEASE);
        let guard = red.acquire().await.unwrap();
        let waiting = tokio::spawn({
            let red = red.clone();
            async move { (red.acquire_within(LONG).await, Instant::now()) }
        });
        // sleep: the phase of a renewal at which the servers die, a measurement
        tokio::time::sleep(LEASE + LEASE / 3 * phase / 20).await;
        let died = Instant::now();
        fleet.kill(fleet.in_line(0));
        fleet.kill(fleet.in_line(1));
        soon(guard.lost()).await;
        told.push(died.elapsed());
        let started = Instant::now();
        fleet.revive(fleet.in_line(0));
        let (next, granted) = waiting.await.unwrap();
        drop(next.unwrap().expect("a majority again"));
        back.push(granted - started);
    }
    measured("2 of 3 killed, the holder is told after", told);
    measured("one of them is back, the waiter has it after", back);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn one_of_three_dies() {
    let mut gaps = Vec::new();
    for n in 0..12 {
        let mut fleet = Fleet::of_three(LEASE);
        let servers = fleet.hasty();
        let red = RedLock::new(&servers, "k").unwrap().lease(LEASE);
        let guard = red.acquire().await.unwrap();
        let waiting = tokio::spawn({
            let red = red.clone();
            async move { (red.acquire_within(LONG).await, Instant::now()) }
        });
        fleet.servers[fleet.in_line(0)].wait_for_waits(1);
        fleet.kill(fleet.in_line(n % 3));
        // sleep: the dead server is noticed by a renewal before the release, a measurement
        tokio::time::sleep(LEASE / 3).await;
        let released = Instant::now();
        assert_eq!(guard.release().await.unwrap(), Released::Yes);
        let (next, granted) = waiting.await.unwrap();
        drop(next.unwrap().expect("its turn"));
        gaps.push(granted - released);
    }
    measured("1 of 3 killed, handed on after the release within", gaps);
}
