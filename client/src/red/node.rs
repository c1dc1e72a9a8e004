//! One of a RedLock's servers: what it is asked, and what its answers count for.

use std::time::Duration;

use redis::{cmd, Cmd, Value};
use tokio::time::Instant;

use super::rule::{outlasts, round_patience};
use crate::error::{Error, Result};
use crate::lock::events;
use crate::lock::renewal::is_final;
use crate::lock::terms::Terms;
use crate::net::caller::Caller;
use crate::net::command::{self, Claim};

/// What a server tells of itself before its word is counted.
struct Health {
    /// Which process it is: two addresses may lead to one.
    run_id: String,
    /// So long it grants nothing yet, having just started.
    silent: Duration,
}

/// A server's word for an owner.
#[derive(Debug)]
pub(crate) struct Word {
    pub run_id: String,
    /// The token under which the owner holds the key there, or None: another owner does.
    pub token: Option<u64>,
}

/// Asks one server for one owner, with an end to its patience.
pub(crate) struct Asker<'a> {
    lock: &'a Terms,
    claim: &'a Claim,
    end: Instant,
}

impl<'a> Asker<'a> {
    pub(crate) fn new(lock: &'a Terms, claim: &'a Claim, end: Instant) -> Asker<'a> {
        Asker { lock, claim, end }
    }

    /// The lock, at once or by the end: parked there if `parks`. Before the request for it is sent,
    /// `asks` is called: from then on there may be something to give back.
    pub(crate) async fn acquire(&self, parks: bool, asks: impl FnOnce()) -> Result<Word> {
        let health = self.health().await?;
        asks();
        let mut token = self.grant(&mut self.shared(), Duration::ZERO).await?;
        if token.is_none() && parks && health.silent.is_zero() {
            token = self.wait().await?;
        }
        let run_id = health.run_id;
        Ok(Word { run_id, token })
    }

    /// As [`acquire`](Asker::acquire), by one who waits for his turn: a server that grants nothing yet is
    /// an error, so that he waits at another.
    pub(crate) async fn stand_in_line(&self, asks: impl FnOnce()) -> Result<Option<u64>> {
        let health = self.health().await?;
        if !health.silent.is_zero() {
            let silent = health.silent;
            let what = format!("grants nothing for {silent:?} more after its start");
            return Err(Error::connection(self.lock.server.name(), what));
        }
        asks();
        match self.grant(&mut self.shared(), Duration::ZERO).await? {
            None if Instant::now() < self.end => self.wait().await,
            token => Ok(token),
        }
    }

    /// A hold that is known is renewed; one that is not is asked for anew, because its server may have
    /// been away.
    pub(crate) async fn renew(&self, token: Option<u64>) -> Result<Word> {
        let run_id = self.health().await?.run_id;
        let Some(token) = token else {
            let token = self.grant(&mut self.shared(), Duration::ZERO).await?;
            return Ok(Word { run_id, token });
        };
        let command = command::renew(self.claim, Some(self.lock.lease), token);
        match self.shared().call(&command, self.patience()).await {
            Err(Error::Refused { code, .. }) if is_final(&code) => Ok(Word {
                run_id,
                token: None,
            }),
            Err(error) => Err(error),
            Ok(Value::Int(held)) => Ok(Word {
                run_id,
                token: (held == 1).then_some(token),
            }),
            Ok(_) => Err(Error::reply(self.lock.server.name())),
        }
    }

    /// Parked through a connection of its own, in slices that end before it would be given up.
    async fn wait(&self) -> Result<Option<u64>> {
        let _waiting = events::parked(&self.lock.server, &self.claim.key, Some(&self.claim.owner));
        let longest = self.lock.longest_slice();
        let mut caller = Caller::waiting(&self.lock.server, &self.lock.key);
        loop {
            let slice = self.left().min(longest);
            let token = self.grant(&mut caller, slice).await?;
            if token.is_some() || Instant::now() >= self.end {
                caller.keep_open();
                return Ok(token);
            }
        }
    }

    async fn grant(&self, caller: &mut Caller, block: Duration) -> Result<Option<u64>> {
        let command = command::acquire([self.claim].into_iter(), self.lock.lease, block);
        match caller.call(&command, block + self.patience()).await {
            Ok(reply) => {
                let granted = command::granted(&reply, self.lock.server.name())?;
                Ok(granted.and_then(|tokens| tokens.first().copied()))
            }
            Err(Error::Refused { code, .. }) if code == "LOCKDELAY" => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `INFO` needs less of a right than `CONFIG GET`. It is asked each time: a server that was started
    /// anew, or set anew, says so with the first word that counts. A connection that turns out to lead to
    /// a process which is gone is worth a second question; silence is not.
    async fn health(&self) -> Result<Health> {
        let end = Instant::now() + self.patience() / 4;
        let left = || end.saturating_duration_since(Instant::now());
        let reply = match self.shared().call(&info(), left()).await {
            Err(Error::Connection { .. }) if !left().is_zero() => {
                self.shared().call(&info(), left()).await?
            }
            reply => reply?,
        };
        let text: String =
            redis::from_redis_value(reply).map_err(|_| Error::reply(self.lock.server.name()))?;
        health(&text, self.lock.server.name(), self.lock.lease)
    }

    fn shared(&self) -> Caller {
        Caller::shared(&self.lock.server, &self.lock.key)
    }

    /// How long an answer may be owed, wherever the wait is to end: a server that does not speak is passed by.
    fn patience(&self) -> Duration {
        round_patience(self.lock.lease).min(self.lock.server.patience() / 2)
    }

    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }
}

fn info() -> Cmd {
    let mut command = cmd("INFO");
    command.arg("server").arg("lock");
    command
}

/// What `INFO server lock` says, if that server may take part.
fn health(info: &str, server: &str, lease: Duration) -> Result<Health> {
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name));
        value.map(str::trim)
    };
    let millis = |name: &str| Some(Duration::from_millis(field(name)?.parse().ok()?));
    if !info.contains("lock_startup_delay_left_ms:") {
        return Err(Error::NotLoaded {
            server: server.into(),
        });
    }
    let Some(delay) = millis("lock_startup_delay_ms:") else {
        return Err(Error::config(format!(
            "{server}: its module is too old for a RedLock: INFO does not tell startup_delay_ms"
        )));
    };
    if !outlasts(delay, lease) {
        return Err(Error::config(format!(
            "{server}: lock.startup-delay is {} ms, shorter than the lease of {} ms: started anew without \
             its data, it could grant the lock again while it is held. Set it to the longest lease in use",
            delay.as_millis(),
            lease.as_millis()
        )));
    }
    Ok(Health {
        run_id: field("run_id:").unwrap_or(server).to_string(),
        silent: millis("lock_startup_delay_left_ms:").unwrap_or_default(),
    })
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    fn refusal(info: &str) -> String {
        let told = health(info, "a:1/0", Duration::from_secs(10));
        told.err().map_or_else(String::new, |why| why.to_string())
    }

    #[test]
    fn a_server_that_could_grant_again_too_soon_is_named() {
        let told = "run_id:x\r\nlock_startup_delay_ms:9999\r\nlock_startup_delay_left_ms:0\r\n";
        let why = refusal(told);
        for part in ["a:1/0", "9999 ms", "10000 ms", "lock.startup-delay"] {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(refusal(&told.replace("9999", "10000")), "");
    }

    #[test]
    fn no_module_and_an_older_one_are_told_apart() {
        assert!(refusal("run_id:x\r\n").contains("loadmodule"));
        assert!(refusal("lock_startup_delay_left_ms:0\r\n").contains("too old"));
    }
}
