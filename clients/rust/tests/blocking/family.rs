//! Semaphores, latches, and locks that are bound to a connection.

use std::time::Duration;

use redis_lock_client::blocking::{Latch, Lock, Semaphore};
use redis_lock_client::{LostReason, Released};
use redis_lock_harness::{wait_for, TestServer};

use crate::{client, is_free, soon, LONG};

#[test]
fn the_number_of_permits_limits_the_holders() {
    let real = TestServer::start();
    let semaphore = Semaphore::new(&client(&real), "k").limit(2);
    let [one, two] = [(); 2].map(|()| semaphore.try_acquire().unwrap().expect("a permit"));
    assert!(semaphore.try_acquire().unwrap().is_none());
    assert_ne!((one.token(), one.owner()), (two.token(), two.owner()));
    let waiting = semaphore.clone();
    drop(one);
    let third = soon("a permit that was dropped", move || waiting.acquire());
    assert_eq!(third.unwrap().release().unwrap(), Released::Yes);
    semaphore.set(1).unwrap();
    let info = semaphore.info().unwrap().expect("a semaphore");
    assert_eq!((info.permits, info.held), (1, 1));
    assert!(!two.valid_for().is_zero() && two.lost().reason().is_none());
}

#[test]
fn a_latch_opens_when_it_is_counted_down() {
    let real = TestServer::start();
    let latch = Latch::new(&client(&real), "k");
    latch.set(3).unwrap();
    assert!(!latch.try_wait().unwrap());
    assert!(!latch.wait_within(Duration::from_millis(20)).unwrap());
    assert_eq!(latch.count_down().unwrap(), 2);
    assert_eq!(latch.count().unwrap(), 2);
    let waiting = latch.clone();
    assert_eq!(latch.count_down_by(2).unwrap(), 0);
    soon("an open latch", move || waiting.wait()).unwrap();
}

#[test]
fn a_session_ends_with_its_connection() {
    let real = TestServer::start();
    let lock = Lock::new(&client(&real), "k").session();
    let guard = lock.acquire().unwrap();
    assert!(lock.acquire_within(Duration::ZERO).unwrap().is_none());
    real.conn().line("CLIENT KILL TYPE normal SKIPME yes");
    assert_eq!(guard.lost().wait(LONG), Some(LostReason::Disconnected));
    wait_for("the release by the server", || is_free(&real));
}
