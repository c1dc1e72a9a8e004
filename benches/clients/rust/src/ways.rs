//! The libraries: each makes client objects, and of a client object the lock of a contender.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use redis_lock_client::{Guard, Lock, Server};
use rslock::{LockGuard, LockManager};
use tokio::runtime::Handle;

pub type Failure = Box<dyn Error + Send + Sync>;
pub type Step<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

const LEASE: Duration = Duration::from_secs(30);

/// Waits for the lock, without an end.
pub type Acquire = Box<dyn Fn() -> Step<Held> + Send + Sync>;

/// A lock as its holder has it; the token is 0 where the library has none.
pub enum Held {
    None,
    Guard(Guard),
    Rslock(LockGuard),
}

impl Held {
    pub fn token(&self) -> u64 {
        match self {
            Held::Guard(guard) => guard.token(),
            _ => 0,
        }
    }

    pub async fn release(self) -> Result<(), Failure> {
        match self {
            Held::None => {}
            Held::Guard(guard) => drop(guard.release().await?),
            Held::Rslock(guard) => guard.release().await,
        }
        Ok(())
    }
}

/// A client object of one library.
pub enum Client {
    /// No lock at all: the updates that its contenders lose show that the check of the cells works.
    Unlocked,
    Module(Server),
    Rslock(LockManager),
}

impl Client {
    pub fn new(way: &str, port: u16) -> Result<Client, Failure> {
        let url = format!("redis://127.0.0.1:{port}");
        Ok(match way {
            "lock" => Client::Module(Server::builder(&url).runtime(Handle::current()).build()?),
            "lock-thread" => Client::Module(Server::open(&url)?),
            "rslock" => Client::Rslock(LockManager::new(vec![url])),
            _ => Client::Unlocked,
        })
    }

    pub fn lock(&self, name: &str) -> Acquire {
        match self {
            Client::Unlocked => Box::new(|| {
                Box::pin(async {
                    tokio::task::yield_now().await;
                    Ok(Held::None)
                })
            }),
            Client::Module(server) => {
                let lock = Lock::new(server, name).lease(LEASE);
                Box::new(move || {
                    let lock = lock.clone();
                    Box::pin(async move { Ok(Held::Guard(lock.acquire().await?)) })
                })
            }
            Client::Rslock(manager) => {
                let (manager, name) = (manager.clone(), name.to_owned());
                Box::new(move || {
                    let (manager, name) = (manager.clone(), name.clone());
                    Box::pin(async move {
                        let held = manager.acquire(name.as_str(), LEASE).await?;
                        Ok(Held::Rslock(held))
                    })
                })
            }
        }
    }
}
