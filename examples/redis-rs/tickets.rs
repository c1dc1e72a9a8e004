//! Locks of the redis-lock module for redis-rs, with waits by ticket. Times are in milliseconds.
use crate::redis_lock::Locks;
use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::{cluster::ClusterClientBuilder, cluster_async::ClusterConnection, cmd, from_redis_value_ref};
use redis::{make_extension_error, Client, ProtocolVersion, PushInfo, PushKind, RedisResult, Value};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc::{unbounded_channel, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout, Duration, Instant};

type Open = Arc<Mutex<HashMap<String, UnboundedSender<String>>>>;

pub struct Tickets<C> {
    pub locks: Locks<(), C>, // renew and release
    channel: String,
    open: Open, // where the messages of each wait go, by its tag
}

impl Tickets<ConnectionManager> {
    /// One connection has the requests and the messages. The client's address ends in `?protocol=resp3`.
    pub async fn new(client: Client) -> RedisResult<Self> {
        let (channel, open) = (format!("lock:{}", random()), Open::default());
        let waits = open.clone();
        let config = ConnectionManagerConfig::new().set_response_timeout(Some(Duration::from_secs(5)));
        let config = config.set_push_sender(move |push: PushInfo| hear(&waits, &push)).set_automatic_resubscription();
        let mut redis = ConnectionManager::new_with_config(client, config).await?;
        redis.subscribe(&channel).await?;
        Ok(Tickets { locks: Locks((), redis), channel, open })
    }
}

impl Tickets<ClusterConnection> {
    /// `shard` is the hash tag of the keys, "{invoices}". Its connections last until the runtime ends.
    pub async fn in_cluster(nodes: ClusterClientBuilder, shard: &str) -> RedisResult<Self> {
        let (channel, open) = (format!("lock:{shard}{}", random()), Open::default());
        let (name, waits, (sender, mut pushes)) = (channel.clone(), open.clone(), unbounded_channel());
        let nodes = nodes.use_protocol(ProtocolVersion::RESP3).response_timeout(Duration::from_secs(5));
        let nodes = nodes.push_sender(move |push: PushInfo| hear(&waits, &push).map(|()| _ = sender.send(push)));
        let client = nodes.build()?;
        let redis = client.get_async_connection().await?;
        // Another one, because redis-rs takes the message that the slot has moved for the reply to a request.
        let mut subscriber = client.get_async_connection().await?;
        subscriber.ssubscribe(&channel).await?;
        let (exists, mut requests) = (cmd("EXISTS").arg(&channel).to_owned(), redis.clone());
        tokio::spawn(async move {
            while let Some(push) = pushes.recv().await {
                let mut ended = matches!(push.kind, PushKind::SUnsubscribe | PushKind::Disconnection);
                while ended {
                    // By EXISTS both clients learn where the slot is. Otherwise one may subscribe at a replica, and the
                    // other may stop for good when many requests are redirected at a time.
                    let asked = exists.exec_async(&mut requests).await.and(exists.exec_async(&mut subscriber).await);
                    ended = asked.is_err_and(|lost| lost.is_io_error()) || subscriber.ssubscribe(&name).await.is_err();
                    sleep(Duration::from_millis(50)).await;
                }
            }
        });
        Ok(Tickets { locks: Locks((), redis), channel, open })
    }
}

impl<C: ConnectionLike + Clone + Send + 'static> Tickets<C> {
    /// The fencing token, or `None` when it was not granted in time. To drop the future is to give up.
    pub async fn acquire(&self, key: &str, owner: &str, wait: u64, lease: u64) -> RedisResult<Option<u64>> {
        let (until, tag) = (Instant::now() + Duration::from_millis(wait), random());
        let (sender, mut messages) = unbounded_channel();
        self.open.lock().unwrap().insert(tag.clone(), sender); // before the request: a message may be quicker
        let number = std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as u64);
        let give_up = cmd("LOCK.RELEASE").arg((key, owner, "FINAL", number)).to_owned(); // what is served late, too
        let (open, filed, mut redis) = (self.open.clone(), tag.clone(), self.locks.1.clone());
        let (granted, is_granted) = oneshot::channel();
        let given_up = tokio::spawn(async move {
            let end = is_granted.await;
            open.lock().unwrap().remove(&filed);
            let Err(_) = end else { return Ok(()) }; // so it is given up, or the future was dropped
            give_up.exec_async(&mut redis).await
        });
        let end = loop {
            let left = until.saturating_duration_since(Instant::now());
            let (name, block) = (&self.channel, left.as_millis() as u64 + 1);
            let words = (key, owner, "ONCE", "PX", lease, "SEQ", number, "NOTIFY", name, &tag, "BLOCK", block);
            let (pause, is_lost) = match cmd("LOCK.ACQUIRE").arg(words).query_async(&mut self.locks.1.clone()).await {
                Ok(Value::Int(token)) => break Ok(Some(token as u64)),
                Err(lost) if lost.is_io_error() && !left.is_zero() => (Duration::from_millis(50), true),
                Err(error) if error.code() != Some("NOSUBSCRIBER") => break Err(error),
                _ => (left + Duration::from_secs(1), false), // without a subscriber the next subscription asks
            };
            let message = match timeout(pause, messages.recv()).await {
                Ok(message) => message.unwrap_or_default(),
                Err(_) if is_lost => continue, // ONCE makes that safe
                Err(_) => break Ok(None),
            };
            match *message.split(' ').collect::<Vec<_>>() {
                ["timeout", ..] => break Ok(None),
                ["failed", code, ..] => break Err(make_extension_error(code.into(), None)),
                ["granted", token, ..] => {
                    let token = token.parse().unwrap_or(0);
                    if self.locks.renew(key, owner, token, lease).await.unwrap_or(false) {
                        break Ok(Some(token));
                    }
                }
                _ => {} // ask again
            }
        };
        _ = end.as_ref().is_ok_and(Option::is_some).then_some(granted).map(|granted| granted.send(()));
        given_up.await.unwrap_or(Ok(())).and(end)
    }
}

fn hear(open: &Open, push: &PushInfo) -> RedisResult<()> {
    let (open, text) = (open.lock().unwrap(), push.data.get(1).and_then(|text| from_redis_value_ref(text).ok()));
    let text: String = text.unwrap_or_default();
    if matches!(push.kind, PushKind::Subscribe | PushKind::SSubscribe) {
        open.values().for_each(|wait| _ = wait.send("again".into())); // messages may have been lost
    } else if let Some(wait) = text.rsplit(' ').next().and_then(|tag| open.get(tag)) {
        _ = wait.send(text.clone());
    }
    Ok(())
}

fn random() -> String {
    format!("{:x}", RandomState::new().hash_one(()))
}
