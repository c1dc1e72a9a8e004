//! Requests that are answered at once and hold nothing: what a semaphore or a latch is set to, counted down, asked.
//!
//! They are sent again where that does no harm, for half of the response timeout; the last attempt has the other half. After a connection that broke it is
//! unknown whether a request was served, so one that must not be served twice is not sent again then.

use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use crate::backoff::Pause;
use crate::error::Result;
use crate::net::caller::Caller;
use crate::net::server::Server;

/// The reply to a request that may be served twice.
///
/// # Errors
/// When the server refuses, or has not answered within the response timeout.
pub(crate) async fn again(server: &Server, key: &[u8], command: &Cmd) -> Result<Value> {
    Asker::new(server, key).again(command).await
}

/// The reply to a request that is served once at most. `look` is a request about the same key that changes nothing.
///
/// A shared connection may have broken unnoticed since it was last used. `look` goes first, finds that and the
/// key's node, and so leaves a moment in which it can remain unknown whether the other request was served.
///
/// # Errors
/// [`Error::Unheard`](crate::Error::Unheard) when that is unknown. Otherwise it was not served.
pub(crate) async fn once(server: &Server, key: &[u8], look: &Cmd, command: &Cmd) -> Result<Value> {
    let mut asker = Asker::new(server, key);
    loop {
        match asker.again(look).await {
            Err(error) if error.is_passing() => return Err(error),
            // A refusal is an answer too: the user may be forbidden this one and not the other.
            _ => {}
        }
        match asker.call(command).await {
            Err(error) if asker.caller.was_unanswered() => return Err(error.unheard()),
            Err(error) if error.is_passing() && asker.has_time() => asker.pause().await,
            reply => return reply,
        }
    }
}

struct Asker {
    caller: Caller,
    /// Until when an attempt may begin.
    end: Instant,
    /// Until when all is over.
    over: Instant,
    pause: Pause,
}

impl Asker {
    fn new(server: &Server, key: &[u8]) -> Asker {
        let patience = server.patience() / 2;
        Asker {
            caller: Caller::shared(server, key),
            end: Instant::now() + patience,
            over: Instant::now() + server.patience(),
            pause: Pause::new(),
        }
    }

    async fn again(&mut self, command: &Cmd) -> Result<Value> {
        loop {
            match self.call(command).await {
                Err(error) if error.is_passing() && self.has_time() => self.pause().await,
                reply => return reply,
            }
        }
    }

    async fn call(&mut self, command: &Cmd) -> Result<Value> {
        let left = self.over.saturating_duration_since(Instant::now());
        self.caller.call(command, left).await
    }

    fn has_time(&self) -> bool {
        Instant::now() + self.pause.next() < self.end
    }

    async fn pause(&mut self) {
        self.pause.sleep(Duration::MAX).await;
    }
}
