//! The events of one key as the server announces them, for programs that display a lock.
//!
//! Three sources, each of which the server or the ACL may refuse: key events (`notify-keyspace-events`), the messages
//! of releases, and client-side tracking of the reads of the shared connection. No source changes what the server
//! does: the module counts the subscribers of a channel by name (Redisson windows, tickets), and patterns do not count.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use redis::{cmd, Cmd, ConnectionInfo, PushInfo, PushKind, Value};
use tokio::sync::mpsc::{channel, Receiver, Sender};

use crate::error::{Error, Result, NO_ROOM};
use crate::info::{lock_info, LockInfo};
use crate::net::address::name_of;
use crate::net::caller::Caller;
use crate::net::command;
use crate::net::connection::Connection;
use crate::net::invalidation::KeyWatch;
use crate::net::reply::{field, text};
use crate::net::server::Server;
use crate::runtime::within;
use crate::trace::shown;

/// Upper bound of the events that wait for [`KeyEvents::next`].
const MAX_EVENTS: usize = 1_024;

/// An event of a key.
///
/// ```
/// use redis_lock_client::KeyEvent;
///
/// fn is_loss(event: &KeyEvent) -> bool {
///     matches!(event, KeyEvent::Named(name) if name == "lock.expire" || name == "lock.lost")
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyEvent {
    /// A key event by its name: `lock.acquire`, `del`, `expired`.
    Named(String),
    /// The message that the lock became free by a release, a break or a Redisson client's unlock.
    Freed,
    /// The key has changed, in whatever way. Also after a connection was lost.
    Changed,
    /// Events were dropped here, because more than 1,024 waited for [`KeyEvents::next`].
    Dropped,
}

/// The events of a key, from the node that serves it. Bounded in memory; dropping it closes its connection.
///
/// ```no_run
/// # async fn example(server: redis_lock_client::Server) -> Result<(), redis_lock_client::Error> {
/// let mut events = server.key_events("invoices:42").await?;
/// loop {
///     let event = events.next().await?; // an error: open it anew
///     println!("{event:?}: {:?}", events.info(10).await?);
/// }
/// # }
/// ```
pub struct KeyEvents {
    server: Server,
    key: Vec<u8>,
    node: ConnectionInfo,
    name: String,
    setting: Option<String>,
    subscribed: Option<Subscribed>,
    changes: KeyWatch,
}

/// The subscribed connection.
struct Subscribed {
    connection: Connection,
    events: Receiver<KeyEvent>,
    has_dropped: Arc<AtomicBool>,
    has_key_events: bool,
}

impl Server {
    /// Subscribes to the events of a key, at the node that serves it.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses `LOCK.INFO`. Where it refuses a source of events, that source is
    /// left out.
    pub async fn key_events(&self, key: impl AsRef<[u8]>) -> Result<KeyEvents> {
        within(KeyEvents::open(self, key.as_ref())).await
    }
}

impl KeyEvents {
    async fn open(server: &Server, key: &[u8]) -> Result<KeyEvents> {
        let changes = server.inner.invalidations.watch(key);
        let mut caller = Caller::shared(server, key);
        match caller.call(&command::info(key, 0), server.patience()).await {
            // The key holds other data now, and may hold a lock later.
            Err(error) if error.is_wrong_type() => {}
            reply => drop(reply?),
        }
        let node = caller.answered_by.clone();
        let node = node.ok_or_else(|| Error::no_answer(server.name()))?;
        let setting = setting(server, &node).await?;
        Ok(KeyEvents {
            subscribed: Subscribed::open(server, key, &node).await?,
            server: server.clone(),
            key: key.to_vec(),
            name: name_of(&node),
            node,
            setting,
            changes,
        })
    }

    /// The node, as `host:port/db`.
    pub fn node(&self) -> &str {
        &self.name
    }

    /// The node's `notify-keyspace-events` when this was opened; None if the user may not read it.
    pub fn setting(&self) -> Option<&str> {
        self.setting.as_deref()
    }

    /// Whether key events are subscribed to: the user may, and the node has RESP3.
    pub fn has_key_events(&self) -> bool {
        let subscribed = self.subscribed.as_ref();
        subscribed.is_some_and(|subscribed| subscribed.has_key_events)
    }

    /// The next event. Cancel-safe.
    ///
    /// # Errors
    /// When the connection has ended: open the events anew, and read the state.
    pub async fn next(&mut self) -> Result<KeyEvent> {
        let Some(subscribed) = &mut self.subscribed else {
            self.changes.change().await;
            return Ok(KeyEvent::Changed);
        };
        if subscribed.has_dropped.swap(false, Ordering::Relaxed) {
            return Ok(KeyEvent::Dropped);
        }
        let ended = || Error::connection(&self.name, "the connection has ended");
        tokio::select! {
            biased;
            event = subscribed.events.recv() => event.ok_or_else(ended),
            () = subscribed.connection.closed() => Err(ended()),
            () = self.changes.change() => Ok(KeyEvent::Changed),
        }
    }

    /// The next event that has arrived already.
    pub fn arrived(&mut self) -> Option<KeyEvent> {
        self.subscribed.as_mut()?.events.try_recv().ok()
    }

    /// The state of the lock, as [`Server::info`] returns it. The events that came before it have
    /// [arrived](KeyEvents::arrived) by then, those of the end of its tick perhaps not.
    ///
    /// # Errors
    /// When the server cannot be reached, or refuses; when the connection of the events does not answer, or another
    /// node serves the key by now: then open the events anew.
    pub async fn info(&mut self, max_waiters: u64) -> Result<Option<LockInfo>> {
        within(self.look(max_waiters)).await
    }

    async fn look(&mut self, max_waiters: u64) -> Result<Option<LockInfo>> {
        let mut caller = Caller::shared(&self.server, &self.key);
        let command = command::info(&self.key, max_waiters);
        let reply = match caller.call(&command, self.server.patience()).await {
            Err(error) if !error.is_wrong_type() => return Err(error),
            reply => reply,
        };
        if let Some(node) = &caller.answered_by {
            if node.addr() != self.node.addr() {
                return Err(Error::connection(&name_of(node), "serves the key now"));
            }
        }
        self.ping().await?;
        let reply = reply?;
        Ok((reply != Value::Nil).then(|| lock_info(&reply)))
    }

    /// Asks the subscribed connection whether it is alive. The events of before have arrived with the answer.
    async fn ping(&mut self) -> Result<()> {
        if let Some(subscribed) = &mut self.subscribed {
            let (ping, patience) = (cmd("PING"), self.server.patience());
            subscribed
                .connection
                .ask(&ping, &self.name, patience)
                .await?;
        }
        Ok(())
    }
}

shown! { KeyEvents, events, node = events.name }

impl Subscribed {
    /// None where the node has no RESP3, or refuses every subscription.
    async fn open(
        server: &Server,
        key: &[u8],
        node: &ConnectionInfo,
    ) -> Result<Option<Subscribed>> {
        let (sender, events) = channel(MAX_EVENTS);
        let has_dropped = Arc::new(AtomicBool::new(false));
        let dropped = has_dropped.clone();
        let pushed = move |push| file(&push, &sender, &dropped);
        let mut connection = match server.connect_resp3(node, pushed).await {
            Ok(connection) => connection,
            Err(error) if may_be_the_protocol(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        let patience = server.patience();
        let mut channel = format!("__keyspace@{}__:", node.redis_settings().db()).into_bytes();
        channel.extend_from_slice(key);
        let command = cmd("SUBSCRIBE").arg(channel).take();
        let has_key_events = is_allowed(&mut connection, &command, patience).await?;
        let command = cmd("PSUBSCRIBE").arg(pattern_of(&releases(key))).take();
        let has_releases = is_allowed(&mut connection, &command, patience).await?;
        Ok((has_key_events || has_releases).then_some(Subscribed {
            connection,
            events,
            has_dropped,
            has_key_events,
        }))
    }
}

/// Whether a connection may have failed because of RESP3: a server without HELLO refuses it, a proxy may close the
/// connection.
fn may_be_the_protocol(error: &Error) -> bool {
    match error {
        Error::NotLoaded { .. } => true,
        Error::Refused { code, .. } => !matches!(code.as_str(), "WRONGPASS" | "NOAUTH" | "LOADING"),
        Error::Connection { what, .. } => what != NO_ROOM,
        _ => false,
    }
}

/// Files the event of a push message, or notes that it was dropped.
fn file(push: &PushInfo, sender: &Sender<KeyEvent>, has_dropped: &AtomicBool) {
    let event = match (&push.kind, push.data.as_slice()) {
        (PushKind::Message, [_, name]) => Some(KeyEvent::Named(text(name))),
        (PushKind::PMessage, _) => Some(KeyEvent::Freed),
        _ => None,
    };
    if event.is_some_and(|event| sender.try_send(event).is_err()) {
        has_dropped.store(true, Ordering::Relaxed);
    }
}

/// The channel on which releases are published, as Redisson names it.
fn releases(key: &[u8]) -> Vec<u8> {
    let parts: [&[u8]; 3] = match key.contains(&b'{') {
        true => [b"redisson_lock__channel:", key, b""],
        false => [b"redisson_lock__channel:{", key, b"}"],
    };
    parts.concat()
}

/// The pattern that matches this name only.
fn pattern_of(name: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| b"*?[]\\".contains(byte).then_some(b'\\');
    let bytes = name.iter().flat_map(|byte| [escape(byte), Some(*byte)]);
    bytes.flatten().collect()
}

/// Sends a subscription. False when it is refused.
async fn is_allowed(
    connection: &mut Connection,
    command: &Cmd,
    patience: Duration,
) -> Result<bool> {
    match connection.ask(command, "", patience).await {
        Ok(_) => Ok(true),
        Err(Error::Refused { .. } | Error::NotLoaded { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The setting of key events at this node; None if the user may not read it.
async fn setting(server: &Server, node: &ConnectionInfo) -> Result<Option<String>> {
    let name = "notify-keyspace-events";
    let command = cmd("CONFIG").arg("GET").arg(name).take();
    match server.ask(node, &command).await {
        Ok(reply) => Ok(field(&reply, name).map(text)),
        Err(Error::Refused { .. } | Error::NotLoaded { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

#[allow(clippy::expect_used)]
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pattern_of_a_name_matches_only_the_name() {
        assert_eq!(
            pattern_of(&releases(b"a*[b]\\?")),
            b"redisson_lock__channel:{a\\*\\[b\\]\\\\\\?}"
        );
        assert_eq!(releases(b"x{y}"), b"redisson_lock__channel:x{y}");
    }

    #[test]
    fn events_beyond_the_bound_are_dropped_and_the_drop_is_noted() {
        let (sender, mut events) = channel(1);
        let has_dropped = AtomicBool::new(false);
        let put = |name: &str| {
            let data = ["__keyspace@0__:k", name].map(|part| Value::BulkString(part.into()));
            let push = PushInfo {
                kind: PushKind::Message,
                data: data.to_vec(),
            };
            file(&push, &sender, &has_dropped);
        };
        put("lock.wait");
        assert!(!has_dropped.load(Ordering::Relaxed));
        put("lock.acquire");
        assert!(has_dropped.load(Ordering::Relaxed));
        assert_eq!(
            events.try_recv().ok(),
            Some(KeyEvent::Named("lock.wait".into()))
        );
    }
}
