//! Requests about one key, sent one after another to the node that serves the key at the moment.

use std::time::Duration;

use redis::{
    Cmd, ConnectionInfo, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value,
};
use tokio::time::{timeout_at, Instant};

use crate::error::{Error, Result};
use crate::moment::now;
use crate::net::address::{address_like, name_of};
use crate::net::connection::Connection;
use crate::net::server::{Server, Shared};

/// Upper bound of redirections of one request.
const REDIRECTIONS: u32 = 8;

/// Sends requests about a key.
pub(crate) struct Caller {
    server: Server,
    slot: Option<u16>,
    /// Whether the caller has a connection of its own, to which its hold is bound; the others share one.
    is_alone: bool,
    /// The own connection.
    link: Option<Link>,
    /// Nodes in a row to which the own connection could not be opened.
    failures: usize,
    /// Whether the last request was sent without a reply, and so may have been served.
    pub unanswered: bool,
    /// The node that replied to the last request.
    pub answered_by: Option<ConnectionInfo>,
    /// Whether all requests must use the present connection.
    is_pinned: bool,
}

/// A connection and its node.
#[derive(Clone)]
struct Link {
    node: ConnectionInfo,
    connection: Connection,
    shared: Option<Shared>,
}

impl Caller {
    pub(crate) fn shared(server: &Server, key: &[u8]) -> Caller {
        Caller {
            server: server.clone(),
            slot: server.slot_of(key),
            is_alone: false,
            link: None,
            failures: 0,
            unanswered: false,
            answered_by: None,
            is_pinned: false,
        }
    }

    /// A caller with a connection of its own, which it closes when it is dropped.
    pub(crate) fn alone(server: &Server, key: &[u8]) -> Caller {
        Caller {
            is_alone: true,
            ..Caller::shared(server, key)
        }
    }

    /// Binds all further requests to the present connection, because a hold is bound to it: no redirection is followed,
    /// and after the end of the connection every request fails.
    pub(crate) fn pin(&mut self) {
        self.is_pinned = true;
    }

    /// Whether the caller is pinned and its connection is open.
    pub(crate) fn is_bound(&self) -> bool {
        self.is_pinned && self.link.is_some()
    }

    /// Whether the own connection is open.
    pub(crate) fn is_open(&self) -> bool {
        let link = self.link.as_ref();
        link.is_some_and(|link| link.connection.is_open())
    }

    /// Completes when the own connection has ended; never without one.
    pub(crate) async fn closed(&self) {
        match &self.link {
            Some(link) => link.connection.closed().await,
            None => std::future::pending().await,
        }
    }

    /// Sends a request once to the node that serves the key and returns the reply. `patience` bounds the attempt at
    /// each node of a chain of redirections.
    ///
    /// # Errors
    /// After [`Error::Connection`] the request may have been served.
    pub(crate) async fn call(&mut self, command: &Cmd, patience: Duration) -> Result<Value> {
        self.unanswered = false;
        self.answered_by = None;
        let mut ask = None;
        for _ in 0..REDIRECTIONS {
            let end = now() + patience;
            let is_asking = ask.is_some();
            let mut link = match ask.take() {
                Some(node) => self.open(node, end).await?,
                None => self.link(end).await?,
            };
            self.unanswered = true;
            self.link = (self.is_alone && !is_asking).then(|| link.clone());
            let sent = send(&mut link.connection, command, is_asking);
            let error = match timeout_at(end, sent).await {
                Ok(Ok(reply)) => {
                    self.unanswered = false;
                    match reply {
                        Value::ServerError(error) => RedisError::from(error),
                        value => {
                            self.failures = 0;
                            self.answered_by = Some(link.node);
                            return Ok(value);
                        }
                    }
                }
                failed => {
                    self.close(&link);
                    self.count_failure();
                    let name = name_of(&link.node);
                    return Err(match failed {
                        Ok(Err(error)) => Error::new(&name, error),
                        _ => Error::no_answer(&name),
                    });
                }
            };
            match self.redirection(&link.node, &error)? {
                Some((Some(slot), node)) => {
                    self.server.learn(slot, &node);
                    self.failures = 0;
                }
                Some((None, node)) => ask = Some(node),
                None => {
                    self.answered_by = Some(link.node.clone());
                    return Err(self.refused(&link, error));
                }
            }
            self.link = None;
        }
        let what = "sent on from node to node without end";
        Err(Error::connection(self.server.name(), what))
    }

    /// A connection to the node that serves the key, as far as known. An unreachable node is an error only when no
    /// other seed is left to ask.
    async fn link(&mut self, end: Instant) -> Result<Link> {
        if let Some(link) = &self.link {
            return Ok(link.clone());
        }
        if self.is_pinned {
            let what = "the connection to which the hold was bound has ended";
            return Err(Error::connection(self.server.name(), what));
        }
        let mut others = match self.server.seeds() {
            0 | 1 => 0,
            seeds => seeds,
        };
        loop {
            let located = timeout_at(end, self.server.node_of(self.slot, self.failures)).await;
            let node = located.unwrap_or_else(|_| Err(Error::no_answer(self.server.name())))?;
            let moment = now();
            let soon = if others > 0 { 2 } else { 1 };
            match self.open(node, moment + (end - moment) / soon).await {
                Err(error) if error.is_passing() && others > 0 && now() < end => others -= 1,
                opened => return opened,
            }
        }
    }

    async fn open(&mut self, node: ConnectionInfo, end: Instant) -> Result<Link> {
        let opening = async {
            if self.is_alone {
                return Ok((Box::pin(self.server.connect(&node)).await?, None));
            }
            let opened = self.server.shared(&node).await;
            opened.map(|(connection, place)| (connection, Some(place)))
        };
        let opened = timeout_at(end, opening).await.unwrap_or_else(|_| {
            if !self.is_alone {
                self.server.reroute(&node);
            }
            Err(Error::no_answer(&name_of(&node)))
        });
        let (connection, shared) = opened.inspect_err(|_| self.count_failure())?;
        Ok(Link {
            node,
            connection,
            shared,
        })
    }

    /// The node to which a reply redirects; with the slot that has moved there (`MOVED`), or for this request only
    /// (`ASK`: the slot is being migrated).
    fn redirection(
        &self,
        by: &ConnectionInfo,
        error: &RedisError,
    ) -> Result<Option<(Option<u16>, ConnectionInfo)>> {
        let Some((address, slot)) = error.redirect_node() else {
            return Ok(None);
        };
        if self.slot.is_none() || self.is_pinned {
            return Ok(None);
        }
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let port = port.parse().map_err(|_| Error::reply(&name_of(by)))?;
        let node = by.clone().set_addr(address_like(by.addr(), host, port));
        let is_ask = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
        Ok(Some(((!is_ask).then_some(slot), node)))
    }

    /// Handles a refusal. If another node may serve the key, the next request looks for it.
    fn refused(&mut self, link: &Link, error: RedisError) -> Error {
        let error = Error::new(&name_of(&link.node), error);
        if error.is_elsewhere() && !self.is_pinned {
            self.close(link);
            if self.is_alone {
                self.server.reroute(&link.node);
            }
        }
        error
    }

    /// A caller with its own connection keeps its own count of failures. For the others, the failure of the shared
    /// connection has already changed the route.
    fn count_failure(&mut self) {
        if self.is_alone {
            self.failures += 1;
        }
    }

    fn close(&mut self, link: &Link) {
        self.link = None;
        if let Some(place) = &link.shared {
            self.server.forget_shared(&link.node, place);
        }
    }
}

/// Sends a request, preceded by `ASKING` in the same write where the node does not own the slot yet.
async fn send(connection: &mut Connection, command: &Cmd, is_asking: bool) -> RedisResult<Value> {
    if !is_asking {
        return connection.send(command).await;
    }
    let mut both = Pipeline::new();
    both.cmd("ASKING").add_command(command.clone());
    let mut replies = connection.send_all(&both, 2).await?;
    Ok(replies.pop().unwrap_or(Value::Nil))
}
