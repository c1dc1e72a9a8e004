//! One request after another about one key, wherever that key is served at the moment.

use std::time::Duration;

use redis::{
    Cmd, ConnectionInfo, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value,
};
use tokio::time::{timeout_at, Instant};

use crate::error::{Error, Result};
use crate::net::address::name_of;
use crate::net::connection::Connection;
use crate::net::server::{Route, Server, Shared};
use crate::net::slot::slot_of;

/// How often one request may be sent on to another node.
const REDIRECTIONS: u32 = 8;

/// Sends requests about a key.
pub(crate) struct Caller {
    server: Server,
    slot: Option<u16>,
    /// Whether its connection is its own, because requests wait on it; the others share one.
    waits: bool,
    /// A waiter's connection.
    link: Option<Link>,
    route: Route,
    unanswered: bool,
    /// Whether its connection is the only one that will do.
    is_pinned: bool,
}

/// A connection, and where it leads.
#[derive(Clone)]
struct Link {
    node: ConnectionInfo,
    connection: Connection,
    shared: Option<Shared>,
}

impl Caller {
    /// For requests that are answered at once.
    pub(crate) fn shared(server: &Server, key: &[u8]) -> Caller {
        Caller {
            server: server.clone(),
            slot: server.is_cluster().then(|| slot_of(key)),
            waits: false,
            link: None,
            route: Route::default(),
            unanswered: false,
            is_pinned: false,
        }
    }

    /// For requests that wait. Dropped, it closes the connection, and the server forgets the waiter: where nothing
    /// is under way on it, see [`keep_open`](Caller::keep_open).
    pub(crate) fn waiting(server: &Server, key: &[u8]) -> Caller {
        Caller {
            waits: true,
            ..Caller::shared(server, key)
        }
    }

    /// Whether the last request was sent, and may have been served though no answer came: also when the
    /// future that waited for it was dropped. Told once.
    pub(crate) fn was_unanswered(&mut self) -> bool {
        std::mem::take(&mut self.unanswered)
    }

    pub(crate) fn patience(&self) -> Duration {
        self.server.patience()
    }

    /// From now on all requests take the present connection, which a hold is bound to, and none is sent on to another
    /// node. When it has ended, they fail.
    pub(crate) fn pin(&mut self) {
        self.is_pinned = true;
    }

    /// Whether a pinned connection is still there.
    pub(crate) fn is_bound(&self) -> bool {
        self.is_pinned && self.link.is_some()
    }

    /// Ends when a waiter's connection has ended.
    pub(crate) async fn closed(&self) {
        if let Some(link) = &self.link {
            link.connection.closed().await;
        }
    }

    /// Leaves a waiter's connection, on which nothing is under way, to the next waiter.
    pub(crate) fn keep_open(mut self) {
        let is_clean = self.waits && !self.unanswered;
        if let (true, Some(link)) = (is_clean, self.link.take()) {
            let idle = self.server.idle();
            idle.keep(&name_of(&link.node), link.connection);
        }
    }

    /// The reply to a request, sent once to the node that serves the key. Each node that it is sent on to
    /// has so much time for it.
    ///
    /// # Errors
    /// With [`Error::Connection`] the request may have been served all the same.
    pub(crate) async fn call(&mut self, command: &Cmd, patience: Duration) -> Result<Value> {
        self.unanswered = false;
        let mut ask = None;
        for _ in 0..REDIRECTIONS {
            let end = Instant::now() + patience;
            let is_asking = ask.is_some();
            let mut link = match ask.take() {
                Some(node) => self.open(node, end).await?,
                None => self.link(end).await?,
            };
            self.unanswered = true;
            self.link = (self.waits && !is_asking).then(|| link.clone());
            let sent = send(&mut link.connection, command, is_asking);
            let error = match timeout_at(end, sent).await {
                Ok(Ok(Value::ServerError(error))) => RedisError::from(error),
                Ok(Ok(value)) => {
                    self.unanswered = false;
                    self.route = Route::default();
                    return Ok(value);
                }
                Ok(Err(error)) => return Err(self.broken(&link, error)),
                Err(_) => {
                    self.give_up(&link);
                    return Err(Error::no_answer(&name_of(&link.node)));
                }
            };
            self.unanswered = false;
            match self.redirection(&link.node, &error)? {
                Some(Redirection::Moved(slot, node)) => {
                    self.server.learn(slot, &node);
                    self.route = Route::default();
                }
                Some(Redirection::Ask(node)) => ask = Some(node),
                None => return Err(self.refused(&link, error)),
            }
            self.link = None;
        }
        let what = "sent on from node to node without end";
        Err(Error::connection(self.server.name(), what))
    }

    /// A connection to the node that serves the key, as far as is known. Where there are several to ask,
    /// one that cannot be reached is no reason to give up.
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
            let located = timeout_at(end, self.server.node_of(self.slot, self.route)).await;
            let node = located.unwrap_or_else(|_| Err(Error::no_answer(self.server.name())))?;
            let now = Instant::now();
            let soon = if others > 0 {
                (end - now) / 2
            } else {
                end - now
            };
            match self.open(node, now + soon).await {
                Err(error) if error.is_passing() && others > 0 && Instant::now() < end => {
                    others -= 1
                }
                opened => return opened,
            }
        }
    }

    async fn open(&mut self, node: ConnectionInfo, end: Instant) -> Result<Link> {
        let opening = async {
            if !self.waits {
                let opened = self.server.shared(&node).await;
                return opened.map(|(connection, place)| (connection, Some(place)));
            }
            match self.server.idle().take(&name_of(&node)) {
                Some(connection) => Ok((connection, None)),
                None => Ok((self.server.connect(&node).await?, None)),
            }
        };
        let opened = match timeout_at(end, opening).await {
            Ok(opened) => opened,
            Err(_) => {
                if !self.waits {
                    self.server.reroute(&node);
                }
                Err(Error::no_answer(&name_of(&node)))
            }
        };
        if opened.is_err() {
            self.pass_by();
        }
        opened.map(|(connection, shared)| Link {
            node,
            connection,
            shared,
        })
    }

    fn redirection(&self, by: &ConnectionInfo, error: &RedisError) -> Result<Option<Redirection>> {
        let (Some((address, slot)), Some(_), false) =
            (error.redirect_node(), self.slot, self.is_pinned)
        else {
            return Ok(None);
        };
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let port = port.parse().map_err(|_| Error::reply(&name_of(by)))?;
        let node = self.server.redirected(by, host, port);
        Ok(Some(match error.kind() {
            ErrorKind::Server(ServerErrorKind::Ask) => Redirection::Ask(node),
            _ => Redirection::Moved(slot, node),
        }))
    }

    /// The server's own word that it does not serve this. Where another one may, that is looked for.
    fn refused(&mut self, link: &Link, error: RedisError) -> Error {
        let error = Error::new(&name_of(&link.node), error);
        if error.is_elsewhere() && !self.is_pinned {
            self.close(link);
            if self.waits {
                self.server.reroute(&link.node);
            }
        }
        error
    }

    fn broken(&mut self, link: &Link, error: RedisError) -> Error {
        self.give_up(link);
        Error::new(&name_of(&link.node), error)
    }

    fn give_up(&mut self, link: &Link) {
        self.close(link);
        self.pass_by();
    }

    /// A wait looks elsewhere for itself. For the others, the failure of what they share has changed the way.
    fn pass_by(&mut self) {
        if self.waits {
            self.route.failures += 1;
        }
    }

    /// The connection is of no use any more, nor are those that were kept beside it.
    fn close(&mut self, link: &Link) {
        self.link = None;
        match &link.shared {
            Some(place) => self.server.forget_shared(&link.node, place),
            None => self.server.idle().close(&name_of(&link.node)),
        }
    }
}

enum Redirection {
    /// For good.
    Moved(u16, ConnectionInfo),
    /// For this request: the slot is on its way there.
    Ask(ConnectionInfo),
}

/// To a node that does not serve the slot yet, `ASKING` goes before in the same write.
async fn send(connection: &mut Connection, command: &Cmd, is_asking: bool) -> RedisResult<Value> {
    if !is_asking {
        return connection.send(command).await;
    }
    let mut both = Pipeline::new();
    both.cmd("ASKING").add_command(command.clone());
    connection.send_both(&both).await
}
