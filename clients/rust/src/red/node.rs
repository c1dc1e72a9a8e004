//! The requests to one server of a RedLock, and the conditions under which its vote counts.

use std::slice;
use std::time::Duration;

use redis::{cmd, Cmd, Value};
use tokio::time::{timeout_at, Instant};

use super::rule::{outlasts, round_patience};
use crate::error::{Error, Result};
use crate::lock::renewal::is_final;
use crate::lock::terms::Terms;
use crate::lock::wait::{Outcome, Reach, Request, Wait};
use crate::net::caller::Caller;
use crate::net::command::{self, Claim};

/// The state of a server, checked before its vote is counted.
struct Health {
    /// The id of the server process: two addresses may lead to the same one.
    run_id: String,
    /// The rest of its startup delay, in which it grants nothing.
    startup_delay_left: Duration,
}

/// The vote of a server.
#[derive(Debug)]
pub(crate) struct Vote {
    pub run_id: String,
    /// The token under which the owner holds the key there; None when another owner does.
    pub token: Option<u64>,
}

/// Sends one owner's requests to one server, until `end`.
pub(crate) struct NodeRequests<'a> {
    lock: &'a Terms,
    claim: &'a Claim,
    end: Instant,
}

impl<'a> NodeRequests<'a> {
    pub(crate) fn new(lock: &'a Terms, claim: &'a Claim, end: Instant) -> NodeRequests<'a> {
        NodeRequests { lock, claim, end }
    }

    /// Acquires the lock, at once or, if it `waits`, in the queue until the end. `before_request` is called before the
    /// request is sent: from then on there may be a hold to release.
    pub(crate) async fn acquire(&self, waits: bool, before_request: impl FnOnce()) -> Result<Vote> {
        let health = self.health().await?;
        before_request();
        let may_wait = waits && health.startup_delay_left.is_zero();
        let token = self.grant(may_wait).await?;
        let run_id = health.run_id;
        Ok(Vote { run_id, token })
    }

    /// As [`acquire`](NodeRequests::acquire), for the wait in the queue: a server in its startup delay is an error, so
    /// that the wait goes to another one.
    pub(crate) async fn wait_in_queue(&self, before_request: impl FnOnce()) -> Result<Option<u64>> {
        let health = self.health().await?;
        if !health.startup_delay_left.is_zero() {
            let startup_delay_left = health.startup_delay_left;
            return Err(Error::Refused {
                server: self.lock.server.name().to_string(),
                code: "LOCKDELAY".into(),
                text: format!("grants nothing for {startup_delay_left:?} more after its start"),
            });
        }
        before_request();
        self.grant(true).await
    }

    /// Renews a known hold. Without a token it acquires the lock again, because the server may have been down at the
    /// grant.
    pub(crate) async fn renew(&self, token: Option<u64>) -> Result<Vote> {
        let run_id = self.health().await?.run_id;
        let Some(token) = token else {
            let token = self.grant(false).await?;
            return Ok(Vote { run_id, token });
        };
        let command = command::renew(self.claim, Some(self.lock.lease), token);
        match self.shared().call(&command, self.patience()).await {
            Err(Error::Refused { code, .. }) if is_final(&code) => Ok(Vote {
                run_id,
                token: None,
            }),
            Err(error) => Err(error),
            Ok(Value::Int(held)) => Ok(Vote {
                run_id,
                token: (held == 1).then_some(token),
            }),
            Ok(_) => Err(Error::reply(self.lock.server.name())),
        }
    }

    /// The token, or None when another owner holds the lock until the end.
    async fn grant(&self, waits: bool) -> Result<Option<u64>> {
        let request = Request {
            key: self.claim.key.clone(),
            command: command::acquire(slice::from_ref(self.claim), Some(self.lock.lease)),
            certain: Duration::MAX,
            owner: Some(self.claim.owner.clone()),
            patience: self.patience(),
            goes_on: false,
            is_several: false,
            is_bound: false,
        };
        let mut wait = Wait::new(&self.lock.server, request);
        let now = Instant::now();
        let end = if waits { self.end.max(now) } else { now };
        let mut reach = Reach::default();
        let asked = timeout_at(end + self.patience(), wait.run(Some(end), &mut reach)).await;
        match asked.unwrap_or_else(|_| Err(Error::no_answer(self.lock.server.name()))) {
            Ok(Outcome::Granted(tokens, _)) => Ok(tokens.first().copied()),
            Ok(Outcome::Over | Outcome::Again) => Ok(None),
            Err(Error::Refused { code, .. }) if code == "LOCKDELAY" => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads `INFO`, which needs fewer permissions than `CONFIG GET`. It is read each time, so that a restart or a
    /// changed setting is seen before the next vote counts. A broken connection, which may lead to a former process,
    /// gets a second attempt; a timeout does not.
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

    /// The response timeout of one request, whatever the end of the wait: a server that does not answer is skipped.
    fn patience(&self) -> Duration {
        round_patience(self.lock.lease).min(self.lock.server.patience() / 2)
    }
}

fn info() -> Cmd {
    let mut command = cmd("INFO");
    command.arg("server").arg("lock");
    command
}

/// The state in a reply to `INFO server lock`, if the server may take part.
fn health(info: &str, server: &str, lease: Duration) -> Result<Health> {
    let field = |name: &str| {
        let value = info.lines().find_map(|line| line.strip_prefix(name));
        value.map(str::trim)
    };
    let millis = |name: &str| Some(Duration::from_millis(field(name)?.parse().ok()?));
    if !info.contains("lock_startup_delay_left_ms:") {
        return Err(Error::NotLoaded {
            server: server.into(),
            command: "LOCK.ACQUIRE".into(),
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
        startup_delay_left: millis("lock_startup_delay_left_ms:").unwrap_or_default(),
    })
}

#[allow(clippy::expect_used)]
#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(info: &str) -> String {
        let reply = health(info, "a:1/0", Duration::from_secs(10));
        reply.err().map_or_else(String::new, |why| why.to_string())
    }

    #[test]
    fn a_server_with_a_short_startup_delay_is_refused_by_name() {
        let reply = "run_id:x\r\nlock_startup_delay_ms:9999\r\nlock_startup_delay_left_ms:0\r\n";
        let why = refusal(reply);
        for part in ["a:1/0", "9999 ms", "10000 ms", "lock.startup-delay"] {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(refusal(&reply.replace("9999", "10000")), "");
    }

    #[test]
    fn a_missing_and_an_old_module_have_different_errors() {
        assert!(refusal("run_id:x\r\n").contains("loadmodule"));
        assert!(refusal("lock_startup_delay_left_ms:0\r\n").contains("too old"));
    }
}
