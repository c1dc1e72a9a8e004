//! The lock of `run`: on one server or all of several, of one key or several; on a majority of servers; or a permit.

use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use redis_lock_client::{
    Error, Guard, Lock, LostReason, Mode, MultiGuard, MultiLock, Permit, RedGuard, RedLock,
    Released, Semaphore, Server,
};

use crate::failure::{Failure, USAGE};
use crate::run::options::Request;

/// A lock before its acquisition.
pub enum Wanted {
    One(Lock),
    All(MultiLock),
    Quorum(RedLock),
    Permit(Semaphore),
}

/// The owner of a run.
#[derive(Debug, Clone, Copy)]
pub enum Owner<'a> {
    Named(&'a [u8]),
    /// It begins with this, and is unique.
    Fresh(&'a [u8]),
}

impl Owner<'_> {
    pub fn is(self, owner: &[u8]) -> bool {
        match self {
            Owner::Named(name) => owner == name,
            Owner::Fresh(prefix) => owner.starts_with(prefix),
        }
    }
}

/// What is to be acquired, where and how.
pub struct Sought<'a> {
    pub request: &'a Request,
    pub servers: &'a [Server],
    pub keys: Vec<&'a [u8]>,
    pub owner: Owner<'a>,
    pub margin: Duration,
    /// A permit of so many, instead of a lock.
    pub permits: Option<u32>,
    pub is_all: bool,
    pub is_quorum: bool,
}

impl Sought<'_> {
    pub fn key(&self) -> &[u8] {
        self.keys.first().copied().unwrap_or_default()
    }

    fn lock(&self, server: &Server, key: &[u8]) -> Lock {
        let lock = Lock::new(server, key).lease(self.request.lease);
        let lock = match self.owner {
            Owner::Named(owner) => lock.owner(owner),
            Owner::Fresh(prefix) => lock.owner_prefix(prefix),
        };
        let lock = with(lock, self.request.note.as_ref(), |lock, note| {
            lock.note(note.as_bytes())
        });
        let lock = with(lock, self.request.queue, Lock::queue);
        let lock = with(lock, self.request.replicas, |lock, replicas| {
            lock.replicas(replicas)
                .replicas_within(self.request.replicas_within)
        });
        lock.margin(self.margin).mode(self.mode())
    }

    fn mode(&self) -> Mode {
        match (self.request.shared, self.request.exclusive) {
            (true, _) => Mode::Read,
            (_, true) => Mode::Write,
            _ => Mode::Exclusive,
        }
    }
}

/// With this option, if it is given.
fn with<T, V>(of: T, value: Option<V>, set: impl FnOnce(T, V) -> T) -> T {
    match value {
        Some(value) => set(of, value),
        None => of,
    }
}

impl Wanted {
    pub fn of(sought: &Sought) -> Result<Wanted, Failure> {
        let is_one = sought.permits.is_none() && !sought.is_all && !sought.is_quorum;
        let is_plain = is_one && sought.keys.len() == 1;
        if (sought.request.note.is_some() || sought.request.steal) && !is_plain {
            let message = "--note and --steal are for one lock, on one server";
            return Err(Failure::new(USAGE, message));
        }
        let wanted = match (sought.servers, sought.permits) {
            (servers, _) if sought.is_quorum => Wanted::of_most(servers, sought),
            _ if sought.is_all => Wanted::of_all(sought),
            ([server], Some(permits)) => Ok(Wanted::of_permit(server, sought, permits)),
            ([server], None) if sought.keys.len() == 1 => {
                Ok(Wanted::One(sought.lock(server, sought.key())))
            }
            ([_], None) => Wanted::of_all(sought),
            _ => {
                let message = "several servers: say --all or --quorum";
                return Err(Failure::new(USAGE, message));
            }
        };
        wanted.map_err(Failure::from)
    }

    /// All keys on all servers.
    fn of_all(sought: &Sought) -> Result<Wanted, Error> {
        let on = |server| sought.keys.iter().map(move |key| sought.lock(server, key));
        let locks = sought.servers.iter().flat_map(on);
        Ok(Wanted::All(MultiLock::new(locks)?))
    }

    fn of_permit(server: &Server, sought: &Sought, permits: u32) -> Wanted {
        let semaphore = Semaphore::new(server, sought.key());
        let semaphore = semaphore.limit(permits).lease(sought.request.lease);
        let semaphore = match sought.owner {
            Owner::Named(owner) => semaphore.owner(owner),
            Owner::Fresh(prefix) => semaphore.owner_prefix(prefix),
        };
        let semaphore = with(semaphore, sought.request.queue, Semaphore::queue);
        let semaphore = with(semaphore, sought.request.replicas, |semaphore, replicas| {
            let semaphore = semaphore.replicas(replicas);
            semaphore.replicas_within(sought.request.replicas_within)
        });
        Wanted::Permit(semaphore.count(sought.request.count).margin(sought.margin))
    }

    /// Each acquisition has an owner of its own.
    fn of_most(servers: &[Server], sought: &Sought) -> Result<Wanted, Error> {
        let lock = RedLock::new(servers, sought.key())?.lease(sought.request.lease);
        let lock = lock.margin(sought.margin).mode(sought.mode());
        Ok(Wanted::Quorum(lock))
    }

    /// None when the lock was not granted in that time. Without a time it waits endlessly.
    pub async fn acquire(&self, wait: Option<Duration>) -> Result<Option<Held>, Error> {
        let span = wait.unwrap_or(Duration::MAX);
        Ok(match self {
            Wanted::One(lock) => lock.acquire_within(span).await?.map(Held::One),
            Wanted::All(lock) => lock.acquire_within(span).await?.map(Held::All),
            Wanted::Quorum(lock) => lock.acquire_within(span).await?.map(Held::Quorum),
            Wanted::Permit(lock) => lock.acquire_within(span).await?.map(Held::Permit),
        })
    }
}

/// A lock or a permit that is held, and renewed in the background.
pub enum Held {
    One(Guard),
    All(MultiGuard),
    Quorum(RedGuard),
    Permit(Permit),
}

impl Held {
    pub fn owner(&self) -> &[u8] {
        match self {
            Held::One(guard) => guard.owner(),
            Held::All(guard) => guard.members().first().map_or(&[], Guard::owner),
            Held::Quorum(guard) => guard.owner(),
            Held::Permit(permit) => permit.owner(),
        }
    }

    /// The fencing token, of several keys that of the first; none where each server has its own, and for a permit.
    pub fn token(&self, sought: &Sought) -> Option<u64> {
        match self {
            Held::One(guard) => Some(guard.token()),
            Held::All(_) if sought.is_all => None,
            Held::All(guard) => guard.tokens().first().copied(),
            Held::Quorum(guard) => Some(guard.token()),
            Held::Permit(_) => None,
        }
    }

    /// All tokens, of several keys or servers in their order; none of a permit.
    pub fn numbers(&self) -> Vec<u64> {
        match self {
            Held::One(guard) => vec![guard.token()],
            Held::All(guard) => guard.tokens().to_vec(),
            Held::Quorum(guard) => guard.tokens().into_iter().map(|(_, token)| token).collect(),
            Held::Permit(_) => Vec::new(),
        }
    }

    /// Leaves it held until its lease ends.
    pub fn forget(self) {
        // A drop would release it in the background.
        std::mem::forget(self);
    }

    /// The tokens of several keys, or those of several servers with the names of the servers.
    pub fn tokens(&self, sought: &Sought) -> Vec<String> {
        let named = |(server, token): (String, u64)| format!("{server}={token}");
        match self {
            Held::One(_) | Held::Permit(_) => Vec::new(),
            Held::All(guard) if !sought.is_all => {
                guard.tokens().iter().map(u64::to_string).collect()
            }
            Held::All(guard) => {
                let names = sought.servers.iter().map(|server| server.name().into());
                names.zip(guard.tokens()).map(named).collect()
            }
            Held::Quorum(guard) => guard.tokens().into_iter().map(named).collect(),
        }
    }

    /// Completes when the lock is lost.
    pub async fn lost(&self) -> LostReason {
        let lost = match self {
            Held::One(guard) => guard.lost(),
            Held::All(guard) => guard.lost(),
            Held::Quorum(guard) => guard.lost(),
            Held::Permit(permit) => permit.lost(),
        };
        match lost.await {
            Some(why) => why,
            // Released.
            None => std::future::pending().await,
        }
    }

    /// Whether it is certainly still held.
    pub fn is_valid(&self) -> bool {
        let left = match self {
            Held::One(guard) => guard.valid_for(),
            Held::All(guard) => guard.valid_for(),
            Held::Quorum(guard) => guard.valid_for(),
            Held::Permit(permit) => permit.valid_for(),
        };
        !left.is_zero()
    }

    /// Releases the rest of a lost lock: some of several servers still hold it, and would keep it for a lease.
    pub async fn leave(self) {
        if matches!(self, Held::All(_) | Held::Quorum(_)) {
            self.release().await;
        }
    }

    /// Releases the lock; the result has the answer of each server.
    pub async fn release(self) -> Release {
        match self {
            Held::One(guard) => Release::of_all(vec![guard.release().await]),
            Held::All(guard) => Release::of_all(guard.release_each().await),
            Held::Quorum(guard) => {
                let said = guard.release_each().await.into_iter();
                Release::of_most(said.map(|(_, said)| said).collect())
            }
            Held::Permit(permit) => Release::of_all(vec![permit.release().await]),
        }
    }

    /// Leaves the lock held for this time from now on. (A quorum is released.)
    pub async fn leave_for(self, rest: Duration) -> Release {
        Release::of_all(match self {
            Held::One(guard) => vec![guard.leave(rest).await],
            Held::All(guard) => guard.leave_each(rest).await,
            Held::Quorum(_) => return self.release().await,
            Held::Permit(permit) => vec![permit.leave(rest).await],
        })
    }
}

type Said = Vec<Result<Released, Error>>;

/// The result of a release.
#[derive(Debug)]
pub struct Release {
    pub said: Said,
    /// Whether the lock was lost before. A server that does not answer may still have held it.
    pub is_lost: bool,
}

impl Release {
    /// All servers' locks were needed.
    fn of_all(said: Said) -> Release {
        Release {
            is_lost: not_held(&said) > 0,
            said,
        }
    }

    /// A majority of the locks was needed: if it was released, the other answers are dropped. The lock is lost when so
    /// many servers do not hold it that the rest is no majority.
    fn of_most(said: Said) -> Release {
        let servers = said.len();
        let yes = said.iter().filter(|said| matches!(said, Ok(Released::Yes)));
        match yes.count() > servers / 2 {
            true => Release {
                said: vec![Ok(Released::Yes)],
                is_lost: false,
            },
            false => Release {
                is_lost: servers - not_held(&said) <= servers / 2,
                said,
            },
        }
    }
}

fn not_held(said: &Said) -> usize {
    let lost = said.iter();
    lost.filter(|said| matches!(said, Ok(Released::NotHeld)))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// y: released, n: not held, -: no answer.
    fn said(words: &str) -> Said {
        let word = |char| match char {
            'y' => Ok(Released::Yes),
            'n' => Ok(Released::NotHeld),
            _ => Err(Server::open("http://h").map(drop).expect_err("no URL")),
        };
        words.chars().map(word).collect()
    }

    #[test]
    fn with_all_a_single_lock_not_held_is_a_loss() {
        for (words, is_lost) in [("y", false), ("n", true), ("-", false), ("yy-", false)] {
            assert_eq!(Release::of_all(said(words)).is_lost, is_lost, "{words}");
        }
        for words in ["yyn", "nyy", "-n-"] {
            assert!(Release::of_all(said(words)).is_lost, "{words}");
        }
    }

    #[test]
    fn with_a_quorum_it_is_a_loss_when_no_majority_can_be_left() {
        for words in [
            "yyy", "yyn", "yy-", "y-n", "--n", "---", "yyynn", "yynn-", "yyyn",
        ] {
            assert!(!Release::of_most(said(words)).is_lost, "{words}");
        }
        for words in ["nnn", "ynn", "-nn", "yynnn", "y-nnn", "yynn"] {
            assert!(Release::of_most(said(words)).is_lost, "{words}");
        }
    }
}
