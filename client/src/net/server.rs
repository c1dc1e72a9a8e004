//! Where a lock lives: one server, the nodes of a cluster, or the primary that sentinels name; and the
//! connections to them.
//!
//! Opening a [`Server`] sends nothing. Requests that are answered at once share one connection to each
//! node; a request that waits gets a connection of its own, because everything behind it would wait too.
//! Which node of a cluster serves a key is learnt from the redirections that the nodes answer, and which
//! server is the primary from the sentinels; both are asked again when that server cannot be reached.
//!
//! That a wait cannot connect says nothing about the shared connections: the server, or this process, may have
//! no room for one more. So a wait that fails looks elsewhere for itself ([`Route`]), and what all requests share
//! is given up only when it fails itself.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ProtocolVersion};
use tokio::sync::OnceCell;
use tokio::time::{timeout, Instant};

use crate::error::{Error, Result, NO_ROOM};
use crate::net::address::{beside, name_of, Address, Kind};
use crate::net::background::{Background, Unreleased};
use crate::net::connection::{Connection, Connector};
use crate::net::invalidation::{self, Changes};
use crate::net::pool::Idle;
use crate::net::sentinel;
#[cfg(feature = "tls")]
use crate::net::tls::Certificates;
use crate::net::tls::Trust;
use crate::runtime;
use crate::statistics::{Counts, Statistics};

/// A server that has the module loaded, or a cluster of them. Cheap to clone: clones share connections.
///
/// ```
/// # fn main() -> Result<(), redis_lock_client::Error> {
/// use std::time::Duration;
/// use redis_lock_client::Server;
///
/// let server = Server::open("redis+sentinel://app:secret@a:26379,b:26379/main")?
///     .response_timeout(Duration::from_secs(2));
/// assert_eq!(server.name(), "a:26379,b:26379/main/0");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    address: Address,
    connector: Connector,
    learnt: Arc<Mutex<Learnt>>,
    background: Arc<Background>,
    idle: Arc<Idle>,
    changes: Arc<Changes>,
}

/// Where one caller looks for the node that serves its key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Route {
    /// How many nodes in a row could not be reached: the known one is passed by, and so many seeds.
    pub failures: usize,
}

/// What is known of a cluster or of the sentinels, and the connections that are shared.
#[derive(Default)]
struct Learnt {
    slots: HashMap<u16, ConnectionAddr>,
    /// Every node that a redirection has named: as good a seed as those of the URL.
    nodes: Vec<ConnectionAddr>,
    primary: Option<ConnectionAddr>,
    /// Which seed comes next: another one after each failure.
    seed: usize,
    shared: HashMap<String, Shared>,
}

/// A connection that many use: the first one opens it, the others wait for that.
pub(crate) type Shared = Arc<OnceCell<Connection>>;

/// The longest that a request may stay unanswered. Who says more means: for ever.
const LONGEST_PATIENCE: Duration = Duration::from_secs(86_400);

/// So many nodes are remembered as seeds.
const NODES: usize = 100;

impl Server {
    /// The server at this URL. Nothing is sent yet.
    ///
    /// | URL | |
    /// |---|---|
    /// | `redis://[user:password@]host[:port][/db]` | one server |
    /// | `redis+unix:///path[?db=n&user=u&pass=p]` | one server, by its socket |
    /// | `redis+cluster://[user:password@]host:port[,host:port...]` | a cluster, by some of its nodes |
    /// | `redis+sentinel://[user:password@]host:port[,host:port...]/name[/db]` | the primary that sentinels call `name` |
    ///
    /// `rediss`, `rediss+cluster` and `rediss+sentinel` are the same with TLS, of the sentinels, too. User
    /// and password are those of the servers; sentinels that want their own are given
    /// `?sentinel-user=u&sentinel-password=p` at the end. Special characters are percent-encoded.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn open(url: &str) -> Result<Server> {
        Ok(Server {
            inner: Arc::new(Inner {
                address: Address::parse(url)?,
                connector: Connector {
                    patience: Duration::from_secs(5),
                    trust: Trust::default(),
                    counts: Arc::default(),
                },
                learnt: Arc::default(),
                background: Arc::default(),
                idle: Arc::default(),
                changes: Arc::default(),
            }),
        })
    }

    /// How long a request may stay unanswered at most before its connection is given up: 5 s by default, never
    /// more than a day. A wait is sent in slices of at most half of it.
    #[must_use]
    pub fn response_timeout(self, timeout: Duration) -> Server {
        let timeout = timeout.min(LONGEST_PATIENCE);
        self.with(|inner| inner.connector.patience = timeout)
    }

    /// With the feature `tls`: certificates for `rediss://`, the authorities to believe instead of the machine's own, the client's.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn certificates(self, certificates: Certificates) -> Server {
        self.with(|inner| inner.connector.trust = Trust::of(certificates))
    }

    /// Where it is, without credentials: `host:port/db`, of each seed of a cluster; of sentinels their hosts
    /// and the primary's name. Two URLs of one server have one name only if they write its host alike.
    pub fn name(&self) -> &str {
        &self.inner.address.name
    }

    /// Ends when the waits that were given up are withdrawn and the guards that were dropped released: for a
    /// program that is about to end. Answers which locks could not be given back, since the last call: the lease
    /// ends those. (Of more than a thousand, the last thousand.)
    pub async fn settled(&self) -> Vec<Unreleased> {
        self.inner.background.settled().await
    }

    /// What this process has done with the locks of this server, through it and its clones. Nothing is sent.
    pub fn statistics(&self) -> Statistics {
        self.counts().read()
    }

    pub(crate) fn counts(&self) -> &Counts {
        &self.inner.connector.counts
    }

    pub(crate) fn background(&self) -> &Background {
        &self.inner.background
    }

    /// Of the keys that are held through this server's shared connections.
    pub(crate) fn changes(&self) -> &Arc<Changes> {
        &self.inner.changes
    }

    pub(crate) fn idle(&self) -> &Arc<Idle> {
        &self.inner.idle
    }

    fn with(self, change: impl FnOnce(&mut Inner)) -> Server {
        let mut inner = (*self.inner).clone();
        inner.learnt = Arc::default();
        inner.idle = Arc::default();
        inner.changes = Arc::default();
        change(&mut inner);
        Server {
            inner: Arc::new(inner),
        }
    }

    /// Whether it is a clone of this one: the same server, user and settings.
    pub(crate) fn is_same(&self, other: &Server) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn patience(&self) -> Duration {
        self.inner.connector.patience
    }

    /// Whether it is one server, and nothing tells of another.
    pub(crate) fn is_single(&self) -> bool {
        matches!(self.inner.address.kind, Kind::Server)
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.inner.address.kind, Kind::Cluster)
    }

    /// How many places there are to ask where the server of a key is.
    pub(crate) fn seeds(&self) -> usize {
        self.inner.address.seeds.len() + self.learnt().nodes.len()
    }

    /// The node that serves this slot, as far as is known; where this caller could not reach that, the next place
    /// to ask.
    pub(crate) async fn node_of(&self, slot: Option<u16>, route: Route) -> Result<ConnectionInfo> {
        let address = &self.inner.address;
        let Kind::Sentinel { primary, login } = &address.kind else {
            return self.node_or_seed(slot, route);
        };
        let (known, seed) = {
            let learnt = self.learnt();
            (learnt.primary.clone(), learnt.seed)
        };
        let found = match known.filter(|_| route.failures == 0) {
            Some(known) => known,
            None => {
                let first = seed.wrapping_add(route.failures);
                sentinel::primary(
                    &self.inner.connector,
                    self.name(),
                    &address.seeds,
                    first,
                    primary,
                )
                .await?
            }
        };
        self.learnt().primary = Some(found.clone());
        Ok((**login).clone().set_addr(found))
    }

    fn node_or_seed(&self, slot: Option<u16>, route: Route) -> Result<ConnectionInfo> {
        let learnt = self.learnt();
        let seeds = &self.inner.address.seeds;
        let count = (seeds.len() + learnt.nodes.len()).max(1);
        let place = learnt.seed.wrapping_add(route.failures) % count;
        let first = seeds.first();
        let first = first.ok_or_else(|| Error::config("no server is named"))?;
        let known = slot.and_then(|slot| learnt.slots.get(&slot));
        let known = known.filter(|_| route.failures == 0);
        let beyond = || learnt.nodes.get(place.checked_sub(seeds.len())?);
        Ok(match known.or_else(beyond) {
            Some(address) => first.clone().set_addr(address.clone()),
            None => seeds.get(place).unwrap_or(first).clone(),
        })
    }

    /// Another node, as a redirection by this one names it.
    pub(crate) fn redirected(&self, by: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
        let address = beside(by.addr(), host, port);
        by.clone().set_addr(address)
    }

    /// A node has said that another one serves this slot.
    pub(crate) fn learn(&self, slot: u16, node: &ConnectionInfo) {
        let mut learnt = self.learnt();
        let address = node.addr().clone();
        let is_known = learnt.nodes.contains(&address)
            || self
                .inner
                .address
                .seeds
                .iter()
                .any(|seed| *seed.addr() == address);
        if !is_known && learnt.nodes.len() < NODES {
            learnt.nodes.push(address.clone());
        }
        learnt.slots.insert(slot, address);
    }

    /// This node says that it serves no more: its slots are asked for again, at another seed.
    pub(crate) fn reroute(&self, node: &ConnectionInfo) {
        self.learnt().reroute(node, &self.inner.address.seeds);
    }

    fn is_shared(&self, node: &ConnectionInfo, place: &Shared) -> bool {
        let learnt = self.learnt();
        let current = learnt.shared.get(&name_of(node));
        current.is_some_and(|current| Arc::ptr_eq(current, place))
    }

    /// A shared connection to this node failed: it is closed, and the node's slots are asked for again, at another
    /// seed. Nothing, where a better one has been opened meanwhile.
    pub(crate) fn forget_shared(&self, node: &ConnectionInfo, failed: &Shared) {
        let name = name_of(node);
        let mut learnt = self.learnt();
        let current = learnt.shared.get(&name);
        if current.is_some_and(|current| Arc::ptr_eq(current, failed)) {
            learnt.shared.remove(&name);
            learnt.reroute(node, &self.inner.address.seeds);
        }
    }

    /// A connection of the caller's own.
    pub(crate) async fn connect(&self, node: &ConnectionInfo) -> Result<Connection> {
        let settings = AsyncConnectionConfig::new();
        self.inner.connector.open(node, settings).await
    }

    /// A connection that tells of changes of what was read on it, where the server has such.
    async fn connect_shared(&self, node: &ConnectionInfo) -> Result<Connection> {
        let login = node.redis_settings().clone();
        let login = login.set_protocol(ProtocolVersion::RESP3);
        let telling = node.clone().set_redis_settings(login);
        let changes = self.inner.changes.clone();
        let settings = AsyncConnectionConfig::new().set_push_sender(move |push| {
            changes.tell(&push);
            Ok::<(), redis::aio::SendError>(())
        });
        let start = Instant::now();
        match self.inner.connector.open(&telling, settings).await {
            Ok(mut connection) => {
                let asked = timeout(self.patience(), invalidation::ask(&mut connection)).await;
                asked.map_err(|_| Error::no_answer(&name_of(node)))?;
                Ok(connection)
            }
            Err(error) if start.elapsed() < self.patience() / 2 && may_be_the_protocol(&error) => {
                self.connect(node).await
            }
            Err(error) => Err(error),
        }
    }

    /// The connection to this node that requests share, and its place, by which it is forgotten. It is opened
    /// for all of them, also when the request that asked for it first is given up.
    pub(crate) async fn shared(&self, node: &ConnectionInfo) -> Result<(Connection, Shared)> {
        let place = self
            .learnt()
            .shared
            .entry(name_of(node))
            .or_default()
            .clone();
        if let Some(connection) = place.get() {
            return Ok((connection.clone(), place));
        }
        let (server, to, of_all) = (self.clone(), node.clone(), place.clone());
        let opening = runtime::handle()?.spawn(async move {
            let open = || async {
                // Those who waited for an opening that has failed do not begin another one each.
                match server.is_shared(&to, &of_all) {
                    true => server.connect_shared(&to).await,
                    false => Err(Error::no_answer(&name_of(&to))),
                }
            };
            let opened = of_all.get_or_try_init(open).await;
            opened
                .cloned()
                .inspect_err(|_| server.forget_shared(&to, &of_all))
        });
        let opened = opening
            .await
            .unwrap_or_else(|_| Err(Error::no_answer(&name_of(node))));
        opened.map(|connection| (connection, place))
    }

    fn learnt(&self) -> MutexGuard<'_, Learnt> {
        let learnt = self.inner.learnt.lock();
        learnt.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Learnt {
    /// Told by many at the same time, it changes the seed once.
    fn reroute(&mut self, node: &ConnectionInfo, seeds: &[ConnectionInfo]) {
        let place = self.seed % (seeds.len() + self.nodes.len()).max(1);
        let seed = match seeds.get(place) {
            Some(seed) => Some(seed.addr()),
            None => self.nodes.get(place - seeds.len()),
        };
        let is_seed = seed == Some(node.addr());
        self.slots.retain(|_, address| address != node.addr());
        let is_primary = self.primary.as_ref() == Some(node.addr());
        if is_primary {
            self.primary = None;
        }
        // Of sentinels another one is asked, as this one may not have heard of the failure.
        if is_seed || is_primary {
            self.seed = self.seed.wrapping_add(1);
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Server").field(&self.name()).finish()
    }
}

/// Whether a connection may have failed because of its protocol: a server without HELLO says so, a proxy may close the
/// connection.
fn may_be_the_protocol(error: &Error) -> bool {
    match error {
        Error::NotLoaded { .. } => true,
        Error::Refused { code, .. } => !matches!(code.as_str(), "WRONGPASS" | "NOAUTH" | "LOADING"),
        Error::Connection { what, .. } => what != NO_ROOM,
        Error::Unheard { .. } | Error::Untrusted { .. } | Error::Config { .. } => false,
    }
}
