//! The subscribed connections of a server's lines: one for each node, in RESP3, with a task that probes it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use redis::{
    cmd, AsyncConnectionConfig, ConnectionInfo, ProtocolVersion, PushInfo, PushKind, Value,
};
use tokio::sync::OnceCell;
use tokio::time::{sleep, timeout, Instant};

use crate::error::{Error, Result};
use crate::net::address::name_of;
use crate::net::connection::Connection;
use crate::net::exhaustion;
use crate::net::server::{may_be_the_protocol, Server};
use crate::net::tickets::desk::Desk;
use crate::net::tickets::message;
use crate::net::tickets::ticket::{Beat, Line};
use crate::runtime;

/// The longest time between two probes of a connection.
const LONGEST_BEAT: Duration = Duration::from_secs(5);

/// The subscribed connections, by node name.
#[derive(Default)]
pub(super) struct Subscriptions {
    nodes: Mutex<HashMap<String, Arc<OnceCell<Subscribed>>>>,
    last_number: AtomicU64,
}

/// A connection and its number, which no other connection of the server has.
#[derive(Clone)]
struct Subscribed {
    number: u64,
    connection: Connection,
}

/// Why a channel is not subscribed.
pub(super) enum Refusal {
    /// Later, perhaps. `was_reached` is false while no connection can be opened, as a parked wait could not either.
    Passing { was_reached: bool },
    /// The node has no RESP3, or the user may not subscribe.
    Final,
}

impl Subscriptions {
    fn nodes(&self) -> MutexGuard<'_, HashMap<String, Arc<OnceCell<Subscribed>>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection(&self, node: &str, number: u64) -> Option<Connection> {
        let nodes = self.nodes();
        let subscribed = nodes.get(node)?.get()?;
        (subscribed.number == number).then(|| subscribed.connection.clone())
    }

    /// Drops the connection with this number; nothing if a newer one has replaced it.
    fn drop_connection(&self, node: &str, number: u64) {
        let mut nodes = self.nodes();
        let current = nodes.get(node).and_then(|place| place.get());
        if current.is_some_and(|current| current.number == number) {
            nodes.remove(node);
        }
    }

    /// Drops the connections that no ticket uses.
    pub(super) fn drop_unused(&self, is_used: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut dropped = Vec::new();
        self.nodes().retain(|_, place| match place.get() {
            Some(subscribed) if !is_used(subscribed.number) => {
                dropped.push(subscribed.number);
                false
            }
            _ => true,
        });
        dropped
    }
}

impl Desk {
    /// Subscribes to the channel of a line at this node.
    pub(super) async fn subscribe(
        self: &Arc<Desk>,
        server: &Server,
        line: Line,
        channel: &[u8],
        node: &ConnectionInfo,
    ) -> std::result::Result<(), Refusal> {
        let name = name_of(node);
        let mut subscribed = self.connection_to(server, node, &name).await?;
        let patience = server.patience() / 2;
        let connection = &mut subscribed.connection;
        match confirmed(connection, line.is_some(), channel, patience).await {
            Ok(true) => {
                // The connection may have ended since.
                let is_open = self.subscriptions().connection(&name, subscribed.number);
                if is_open.is_none() {
                    return Err(Refusal::Passing { was_reached: false });
                }
                self.table().subscribed(line, &name, subscribed.number);
                Ok(())
            }
            Ok(false) => {
                self.close(&name, subscribed.number);
                Err(Refusal::Passing { was_reached: true })
            }
            Err(error) => match error {
                // In a cluster the slot may be on its way to another node.
                Error::Refused { code, .. } if code != "NOPERM" && code != "ERR" => {
                    Err(Refusal::Passing { was_reached: true })
                }
                Error::Refused { .. } | Error::NotLoaded { .. } => Err(Refusal::Final),
                _ => {
                    self.close(&name, subscribed.number);
                    Err(Refusal::Passing { was_reached: true })
                }
            },
        }
    }

    /// The subscribed connection to this node; the first caller opens it.
    async fn connection_to(
        self: &Arc<Desk>,
        server: &Server,
        node: &ConnectionInfo,
        name: &str,
    ) -> std::result::Result<Subscribed, Refusal> {
        let entry = self
            .subscriptions()
            .nodes()
            .entry(name.to_string())
            .or_default()
            .clone();
        let opened = entry
            .get_or_try_init(|| self.open(server, node, name))
            .await;
        match opened {
            Ok(subscribed) => Ok(subscribed.clone()),
            Err(refusal) => {
                let mut nodes = self.subscriptions().nodes();
                nodes.retain(|_, place| !Arc::ptr_eq(place, &entry) || place.get().is_some());
                Err(refusal)
            }
        }
    }

    async fn open(
        self: &Arc<Desk>,
        server: &Server,
        node: &ConnectionInfo,
        name: &str,
    ) -> std::result::Result<Subscribed, Refusal> {
        let number = self
            .subscriptions()
            .last_number
            .fetch_add(1, Ordering::Relaxed);
        let login = node.redis_settings().clone();
        let node3 = login.set_protocol(ProtocolVersion::RESP3);
        let node3 = node.clone().set_redis_settings(node3);
        let (desk, of_node) = (Arc::downgrade(self), name.to_string());
        let settings = AsyncConnectionConfig::new().set_push_sender(move |push| {
            if let Some(desk) = desk.upgrade() {
                desk.pushed(&of_node, number, &push);
            }
            Ok::<(), redis::aio::SendError>(())
        });
        match server.connect_with(&node3, settings).await {
            Ok(connection) => {
                let idle: Arc<dyn exhaustion::IdleConnections> = self.clone();
                exhaustion::register(Arc::downgrade(&idle));
                let keeper = keep(
                    Arc::downgrade(self),
                    name.to_string(),
                    number,
                    server.patience(),
                );
                runtime::spawn(keeper);
                Ok(Subscribed { number, connection })
            }
            Err(error) if may_be_the_protocol(&error) => match server.connect(node).await {
                Ok(connection) => {
                    server.pool().put(name, connection);
                    Err(Refusal::Final)
                }
                Err(_) => Err(Refusal::Passing { was_reached: false }),
            },
            Err(_) => Err(Refusal::Passing { was_reached: false }),
        }
    }

    /// Handles a push message of a subscribed connection.
    fn pushed(self: &Arc<Desk>, node: &str, number: u64, push: &PushInfo) {
        match (&push.kind, push.data.as_slice()) {
            (
                PushKind::Message | PushKind::SMessage,
                [Value::BulkString(_), Value::BulkString(payload)],
            ) => {
                if let Some((id, message)) = message::read(payload) {
                    self.message(id, message);
                }
            }
            (PushKind::SUnsubscribe | PushKind::Unsubscribe, [Value::BulkString(channel), ..]) => {
                let ended = self.table().channel_ended(number, channel);
                ended.into_iter().for_each(|line| self.work_on(line));
            }
            (PushKind::Disconnection, _) => self.close(node, number),
            _ => {}
        }
    }

    /// Closes a connection; its lines are due.
    fn close(self: &Arc<Desk>, node: &str, number: u64) {
        self.subscriptions().drop_connection(node, number);
        let lines = self.table().closed(number);
        lines.into_iter().for_each(|line| self.work_on(line));
    }
}

/// Sends a subscription and waits for its confirmation. False for any other reply: a `sunsubscribe` of the server may
/// have taken the place of the reply, and the connection is to be closed.
async fn confirmed(
    connection: &mut Connection,
    is_sharded: bool,
    channel: &[u8],
    patience: Duration,
) -> Result<bool> {
    let mut command = cmd(if is_sharded {
        "SSUBSCRIBE"
    } else {
        "SUBSCRIBE"
    });
    command.arg(channel);
    let reply = timeout(patience, connection.send(&command)).await;
    let reply = reply.map_err(|_| Error::no_answer(""))?;
    let reply = reply.and_then(Value::extract_error);
    Ok(match reply.map_err(|error| Error::new("", error))? {
        Value::Push { kind, data } => {
            let is_named = data.first() == Some(&Value::BulkString(channel.to_vec()));
            is_named && matches!(kind, PushKind::Subscribe | PushKind::SSubscribe)
        }
        _ => false,
    })
}

/// Probes a connection while it has tickets; closes it when it does not answer, or has had no ticket for a while.
async fn keep(desk: Weak<Desk>, node: String, number: u64, patience: Duration) {
    let beat = (patience / 4)
        .min(LONGEST_BEAT)
        .max(Duration::from_millis(1));
    // The first subscription may take that long.
    sleep(patience / 2).await;
    loop {
        sleep(beat).await;
        let Some(desk) = desk.upgrade() else {
            return;
        };
        let Some(mut connection) = desk.subscriptions().connection(&node, number) else {
            return;
        };
        let next = desk.table().beat(number, Instant::now());
        match next {
            Beat::Rest => {}
            Beat::Close => return desk.close(&node, number),
            Beat::Probe(channel, unused) => {
                let is_sharded = desk.is_sharded();
                for channel in unused {
                    let mut command = cmd("SUNSUBSCRIBE");
                    command.arg(channel);
                    let _ = timeout(patience / 2, connection.send(&command)).await;
                }
                let probe = confirmed(&mut connection, is_sharded, &channel, patience / 2).await;
                match probe {
                    Ok(true) => {}
                    // The channel has left the node, with its slot.
                    Err(Error::Refused { code, .. }) if code == "MOVED" => {}
                    Ok(false) | Err(_) => return desk.close(&node, number),
                }
            }
        }
    }
}
