//! A worker that works while it holds a lock, and stops when it has lost it.
//!
//!     cargo run -p redis-lock --example worker -- redis://127.0.0.1:6379 invoices:42
//!
//! Start it twice: the second one waits. Then break the lock (`LOCK.BREAK invoices:42`), or stop the server.

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
        println!("somebody else has had {key} for a minute");
        return Ok(());
    };
    println!("holding {key}, token {}", guard.token());
    tokio::select! {
        () = work(guard.token()) => println!("done"),
        // Whoever works on from here, works beside the next holder.
        why = guard.lost() => println!("stopped: {why}"),
    }
    // At the end of a program dropping the guard is not enough: nobody would be there to send the release.
    println!("given back: {:?}", guard.release().await);
    Ok(())
}

/// In steps, so that it can be stopped between two of them; each gives the token to what it writes to.
async fn work(token: u64) {
    for step in 1..=10 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        println!("step {step} under token {token}");
    }
}
