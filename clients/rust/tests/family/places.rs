//! Semaphores and latches in a cluster.

use redis_lock_client::{Latch, Released, Semaphore, Server};
use redis_lock_harness::cluster::{move_slot, slot_of, two_nodes};
use redis_lock_harness::TestServer;

use crate::servers::{patient, until, until_waits};

fn cluster_client(seed: &TestServer) -> Server {
    patient(&format!("redis+cluster://127.0.0.1:{}", seed.port))
}

/// Whichever node is asked first, and also while the slot moves.
#[tokio::test(flavor = "multi_thread")]
async fn a_permit_and_its_waiter_follow_a_slot_that_moves() {
    let (first, second) = two_nodes(&[]);
    let semaphore = Semaphore::new(&cluster_client(&second), "s");
    semaphore.set(1).await.unwrap();
    let holder = semaphore.acquire().await.unwrap();
    let other = semaphore.clone();
    let waiter = tokio::spawn(async move { other.acquire().await.unwrap() });
    until_waits(&first, 1);
    let slot = slot_of(&mut first.conn(), "s");
    tokio::task::block_in_place(|| move_slot(&first, &second, slot));
    until_waits(&second, 1);
    until("a renewal at the new node", || {
        second.stat("sem_renewals") > 0
    });
    assert_eq!(holder.release().await.unwrap(), Released::Yes);
    let permit = waiter.await.unwrap();
    assert_eq!(semaphore.info().await.unwrap().unwrap().held, 1);
    assert_eq!(permit.release().await.unwrap(), Released::Yes);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latch_and_its_waiter_follow_a_slot_that_moves() {
    let (first, second) = two_nodes(&[]);
    let latch = Latch::new(&cluster_client(&second), "s");
    latch.set(3).await.unwrap();
    assert_eq!(latch.count_down().await.unwrap(), 2);
    let other = latch.clone();
    let waiter = tokio::spawn(async move { other.wait().await.unwrap() });
    until_waits(&first, 1);
    let slot = slot_of(&mut first.conn(), "s");
    tokio::task::block_in_place(|| move_slot(&first, &second, slot));
    until_waits(&second, 1);
    assert_eq!(latch.count_down().await.unwrap(), 1);
    assert_eq!(latch.count().await.unwrap(), 1);
    assert_eq!(latch.count_down().await.unwrap(), 0);
    waiter.await.unwrap();
}
