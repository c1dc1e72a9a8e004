//! A latch on a key: a count, and waits until it is zero.
//!
//! A latch has no holds, so nothing is renewed or released. A wait is a ticket, as that for a lock is
//! ([`Wait`]), but it has no place in a queue: when the latch opens, all waits end.

use std::time::Duration;

use redis::{cmd, Cmd, Value};
use tokio::time::Instant;

use crate::error::{Error, Result};
use crate::lock::acquire::bounded;
use crate::lock::terms::check_queue;
use crate::lock::wait::{Known, Outcome, Reach, Request, Wait};
use crate::moment::now;
use crate::net::retry::{at_most_once, repeatable};
use crate::net::server::Server;
use crate::runtime::on_thread;
use crate::trace::{shown, Text};

/// A latch on a key of a server: [`set`](Latch::set) closes it with a count, it opens when it has been counted down to
/// zero, and then all waits end. Clients of Redisson's `RCountDownLatch` may share it.
///
/// **A latch that does not exist is open**: a wait that begins before the latch is set ends at once. Set it before the
/// waiters are started.
///
/// ```no_run
/// use redis_lock_client::{Latch, Server};
///
/// # async fn example() -> Result<(), redis_lock_client::Error> {
/// let server = Server::open("redis://127.0.0.1:6379")?;
/// let loaded = Latch::new(&server, "import:42:loaded");
/// loaded.set(3).await?; // three parts
/// // Each of the three workers, when its part is loaded:
/// loaded.count_down().await?;
/// // What needs all three:
/// loaded.wait().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Latch {
    server: Server,
    key: Vec<u8>,
    queue: Option<u32>,
}

shown! { Latch, latch, server = latch.server, key = Text(&latch.key) }

impl Latch {
    /// The latch of this key. Nothing is sent yet.
    pub fn new(server: &Server, key: impl AsRef<[u8]>) -> Latch {
        Latch {
            server: server.clone(),
            key: key.as_ref().to_vec(),
            queue: None,
        }
    }

    /// How many requests of others may wait already; see [`Lock::queue`](crate::Lock::queue).
    #[must_use]
    pub fn queue(mut self, others: u32) -> Latch {
        self.queue = Some(others);
        self
    }

    /// Sets the count, whether the latch was open or not. 0 opens it. `LATCH.SET`.
    ///
    /// # Errors
    /// As [`count_down`](Latch::count_down): setting the count twice would undo the counting in between.
    pub async fn set(&self, count: u64) -> Result<()> {
        let command = cmd("LATCH.SET").arg(&self.key).arg(count).take();
        self.at_most_once(&command).await?;
        Ok(())
    }

    /// Counts the latch down by one; see [`count_down_by`](Latch::count_down_by).
    ///
    /// # Errors
    /// As [`count_down_by`](Latch::count_down_by).
    pub async fn count_down(&self) -> Result<u64> {
        self.count_down_by(1).await
    }

    /// Counts the latch down by `count`, at least one, and returns the rest: 0 when the latch is open now, or was
    /// before. `LATCH.DOWN`.
    ///
    /// **The request is served at most once.** While the server has certainly not served it (no connection, a server
    /// that loads its data, a replica), it is repeated, for at most the [response
    /// timeout](crate::ServerBuilder::response_timeout). When the connection breaks between request and reply, it is
    /// not repeated: the error is [`Error::Unheard`], and the request may have been served, or may be within another
    /// response timeout. [`count`](Latch::count) may show it. Dropping the future leaves the same uncertainty.
    ///
    /// # Errors
    /// [`Error::Unheard`] when the request may have been served. After any other error it was not: the server refused
    /// or could not be reached.
    pub async fn count_down_by(&self, count: u64) -> Result<u64> {
        let command = cmd("LATCH.DOWN").arg(&self.key).arg(count).take();
        let reply = self.at_most_once(&command).await?;
        match reply {
            Value::Int(left) => Ok(u64::try_from(left).unwrap_or_default()),
            _ => Err(Error::reply(self.server.name())),
        }
    }

    /// The count; 0 when the latch is open (`LATCH.WAIT`). No command of the module replies the count, so that of a
    /// closed latch is read with `GET`, which the ACL must allow.
    ///
    /// # Errors
    /// When the key holds something else, the server refuses, or did not answer within the
    /// [response timeout](crate::ServerBuilder::response_timeout).
    pub async fn count(&self) -> Result<u64> {
        // Refused if the key holds something else, or the server has no module.
        if self.read(&self.is_open()).await? == Value::Int(1) {
            return Ok(0);
        }
        let digits = match self.read(cmd("GET").arg(&self.key)).await? {
            Value::Nil => return Ok(0),
            Value::BulkString(digits) => digits,
            _ => return Err(Error::reply(self.server.name())),
        };
        let count = std::str::from_utf8(&digits)
            .ok()
            .and_then(|digits| digits.parse::<i64>().ok());
        // Set in between.
        let no_count = || Error::refused(self.server.name(), "WRONGTYPE", "the key holds no count");
        let count = count.ok_or_else(no_count)?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    async fn read(&self, command: &Cmd) -> Result<Value> {
        repeatable(&self.server, &self.key, command).await
    }

    /// Whether the latch is open. `LATCH.WAIT`.
    ///
    /// # Errors
    /// When the server cannot be reached, does not answer within 0.3 s, or refuses.
    pub async fn try_wait(&self) -> Result<bool> {
        self.wait_within(Duration::ZERO).await
    }

    /// Waits until the latch is open, for at most `wait`. False when it is still closed. The wait survives broken
    /// connections, restarts and failovers. Dropping the future withdraws it. `LATCH.WAIT ... BLOCK`.
    ///
    /// It returns 0.3 s after that time at the latest, also when the server or the network does not respond. When a
    /// latch opens and is set again at once, the waits that the server knows at that moment end; a wait whose
    /// connection is broken at that moment continues.
    ///
    /// # Errors
    /// When the server refuses, or could not be reached at the end of the wait.
    pub async fn wait_within(&self, wait: Duration) -> Result<bool> {
        // An end that the clock cannot represent is no limit.
        self.wait_until(now().checked_add(wait)).await
    }

    /// Waits until the latch is open without a limit, also through the failure of a server.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn wait(&self) -> Result<()> {
        while !self.wait_until(None).await? {}
        Ok(())
    }

    async fn wait_until(&self, end: Option<Instant>) -> Result<bool> {
        check_queue(self.queue)?;
        let work = || {
            // A late reply counts: the latch was open.
            let request = Request {
                queue: self.queue,
                ..Request::new(&self.server, &self.key, None, self.is_open())
            };
            let server = self.server.clone();
            async move {
                let mut wait = Wait::new(request);
                let mut reach = Reach::new(Known::of(end));
                let asked = bounded(&server, end, wait.run(end, &mut reach)).await;
                asked.map_err(|error| reach.explain(error))
            }
        };
        let opened = on_thread(&[&self.server], Duration::MAX, work).await?;
        Ok(matches!(opened, Outcome::Granted(..)))
    }

    async fn at_most_once(&self, command: &Cmd) -> Result<Value> {
        at_most_once(&self.server, &self.key, &self.is_open(), command).await
    }

    fn is_open(&self) -> Cmd {
        cmd("LATCH.WAIT").arg(&self.key).take()
    }
}
