//! Waits as tickets: all waits at a node share one subscribed connection (`BLOCK ms NOTIFY channel tag`).
//!
//! - The tickets that share a channel are a *line*: all of a server, in a cluster those of a slot, because there a
//!   channel must hash to the slot of the key. All channels of a node share one connection.
//! - That connection is not the one of the requests: redis-rs takes a `sunsubscribe` of the server for the reply to a
//!   request, and messages count for the limit at which the server closes a subscriber (`client-output-buffer-limit`).
//! - It is probed by subscribing again, which changes nothing and needs no further permission.
//! - A message is only a reason to ask again. So a false message, an old one and one that is lost need no rules.

use std::collections::{BTreeMap, HashMap};
use std::str;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use redis::{cmd, Cmd, ConnectionInfo, PushInfo, PushKind, Value};
use tokio::sync::mpsc::{channel, Receiver, Sender};
use tokio::sync::{Mutex as Turn, OnceCell, OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout, Instant};
use uuid::Uuid;

use crate::error::{Error, Result};
use crate::moment::now;
use crate::net::address::name_of;
use crate::net::command;
use crate::net::connection::Connection;
use crate::net::server::Server;
use crate::net::slot::{name_in_slot, slot_of};
use crate::runtime::{self, locked};

/// The most requests of a line that have no reply yet, or whose wait pauses after a failure.
const MAX_IN_FLIGHT: usize = 100;
/// The longest time between two probes of a connection.
const LONGEST_BEAT: Duration = Duration::from_secs(5);
/// Time without a ticket after which a subscribed connection is closed.
pub(crate) const MAX_IDLE: Duration = Duration::from_secs(30);
/// The events of a ticket that are kept until its wait reads them. Each means that it is to ask again, so one is
/// enough.
const MAX_EVENTS: usize = 4;

/// What shares a channel: the tickets of a slot, in a cluster; else all of a server.
type Line = Option<u16>;

/// A reason for a wait to ask again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// `granted <token> <tag>`.
    Granted,
    /// `timeout <tag>`: the time of `BLOCK` is over.
    TimedOut,
    /// `failed <CODE> <tag>`.
    Failed(String),
    /// The subscription has ended.
    Broken,
}

/// The tickets of a server, which its clones share.
pub(crate) struct Tickets {
    is_sharded: bool,
    table: Mutex<Table>,
    /// The subscribed connections, by the name of the node.
    nodes: Mutex<HashMap<String, Arc<OnceCell<Subscribed>>>>,
    last_number: AtomicU64,
}

#[derive(Default)]
struct Table {
    channels: HashMap<Line, Channel>,
    /// The open tickets, by their tags.
    tickets: BTreeMap<u64, (Line, Sender<Event>)>,
}

struct Channel {
    name: Vec<u8>,
    /// The node at which it is subscribed, and the number of the connection.
    live: Option<(String, u64)>,
    /// Raised with each subscription and each end of one.
    epoch: u64,
    tickets: usize,
    used: Instant,
    subscribing: Arc<Turn<()>>,
    in_flight: Arc<Semaphore>,
}

/// A connection to a node and its number, which no other connection of the server has.
#[derive(Clone)]
struct Subscribed {
    node: String,
    number: u64,
    connection: Connection,
}

/// An open ticket. Dropping it ends the wait here; the server is not asked.
pub(crate) struct Ticket {
    tickets: Arc<Tickets>,
    tag: u64,
    line: Line,
    channel: Vec<u8>,
    subscribing: Arc<Turn<()>>,
    in_flight: Arc<Semaphore>,
    events: Receiver<Event>,
}

impl Tickets {
    pub(crate) fn new(is_sharded: bool) -> Arc<Tickets> {
        Arc::new(Tickets {
            is_sharded,
            table: Mutex::default(),
            nodes: Mutex::default(),
            last_number: AtomicU64::new(1),
        })
    }

    fn line_of(&self, key: &[u8]) -> Line {
        self.is_sharded.then(|| slot_of(key))
    }

    /// Whether the messages about this key are subscribed to.
    pub(crate) fn is_live(&self, key: &[u8]) -> bool {
        let table = self.table();
        let channel = table.channels.get(&self.line_of(key));
        channel.is_some_and(|channel| channel.live.is_some())
    }

    pub(crate) fn open(self: &Arc<Tickets>, key: &[u8]) -> Ticket {
        let line = self.line_of(key);
        let (sender, events) = channel(MAX_EVENTS);
        let tag = self.next_number();
        let mut table = self.table();
        let channel = table.channels.entry(line);
        let channel = channel.or_insert_with(|| Channel::new(line));
        channel.tickets += 1;
        let ticket = Ticket {
            tickets: self.clone(),
            tag,
            line,
            channel: channel.name.clone(),
            subscribing: channel.subscribing.clone(),
            in_flight: channel.in_flight.clone(),
            events,
        };
        table.tickets.insert(tag, (line, sender));
        ticket
    }

    fn next_number(&self) -> u64 {
        self.last_number.fetch_add(1, Ordering::Relaxed)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        locked(&self.table)
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<String, Arc<OnceCell<Subscribed>>>> {
        locked(&self.nodes)
    }

    /// The subscribed connection to this node; the first caller opens it.
    async fn connection(
        self: &Arc<Tickets>,
        server: &Server,
        node: &ConnectionInfo,
    ) -> Result<Subscribed> {
        let node_name = name_of(node);
        let place = self.nodes().entry(node_name.clone()).or_default().clone();
        let open = || async {
            let number = self.next_number();
            let tickets = Arc::downgrade(self);
            let pushed = move |push| {
                if let Some(tickets) = tickets.upgrade() {
                    tickets.pushed(number, &push);
                }
            };
            let connection = server.connect_resp3(node, pushed).await?;
            runtime::spawn(keep(Arc::downgrade(self), number, server.patience()));
            Ok(Subscribed {
                node: node_name,
                number,
                connection,
            })
        };
        place.get_or_try_init(open).await.cloned()
    }

    /// The connection of this number, while it is open.
    fn open_one(&self, number: u64) -> Option<Subscribed> {
        let nodes = self.nodes();
        let mut open = nodes.values().filter_map(|place| place.get());
        open.find(|open| open.number == number).cloned()
    }

    /// Handles a push message of a subscribed connection.
    fn pushed(&self, number: u64, push: &PushInfo) {
        match (&push.kind, push.data.as_slice()) {
            (PushKind::Message | PushKind::SMessage, [_, Value::BulkString(payload)]) => {
                if let Some((tag, event)) = read(payload) {
                    self.table().send(tag, event);
                }
            }
            (PushKind::SUnsubscribe | PushKind::Unsubscribe, [Value::BulkString(name), ..]) => {
                self.table()
                    .end(|channel| channel.is_on(number) && channel.name == *name);
            }
            (PushKind::Disconnection, _) => self.close(number),
            _ => {}
        }
    }

    /// Closes a connection; its tickets ask again.
    fn close(&self, number: u64) {
        let is_other = |open: &Subscribed| open.number != number;
        self.nodes()
            .retain(|_, place| place.get().is_none_or(is_other));
        self.table().end(|channel| channel.is_on(number));
    }
}

impl Table {
    /// Drops the event when others wait to be read.
    fn send(&self, tag: u64, event: Event) {
        if let Some((_, events)) = self.tickets.get(&tag) {
            let _ = events.try_send(event);
        }
    }

    /// Ends the subscriptions of these channels. Their tickets ask again, in the order in which they were opened.
    fn end(&mut self, is_ended: impl Fn(&Channel) -> bool) {
        let mut ended = Vec::new();
        for (line, channel) in &mut self.channels {
            if is_ended(channel) {
                channel.live = None;
                channel.epoch += 1;
                ended.push(*line);
            }
        }
        self.ask_again(&ended);
        self.channels
            .retain(|_, channel| channel.tickets > 0 || channel.live.is_some());
    }

    fn ask_again(&self, lines: &[Line]) {
        let of_lines = |(line, _): &&(Line, Sender<Event>)| lines.contains(line);
        for (_, events) in self.tickets.values().filter(of_lines) {
            let _ = events.try_send(Event::Broken);
        }
    }
}

impl Channel {
    /// With a name that no other process knows; in a cluster, in the slot of its keys.
    fn new(line: Line) -> Channel {
        let name = format!("lock:tickets:{}", Uuid::new_v4());
        Channel {
            name: match line {
                Some(slot) => name_in_slot(&name, slot),
                None => name.into_bytes(),
            },
            live: None,
            epoch: 0,
            tickets: 0,
            used: now(),
            subscribing: Arc::default(),
            in_flight: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
        }
    }

    fn is_on(&self, number: u64) -> bool {
        self.live.as_ref().is_some_and(|(_, live)| *live == number)
    }
}

impl Ticket {
    /// The request as this ticket.
    pub(crate) fn command(&self, command: &Cmd, block: Duration) -> Cmd {
        command::notified(command, block, &self.channel, self.tag)
    }

    /// Its channel, which exists as long as this ticket.
    fn of_channel<T: Default>(&self, read: impl FnOnce(&Channel) -> T) -> T {
        let table = self.tickets.table();
        let channel = table.channels.get(&self.line);
        channel.map(read).unwrap_or_default()
    }

    /// The number of the last change of the subscription.
    pub(crate) fn epoch(&self) -> u64 {
        self.of_channel(|channel| channel.epoch)
    }

    /// Whether messages of this node are received.
    pub(crate) fn is_live_at(&self, node: &ConnectionInfo) -> bool {
        let is_at = |(live, _): &(String, u64)| *live == name_of(node);
        self.of_channel(|channel| channel.live.as_ref().is_some_and(is_at))
    }

    /// Subscribes at this node, because messages were not received in this epoch. Returns at once when another wait
    /// has subscribed there since.
    pub(crate) async fn subscribe(
        &self,
        server: &Server,
        node: &ConnectionInfo,
        epoch: u64,
    ) -> Result<()> {
        let tickets = &self.tickets;
        let _turn = self.subscribing.lock().await;
        if self.epoch() != epoch && self.is_live_at(node) {
            return Ok(());
        }
        // Others wait for this turn, also those whose own end comes sooner.
        let patience = server.patience() / 4;
        let opened = timeout(patience, tickets.connection(server, node)).await;
        let mut on = opened.map_err(|_| Error::no_answer(&name_of(node)))??;
        match on
            .confirm(tickets.is_sharded, &self.channel, patience)
            .await
        {
            Ok(()) if tickets.open_one(on.number).is_some() => {}
            Ok(()) => return Err(Error::connection(&on.node, "the connection has ended")),
            // In a cluster the slot may be on its way to another node.
            Err(Error::Refused { code, text, .. }) if code == "MOVED" => {
                return Err(Error::connection(&on.node, format!("{code} {text}")));
            }
            Err(error) => {
                if !matches!(error, Error::Refused { .. }) {
                    tickets.close(on.number);
                }
                return Err(error);
            }
        }
        let live = Some((on.node, on.number));
        let mut table = tickets.table();
        if let Some(channel) = table.channels.get_mut(&self.line) {
            let is_elsewhere = channel.live.is_some() && channel.live != live;
            channel.live = live;
            channel.epoch += 1;
            if is_elsewhere {
                // What another node has queued would send its messages there.
                table.ask_again(&[self.line]);
            }
        }
        Ok(())
    }

    /// Subscribes at this node, and publishes a message that is no ticket's, as the grant of a wait needs both.
    #[cfg(feature = "admin")]
    pub(crate) async fn try_channel(&self, server: &Server, node: &ConnectionInfo) -> Result<()> {
        self.subscribe(server, node, self.epoch()).await?;
        let publish = match self.tickets.is_sharded {
            true => "SPUBLISH",
            false => "PUBLISH",
        };
        let publish = cmd(publish).arg(&self.channel).arg("").take();
        server.ask(node, &publish).await.map(drop)
    }

    /// Forgets the events so far: the next request answers them.
    pub(crate) fn forget_events(&mut self) {
        while self.events.try_recv().is_ok() {}
    }

    /// The next event. May be dropped and called again.
    pub(crate) async fn event(&mut self) -> Event {
        // The sender goes with the ticket, which this value keeps.
        self.events.recv().await.unwrap_or(Event::Broken)
    }

    /// A turn to send a request, in the order of calls. After a failure the wait keeps it for its pause, so that
    /// thousands of waits do not ask a server that has just started all at once.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.in_flight.clone().acquire_owned().await.ok()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut table = self.tickets.table();
        table.tickets.remove(&self.tag);
        if let Some(channel) = table.channels.get_mut(&self.line) {
            channel.tickets -= 1;
            channel.used = now();
            if channel.tickets == 0 && channel.live.is_none() {
                table.channels.remove(&self.line);
            }
        }
    }
}

impl Subscribed {
    /// Sends a subscription and waits for its confirmation. Any other reply is an error: a `sunsubscribe` of the server
    /// may have taken the place of the reply, and the connection is to be closed.
    async fn confirm(&mut self, sharded: bool, channel: &[u8], patience: Duration) -> Result<()> {
        let mut command = cmd(if sharded { "SSUBSCRIBE" } else { "SUBSCRIBE" });
        command.arg(channel);
        match self.connection.ask(&command, &self.node, patience).await? {
            Value::Push {
                kind: PushKind::Subscribe | PushKind::SSubscribe,
                data,
            } if data.first() == Some(&Value::BulkString(channel.to_vec())) => Ok(()),
            _ => Err(Error::reply(&self.node)),
        }
    }
}

/// Probes a connection while it has tickets; closes it when it does not answer, or has had no ticket for a while.
async fn keep(tickets: Weak<Tickets>, number: u64, patience: Duration) {
    let beat = (patience / 4).clamp(Duration::from_millis(1), LONGEST_BEAT);
    // The first subscription may take that long.
    sleep(patience / 2).await;
    loop {
        sleep(beat).await;
        let Some(tickets) = tickets.upgrade() else {
            return;
        };
        let Some(mut open) = tickets.open_one(number) else {
            return;
        };
        let mut used = None;
        let mut is_idle = true;
        for channel in tickets.table().channels.values() {
            if channel.is_on(number) && channel.tickets > 0 {
                used = Some(channel.name.clone());
            }
            is_idle &= !channel.is_on(number) || now() - channel.used >= MAX_IDLE;
        }
        let is_closed = match used {
            None => is_idle,
            Some(channel) => {
                let probed = open.confirm(tickets.is_sharded, &channel, patience / 2);
                // MOVED: the channel has left the node, with its slot.
                probed.await.is_err_and(|error| !error.has_code("MOVED"))
            }
        };
        if is_closed {
            return tickets.close(number);
        }
    }
}

/// Reads a message: the tag of the ticket and the event. None for any other text.
fn read(payload: &[u8]) -> Option<(u64, Event)> {
    let text = str::from_utf8(payload).ok()?;
    let (word, rest) = text.split_once(' ')?;
    let (event, tag) = match word {
        "timeout" => (Event::TimedOut, rest),
        "granted" => (Event::Granted, rest.split_once(' ')?.1),
        "failed" => {
            let (code, tag) = rest.split_once(' ')?;
            (Event::Failed(code.to_string()), tag)
        }
        _ => return None,
    };
    Some((tag.parse().ok()?, event))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_an_outcome_and_a_tag() {
        let granted = Some((7, Event::Granted));
        assert_eq!(read(b"granted 1795215970812000 7"), granted);
        assert_eq!(read(b"granted 12,13,14 7"), granted);
        assert_eq!(read(b"timeout 8"), Some((8, Event::TimedOut)));
        let failed = Event::Failed("LOCKBROKEN".into());
        assert_eq!(read(b"failed LOCKBROKEN 9"), Some((9, failed)));
        for text in [
            "",
            "granted",
            "granted 1",
            "timeout x",
            "failed 9",
            "hello 1 2",
            "granted 1 7 8",
        ] {
            assert_eq!(read(text.as_bytes()), None);
        }
        assert_eq!(read(b"granted 1 \xff"), None);
    }

    #[tokio::test]
    async fn the_end_of_a_subscription_reaches_its_tickets_and_a_flood_is_dropped() {
        let tickets = Tickets::new(true);
        let (mut one, mut other) = (tickets.open(b"a"), tickets.open(b"b"));
        if let Some(channel) = tickets.table().channels.get_mut(&one.line) {
            channel.live = Some(("node".into(), 7));
        }
        assert!(tickets.is_live(b"a") && !tickets.is_live(b"b"));
        tickets.close(7);
        assert_eq!((one.event().await, one.epoch()), (Event::Broken, 1));
        assert!(other.events.try_recv().is_err());
        for _ in 0..2 * MAX_EVENTS {
            tickets.table().send(other.tag, Event::Granted);
        }
        assert_eq!(other.event().await, Event::Granted);
        other.forget_events();
        assert!(other.events.try_recv().is_err());
        drop((one, other));
        let table = tickets.table();
        assert!(table.tickets.is_empty() && table.channels.is_empty());
    }
}
