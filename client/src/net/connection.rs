//! The opening of a connection: the socket, TLS where the URL asks for it, and the login.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, Pipeline, RedisError, RedisResult,
    Value,
};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{lookup_host, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::error::{Error, Result};
use crate::net::address::name_of;
use crate::net::exhaustion;
use crate::net::tls::Trust;
use crate::runtime::{self, Task};
use crate::statistics::Counts;

/// Time until the runtime has closed the sockets of dropped connections.
const UNTIL_CLOSED: Duration = Duration::from_millis(5);

/// Opens the connections of one server.
#[derive(Clone)]
pub(crate) struct Connector {
    /// The response timeout of a request, and of the opening of a connection.
    pub patience: Duration,
    pub trust: Trust,
    pub counts: Arc<Counts>,
}

/// A connection, which clones share. Dropping the last clone closes it, also while a reply is pending.
#[derive(Clone)]
pub(crate) struct Connection {
    inner: MultiplexedConnection,
    driver: Arc<Driver>,
}

/// The task that reads and writes. It is aborted on drop: by itself it would wait for pending replies.
struct Driver {
    task: Task,
    /// The task owns the sender, so the channel closes when the task ends.
    alive: watch::Receiver<()>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.end();
    }
}

/// A socket, plain or with TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Connector {
    /// Opens a connection to this node and logs in.
    ///
    /// # Errors
    /// When the login is not complete within the response timeout, or the server refuses.
    pub(crate) async fn open(
        &self,
        node: &ConnectionInfo,
        settings: AsyncConnectionConfig,
    ) -> Result<Connection> {
        let name = name_of(node);
        let opening = async {
            let stream = self.stream(node, &name).await?;
            // Each request has its own timeout; the connection has none.
            let settings = settings.set_response_timeout(None);
            let login = node.redis_settings();
            let opened = MultiplexedConnection::new_with_config(login, stream, settings).await;
            let (inner, driver) = opened.map_err(|error| Error::new(&name, error))?;
            self.counts.connections.add_one();
            let (sender, alive) = watch::channel(());
            let task = runtime::spawn(async move {
                driver.await;
                drop(sender);
            });
            let driver = Arc::new(Driver { task, alive });
            Ok(Connection { inner, driver })
        };
        let opened = timeout(self.patience, opening).await;
        opened.unwrap_or_else(|_| Err(Error::no_answer(&name)))
    }

    async fn stream(&self, node: &ConnectionInfo, name: &str) -> Result<Box<dyn Stream>> {
        let failed = |error: io::Error| Error::new(name, RedisError::from(error));
        match node.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let socket = self.tcp(host, *port).await.map_err(failed)?;
                Ok(Box::new(socket))
            }
            ConnectionAddr::TcpTls { host, port, .. } => {
                let trust = self.trust.settings(name)?;
                let socket = self.tcp(host, *port).await.map_err(failed)?;
                let stream = trust.wrap(host, socket).await.map_err(failed)?;
                Ok(Box::new(stream))
            }
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let socket = tokio::net::UnixStream::connect(path).await;
                Ok(Box::new(socket.map_err(failed)?))
            }
            _ => Err(Error::config(format!("{name}: no sockets of this kind"))),
        }
    }

    /// Connects to the first of the host's addresses that can be reached.
    async fn tcp(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let opened = self.tcp_once(host, port).await;
        match &opened {
            Err(error) if exhaustion::close_idle(error) => {
                sleep(UNTIL_CLOSED).await;
                self.tcp_once(host, port).await
            }
            _ => opened,
        }
    }

    async fn tcp_once(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let mut attempts = JoinSet::new();
        for address in lookup_host((host, port)).await? {
            attempts.spawn(TcpStream::connect(address));
        }
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        while let Some(attempt) = attempts.join_next().await {
            match attempt.map_err(io::Error::other).and_then(|socket| socket) {
                Ok(socket) => {
                    self.prepare(&socket)?;
                    return Ok(socket);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    fn prepare(&self, socket: &TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        // After this time the kernel drops data that the peer has not acknowledged. So there is a moment from which an
        // abandoned request can no longer be served.
        #[cfg(target_os = "linux")]
        SockRef::from(socket).set_tcp_user_timeout(Some(self.patience))?;
        Ok(())
    }
}

impl Connection {
    /// Completes when the connection has ended.
    pub(crate) async fn closed(&self) {
        let mut alive = self.driver.alive.clone();
        while alive.changed().await.is_ok() {}
    }

    pub(crate) fn is_open(&self) -> bool {
        self.driver.alive.has_changed().is_ok()
    }

    /// Sends a request and returns its reply; server errors are values.
    pub(crate) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        self.inner.send_packed_command(command).await
    }

    /// Sends two requests in one write and returns the reply to the second.
    pub(crate) async fn send_both(&mut self, both: &Pipeline) -> RedisResult<Value> {
        let mut replies = self.inner.send_packed_commands(both, 1, 1).await?;
        Ok(replies.pop().unwrap_or(Value::Nil))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection")
    }
}
