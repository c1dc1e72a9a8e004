//! Connections of waits that have ended, kept for the next waits.
//!
//! Under contention nearly every acquisition waits. A connection for each would use up the ports of a client:
//! a closed one blocks its port for a minute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{sleep, Instant};

use crate::net::connection::Connection;
use crate::net::exhaustion::{self, Spare};
use crate::runtime;

/// So many connections to one node are kept.
const MOST: usize = 64;
/// So long a connection is kept without use.
const LONGEST: Duration = Duration::from_secs(30);

/// The connections of one server, by the names of its nodes.
#[derive(Default)]
pub(crate) struct Idle {
    nodes: Mutex<Nodes>,
}

#[derive(Default)]
struct Nodes {
    /// The one that was used last is at the end.
    kept: HashMap<String, Vec<(Instant, Connection)>>,
    /// Whether a task closes what is kept too long.
    is_swept: bool,
}

impl Idle {
    /// A connection to this node on which nothing is under way.
    pub(crate) fn take(&self, node: &str) -> Option<Connection> {
        let (_, connection) = self.nodes().kept.get_mut(node)?.pop()?;
        Some(connection)
    }

    /// Keeps a connection on which nothing is under way, or closes it where enough are kept.
    pub(crate) fn keep(self: &Arc<Idle>, node: &str, connection: Connection) {
        let mut nodes = self.nodes();
        let kept = nodes.kept.entry(node.to_string()).or_default();
        if kept.len() >= MOST {
            return;
        }
        kept.push((Instant::now(), connection));
        if !std::mem::replace(&mut nodes.is_swept, true) {
            let idle: Arc<dyn Spare> = self.clone();
            exhaustion::register(Arc::downgrade(&idle));
            runtime::spawn(sweep(Arc::downgrade(self)));
        }
    }

    /// Closes all of a node: one of them was closed by the node.
    pub(crate) fn close(&self, node: &str) {
        self.nodes().kept.remove(node);
    }

    /// Closes what has been kept for so long. False: nothing is kept any more.
    fn close_old(&self, longest: Duration) -> bool {
        let mut nodes = self.nodes();
        nodes.kept.retain(|_, kept| {
            kept.retain(|(since, _)| since.elapsed() < longest);
            !kept.is_empty()
        });
        nodes.is_swept = !nodes.kept.is_empty();
        nodes.is_swept
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spare for Idle {
    fn close_all(&self) {
        // Its sweep ends, and the next connection that is kept registers it again.
        self.close_old(Duration::ZERO);
    }
}

/// Closes old connections until none is kept, or the server is used no more.
async fn sweep(idle: Weak<Idle>) {
    loop {
        sleep(LONGEST / 4).await;
        match idle.upgrade() {
            Some(idle) if idle.close_old(LONGEST) => {}
            _ => return,
        }
    }
}
