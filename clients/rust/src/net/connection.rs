//! The opening of a connection: the socket, TLS where the URL asks for it, and the login.

#[cfg(feature = "testing")]
use std::future::pending;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ConnectionAddr, ConnectionInfo, Pipeline, PushInfo,
    RedisConnectionInfo, RedisError, RedisResult, Value,
};
#[cfg(feature = "tls")]
use rustls_pki_types::ServerName;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::error::{Error, Result, NO_ROOM};
use crate::net::address::name_of;
#[cfg(feature = "tls")]
use crate::net::tls::Certificates;
use crate::statistics::Counts;
#[cfg(feature = "testing")]
use crate::testing::{Double, Link};
use crate::trace::shown;

/// A source of credentials: the user, if it is not the default one, and the password.
pub(crate) type Credentials = Arc<dyn Fn() -> (Option<String>, String) + Send + Sync>;

/// What a connection's push messages are given to.
pub(crate) type Pushed = Arc<dyn Fn(PushInfo) + Send + Sync>;

/// Opens the connections of one server.
#[derive(Clone)]
pub(crate) struct Connector {
    /// The response timeout of a request, and of the opening of a connection.
    pub patience: Duration,
    #[cfg(feature = "tls")]
    pub certificates: Certificates,
    pub credentials: Option<Credentials>,
    pub counts: Arc<Counts>,
    #[cfg(feature = "testing")]
    pub double: Option<Double>,
}

/// A connection, which clones share. Dropping the last clone closes it, also while a reply is pending.
#[derive(Clone)]
pub(crate) struct Connection {
    inner: Inner,
    /// The task that reads and writes, aborted on drop: by itself it would wait for pending replies.
    _driver: Arc<JoinSet<()>>,
    /// The task owns the sender, so the channel closes when the task ends.
    alive: watch::Receiver<()>,
}

#[derive(Clone)]
enum Inner {
    Redis(MultiplexedConnection),
    #[cfg(feature = "testing")]
    Double(Arc<Link>),
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
        pushed: Option<Pushed>,
    ) -> Result<Connection> {
        #[cfg(feature = "testing")]
        if let Some(double) = self.double.clone() {
            let alive = Arc::default();
            let link = Arc::new(Link {
                double,
                pushed,
                alive,
            });
            return Ok(self.opened(Inner::Double(link), pending()));
        }
        let name = name_of(node);
        let mut settings = AsyncConnectionConfig::new();
        if let Some(pushed) = pushed {
            settings = settings.set_push_sender(move |push| {
                pushed(push);
                Ok::<(), redis::aio::SendError>(())
            });
        }
        let opening = async {
            let stream = self.stream(node, &name).await?;
            // Each request has its own timeout; the connection has none.
            let settings = settings.set_response_timeout(None);
            let login = self.login(node).await;
            let login = login.map_err(|error| Error::connection(&name, error.to_string()))?;
            let opened = MultiplexedConnection::new_with_config(&login, stream, settings).await;
            let (inner, driver) = opened.map_err(|error| of_login(&name, error))?;
            Ok(self.opened(Inner::Redis(inner), driver))
        };
        let opened = timeout(self.patience, opening).await;
        opened.unwrap_or_else(|_| Err(Error::no_answer(&name)))
    }

    fn opened(
        &self,
        inner: Inner,
        driver: impl Future<Output = ()> + Send + 'static,
    ) -> Connection {
        self.counts.connections.add_one();
        let (sender, alive) = watch::channel(());
        let mut task = JoinSet::new();
        task.spawn(async move {
            driver.await;
            drop(sender);
        });
        Connection {
            inner,
            _driver: Arc::new(task),
            alive,
        }
    }

    /// The login of a new connection.
    async fn login(&self, node: &ConnectionInfo) -> io::Result<RedisConnectionInfo> {
        let login = node.redis_settings().clone();
        let Some(source) = self.credentials.clone() else {
            return Ok(login);
        };
        Ok(match on_own_thread(move || source()).await? {
            (None, password) => login.set_password(password),
            (Some(user), password) => login.set_username(user).set_password(password),
        })
    }

    async fn stream(&self, node: &ConnectionInfo, name: &str) -> Result<Box<dyn Stream>> {
        let failed = |error: io::Error| Error::new(name, RedisError::from(error));
        match node.addr() {
            ConnectionAddr::Tcp(host, port) => {
                let socket = self.tcp(host, *port).await.map_err(failed)?;
                Ok(Box::new(socket))
            }
            #[cfg(feature = "tls")]
            ConnectionAddr::TcpTls { host, port, .. } => self.tls(host, *port, name).await,
            #[cfg(not(feature = "tls"))]
            ConnectionAddr::TcpTls { .. } => Err(Error::config(format!(
                "{name}: no TLS: this program was built without the feature `tls` of redis-lock-client"
            ))),
            #[cfg(unix)]
            ConnectionAddr::Unix(path) => {
                let socket = tokio::net::UnixStream::connect(path).await;
                Ok(Box::new(socket.map_err(failed)?))
            }
            _ => Err(Error::config(format!("{name}: no sockets of this kind"))),
        }
    }

    #[cfg(feature = "tls")]
    async fn tls(&self, host: &str, port: u16, name: &str) -> Result<Box<dyn Stream>> {
        let failed = |error: io::Error| Error::new(name, RedisError::from(error));
        let connector = self.certificates.connector(name)?;
        let socket = self.tcp(host, port).await.map_err(failed)?;
        let of_host = ServerName::try_from(host.to_string()).map_err(io::Error::other);
        let of_host = of_host.map_err(failed)?;
        let wrapped = connector.connect(of_host, socket).await;
        Ok(Box::new(
            wrapped.map_err(|error| of_login(name, error.into()))?,
        ))
    }

    /// Connects to the first of the host's addresses that can be reached, in ascending order: all clients prefer the
    /// same one, because two of them may be different servers.
    async fn tcp(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let mut addresses = addresses(host, port).await?;
        addresses.sort();
        addresses.dedup();
        let count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        // One that does not respond leaves time for the others.
        let each = self.patience / count.saturating_add(1);
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        for address in addresses {
            let connecting = timeout(each, TcpStream::connect(address)).await;
            match connecting.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    // After this time the kernel drops data that the peer has not acknowledged, and ends the
                    // connection.
                    #[cfg(target_os = "linux")]
                    SockRef::from(&socket).set_tcp_user_timeout(Some(self.patience))?;
                    return Ok(socket);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

/// The error of a login. Where it is none of the server's, the port may speak another protocol.
fn of_login(name: &str, error: RedisError) -> Error {
    match Error::new(name, error) {
        Error::Connection { server, what } if what != NO_ROOM => {
            let hint = "does the port speak Redis, and TLS only for rediss://?";
            Error::connection(&server, format!("{what} at the login: {hint}"))
        }
        error => error,
    }
}

/// The addresses of a host. tokio's lookup would panic where the system refuses its thread.
async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let host = host.to_string();
    let found = on_own_thread(move || (host.as_str(), port).to_socket_addrs());
    Ok(found.await??.collect())
}

/// Runs what may block on a thread of its own, so that renewals go on meanwhile.
async fn on_own_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (sender, result) = oneshot::channel();
    thread::Builder::new().spawn(move || drop(sender.send(work())))?;
    result.await.map_err(io::Error::other)
}

impl Connection {
    /// Completes when the connection has ended.
    pub(crate) async fn closed(&self) {
        let mut alive = self.alive.clone();
        while alive.changed().await.is_ok() {}
    }

    pub(crate) fn is_open(&self) -> bool {
        self.alive.has_changed().is_ok()
    }

    /// Sends a request and returns its reply; server errors are values.
    pub(crate) async fn send(&mut self, command: &Cmd) -> RedisResult<Value> {
        match &mut self.inner {
            Inner::Redis(inner) => inner.send_packed_command(command).await,
            #[cfg(feature = "testing")]
            Inner::Double(link) => Ok(link.send(command)),
        }
    }

    /// The same with a time for the reply; server errors are errors.
    pub(crate) async fn ask(
        &mut self,
        command: &Cmd,
        node: &str,
        patience: Duration,
    ) -> Result<Value> {
        let reply = timeout(patience, self.send(command)).await;
        let reply = reply.map_err(|_| Error::no_answer(node))?;
        let reply = reply.and_then(Value::extract_error);
        reply.map_err(|error| Error::new(node, error))
    }

    /// Sends this number of requests in one write and returns their replies.
    pub(crate) async fn send_all(
        &mut self,
        all: &Pipeline,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        match &mut self.inner {
            Inner::Redis(inner) => inner.send_packed_commands(all, 0, count).await,
            #[cfg(feature = "testing")]
            Inner::Double(link) => Ok(all.cmd_iter().map(|command| link.send(command)).collect()),
        }
    }
}

shown! { Connection, _connection }
