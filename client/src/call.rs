//! One request after another about one key, wherever that key is served at the moment.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ConnectionInfo, RedisError, Value};
use tokio::time::{timeout, Instant};

use crate::server::{name_of, Server};
use crate::{Error, Result};

/// How often one request may be sent on to another node.
const REDIRECTIONS: u32 = 8;

/// Sends requests about a key.
pub(crate) struct Caller {
    server: Server,
    slot: Option<u16>,
    /// A waiter's own connection; the others share one.
    own: Option<Option<(ConnectionInfo, MultiplexedConnection)>>,
}

impl Caller {
    /// For requests that are answered at once.
    pub(crate) fn shared(server: &Server, key: &[u8]) -> Caller {
        Caller {
            server: server.clone(),
            slot: server.is_cluster().then(|| slot_of(key)),
            own: None,
        }
    }

    /// For requests that wait. Dropped, it closes the connection, and the server forgets the waiter.
    pub(crate) fn waiting(server: &Server, key: &[u8]) -> Caller {
        Caller {
            own: Some(None),
            ..Caller::shared(server, key)
        }
    }

    /// The reply to a request, sent once to the node that serves the key; `patience` is for all of it.
    ///
    /// # Errors
    /// With [`Error::Connection`] the request may have been served all the same.
    pub(crate) async fn call(&mut self, command: &Cmd, patience: Duration) -> Result<Value> {
        let end = Instant::now() + patience;
        let mut asked = self.server.name().to_string();
        for _ in 0..REDIRECTIONS {
            let (node, mut connection) = self.connection(end).await?;
            asked = name_of(&node);
            let reply = timeout_at(end, connection.send_packed_command(command)).await;
            let error = match reply {
                Some(Ok(Value::ServerError(error))) => RedisError::from(error),
                Some(Ok(value)) => return Ok(value),
                Some(Err(error)) => error,
                None => {
                    self.give_up(&node);
                    return Err(Error::no_answer(&asked));
                }
            };
            match (error.code(), error.redirect_node(), self.slot) {
                (Some("MOVED"), Some((address, slot)), _) => self.follow(slot, address)?,
                _ => return Err(self.failed(&node, &error)),
            }
        }
        Err(Error::Connection {
            server: asked,
            what: "sent on from node to node without end".into(),
        })
    }

    async fn connection(
        &mut self,
        end: Instant,
    ) -> Result<(ConnectionInfo, MultiplexedConnection)> {
        if let Some(Some((node, connection))) = &self.own {
            return Ok((node.clone(), connection.clone()));
        }
        let node = self.server.node_of(self.slot)?;
        let opened = match self.own {
            Some(_) => timeout_at(end, self.server.connect(&node)).await,
            None => timeout_at(end, self.server.shared(&node)).await,
        };
        match opened.unwrap_or_else(|| Err(Error::no_answer(&name_of(&node)))) {
            Ok(connection) => {
                if let Some(own) = &mut self.own {
                    *own = Some((node.clone(), connection.clone()));
                }
                Ok((node, connection))
            }
            Err(error) => {
                self.give_up(&node);
                Err(error)
            }
        }
    }

    fn follow(&mut self, slot: u16, address: &str) -> Result<()> {
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let port = port.parse().map_err(|_| Error::reply(self.server.name()))?;
        self.close_own();
        self.server.learn(slot, host, port)
    }

    /// What a reply that is an error means for the connection.
    fn failed(&mut self, node: &ConnectionInfo, error: &RedisError) -> Error {
        let error = Error::new(&name_of(node), error);
        if error.is_passing() {
            self.give_up(node);
        }
        error
    }

    fn give_up(&mut self, node: &ConnectionInfo) {
        self.close_own();
        self.server.forget(node);
    }

    fn close_own(&mut self) {
        if let Some(own) = &mut self.own {
            *own = None;
        }
    }
}

async fn timeout_at<T>(end: Instant, work: impl std::future::Future<Output = T>) -> Option<T> {
    timeout(end.saturating_duration_since(Instant::now()), work)
        .await
        .ok()
}

/// The slot of a key: of what stands between its first braces, where something does.
fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let len = rest.iter().position(|byte| *byte == b'}')?;
        rest.get(..len).filter(|tag| !tag.is_empty())
    });
    crc16::State::<crc16::XMODEM>::calculate(tag.unwrap_or(key)) % 16_384
}

#[cfg(test)]
mod tests {
    use super::slot_of;

    #[test]
    fn a_key_has_the_slot_of_its_tag() {
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"x{foo}y"), 12_182);
        assert_eq!(slot_of(b"{}foo"), slot_of(b"{}foo"));
        assert_ne!(slot_of(b"{}foo"), slot_of(b"foo"));
    }
}
