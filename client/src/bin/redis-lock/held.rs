//! The lock of `run`: wanted, and held.

use std::time::Duration;

use redis_lock_client::{Error, Guard, Lock, LostReason, Released, Server};

/// A lock that is to be had.
pub enum Wanted {
    One(Lock),
}

/// How long to wait for it.
#[derive(Debug, Clone, Copy)]
pub enum Wait {
    Not,
    For(Duration),
    Endlessly,
}

/// How it is to be held.
pub struct Terms<'a> {
    pub key: &'a [u8],
    pub owner: &'a [u8],
    pub lease: Duration,
    pub shared: bool,
    pub exclusive: bool,
}

impl Terms<'_> {
    fn lock(&self, server: &Server) -> Lock {
        let lock = Lock::new(server, self.key)
            .owner(self.owner)
            .lease(self.lease);
        match (self.shared, self.exclusive) {
            (true, _) => lock.read(),
            (_, true) => lock.write(),
            _ => lock,
        }
    }
}

impl Wanted {
    pub fn of_one(server: &Server, terms: &Terms) -> Wanted {
        Wanted::One(terms.lock(server))
    }

    /// None when it is not to be had in that time.
    pub async fn acquire(&self, wait: Wait) -> Result<Option<Held>, Error> {
        let Wanted::One(lock) = self;
        let guard = match wait {
            Wait::Not => lock.try_acquire().await?,
            Wait::For(wait) => lock.acquire_within(wait).await?,
            Wait::Endlessly => Some(lock.acquire().await?),
        };
        Ok(guard.map(Held::One))
    }
}

/// A lock that is held, and renewed in the background.
pub enum Held {
    One(Guard),
}

impl Held {
    /// The fencing token.
    pub fn token(&self) -> u64 {
        let Held::One(guard) = self;
        guard.token()
    }

    /// Ends when it is lost.
    pub async fn lost(&self) -> LostReason {
        let Held::One(guard) = self;
        guard.lost().await
    }

    /// Whether it is certainly still held.
    pub fn is_valid(&self) -> bool {
        let Held::One(guard) = self;
        !guard.valid_for().is_zero()
    }

    pub async fn release(self) -> Result<Released, Error> {
        let Held::One(guard) = self;
        guard.release().await
    }
}
