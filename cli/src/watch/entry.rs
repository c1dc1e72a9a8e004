//! A line of the history, as text and as JSON.

use std::time::{Duration, SystemTime};

use redis_lock_client::{Holder, Mode, Waiter};
use serde_json::{json, Map, Value};

use crate::escape::{shown, word};
use crate::report::{self, millis, span};

/// An event of a lock. What an event does not have, or the server does not say, is None.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub time: SystemTime,
    pub event: &'static str,
    pub owner: Option<Vec<u8>>,
    pub mode: Option<Mode>,
    pub token: Option<u64>,
    pub holds: Option<u64>,
    pub lease: Option<Duration>,
    pub held: Option<Duration>,
    pub waited: Option<Duration>,
    /// The rest of a wait.
    pub left: Option<Duration>,
    pub waiters: Option<u64>,
    pub cause: Option<String>,
    pub server: Option<String>,
    /// With `connected`: the events that cannot be seen.
    pub unseen: Option<Vec<&'static str>>,
    /// The same for a reader: what to change.
    pub note: Option<String>,
}

impl Entry {
    pub fn new(event: &'static str) -> Entry {
        Entry {
            time: SystemTime::now(),
            event,
            owner: None,
            mode: None,
            token: None,
            holds: None,
            lease: None,
            held: None,
            waited: None,
            left: None,
            waiters: None,
            cause: None,
            server: None,
            unseen: None,
            note: None,
        }
    }

    /// An event of a holder, with its lease.
    pub fn of_holder(event: &'static str, mode: Mode, holder: &Holder) -> Entry {
        Entry {
            owner: Some(holder.owner.clone()),
            mode: Some(mode),
            token: holder.token,
            holds: Some(holder.holds),
            lease: holder.lease,
            held: holder.held,
            ..Entry::new(event)
        }
    }

    pub fn of_waiter(event: &'static str, waiter: &Waiter) -> Entry {
        Entry {
            owner: Some(waiter.owner.clone()),
            mode: Some(waiter.mode),
            waited: Some(waiter.waited),
            left: waiter.left,
            ..Entry::new(event)
        }
    }

    /// Columns for the time, the event and, of several, the key; then names and values.
    pub fn text(&self, key: Option<&[u8]>) -> String {
        let mut line = format!("{}  {:<12}", report::utc(self.time), self.event);
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                line += &format!(" {name}={value}");
            }
        };
        add("key", key.map(word));
        add(
            "server",
            self.server.as_ref().map(|name| shown(name.as_bytes())),
        );
        add("owner", self.owner.as_deref().map(word));
        let mode = self.mode.filter(|mode| *mode != Mode::Exclusive);
        add("mode", mode.map(|mode| mode.to_string()));
        add("token", self.token.map(|token| token.to_string()));
        add("holds", self.holds.map(|holds| holds.to_string()));
        add("lease", self.lease.map(|lease| span(Some(lease))));
        add("held", self.held.map(|held| span(Some(held))));
        add("waited", self.waited.map(|waited| span(Some(waited))));
        add("left", self.left.map(|left| span(Some(left))));
        add("waiters", self.waiters.map(|waiters| waiters.to_string()));
        add(
            "cause",
            self.cause
                .as_ref()
                .map(|cause| format!("\"{}\"", shown(cause.as_bytes()))),
        );
        line
    }

    /// An object with every field, null where there is none.
    pub fn json(&self, key: &[u8]) -> Value {
        let mut object = Map::new();
        object.insert("time".into(), json!(report::utc(self.time)));
        report::put(&mut object, "key", key);
        object.insert("event".into(), json!(self.event));
        match &self.owner {
            Some(owner) => report::put(&mut object, "owner", owner),
            None => drop(object.insert("owner".into(), Value::Null)),
        }
        let fields = [
            ("mode", json!(self.mode.map(|mode| mode.to_string()))),
            ("token", json!(self.token)),
            ("holds", json!(self.holds)),
            ("lease_ms", millis(self.lease)),
            ("held_ms", millis(self.held)),
            ("waited_ms", millis(self.waited)),
            ("left_ms", millis(self.left)),
            ("waiters", json!(self.waiters)),
            ("cause", json!(self.cause)),
            ("server", json!(self.server)),
            ("unseen", json!(self.unseen)),
        ];
        object.extend(fields.map(|(name, value)| (name.to_string(), value)));
        object.into()
    }
}
