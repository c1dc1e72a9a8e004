//! Waits of one process that note the order of their grants, for several test programs.

use std::sync::{Arc, Mutex};

use redis_lock_client::{Lock, Released};
use redis_lock_harness::{wait_for, TestServer};
use tokio::task::JoinHandle;

/// The owners that were granted the lock, in their order.
pub type Order = Arc<Mutex<Vec<Vec<u8>>>>;

pub type Waits = Vec<JoinHandle<()>>;

/// Waits that note their turn and release.
pub fn waits(lock: &Lock, count: usize, order: &Order) -> Waits {
    let wait = |_| {
        let (lock, order) = (lock.clone(), order.clone());
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            order.lock().unwrap().push(guard.owner().to_vec());
            assert_eq!(guard.release().await.unwrap(), Released::Yes);
        })
    };
    (0..count).map(wait).collect()
}

/// Connections other than the one that asks. The server may still count one that was closed just before.
pub fn connections(real: &TestServer) -> u64 {
    let count = real.info_field("clients", "connected_clients");
    count.parse::<u64>().unwrap() - 1
}

/// Waits until no more than that many are open.
pub fn until_connections(real: &TestServer, most: u64) {
    wait_for(&format!("at most {most} connections"), || {
        connections(real) <= most
    });
}

pub async fn joined(waits: Waits) {
    for wait in waits {
        wait.await.unwrap();
    }
}
