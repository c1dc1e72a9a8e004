//! Where a lock lives: one server, or the nodes of a cluster; and the connections to them.
//!
//! Opening a [`Server`] sends nothing. Requests that are answered at once share one connection to each
//! node; a request that waits gets a connection of its own, because everything behind it would wait too.
//! Which node of a cluster serves a key is learnt from the redirections that the nodes answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo,
    TlsCertificates,
};

use crate::background::Background;
use crate::{Error, Result};

/// A server that has the module loaded, or a cluster of them. Cheap to clone: clones share connections.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    name: String,
    /// Whom to ask first: more than one in a cluster.
    seeds: Vec<ConnectionInfo>,
    is_cluster: bool,
    certificates: Option<TlsCertificates>,
    response_timeout: Duration,
    learnt: Arc<Mutex<Learnt>>,
    background: Arc<Background>,
}

/// What is known of a cluster, and the connections that are shared.
#[derive(Default)]
struct Learnt {
    slots: HashMap<u16, ConnectionAddr>,
    /// Which seed comes next: another one after each failure.
    seed: usize,
    shared: HashMap<String, MultiplexedConnection>,
}

impl Server {
    /// The server at this URL: `redis://[user:password@]host[:port][/db]`, `rediss://` with TLS,
    /// `redis+unix:///path`; `redis+cluster://[user:password@]host:port[,host:port...]` and
    /// `rediss+cluster://` for a cluster. Nothing is sent yet.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn open(url: &str) -> Result<Server> {
        let (seeds, is_cluster) = seeds(url)?;
        let name = seeds.iter().map(name_of).collect::<Vec<_>>().join(",");
        Ok(Server {
            inner: Arc::new(Inner {
                name,
                seeds,
                is_cluster,
                certificates: None,
                response_timeout: Duration::from_secs(5),
                learnt: Arc::default(),
                background: Arc::default(),
            }),
        })
    }

    /// How long a request may stay unanswered before its connection is given up: 5 s by default. A wait
    /// is sent in slices of at most half of it.
    #[must_use]
    pub fn response_timeout(self, timeout: Duration) -> Server {
        self.with(|inner| inner.response_timeout = timeout)
    }

    /// Certificates for `rediss://`: the authorities to believe instead of the machine's own, the client's.
    #[must_use]
    pub fn certificates(self, certificates: TlsCertificates) -> Server {
        self.with(|inner| inner.certificates = Some(certificates))
    }

    /// Where it is, without credentials: `host:port/db`, of each seed of a cluster. Two URLs of one server
    /// have one name only if they write its host alike.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Ends when the waits that were given up are withdrawn and the guards that were dropped released: for a
    /// program that is about to end.
    pub async fn settled(&self) {
        self.inner.background.settled().await;
    }

    pub(crate) fn background(&self) -> &Background {
        &self.inner.background
    }

    fn with(self, change: impl FnOnce(&mut Inner)) -> Server {
        let mut inner = (*self.inner).clone();
        inner.learnt = Arc::default();
        change(&mut inner);
        Server {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn patience(&self) -> Duration {
        self.inner.response_timeout
    }

    pub(crate) fn is_cluster(&self) -> bool {
        self.inner.is_cluster
    }

    /// The node that serves this slot, as far as is known.
    pub(crate) fn node_of(&self, slot: Option<u16>) -> Result<ConnectionInfo> {
        let learnt = self.learnt();
        let seeds = &self.inner.seeds;
        let seed = seeds.get(learnt.seed % seeds.len().max(1));
        let seed = seed.ok_or_else(|| Error::Config("no server is named".into()))?;
        let known = slot.and_then(|slot| learnt.slots.get(&slot));
        Ok(match known {
            Some(address) => seed.clone().set_addr(address.clone()),
            None => seed.clone(),
        })
    }

    /// A node has said that another one serves this slot.
    pub(crate) fn learn(&self, slot: u16, host: &str, port: u16) -> Result<()> {
        let asked = self.node_of(Some(slot))?;
        // A cluster that knows itself by one name only answers with an empty one: the same host.
        let host = if host.is_empty() {
            host_of(&asked)
        } else {
            host.to_string()
        };
        let address = match asked.addr() {
            ConnectionAddr::TcpTls { insecure, .. } => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: *insecure,
                tls_params: None,
            },
            _ => ConnectionAddr::Tcp(host, port),
        };
        self.learnt().slots.insert(slot, address);
        Ok(())
    }

    /// This node cannot be reached: the shared connection to it is closed, its slots are asked for again,
    /// at another seed.
    pub(crate) fn forget(&self, node: &ConnectionInfo) {
        let mut learnt = self.learnt();
        learnt.shared.remove(&name_of(node));
        learnt.slots.retain(|_, address| address != node.addr());
        learnt.seed = learnt.seed.wrapping_add(1);
    }

    /// A connection of the caller's own.
    pub(crate) async fn connect(&self, node: &ConnectionInfo) -> Result<MultiplexedConnection> {
        let failed = |error| Error::new(&name_of(node), &error);
        let client = match (&self.inner.certificates, node.addr()) {
            (Some(certificates), ConnectionAddr::TcpTls { .. }) => {
                Client::build_with_tls(node.clone(), certificates.clone())
            }
            _ => Client::open(node.clone()),
        };
        // Each request has its own patience, which the connection knows nothing of.
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.inner.response_timeout))
            .set_response_timeout(None);
        let client = client.map_err(failed)?;
        let opened = client.get_multiplexed_async_connection_with_config(&settings);
        opened.await.map_err(failed)
    }

    /// The connection to this node that requests share.
    pub(crate) async fn shared(&self, node: &ConnectionInfo) -> Result<MultiplexedConnection> {
        let name = name_of(node);
        let open = self.learnt().shared.get(&name).cloned();
        if let Some(open) = open {
            return Ok(open);
        }
        let opened = self.connect(node).await?;
        Ok(self.learnt().shared.entry(name).or_insert(opened).clone())
    }

    fn learnt(&self) -> MutexGuard<'_, Learnt> {
        let learnt = self.inner.learnt.lock();
        learnt.unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Server").field(&self.inner.name).finish()
    }
}

/// The addresses that a URL names, and whether they are those of a cluster.
fn seeds(url: &str) -> Result<(Vec<ConnectionInfo>, bool)> {
    let unreadable = |why: &dyn std::fmt::Display| {
        Error::Config(format!("no URL of a server: {why} (redis://host:port)"))
    };
    let (scheme, rest) = url.split_once("://").unwrap_or(("redis", url));
    let (scheme, is_cluster) = match scheme.strip_suffix("+cluster") {
        Some(scheme) => (scheme, true),
        None => (scheme, false),
    };
    let (user, places) = rest
        .rsplit_once('@')
        .map_or((None, rest), |(user, places)| (Some(user), places));
    let places = if is_cluster {
        places.trim_end_matches('/').split(',').collect()
    } else {
        vec![places]
    };
    let seeds = places.into_iter().map(|place| {
        let url = match user {
            Some(user) => format!("{scheme}://{user}@{place}"),
            None => format!("{scheme}://{place}"),
        };
        url.into_connection_info()
            .map_err(|error| unreadable(&error))
    });
    Ok((seeds.collect::<Result<_>>()?, is_cluster))
}

/// `host:port/db`, or the path of a socket.
pub(crate) fn name_of(node: &ConnectionInfo) -> String {
    format!("{}/{}", node.addr(), node.redis_settings().db())
}

fn host_of(node: &ConnectionInfo) -> String {
    match node.addr() {
        ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. } => host.clone(),
        _ => String::new(),
    }
}
