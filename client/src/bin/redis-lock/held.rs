//! The lock of `run`: wanted, and held; on one server, on all of several, or on most of them.

use std::time::Duration;

use redis_lock_client::{
    Error, Guard, Lock, LostReason, MultiGuard, MultiLock, RedGuard, RedLock, Released, Server,
};

/// A lock that is to be had.
pub enum Wanted {
    One(Lock),
    All(MultiLock),
    Quorum(RedLock),
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
        let lock = Lock::new(server, self.key).owner(self.owner);
        let lock = lock.lease(self.lease);
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

    pub fn of_all(servers: &[Server], terms: &Terms) -> Result<Wanted, Error> {
        let locks = servers.iter().map(|server| terms.lock(server));
        Ok(Wanted::All(MultiLock::new(locks)?))
    }

    /// The owner is the lock's own, and another one for each acquisition.
    pub fn of_most(servers: &[Server], terms: &Terms) -> Result<Wanted, Error> {
        let lock = RedLock::new(servers, terms.key)?.lease(terms.lease);
        Ok(Wanted::Quorum(match (terms.shared, terms.exclusive) {
            (true, _) => lock.read(),
            (_, true) => lock.write(),
            _ => lock,
        }))
    }

    /// None when it is not to be had in that time.
    pub async fn acquire(&self, wait: Wait) -> Result<Option<Held>, Error> {
        loop {
            let held = match self {
                Wanted::One(lock) => match wait {
                    Wait::Not => lock.try_acquire().await?,
                    Wait::For(wait) => lock.acquire_within(wait).await?,
                    Wait::Endlessly => Some(lock.acquire().await?),
                }
                .map(Held::One),
                Wanted::All(lock) => lock.acquire_within(wait.span()).await?.map(Held::All),
                Wanted::Quorum(lock) => lock.acquire_within(wait.span()).await?.map(Held::Quorum),
            };
            if held.is_some() || !matches!(wait, Wait::Endlessly) {
                return Ok(held);
            }
        }
    }
}

impl Wait {
    fn span(self) -> Duration {
        match self {
            Wait::Not => Duration::ZERO,
            Wait::For(wait) => wait,
            Wait::Endlessly => Duration::MAX,
        }
    }
}

/// A lock that is held, and renewed in the background.
pub enum Held {
    One(Guard),
    All(MultiGuard),
    Quorum(RedGuard),
}

impl Held {
    pub fn owner(&self) -> &[u8] {
        match self {
            Held::One(guard) => guard.owner(),
            Held::All(guard) => guard.members().first().map_or(&[], Guard::owner),
            Held::Quorum(guard) => guard.owner(),
        }
    }

    /// The fencing token, where there is one for all.
    pub fn token(&self) -> Option<u64> {
        match self {
            Held::One(guard) => Some(guard.token()),
            Held::All(_) => None,
            Held::Quorum(guard) => Some(guard.token()),
        }
    }

    /// The token of each of several servers.
    pub fn tokens(&self, servers: &[Server]) -> Vec<(String, u64)> {
        match self {
            Held::One(_) => Vec::new(),
            Held::All(guard) => {
                let names = servers.iter().map(|server| server.name().to_string());
                names.zip(guard.tokens()).collect()
            }
            Held::Quorum(guard) => guard.tokens(),
        }
    }

    /// Ends when it is lost.
    pub async fn lost(&self) -> LostReason {
        match self {
            Held::One(guard) => guard.lost().await,
            Held::All(guard) => guard.lost().await,
            Held::Quorum(guard) => guard.lost().await,
        }
    }

    /// Whether it is certainly still held.
    pub fn is_valid(&self) -> bool {
        let left = match self {
            Held::One(guard) => guard.valid_for(),
            Held::All(guard) => guard.valid_for(),
            Held::Quorum(guard) => guard.valid_for(),
        };
        !left.is_zero()
    }

    /// Gives back what is left when it is lost: of several servers some have it still, and would keep it for
    /// a lease.
    pub async fn leave(self) {
        if !matches!(self, Held::One(_)) {
            self.release().await;
        }
    }

    /// What each server says.
    pub async fn release(self) -> Vec<Result<Released, Error>> {
        match self {
            Held::One(guard) => vec![guard.release().await],
            Held::All(guard) => guard.release().await,
            Held::Quorum(guard) => {
                let said = guard.release().await;
                let said: Vec<_> = said.into_iter().map(|(_, said)| said).collect();
                // Most have it: what the others say is no news.
                let yes = said.iter().filter(|said| matches!(said, Ok(Released::Yes)));
                match yes.count() > said.len() / 2 {
                    true => vec![Ok(Released::Yes)],
                    false => said,
                }
            }
        }
    }
}
