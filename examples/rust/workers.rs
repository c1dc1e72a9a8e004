//! A pool of workers, of which several processes may run on one list of invoices: each invoice is written once.
//! Run, with redis-lock-client and all of tokio in Cargo.toml: cargo run -- redis://127.0.0.1:6379 20 invoices:1

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use redis_lock_client::{Error, Guard, Lock, Reply, Server};
use tokio::signal::unix::{signal, SignalKind};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Writes an invoice, if no worker has. After a loss the next `execute` is an error, and writes nothing.
async fn write(guard: &Guard, invoice: &str, lines: u64) -> Result<(), Error> {
    let (written, text) = (format!("{invoice}:written"), format!("{invoice}:text"));
    if guard.execute(["EXISTS", &written]).await? == Reply::Integer(1) {
        return Ok(());
    }
    guard.execute(["DEL", &text]).await?; // what a worker has left that died in the middle
    for line in 1..=lines {
        guard
            .execute(["RPUSH", &text, &format!("line {line}")])
            .await?;
    }
    let token = guard.token().to_string();
    guard.execute(["SET", &written, &token]).await.map(drop)
}

async fn work(server: &Server, invoice: &str, lines: u64) -> Result<(), Error> {
    let lock = Lock::new(server, invoice).lease(Duration::from_secs(10));
    let guard = lock.acquire().await?;
    let write = async |guard: &Guard| write(guard, invoice, lines).await;
    guard.run_with(write).await?
}

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let url = words.next().ok_or("the address of the server is missing")?;
    let lines = words
        .next()
        .ok_or("the number of lines is missing")?
        .parse()?;
    let server = Server::open(&url)?;
    let (mut pool, turns) = (JoinSet::new(), Arc::new(Semaphore::new(4)));
    for invoice in words {
        let (server, turns) = (server.clone(), turns.clone());
        pool.spawn(async move {
            let _turn = turns.acquire().await;
            let result = work(&server, &invoice, lines).await;
            (invoice, result)
        });
    }
    let (mut terminated, mut status) = (signal(SignalKind::terminate())?, ExitCode::SUCCESS);
    loop {
        tokio::select! {
            ended = pool.join_next() => match ended {
                None => return Ok(status), // 1 if an invoice is not written: the next run will do it
                Some(ended) => if let (invoice, Err(error)) = ended? {
                    eprintln!("{invoice}: {error}");
                    status = ExitCode::FAILURE;
                },
            },
            _ = terminated.recv() => {
                pool.shutdown().await; // ends the waits, and drops what is held
                for left in server.settled().await {
                    eprintln!("held until its lease is over: {left:?}");
                }
                return Ok(ExitCode::from(143));
            }
        }
    }
}
