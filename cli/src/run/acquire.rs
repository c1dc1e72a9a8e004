//! An acquisition: the messages of a wait, its limit, and its end by a signal.

use std::ffi::OsString;
use std::time::Duration;

use nix::sys::signal::Signal;
use redis_lock_client::{Error, Lock, Semaphore};
use tokio::time::{sleep, timeout_at, Instant};

use crate::break_lock::break_shown;
use crate::escape::shown;
use crate::failure::{has_code, say, Failure, USAGE};
use crate::info::holder;
use crate::run::lock::{Held, Sought, Wanted};
use crate::run::reachability::must_answer;
use crate::run::waiting::{in_the_way, tell_of_the_wait, NEXT_REPORT};
use crate::signals::Signals;

/// How much longer than its limit a wait may last at least, for a pending reply and for the withdrawal.
pub const LEAST_OVERTIME: Duration = Duration::from_millis(200);
/// The pause between two attempts to reach servers that do not answer.
const RETRY: Duration = Duration::from_millis(500);
/// The shortest time that a withdrawal gets.
const WITHDRAWAL: Duration = Duration::from_millis(80);

/// The end of an acquisition.
pub enum Acquired {
    Held(Held),
    /// Not granted in time.
    Not,
    /// A signal has ended the wait.
    By(Signal),
}

impl Sought<'_> {
    /// Prints a message, with --verbose only.
    pub fn say(&self, what: &str) {
        if self.request.verbose {
            self.tell(what);
        }
    }

    pub fn tell(&self, what: &str) {
        let keys: Vec<_> = self.keys.iter().map(|key| shown(key)).collect();
        let keys = keys.join(", ");
        say(&format!("redis-lock: {keys}: {}", shown(what.as_bytes())));
    }

    fn failed(&self, error: Error) -> Failure {
        Failure::of(&error, self.keys.iter().copied())
    }

    /// Acquires it, and says what it waits for.
    pub async fn acquire(&self, signals: &mut Signals) -> Result<Acquired, Failure> {
        let wanted = Wanted::of(self)?;
        let timeout = self.request.connect.timeout;
        let overtime = (timeout / 25).max(LEAST_OVERTIME);
        let bound = self.request.bound();
        let over = bound.map(|bound| Instant::now() + bound + overtime);
        let held = tokio::select! {
            held = self.attempt(&wanted, over) => held,
            never = tell_of_the_wait(self), if !self.request.quiet && !self.request.steal => match never {},
            signal = signals.next_fatal() => {
                let is_settled = tokio::select! {
                    is_settled = self.settled(Instant::now() + timeout) => is_settled,
                    () = signals.one_more_fatal() => false,
                };
                if !is_settled {
                    self.tell("the wait may stay: granted late, the lock is held for its lease");
                }
                return Ok(Acquired::By(signal));
            }
        };
        if let Ok(Some(held)) = held {
            let token = held.token(self);
            self.say(&token.map_or("held".into(), |token| format!("held, token {token}")));
            return Ok(Acquired::Held(held));
        }
        // The limit of the wait is that of its withdrawal, too.
        let now = Instant::now();
        let end = over.map(|over| over.max(now + WITHDRAWAL));
        self.settled(end.unwrap_or(now + timeout)).await;
        if self.request.verbose {
            let holder = in_the_way(self, None).await;
            let holder = holder.map_or(String::new(), |holder| format!(": {holder}"));
            self.tell(&format!("not to be had{holder}"));
        }
        held.map(|_| Acquired::Not)
    }

    async fn attempt(
        &self,
        wanted: &Wanted,
        over: Option<Instant>,
    ) -> Result<Option<Held>, Failure> {
        let start = Instant::now();
        let mut told: Option<Instant> = None;
        while let Err(failure) = must_answer(self.servers, self.is_quorum, self.key(), over).await {
            let is_over = over.is_some_and(|over| over < Instant::now() + RETRY);
            if self.request.no_wait || is_over || !failure.is_passing {
                return Err(failure);
            }
            if !self.request.quiet && told.is_none_or(|told| told.elapsed() >= NEXT_REPORT) {
                failure.tell();
                self.tell("trying again");
                told = Some(Instant::now());
            }
            sleep(RETRY).await;
        }
        let is_there = self.agrees().await?;
        // From here on the library keeps the limit and withdraws pending requests.
        let bound = self.request.bound();
        let wait = bound.map(|bound| bound.saturating_sub(start.elapsed()));
        let acquired = match wanted {
            Wanted::One(lock) if self.request.steal => return self.steal(lock).await,
            wanted => wanted.acquire(wait).await,
        };
        match acquired {
            Err(error) if has_code(&error, "LOCKBROKEN") => {
                self.tell("an operator has ended the wait (break --purge)");
                Ok(None)
            }
            Err(Error::QueueFull { .. }) => {
                self.say("the queue is as long as --queue allows");
                Ok(None)
            }
            Err(error) => Err(self.failed(error)),
            Ok(held) => {
                if held.is_some() && !is_there {
                    self.agrees().await?;
                }
                Ok(held)
            }
        }
    }

    /// Breaks the lock and takes it, in one step. None if the operator does not want it.
    async fn steal(&self, lock: &Lock) -> Result<Option<Held>, Failure> {
        let steal = async |grant| {
            let stolen = lock.steal(grant).await;
            stolen.map_err(|error| self.failed(error))
        };
        let [server] = self.servers else {
            return Ok(None);
        };
        let stolen = break_shown(server, self.key(), self.request.yes, None, steal).await?;
        let (holders, guard) = stolen.unwrap_or_default();
        for one in holders.iter().filter(|_| guard.is_some()) {
            self.tell(&format!("broken, was {}", holder(one)));
        }
        Ok(guard.map(Held::One))
    }

    /// Whether there is a semaphore already; one with another number of permits is refused.
    async fn agrees(&self) -> Result<bool, Failure> {
        let (Some(permits), [server]) = (self.permits, self.servers) else {
            return Ok(true);
        };
        let info = Semaphore::new(server, self.key()).info().await;
        match info.map_err(|error| self.failed(error))? {
            Some(info) if info.permits != u64::from(permits) => {
                let key = shown(self.key());
                let what = format!("{key} has {} permits, not {permits}", info.permits);
                let help = "all runs name the same number (SEM.SET changes it)";
                Err(Failure::new(USAGE, format!("{what}: {help}")))
            }
            info => Ok(info.is_some()),
        }
    }

    /// Waits until all is withdrawn and released; false when something may be left.
    pub async fn settled(&self, end: Instant) -> bool {
        let all = async {
            let mut is_all = true;
            for server in self.servers {
                is_all &= server.settled().await.is_empty();
            }
            is_all
        };
        timeout_at(end, all).await.unwrap_or(false)
    }
}

/// What the owner begins with, readable: host and process.
pub fn own_name() -> OsString {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let host = host.to_string_lossy();
    format!("{host}:{}:", std::process::id()).into()
}
