//! A server, the nodes of a cluster, or the primary that sentinels name; and the connections to them.
//!
//! Opening a [`Server`] sends nothing. Requests share one connection to each node; a hold that is bound to a connection
//! has its own. The node that serves a key is learnt from redirections, the primary from the sentinels; both are looked
//! up again when that node cannot be reached.
//!
//! A connection that cannot be opened for a bound hold proves nothing about the shared ones: the server (`maxclients`)
//! or this process (descriptors) may only lack room for one more. So its caller tries other nodes for itself
//! (by the number of its failures), and a shared connection is dropped only when it fails itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use redis::{cmd, Cmd, ConnectionAddr, ConnectionInfo, ProtocolVersion, PushInfo, Value};
use tokio::runtime::Handle;
use tokio::sync::{OnceCell, Semaphore};

use crate::error::{Error, Result};
use crate::net::address::{name_of, Address, Kind};
use crate::net::background::{Background, Unreleased};
use crate::net::caller::Caller;
use crate::net::connection::{Connection, Connector, Pushed};
use crate::net::invalidation::Invalidations;
use crate::net::leases::ReaderLeases;
use crate::net::replicas::Looks;
use crate::net::sentinel;
use crate::net::slot::slot_of;
use crate::net::tickets::Tickets;
#[cfg(feature = "tls")]
use crate::net::tls::Certificates;
use crate::observer::LockObserver;
use crate::runtime::{self, locked, within};
use crate::statistics::{Counts, Statistics};
#[cfg(feature = "testing")]
use crate::testing::Double;
use crate::trace::shown;

/// A server that has the module loaded, or a cluster of them. Cheap to clone: clones share connections. Its settings
/// are made before, with a [`ServerBuilder`].
///
/// ```
/// # fn main() -> Result<(), redis_lock_client::Error> {
/// use redis_lock_client::Server;
///
/// let server = Server::open("redis+sentinel://app:secret@a:26379,b:26379/main")?;
/// assert_eq!(server.name(), "a:26379,b:26379/main/0");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Server {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    address: Address,
    connector: Connector,
    topology: Mutex<Topology>,
    pub background: Background,
    /// The notifications about keys that are held through the shared connections.
    pub invalidations: Arc<Invalidations>,
    /// The program's runtime, which has connections of its own for the requests of the futures that it polls.
    runtime: Option<Handle>,
    pub observer: Option<Arc<dyn LockObserver>>,
    /// The turns of first requests that their callers send themselves.
    pub first_requests: Semaphore,
    /// The leases of readers that are bound to connections.
    pub reader_leases: ReaderLeases,
    pub tickets: Arc<Tickets>,
    /// The looks whether replicas have a grant.
    pub looks: Arc<Looks>,
}

/// The known topology of a cluster or of the sentinels, and the shared connections.
struct Topology {
    /// The nodes that serve the slots. Without slots: the primary that the sentinels have named.
    slots: HashMap<Option<u16>, ConnectionAddr>,
    /// The nodes to ask first: those of the URL, and those that redirections have named.
    seeds: Vec<ConnectionAddr>,
    /// The number of the next seed, raised after each failure.
    seed: usize,
    /// By the name of the node, and whether it is of the program's runtime.
    shared: HashMap<(String, bool), Shared>,
}

/// A shared connection: the first request opens it, the others wait for the result.
pub(crate) type Shared = Arc<OnceCell<Result<Connection>>>;

/// Bounds of the response timeout.
const MIN_RESPONSE_TIMEOUT: Duration = Duration::from_millis(10);
const MAX_RESPONSE_TIMEOUT: Duration = Duration::from_secs(86_400);

/// The shortest time for a pending reply at the end of a wait.
const LEAST_OVERTIME: Duration = Duration::from_millis(250);

/// The most first requests that callers send at a time.
const MAX_FIRST_REQUESTS: usize = 32;

/// Upper bound of seeds, so that those of redirections do not grow without end.
const MAX_SEEDS: usize = 100;

impl Server {
    /// The server at this URL. Nothing is sent yet.
    ///
    /// | URL | |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | one server |
    /// | `unix://[user:password@]/path` | one server, by its socket |
    /// | `redis+cluster://[user:password@]host:port[,host:port...]` | a cluster, by some of its nodes |
    /// | `redis+sentinel://[user:password@]host[:port][,host...]/name[/db]` | the primary that sentinels call `name` |
    ///
    /// `rediss`, `rediss+cluster` and `rediss+sentinel` are the same with TLS, which also applies to the sentinels;
    /// `valkey` and `valkeys` may stand for `redis` and `rediss`. User and password are those of the servers. Options
    /// at the end, after `?` and separated by `&`: `db=n`; `protocol=2` (requests in RESP2, where there is no RESP3,
    /// without an early notice of losses; the connection for waits always uses RESP3) or `protocol=3`; for the login of
    /// sentinels `sentinel-user=u` and `sentinel-password=p`. An IPv6 address stands in brackets. Special characters of
    /// logins, names and paths are percent-encoded: `@` is `%40`, `/` is `%2F`, `?` is `%3F`, `#` is `%23`.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn open(url: &str) -> Result<Server> {
        Server::builder(url).build()
    }

    /// The settings of the server at this URL, of which [`open`](Server::open) has the grammar.
    pub fn builder(url: &str) -> ServerBuilder {
        ServerBuilder {
            url: url.into(),
            runtime: None,
            observer: None,
            connector: Connector {
                patience: Duration::from_secs(5),
                #[cfg(feature = "tls")]
                certificates: Certificates::new(),
                credentials: None,
                counts: Arc::default(),
                #[cfg(feature = "testing")]
                double: None,
            },
        }
    }

    /// The server's address without credentials: `host:port/db`, for a cluster that of each seed; for sentinels their
    /// hosts and the name of the primary. Two URLs of one server have the same name only if they spell its host alike.
    pub fn name(&self) -> &str {
        &self.inner.address.name
    }

    /// Completes when all abandoned waits are withdrawn and all dropped guards are released: for a program that is
    /// about to end. Returns the locks that could not be released since the last call; they end with their lease. (Of
    /// more than a thousand, the last thousand.)
    pub async fn settled(&self) -> Vec<Unreleased> {
        self.inner.background.settled().await
    }

    /// What this process has done with the locks of this server, through it and its clones. Nothing is sent.
    pub fn statistics(&self) -> Statistics {
        self.counts().read()
    }

    /// Checks that the server can be reached, accepts the login and has the database, whatever the ACL permits.
    ///
    /// # Errors
    /// When it cannot be reached.
    pub async fn ping(&self) -> Result<()> {
        match self.call(b"", cmd("PING").arg("redis-lock")).await {
            // `ERR`: no such database.
            Err(Error::Refused { code, .. })
                if !["WRONGPASS", "NOAUTH", "ERR"].contains(&code.as_str()) =>
            {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    /// Sends a request about this key once.
    pub(crate) async fn call(&self, key: &[u8], command: &Cmd) -> Result<Value> {
        within(Caller::shared(self, key).call(command, self.patience())).await
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.inner.connector.counts
    }

    /// Whether the other is a clone.
    pub(crate) fn is_same(&self, other: &Server) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn patience(&self) -> Duration {
        self.inner.connector.patience
    }

    /// How much longer than its limit a wait may last, for a pending reply.
    pub(crate) fn overtime(&self) -> Duration {
        (self.patience() / 20).max(LEAST_OVERTIME)
    }

    /// The double in place of a server (feature `testing`).
    #[cfg(feature = "testing")]
    pub(crate) fn double(&self) -> Option<&Double> {
        self.inner.connector.double.as_ref()
    }

    /// How far a test has moved the time of a double; none of a server.
    pub(crate) fn moved(&self) -> Option<Duration> {
        #[cfg(feature = "testing")]
        return self.double().map(Double::elapsed);
        #[cfg(not(feature = "testing"))]
        None
    }

    /// Whether the URL names a single server, without cluster or sentinels.
    pub(crate) fn is_single(&self) -> bool {
        matches!(self.inner.address.kind, Kind::Server)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.inner.address.kind, Kind::Cluster)
    }

    /// The slot of a key; none without a cluster.
    pub(crate) fn slot_of(&self, key: &[u8]) -> Option<u16> {
        self.is_cluster().then(|| slot_of(key))
    }

    /// The number of nodes that can be asked for the node of a key.
    pub(crate) fn seeds(&self) -> usize {
        self.topology().seeds.len()
    }

    /// The node that serves this slot, as far as known. After failures in a row of this caller it is skipped, and so
    /// many seeds.
    pub(crate) async fn node_of(
        &self,
        slot: Option<u16>,
        failures: usize,
    ) -> Result<ConnectionInfo> {
        let address = &self.inner.address;
        let (known, seed, place) = {
            let topology = self.topology();
            let place = topology.seed.wrapping_add(failures);
            let seed = topology.seed_at(place).cloned();
            (topology.slots.get(&slot).cloned(), seed, place)
        };
        let found = match (known.filter(|_| failures == 0), &address.kind) {
            (Some(known), _) => known,
            (None, Kind::Sentinel { primary, login }) => {
                let connector = &self.inner.connector;
                let found = sentinel::primary(connector, address, login, primary, place);
                let found = Box::pin(found).await?;
                self.topology().slots.insert(None, found.clone());
                found
            }
            (None, _) => seed.ok_or_else(|| Error::config("no server is named"))?,
        };
        Ok(address.login.clone().set_addr(found))
    }

    /// Records that this node serves the slot.
    pub(crate) fn learn(&self, slot: u16, node: &ConnectionInfo) {
        let mut topology = self.topology();
        let address = node.addr().clone();
        if !topology.seeds.contains(&address) && topology.seeds.len() < MAX_SEEDS {
            topology.seeds.push(address.clone());
        }
        topology.slots.insert(Some(slot), address);
    }

    /// Forgets the slots of a node that no longer serves them; they are looked up again, at another seed.
    pub(crate) fn reroute(&self, node: &ConnectionInfo) {
        self.topology().reroute(node);
    }

    /// Closes a failed shared connection to this node and forgets the slots of the node. Does nothing if a new
    /// connection has been opened meanwhile.
    pub(crate) fn forget_shared(&self, node: &ConnectionInfo, failed: &Shared) {
        let mut topology = self.topology();
        let before = topology.shared.len();
        topology
            .shared
            .retain(|_, current| !Arc::ptr_eq(current, failed));
        if topology.shared.len() < before {
            topology.reroute(node);
        }
    }

    /// Closes the shared connections to a node that is a replica.
    pub(crate) fn leave(&self, node: &ConnectionInfo) {
        let (mut topology, name) = (self.topology(), name_of(node));
        topology.shared.retain(|(of, _), _| *of != name);
        topology.reroute(node);
    }

    /// Opens a connection for one caller.
    pub(crate) async fn connect(&self, node: &ConnectionInfo) -> Result<Connection> {
        self.inner.connector.open(node, None).await
    }

    /// Opens a connection whose push messages are given to this function.
    pub(crate) async fn connect_resp3(
        &self,
        node: &ConnectionInfo,
        pushed: impl Fn(PushInfo) + Send + Sync + 'static,
    ) -> Result<Connection> {
        let login = node.redis_settings().clone();
        let login = login.set_protocol(ProtocolVersion::RESP3);
        let node = node.clone().set_redis_settings(login);
        let pushed = Some(Arc::new(pushed) as Pushed);
        self.inner.connector.open(&node, pushed).await
    }

    /// Opens a connection with tracking of the keys read on it, where the server supports it. (No key is read on that
    /// of the program's runtime.)
    async fn connect_shared(&self, node: &ConnectionInfo, is_near: bool) -> Result<Connection> {
        if is_near || self.inner.address.protocol == Some(ProtocolVersion::RESP2) {
            return self.connect(node).await;
        }
        let invalidations = self.inner.invalidations.clone();
        let pushed = move |push| invalidations.notify(&push);
        let mut connection = self.connect_resp3(node, pushed).await?;
        let command = cmd("CLIENT").arg(&["TRACKING", "ON", "NOLOOP"]).take();
        let name = name_of(node);
        match connection.ask(&command, &name, self.patience()).await {
            Err(error @ Error::Connection { .. }) => Err(error),
            // Refused, it works without it.
            _ => Ok(connection),
        }
    }

    /// The program's runtime, if it polls the present future.
    pub(crate) fn near(&self) -> Option<&Handle> {
        let runtime = self.inner.runtime.as_ref();
        runtime.filter(|handle| runtime::is_of_caller(handle))
    }

    /// The shared connection to this node, and its place in the table, which [`forget_shared`](Server::forget_shared)
    /// needs. It is opened in a task, so that it is opened for the other requests too when the first one is dropped.
    pub(crate) async fn shared(&self, node: &ConnectionInfo) -> Result<(Connection, Shared)> {
        let near = self.near();
        let name = (name_of(node), near.is_some());
        let place = self.topology().shared.entry(name).or_default().clone();
        let opened = match place.get() {
            Some(opened) => opened.clone(),
            None => {
                let (server, to, of_all) = (self.clone(), node.clone(), place.clone());
                let is_near = near.is_some();
                let on = near.cloned().map_or_else(runtime::handle, Ok)?;
                let opening = on.spawn(async move {
                    let opening = || server.connect_shared(&to, is_near);
                    let opened = of_all.get_or_init(opening).await;
                    let opened = opened.clone();
                    opened.inspect_err(|_| server.forget_shared(&to, &of_all))
                });
                let ended = |_| Err(Error::no_answer(&name_of(node)));
                opening.await.unwrap_or_else(ended)
            }
        };
        opened.map(|connection| (connection, place))
    }

    fn topology(&self) -> MutexGuard<'_, Topology> {
        locked(&self.inner.topology)
    }
}

impl Topology {
    fn seed_at(&self, place: usize) -> Option<&ConnectionAddr> {
        self.seeds.get(place % self.seeds.len().max(1))
    }

    /// Concurrent calls about one node change the seed once.
    fn reroute(&mut self, node: &ConnectionInfo) {
        let is_primary = self.slots.get(&None) == Some(node.addr());
        self.slots.retain(|_, address| address != node.addr());
        // The next look-up asks another sentinel, as this one may not know of the failure yet.
        if is_primary || self.seed_at(self.seed) == Some(node.addr()) {
            self.seed = self.seed.wrapping_add(1);
        }
    }
}

shown! { Server, server, name = server.name() }

/// The settings of a [`Server`] before it is opened.
///
/// ```
/// # fn token() -> String { String::new() }
/// # fn main() -> Result<(), redis_lock_client::Error> {
/// use std::time::Duration;
/// use redis_lock_client::Server;
///
/// let server = Server::builder("redis://locks.example.com")
///     .response_timeout(Duration::from_secs(2))
///     .credentials(|| (Some("app".into()), token()))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[must_use]
pub struct ServerBuilder {
    url: String,
    connector: Connector,
    runtime: Option<Handle>,
    observer: Option<Arc<dyn LockObserver>>,
}

impl ServerBuilder {
    /// The time without a reply after which a connection is closed: 5 s by default, 10 ms to one day. For a pending
    /// reply a wait lasts longer than its limit, by a twentieth of it, a quarter of a second at least: `try_acquire`
    /// has so long for its reply.
    pub fn response_timeout(mut self, timeout: Duration) -> ServerBuilder {
        self.connector.patience = timeout.clamp(MIN_RESPONSE_TIMEOUT, MAX_RESPONSE_TIMEOUT);
        self
    }

    /// A source of the user (None: the default user) and the password, in place of those of the URL: asked for each new
    /// connection, on a thread of its own, so that a program may change them while it runs. It has the response
    /// timeout. (The login of sentinels is that of the URL.)
    pub fn credentials(
        mut self,
        source: impl Fn() -> (Option<String>, String) + Send + Sync + 'static,
    ) -> ServerBuilder {
        self.connector.credentials = Some(Arc::new(source));
        self
    }

    /// The runtime of the program, with I/O and timers. The requests of a future that it polls then have a connection
    /// of this runtime, and no thread has to wake another for them. Renewals, waits in the queue and the releases of
    /// dropped guards stay with the thread of this crate, so that a program that blocks its runtime keeps its locks,
    /// and gives back what it has dropped. (So `try_acquire` right after a drop may still find the lock held;
    /// [`release`](crate::Guard::release) comes before it.)
    ///
    /// A runtime that stands still sends nothing: a future that blocks its thread until a request is answered, other
    /// than by [`block_on`](crate::block_on), may wait for itself.
    ///
    /// ```
    /// # fn main() -> Result<(), redis_lock_client::Error> {
    /// use redis_lock_client::Server;
    /// use tokio::runtime::Handle;
    ///
    /// # let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    /// # runtime.block_on(async {
    /// let server = Server::builder("redis://locks.example.com").runtime(Handle::current()).build()?;
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn runtime(mut self, runtime: Handle) -> ServerBuilder {
        self.runtime = Some(runtime);
        self
    }

    #[cfg(feature = "testing")]
    pub(crate) fn double(mut self, double: Double) -> ServerBuilder {
        self.connector.double = Some(double);
        self
    }

    /// An observer of the locks of this server; see [`LockObserver`].
    pub fn observer(mut self, observer: impl LockObserver + 'static) -> ServerBuilder {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// With the feature `tls`: the certificates for `rediss://`, of authorities to trust instead of the system's, and
    /// of the client.
    #[cfg(feature = "tls")]
    pub fn certificates(mut self, certificates: Certificates) -> ServerBuilder {
        self.connector.certificates = certificates;
        self
    }

    /// The server. Nothing is sent yet.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn build(self) -> Result<Server> {
        let address = Address::parse(&self.url)?;
        let topology = Topology {
            slots: HashMap::new(),
            seeds: address.seeds.clone(),
            seed: 0,
            shared: HashMap::new(),
        };
        let inner = Arc::new(Inner {
            tickets: Tickets::new(matches!(address.kind, Kind::Cluster)),
            address,
            connector: self.connector,
            topology: Mutex::new(topology),
            background: Background::default(),
            invalidations: Arc::default(),
            runtime: self.runtime,
            observer: self.observer,
            first_requests: Semaphore::new(MAX_FIRST_REQUESTS),
            reader_leases: ReaderLeases::default(),
            looks: Arc::default(),
        });
        Ok(Server { inner })
    }
}

// The URL may have a password.
shown! { ServerBuilder, builder, response_timeout = builder.connector.patience }
