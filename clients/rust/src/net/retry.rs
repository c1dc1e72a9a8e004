//! Requests that are answered at once and hold nothing: to set, count down and read a semaphore or a latch.
//!
//! A request is repeated where that is safe, for half of the response timeout; the last attempt has the other half.
//! When a connection breaks it is unknown whether the request was served, so a request that must not be served twice is
//! not repeated then.

use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::backoff::{left, Pause};
use crate::error::Result;
use crate::moment::now;
use crate::net::caller::Caller;
use crate::net::server::Server;
use crate::runtime::within;

/// Sends a request that may be served twice.
///
/// # Errors
/// When the server refuses, or has not answered within the response timeout.
pub(crate) async fn repeatable(server: &Server, key: &[u8], command: &Cmd) -> Result<Value> {
    within(Retrier::new(server, key).repeatable(command)).await
}

/// Sends a request that may be served twice.
///
/// # Errors
/// As [`repeatable`]; [`Error::Unheard`](crate::Error::Unheard) when it may have been served.
pub(crate) async fn heard(server: &Server, key: &[u8], command: &Cmd) -> Result<Value> {
    let mut retrier = Retrier::new(server, key);
    within(async {
        let reply = retrier.repeatable(command).await;
        reply.map_err(|error| match retrier.caller.unanswered {
            true => error.unheard(),
            false => error,
        })
    })
    .await
}

/// Sends a request that must be served at most once. `probe` is a read-only request about the same key.
///
/// A shared connection may have broken unnoticed since its last use. `probe` is sent first: it finds a broken
/// connection and the node of the key, so that the outcome of `command` can stay unknown only if the connection breaks
/// between the two.
///
/// # Errors
/// [`Error::Unheard`](crate::Error::Unheard) when it is unknown whether the request was served. After any other error
/// it was not served.
pub(crate) async fn at_most_once(
    server: &Server,
    key: &[u8],
    probe: &Cmd,
    command: &Cmd,
) -> Result<Value> {
    within(Retrier::new(server, key).at_most_once(probe, command)).await
}

struct Retrier {
    caller: Caller,
    /// Latest start of an attempt.
    end: Instant,
    /// Latest end of an attempt.
    over: Instant,
    pause: Pause,
}

impl Retrier {
    fn new(server: &Server, key: &[u8]) -> Retrier {
        let patience = server.patience() / 2;
        Retrier {
            caller: Caller::shared(server, key),
            end: now() + patience,
            over: now() + server.patience(),
            pause: Pause::default(),
        }
    }

    async fn repeatable(&mut self, command: &Cmd) -> Result<Value> {
        loop {
            match self.call(command).await {
                Err(error) if error.is_passing() && self.has_time() => self.pause().await,
                reply => return reply,
            }
        }
    }

    async fn at_most_once(&mut self, probe: &Cmd, command: &Cmd) -> Result<Value> {
        loop {
            match self.repeatable(probe).await {
                Err(error) if error.is_passing() => return Err(error),
                // A refusal is a reply as well: the ACL may forbid the probe and allow the command.
                _ => {}
            }
            match self.call(command).await {
                Err(error) if self.caller.unanswered => return Err(error.unheard()),
                Err(error) if error.is_passing() && self.has_time() => self.pause().await,
                reply => return reply,
            }
        }
    }

    async fn call(&mut self, command: &Cmd) -> Result<Value> {
        self.caller.call(command, left(Some(self.over))).await
    }

    fn has_time(&self) -> bool {
        now() + self.pause.next() < self.end
    }

    async fn pause(&mut self) {
        self.pause.sleep(Duration::MAX).await;
    }
}
