//! Locks of the redis-lock module for redis-rs, with waits by ticket. Times are in milliseconds.
use crate::redis_lock::Locks; // its renew and release
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{cmd, from_redis_value_ref, make_extension_error, Client, Cmd, PushInfo, PushKind, RedisResult, Value};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{unbounded_channel, UnboundedSender};
use tokio::time::{timeout, Duration, Instant};

type Open = Arc<Mutex<HashMap<String, UnboundedSender<String>>>>;

pub struct Tickets {
    pub locks: Locks, // one connection for the requests and the messages
    channel: String,
    open: Open, // where the messages of each wait go, by its tag
}

impl Tickets {
    /// The client's address ends in `?protocol=resp3`.
    pub async fn new(client: Client) -> RedisResult<Tickets> {
        let (sender, mut pushes) = unbounded_channel();
        let config = ConnectionManagerConfig::new().set_push_sender(sender).set_automatic_resubscription();
        let config = config.set_response_timeout(Some(Duration::from_secs(5)));
        let redis = ConnectionManager::new_with_config(client.clone(), config).await?;
        let (channel, open) = (format!("lock:{}", random()), Open::default());
        let tickets = Tickets { locks: Locks(client, redis), channel, open: open.clone() };
        tokio::spawn(async move {
            while let Some(push) = pushes.recv().await {
                hear(&open, push);
            }
        });
        tickets.locks.1.clone().subscribe(&tickets.channel).await?;
        Ok(tickets)
    }

    /// The fencing token, or `None` when it was not granted in time. To drop the future is to give up.
    pub async fn acquire(&self, key: &str, owner: &str, wait: u64, lease: u64) -> RedisResult<Option<u64>> {
        let until = Instant::now() + Duration::from_millis(wait);
        let (sender, mut messages) = unbounded_channel();
        let release = cmd("LOCK.RELEASE").arg(&[key, owner]).to_owned();
        let mut ticket = Ticket { tickets: self, tag: random(), release, is_over: false };
        self.open.lock().unwrap().insert(ticket.tag.clone(), sender); // before the request: a message may be quicker
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut ask = cmd("LOCK.ACQUIRE").arg(&[key, owner, "ONCE", "PX"]).arg(lease).to_owned();
            ask.arg("NOTIFY").arg(&[&self.channel, &ticket.tag]).arg("BLOCK").arg(left.as_millis() as u64 + 1);
            let is_lost = match ask.query_async(&mut self.locks.1.clone()).await {
                Ok(Value::Int(token)) => return ticket.ends(Ok(Some(token as u64))),
                Err(lost) if lost.is_io_error() && !left.is_zero() => true,
                Err(error) if error.code() != Some("NOSUBSCRIBER") => return ticket.ends(Err(error)),
                _ => false, // without a subscriber the next subscription asks
            };
            let pause = if is_lost { Duration::from_millis(50) } else { left + Duration::from_secs(1) };
            let message = match timeout(pause, messages.recv()).await {
                Ok(message) => message.unwrap_or_default(),
                Err(_) if is_lost => continue, // ONCE makes that safe
                Err(_) => {
                    let given_up = ticket.release.query_async(&mut self.locks.1.clone()).await;
                    return ticket.ends(given_up.map(|_: Value| None));
                }
            };
            match *message.split(' ').collect::<Vec<_>>() {
                ["timeout", ..] => return ticket.ends(Ok(None)),
                ["failed", code, ..] => return ticket.ends(Err(make_extension_error(code.into(), None))),
                ["granted", token, ..] => {
                    let token = token.parse().unwrap_or(0);
                    if self.locks.renew(key, owner, token, lease).await.unwrap_or(false) {
                        return ticket.ends(Ok(Some(token)));
                    }
                }
                _ => {} // ask again
            }
        }
    }
}

struct Ticket<'a> {
    tickets: &'a Tickets,
    tag: String,
    release: Cmd, // withdraws it, or ends a grant that was quicker
    is_over: bool,
}

impl Ticket<'_> {
    fn ends<T>(&mut self, result: T) -> T {
        self.is_over = true;
        result
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.tickets.open.lock().unwrap().remove(&self.tag);
        if let (false, Ok(runtime)) = (self.is_over, Handle::try_current()) {
            let (release, mut redis) = (self.release.clone(), self.tickets.locks.1.clone());
            runtime.spawn(async move { release.query_async::<Value>(&mut redis).await });
        }
    }
}

fn hear(open: &Open, push: PushInfo) {
    let (open, text) = (open.lock().unwrap(), push.data.get(1).and_then(|text| from_redis_value_ref(text).ok()));
    let text: String = text.unwrap_or_default();
    if push.kind == PushKind::Subscribe {
        open.values().for_each(|wait| _ = wait.send("again".into())); // messages may have been lost
    } else if let Some(wait) = text.rsplit(' ').next().and_then(|tag| open.get(tag)) {
        _ = wait.send(text.clone());
    }
}

fn random() -> String {
    format!("{:x}", RandomState::new().hash_one(()))
}
