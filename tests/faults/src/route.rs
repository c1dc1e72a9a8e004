//! Where a client finds the server of a key, and what it learns when it was wrong.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::wire::{Reply, Wire};

/// Known to every client of a run.
pub trait Route: Send + Sync {
    /// The port of the server to ask about this key now; 0: nobody knows.
    fn port(&self, key: &str) -> u16;

    /// A server answered with this error, or (`None`) its connection was lost.
    fn learn(&self, key: &str, port: u16, error: Option<&str>);
}

/// One server, for ever.
pub struct Fixed(pub u16);

impl Route for Fixed {
    fn port(&self, _: &str) -> u16 {
        self.0
    }

    fn learn(&self, _: &str, _: u16, _: Option<&str>) {}
}

/// Several servers, one of which is the master; asked for their role when in doubt.
pub struct Master {
    nodes: Vec<u16>,
    current: AtomicU16,
}

impl Master {
    pub fn of(nodes: &[u16]) -> Master {
        Master {
            nodes: nodes.to_vec(),
            current: AtomicU16::new(nodes[0]),
        }
    }

    /// The master as far as it is known.
    pub fn current(&self) -> u16 {
        self.current.load(Ordering::Relaxed)
    }

    /// Who is told that the master is another.
    pub fn set(&self, port: u16) {
        self.current.store(port, Ordering::Relaxed);
    }
}

impl Route for Master {
    fn port(&self, _: &str) -> u16 {
        self.current()
    }

    fn learn(&self, _: &str, port: u16, error: Option<&str>) {
        let is_doubtful = error.is_none_or(|error| ["READONLY", "UNBLOCKED"].contains(&error));
        // A server that has just been started is a master until it is told otherwise.
        if !is_doubtful || port != self.current() || is_master(port) {
            return;
        }
        if let Some(port) = self.nodes.iter().find(|port| is_master(**port)) {
            self.set(*port);
        }
    }
}

impl<R: Route> Route for Arc<R> {
    fn port(&self, key: &str) -> u16 {
        (**self).port(key)
    }

    fn learn(&self, key: &str, port: u16, error: Option<&str>) {
        (**self).learn(key, port, error);
    }
}

/// Whether the server on this port says that it is a master.
pub fn is_master(port: u16) -> bool {
    let role = Wire::open(port).and_then(|mut wire| wire.line("ROLE", Duration::from_millis(300)));
    role.is_some_and(|role| role.list().first().map(Reply::text) == Some("master"))
}
