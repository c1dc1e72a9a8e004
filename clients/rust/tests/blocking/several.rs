//! Several locks as one, and one lock on several servers.

use std::thread;
use std::time::Duration;

use redis_lock_client::blocking::{Lock, MultiLock, RedLock, Server};
use redis_lock_client::{LostReason, Released, Statistics};
use redis_lock_harness::{wait_for, TestServer};

use crate::{client, is_free, LONG};

const LEASE: Duration = Duration::from_secs(30);

/// Three servers that grant at once, though they would be silent for a lease after a restart.
fn three() -> ([TestServer; 3], [Server; 3]) {
    let reals = [(); 3].map(|()| {
        let real = TestServer::start();
        let set = format!("CONFIG SET lock.startup-delay {}", LEASE.as_millis());
        assert_eq!(real.conn().line(&set).text(), "OK");
        real
    });
    let servers = [0, 1, 2].map(|place: usize| client(&reals[place]));
    (reals, servers)
}

#[test]
fn several_locks_are_acquired_together_or_not_at_all() {
    let real = TestServer::start();
    let server = client(&real);
    let both = || ["k", "l"].map(|key| Lock::new(&server, key).lease(LEASE));
    let multi = MultiLock::new(both()).unwrap().round(LONG);
    let other = Lock::new(&server, "l").acquire().unwrap();
    assert!(multi.try_acquire().unwrap().is_none());
    assert!(is_free(&real), "a part is held");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| multi.acquire_within(LONG).unwrap().unwrap());
        real.wait_for_waits(1);
        assert_eq!(other.release().unwrap(), Released::Yes);
        let guard = waiting.join().unwrap();
        assert_eq!(guard.members().len(), 2);
        assert_eq!(guard.tokens()[1], guard.members()[1].token());
        assert_eq!(guard.release().unwrap(), Released::Yes);
    });

    let guard = multi.acquire().unwrap();
    assert!(guard.valid_for() > Duration::ZERO);
    real.conn().line("LOCK.BREAK l");
    assert_eq!(guard.lost().wait(LONG), Some(LostReason::Taken));
    let words: Vec<_> = guard.release_each().into_iter().flatten().collect();
    assert_eq!(words, [Released::Yes, Released::NotHeld]);
    drop(multi.acquire().unwrap());
    server.settled();
    assert!(is_free(&real));
    assert!(MultiLock::new([]).is_err());
}

#[test]
fn one_lock_on_three_servers() {
    let (reals, servers) = three();
    let lock = RedLock::new(&servers, "k").unwrap().lease(LEASE);
    let guard = lock.try_acquire().unwrap().expect("a free lock");
    assert!(lock.try_acquire().unwrap().is_none());
    assert!(guard
        .tokens()
        .iter()
        .any(|(_, token)| *token == guard.token()));
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.acquire().unwrap());
        wait_for("a waiter", || reals.iter().any(|real| real.waits() > 0));
        assert_eq!(guard.release().unwrap(), Released::Yes);
        let second = waiting.join().unwrap();
        assert!(second.valid_for() > Duration::ZERO);
        for real in &reals[..2] {
            real.conn().line("LOCK.BREAK k");
        }
        assert_eq!(second.lost().wait(LONG), Some(LostReason::Taken));
        assert_eq!(second.release_each().len(), 3);
    });
    drop(lock.acquire_within(LONG).unwrap());
    servers.iter().for_each(|server| drop(server.settled()));
    assert!(reals.iter().all(is_free));
    assert!(RedLock::new(&servers[..2], "k").is_err());
}

#[test]
fn a_red_lock_counts_at_each_of_its_servers() {
    let (reals, servers) = three();
    let lock = RedLock::new(&servers, "k").unwrap().lease(LEASE);
    let sum = |read: fn(Statistics) -> u64| -> u64 {
        servers.iter().map(|server| read(server.statistics())).sum()
    };
    let guard = lock.acquire().unwrap();
    assert_eq!(sum(|now| now.acquisitions), guard.tokens().len() as u64);
    assert_eq!(sum(|now| now.holds), 3);
    assert!(lock.try_acquire().unwrap().is_none());
    assert_eq!(sum(|now| now.acquisitions_refused), 3);
    wait_for("renewals by a majority", || sum(|now| now.renewals) >= 2);
    for real in &reals {
        real.conn().line("LOCK.BREAK k");
    }
    assert_eq!(guard.lost().wait(LONG), Some(LostReason::Taken));
    assert_eq!(sum(|now| now.losses), 3);
    assert!(sum(|now| now.renewals_failed) >= 2);
    assert_eq!(sum(|now| now.releases), 0);
    drop(guard);
    servers.iter().for_each(|server| drop(server.settled()));
    assert_eq!(sum(|now| now.releases), 3);
    assert_eq!(sum(|now| now.releases_failed + now.holds), 0);
    assert_eq!(lock.acquire().unwrap().release().unwrap(), Released::Yes);
    assert_eq!(sum(|now| now.releases), 6);
}
