//! The route: by it a client finds the server of a key, and corrects it after a wrong choice.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::wire::{Reply, Wire};

/// Shared by all clients of a run.
pub trait Route: Send + Sync {
    /// The port of the server for this key now; 0: unknown.
    fn port(&self, key: &str) -> u16;

    /// A server replied with this error, or (`None`) its connection was lost.
    fn learn(&self, key: &str, port: u16, error: Option<&str>);

    /// Whether the servers are the nodes of a cluster.
    fn is_cluster(&self) -> bool {
        false
    }
}

/// One server, always the same.
pub struct Fixed(pub u16);

impl Route for Fixed {
    fn port(&self, _: &str) -> u16 {
        self.0
    }

    fn learn(&self, _: &str, _: u16, _: Option<&str>) {}
}

/// The master among several servers, as set by the nemesis that promotes them (or by a sentinel). Asking the servers
/// would be wrong: one that was just restarted calls itself a master until it gets the order to follow another.
pub struct MasterRoute(AtomicU16);

impl MasterRoute {
    pub fn of(master: u16) -> MasterRoute {
        MasterRoute(AtomicU16::new(master))
    }

    /// Sets another master.
    pub fn set(&self, port: u16) {
        self.0.store(port, Ordering::Relaxed);
    }
}

impl Route for MasterRoute {
    fn port(&self, _: &str) -> u16 {
        self.0.load(Ordering::Relaxed)
    }

    fn learn(&self, _: &str, _: u16, _: Option<&str>) {}
}

/// The nodes of a cluster: each key has a node, which is queried when in doubt.
pub struct Slots {
    nodes: Vec<u16>,
    owners: HashMap<String, AtomicU16>,
}

impl Slots {
    /// The owners of slots as the nodes see them now.
    pub fn of(nodes: &[u16], keys: &[String]) -> Slots {
        let owner = |key: &String| owner_of(nodes, key).unwrap_or(nodes[0]);
        Slots {
            nodes: nodes.to_vec(),
            owners: keys
                .iter()
                .map(|key| (key.clone(), AtomicU16::new(owner(key))))
                .collect(),
        }
    }
}

impl Route for Slots {
    fn port(&self, key: &str) -> u16 {
        self.owners
            .get(key)
            .map_or(0, |port| port.load(Ordering::Relaxed))
    }

    fn learn(&self, key: &str, port: u16, error: Option<&str>) {
        // The owner of a migrating slot (`ASK`, `TRYAGAIN`) is still the same.
        let moved = ["MOVED", "UNBLOCKED", "READONLY", "CLUSTERDOWN"];
        let is_doubtful = error.is_none_or(|error| moved.contains(&error));
        if !is_doubtful || port != self.port(key) {
            return;
        }
        let owner = owner_of(&self.nodes, key);
        if let (Some(owner), Some(known)) = (owner, self.owners.get(key)) {
            known.store(owner, Ordering::Relaxed);
        }
    }

    fn is_cluster(&self) -> bool {
        true
    }
}

/// The node that serves a key as its primary.
fn owner_of(nodes: &[u16], key: &str) -> Option<u16> {
    let line = format!("LOCK.INFO {key}");
    nodes.iter().copied().find(|port| {
        let wire = Wire::open(*port);
        let info = wire.and_then(|mut wire| wire.line(&line, Duration::from_millis(300)));
        // The key may be a latch.
        info.is_some_and(|info| matches!(info.code(), None | Some("WRONGTYPE")))
    })
}

impl<R: Route> Route for Arc<R> {
    fn port(&self, key: &str) -> u16 {
        (**self).port(key)
    }

    fn learn(&self, key: &str, port: u16, error: Option<&str>) {
        (**self).learn(key, port, error);
    }

    fn is_cluster(&self) -> bool {
        (**self).is_cluster()
    }
}

/// Whether the server on this port says that it is a master.
pub fn is_master(port: u16) -> bool {
    let role = Wire::open(port).and_then(|mut wire| wire.line("ROLE", Duration::from_millis(300)));
    role.is_some_and(|role| role.list().first().map(Reply::text) == Some("master"))
}
