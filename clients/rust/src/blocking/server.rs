//! A server, for threads.

use std::time::Duration;

use super::wrapper::{around, block_on, options};
use crate::error::Result;
use crate::net::background::Unreleased;
#[cfg(feature = "tls")]
use crate::net::tls::Certificates;
use crate::statistics::Statistics;

/// A server that has the module loaded, or a cluster of them: [`crate::Server`] for threads.
///
/// ```no_run
/// # fn main() -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::blocking::Server;
///
/// let server = Server::open("redis://127.0.0.1:6379")?;
/// server.ping()?;
/// for left in server.settled() {
///     eprintln!("{}: {}", String::from_utf8_lossy(&left.key), left.error);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Server {
    pub(super) inner: crate::Server,
}

around!(Server);

impl Server {
    /// The server at this URL. Nothing is sent yet. See [`Server::open`](crate::Server::open) for the URLs.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn open(url: &str) -> Result<Server> {
        crate::Server::open(url).map(Server::from)
    }

    options! {
        Server:
        /// The time without a reply after which a connection is closed.
        response_timeout(timeout: Duration);
        /// A source of the user and the password, asked for each new connection.
        credentials(source: impl Fn() -> (Option<String>, String) + Send + Sync + 'static);
        /// Certificates for `rediss://`.
        #[cfg(feature = "tls")]
        certificates(certificates: Certificates);
    }

    /// The server's address without credentials.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// What this process has done with the locks of this server, through it and its clones, blocking or not.
    pub fn statistics(&self) -> Statistics {
        self.inner.statistics()
    }

    /// Returns when all abandoned waits are withdrawn and all dropped guards are released: for a program that is about
    /// to end. The result lists the locks that could not be released. See [`Server::settled`](crate::Server::settled).
    pub fn settled(&self) -> Vec<Unreleased> {
        block_on(self.inner.settled())
    }

    /// Checks that the server can be reached.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub fn ping(&self) -> Result<()> {
        block_on(self.inner.ping())
    }
}
