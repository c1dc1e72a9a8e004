//! A pool of idle connections of finished waits, for the next waits.
//!
//! Under contention nearly every acquisition waits. A new connection for each would use up the client's local ports,
//! because a closed connection blocks its port for a minute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{sleep, Instant};

use crate::net::connection::Connection;
use crate::net::exhaustion::{self, IdleConnections};
use crate::runtime;

/// Upper bound of idle connections to one node.
const MAX_PER_NODE: usize = 64;
/// Time after which an idle connection is closed.
const MAX_IDLE: Duration = Duration::from_secs(30);

/// The idle connections of one server, by node name.
#[derive(Default)]
pub(crate) struct ConnectionPool {
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Nodes {
    /// The most recently used connection is the last.
    kept: HashMap<String, Vec<(Instant, Connection)>>,
    /// Whether the task that closes old connections runs.
    sweep_runs: bool,
}

impl ConnectionPool {
    /// Takes an idle connection to this node.
    pub(crate) fn take(&self, node: &str) -> Option<Connection> {
        let (_, connection) = self.nodes().kept.get_mut(node)?.pop()?;
        Some(connection)
    }

    /// Adds a connection without pending requests, or closes it when the pool is full.
    pub(crate) fn put(self: &Arc<ConnectionPool>, node: &str, connection: Connection) {
        let mut nodes = self.nodes();
        let kept = nodes.kept.entry(node.to_string()).or_default();
        if kept.len() >= MAX_PER_NODE {
            return;
        }
        kept.push((Instant::now(), connection));
        if !std::mem::replace(&mut nodes.sweep_runs, true) {
            let pool: Arc<dyn IdleConnections> = self.clone();
            exhaustion::register(Arc::downgrade(&pool));
            runtime::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Closes all connections to a node, because the node has closed one of them.
    pub(crate) fn close(&self, node: &str) {
        self.nodes().kept.remove(node);
    }

    /// Closes the connections that have been idle for that long. False when the pool is empty then.
    fn close_old(&self, longest: Duration) -> bool {
        let mut nodes = self.nodes();
        nodes.kept.retain(|_, kept| {
            kept.retain(|(since, _)| since.elapsed() < longest);
            !kept.is_empty()
        });
        nodes.sweep_runs = !nodes.kept.is_empty();
        nodes.sweep_runs
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IdleConnections for ConnectionPool {
    fn close_all(&self) {
        // The sweep task ends, and the next pooled connection registers the pool again.
        self.close_old(Duration::ZERO);
    }
}

/// Closes old connections until the pool is empty or its server is dropped.
async fn sweep(pool: Weak<ConnectionPool>) {
    loop {
        sleep(MAX_IDLE / 4).await;
        match pool.upgrade() {
            Some(pool) if pool.close_old(MAX_IDLE) => {}
            _ => return,
        }
    }
}
