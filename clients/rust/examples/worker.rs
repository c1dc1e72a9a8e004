//! A worker that works while it holds a lock, and stops when the lock is lost.
//!
//!     cargo run -p redis-lock-client --example worker -- redis://127.0.0.1:6379 invoices:42
//!
//! Start it twice: the second one waits. Then break the lock (`LOCK.BREAK invoices:42`), or stop the server.

#![forbid(unsafe_code)]

use std::time::Duration;

use redis_lock_client::{Error, Lock, Server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let mut words = std::env::args().skip(1);
    let url = words.next().unwrap_or("redis://127.0.0.1:6379".into());
    let key = words.next().unwrap_or("invoices:42".into());

    let server = Server::open(&url)?;
    let lock = Lock::new(&server, &key).lease(Duration::from_secs(10));
    println!("waiting for {key}");
    let Some(guard) = lock.acquire_within(Duration::from_secs(60)).await? else {
        println!("another owner has held {key} for a minute");
        return Ok(());
    };
    println!("holding {key}, token {}", guard.token());
    let token = guard.token();
    // Work that continues after a loss would overlap with the next holder's, so `run` stops it.
    guard.run(work(token)).await?;
    println!("done, released");
    Ok(())
}

/// Works in steps, so that it can be stopped between two of them; each step passes the token to the resource.
async fn work(token: u64) {
    for step in 1..=10 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        println!("step {step} under token {token}");
    }
}
