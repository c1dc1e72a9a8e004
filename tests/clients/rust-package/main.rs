//! The agent of the Rust crate: the orders of driver/ticket_agent.rs.

#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use redis_lock_client::{Error, Guard, Lock, Mode, Released, Reply, Result, Semaphore, Server};
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The holds, by key, owner and token: a later order names these.
type Holds = Arc<Mutex<HashMap<String, Arc<Guard>>>>;

#[derive(Clone)]
struct Agent {
    server: Server,
    holds: Holds,
    log: Log,
}

/// A subscriber that blocks at a warning, while there is the id of an order that wants that.
#[derive(Clone, Default)]
struct Log(Arc<(Mutex<Option<String>>, Condvar)>);

impl Log {
    fn set(&self, blocks: Option<String>) {
        *self.0 .0.lock().unwrap() = blocks;
        self.0 .1.notify_all();
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, _: &Event<'_>) {
        let (blocking, changed) = &*self.0;
        let blocking = blocking.lock().unwrap();
        if let Some(id) = &*blocking {
            println!("{id} blocked");
            drop(changed.wait_while(blocking, |blocking| blocking.is_some()));
        }
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let scheme = ["redis", "redis+cluster"][usize::from(arguments.len() > 4)];
    let agent = Agent {
        server: Server::open(&format!("{scheme}://{}:{}", arguments[1], arguments[2])).unwrap(),
        holds: Holds::default(),
        log: Log::default(),
    };
    tracing::subscriber::set_global_default(agent.log.clone()).unwrap();
    let runtime = Runtime::new().unwrap();
    let mut running: HashMap<String, AbortHandle> = HashMap::new();
    println!("ready");
    for line in std::io::stdin()
        .lock()
        .lines()
        .map_while(std::io::Result::ok)
    {
        let words: Vec<String> = line.split(' ').map(str::to_string).collect();
        match words[1].as_str() {
            "cancel" => {
                running[&words[2]].abort();
                continue;
            }
            "block-log" => {
                agent.log.set(Some(words[0].clone()));
                println!("{} blocks", words[0]);
                continue;
            }
            _ => {}
        }
        let (id, agent) = (words[0].clone(), agent.clone());
        let working = runtime.spawn(async move { agent.answer(&words[1..]).await });
        running.insert(id.clone(), working.abort_handle());
        runtime.spawn(async move {
            let answer = match working.await {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => format!("error {} {error}", kind(&error)).replace('\n', " "),
                Err(cancelled) if cancelled.is_cancelled() => "cancelled".to_string(),
                Err(panicked) => format!("error other {panicked}"),
            };
            println!("{id} {answer}");
        });
    }
}

/// The word of the table of errors.
fn kind(error: &Error) -> &'static str {
    match error {
        Error::Lost(_) => "lost",
        Error::Unheard { .. } => "unheard",
        Error::Config { .. } => "usage",
        Error::NoSemaphore { .. } => "no-semaphore",
        _ => "other",
    }
}

impl Agent {
    async fn answer(&self, words: &[String]) -> Result<String> {
        let (order, words) = (words[0].as_str(), &words[1..]);
        if let "acquire" | "keep" | "permit" = order {
            return self.acquire(order, words).await;
        }
        match order {
            "odd" => return self.odd(&words[0]).await,
            "unblock" => {
                self.log.set(None);
                return Ok("unblocked".into());
            }
            _ => {}
        }
        let name = words[..3].join(" ");
        let Some(hold) = self.holds.lock().unwrap().get(&name).cloned() else {
            return Ok("0".into()); // the token of another grant
        };
        Ok(match order {
            "renew" => {
                drop(hold);
                self.renew(name, words).await?
            }
            "release" => {
                drop(hold);
                let hold = self.holds.lock().unwrap().remove(&name);
                let hold = hold.and_then(Arc::into_inner).unwrap();
                u8::from(hold.release().await? == Released::Yes).to_string()
            }
            "lost" => {
                hold.lost().await;
                "lost".into()
            }
            "state" if hold.valid_for().is_zero() => "lost".into(),
            "state" => "held".into(),
            "do" => format!("did {}", text(hold.execute(&words[3..]).await?)),
            other => format!("error other no order: {other}"),
        })
    }

    /// All holds of this crate are renewed.
    async fn acquire(&self, order: &str, words: &[String]) -> Result<String> {
        let (key, owner, wait, lease) = (&words[0], &words[1], ms(&words[2]), ms(&words[3]));
        let granted = match order {
            "permit" => {
                let permits = Semaphore::new(&self.server, key).lease(lease);
                let permit = permits.acquire_within(wait).await?;
                return Ok(permit.map_or("nil", |_| "token 0").into());
            }
            _ => self.lock(key, owner, lease).acquire_within(wait).await?,
        };
        let Some(guard) = granted else {
            return Ok("nil".into());
        };
        let token = guard.token();
        let name = format!("{key} {owner} {token}");
        self.holds.lock().unwrap().insert(name, Arc::new(guard));
        Ok(format!("token {token}"))
    }

    /// A renewal with a lease of the program: the hold is taken over with that lease.
    async fn renew(&self, name: String, words: &[String]) -> Result<String> {
        let (key, owner, token, lease) = (&words[0], &words[1], &words[2], ms(&words[3]));
        let lock = self.lock(key, owner, lease);
        let guard = match lock.resume(owner, token.parse().unwrap()).await {
            Err(Error::Lost(_)) => return Ok("0".into()),
            resumed => resumed?,
        };
        let former = self.holds.lock().unwrap().insert(name, Arc::new(guard));
        let left = former.and_then(Arc::into_inner).unwrap().leave(lease);
        Ok(u8::from(left.await? == Released::Yes).to_string())
    }

    async fn odd(&self, what: &str) -> Result<String> {
        let lock = Lock::new(&self.server, "odd");
        let permits = Semaphore::new(&self.server, "odd").limit(1);
        let reader = lock.clone().mode(Mode::Read);
        let long = "o".repeat(257);
        let huge = Duration::from_secs(200 * 365 * 86_400);
        let (lock, permits) = match what {
            "lease-zero" => (lock.lease(Duration::ZERO), None),
            "lease-short" => (lock.lease(Duration::from_micros(1_500)), None),
            "lease-huge" => (lock.lease(huge), None),
            "margin-large" => (lock.margin(Duration::from_secs(16)), None),
            "note-long" => (lock.note(&long), None),
            "note-read" => (reader.note("n"), None),
            "owner-empty" => (lock.owner(""), None),
            "owner-reserved" => (lock.owner("#o"), None),
            "owner-read" => (reader.owner("mode"), None),
            "permits-zero" => (lock, Some(permits.limit(0))),
            "permits-huge" => (lock, Some(permits.limit(1 << 31))),
            "permit-lease-zero" => (lock, Some(permits.lease(Duration::ZERO))),
            "permit-owner-empty" => (lock, Some(permits.owner(""))),
            _ => return Ok("none".into()),
        };
        let done = match permits {
            Some(permits) => permits.try_acquire().await?.is_some(),
            None => lock.try_acquire().await?.is_some(),
        };
        Ok(format!("done {done}"))
    }

    fn lock(&self, key: &str, owner: &str, lease: Duration) -> Lock {
        Lock::new(&self.server, key).owner(owner).lease(lease)
    }
}

fn text(reply: Reply) -> String {
    match reply {
        Reply::Integer(number) => number.to_string(),
        Reply::Bytes(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        other => format!("{other:?}"),
    }
}

fn ms(text: &str) -> Duration {
    Duration::from_millis(text.parse().unwrap())
}
