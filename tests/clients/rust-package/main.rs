//! The agent of the Rust crate: the orders of driver/ticket_agent.rs.

#![forbid(unsafe_code)]
#![allow(missing_docs, clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::io::BufRead;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use redis_lock_client::testing::Double;
use redis_lock_client::{
    Error, Guard, Lock, LockName, LockObserver, Lost, LostReason, Mode, MultiGuard, MultiLock,
    Permit, Released, Reply, Result, Semaphore, Server,
};
use tokio::runtime::Runtime;
use tokio::task::AbortHandle;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The holds, by key, owner and token: a later order names these.
type Holds = Arc<Mutex<HashMap<String, Arc<Hold>>>>;

#[derive(Clone)]
struct Agent {
    server: Server,
    double: Double,
    holds: Holds,
    log: Log,
    told: Told,
}

/// A guard of each kind.
enum Hold {
    Lock(Guard),
    Multi(MultiGuard),
    Permit(Permit),
}

impl Hold {
    fn token(&self) -> u64 {
        match self {
            Hold::Lock(guard) => guard.token(),
            Hold::Multi(guard) => guard.tokens()[0],
            Hold::Permit(permit) => permit.token(),
        }
    }

    fn lost(&self) -> Lost {
        match self {
            Hold::Lock(guard) => guard.lost(),
            Hold::Multi(guard) => guard.lost(),
            Hold::Permit(permit) => permit.lost(),
        }
    }

    fn valid_for(&self) -> Duration {
        match self {
            Hold::Lock(guard) => guard.valid_for(),
            Hold::Multi(guard) => guard.valid_for(),
            Hold::Permit(permit) => permit.valid_for(),
        }
    }

    async fn release(self) -> Result<Released> {
        match self {
            Hold::Lock(guard) => guard.release().await,
            Hold::Multi(guard) => guard.release().await,
            Hold::Permit(permit) => permit.release().await,
        }
    }

    async fn leave(self, rest: Duration) -> Result<Released> {
        match self {
            Hold::Lock(guard) => guard.leave(rest).await,
            Hold::Permit(permit) => permit.leave(rest).await,
            Hold::Multi(guard) => {
                let left = guard.leave_each(rest).await.into_iter();
                let left = left.collect::<Result<Vec<_>>>()?;
                let is_lost = left.contains(&Released::NotHeld);
                Ok([Released::Yes, Released::NotHeld][usize::from(is_lost)])
            }
        }
    }
}

/// What an observer was told, by the key.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<HashMap<Vec<u8>, String>>>);

impl Told {
    fn add(&self, lock: &LockName, word: &str) {
        let mut told = self.0.lock().unwrap();
        let told = told.entry(lock.key.clone()).or_default();
        *told += &format!(" {word}");
    }
}

impl LockObserver for Told {
    fn asked(&self, lock: &LockName) {
        self.add(lock, "asked");
    }

    fn answered(&self, lock: &LockName, granted: bool, _: Duration, error: Option<&Error>) {
        let refused = if error.is_some() { "failed" } else { "refused" };
        self.add(lock, if granted { "granted" } else { refused });
    }

    fn released(&self, lock: &LockName, _: Duration) {
        self.add(lock, "released");
    }

    fn lost(&self, lock: &LockName, _: &LostReason) {
        self.add(lock, "lost");
    }

    fn late(&self, lock: &LockName, _: Duration) {
        self.add(lock, "late");
    }
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
    let (double, told) = (Double::new(), Told::default());
    let builder = match arguments[3].as_str() {
        "double" => double.builder(),
        _ => Server::builder(&format!("{scheme}://{}:{}", arguments[1], arguments[2])),
    };
    let agent = Agent {
        server: builder.observer(told.clone()).build().unwrap(),
        double,
        holds: Holds::default(),
        log: Log::default(),
        told,
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
        Error::QueueFull { .. } => "queue-full",
        Error::NotReplicated { .. } => "not-replicated",
        _ => "other",
    }
}

impl Agent {
    async fn answer(&self, words: &[String]) -> Result<String> {
        let (order, words) = (words[0].as_str(), &words[1..]);
        match order {
            "acquire" | "keep" | "permit" => return self.acquire(order, words).await,
            "resume" => return self.resume(words).await,
            "info" => return self.info(&words[0]).await,
            "info-permits" => return self.permits(&words[0]).await,
            "events" => {
                let told = self.told.0.lock().unwrap();
                let told = told.get(words[0].as_bytes()).cloned();
                return Ok(format!("events{}", told.unwrap_or_default()));
            }
            "advance" => {
                self.double.advance(ms(&words[0]));
                return Ok("advanced".into());
            }
            "break" => {
                self.double.lose(&words[0]);
                return Ok("broken".into());
            }
            "has-replicas" => {
                self.double.replicas(words[0].parse().unwrap());
                return Ok("has".into());
            }
            "odd" => return self.odd(&words[0]).await,
            "unblock" => {
                self.log.set(None);
                return Ok("unblocked".into());
            }
            _ => {}
        }
        let name = words[..3].join(" ");
        let Some(hold) = self.holds.lock().unwrap().get(&name).cloned() else {
            // The token of another grant.
            return Ok(if order == "state" { "lost" } else { "0" }.into());
        };
        Ok(match order {
            "renew" => {
                let is_permit = matches!(*hold, Hold::Permit(_));
                drop(hold);
                let permits = is_permit.then(|| "permits=yes".to_string());
                let words: Vec<_> = words.iter().cloned().chain(permits).collect();
                match self.resume(&words).await {
                    Err(Error::Lost(_)) => "0".into(),
                    resumed => resumed.map(|_| "1".to_string())?,
                }
            }
            "release" | "leave" => {
                drop(hold);
                let hold = self.holds.lock().unwrap().remove(&name);
                let hold = hold.and_then(Arc::into_inner).unwrap();
                let ended = match order {
                    "leave" => hold.leave(ms(&words[3])).await?,
                    _ => hold.release().await?,
                };
                u8::from(ended == Released::Yes).to_string()
            }
            "lost" => {
                hold.lost().await;
                "lost".into()
            }
            "state" if hold.valid_for().is_zero() => "lost".into(),
            "state" => "held".into(),
            "do" => {
                let guard = match &*hold {
                    Hold::Lock(guard) => guard,
                    _ => return Ok("error other no command under it".into()),
                };
                format!("did {}", text(guard.execute(&words[3..]).await?))
            }
            other => format!("error other no order: {other}"),
        })
    }

    /// All holds of this crate are renewed.
    async fn acquire(&self, order: &str, words: &[String]) -> Result<String> {
        let [key, owner, wait, lease, options @ ..] = words else {
            return Ok("error other too few words".into());
        };
        let wait = ms(wait);
        let hold = if order == "permit" {
            let permits = self.semaphore(key, owner, lease, options);
            permits.acquire_within(wait).await?.map(Hold::Permit)
        } else if key.contains(',') {
            let each = key.split(',');
            let locks = each.map(|key| self.lock(key, owner, lease, options));
            let granted = MultiLock::new(locks)?.acquire_within(wait).await?;
            granted.map(Hold::Multi)
        } else {
            let lock = self.lock(key, owner, lease, options);
            lock.acquire_within(wait).await?.map(Hold::Lock)
        };
        Ok(match hold {
            Some(hold) => self.held(key, owner, hold).0,
            None => "nil".into(),
        })
    }

    /// The answer about this hold, and the former one of the name.
    fn held(&self, key: &str, owner: &str, hold: Hold) -> (String, Option<Hold>) {
        let token = hold.token();
        let name = format!("{key} {owner} {token}");
        let former = self.holds.lock().unwrap().insert(name, Arc::new(hold));
        (format!("token {token}"), former.and_then(Arc::into_inner))
    }

    /// A new guard goes on with the hold, also for a lease of the program. The former one must not release it.
    async fn resume(&self, words: &[String]) -> Result<String> {
        let [key, owner, token, lease, options @ ..] = words else {
            return Ok("error other too few words".into());
        };
        let token = token.parse().unwrap();
        let hold = if options.iter().any(|option| option == "permits=yes") {
            let permits = self.semaphore(key, owner, lease, options);
            Hold::Permit(permits.resume(owner, token).await?)
        } else {
            let lock = self.lock(key, owner, lease, options);
            Hold::Lock(lock.resume(owner, token).await?)
        };
        let (answer, former) = self.held(key, owner, hold);
        if let Some(former) = former {
            let _ = former.leave(ms(lease)).await?;
        }
        Ok(answer)
    }

    async fn info(&self, key: &str) -> Result<String> {
        let info = Lock::new(&self.server, key).info().await?;
        let Some(mode) = info.mode else {
            return Ok("info nil".into());
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let holders = info.holders.iter().map(|holder| {
            let (owner, token) = (text(&holder.owner), holder.token.unwrap_or(0));
            let note = text(holder.note.as_deref().unwrap_or_default());
            format!(" {owner}/{token}/{note}")
        });
        let holders: String = holders.collect();
        Ok(format!("info {mode} {}{holders}", info.waiters))
    }

    async fn permits(&self, key: &str) -> Result<String> {
        let info = Semaphore::new(&self.server, key).info().await?;
        Ok(info.map_or("info nil".into(), |it| {
            format!("info {} {} {} {}", it.permits, it.free, it.held, it.waiters)
        }))
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

    fn lock(&self, key: &str, owner: &str, lease: &str, options: &[String]) -> Lock {
        let lock = Lock::new(&self.server, key).owner(owner).lease(ms(lease));
        let options = options.iter().filter_map(|option| option.split_once('='));
        options.fold(lock, |lock, (name, value)| match name {
            "mode" if value == "read" => lock.mode(Mode::Read),
            "mode" if value == "write" => lock.mode(Mode::Write),
            "queue" => lock.queue(value.parse().unwrap()),
            "replicas" => lock.replicas(value.parse().unwrap()),
            "within" => lock.replicas_within(ms(value)),
            "note" => lock.note(value),
            _ => lock,
        })
    }

    fn semaphore(&self, key: &str, owner: &str, lease: &str, options: &[String]) -> Semaphore {
        let permits = Semaphore::new(&self.server, key)
            .owner(owner)
            .lease(ms(lease));
        let options = options.iter().filter_map(|option| option.split_once('='));
        options.fold(permits, |permits, (name, value)| match name {
            "queue" => permits.queue(value.parse().unwrap()),
            "replicas" => permits.replicas(value.parse().unwrap()),
            "within" => permits.replicas_within(ms(value)),
            "limit" => permits.limit(value.parse().unwrap()),
            "count" => permits.count(value.parse().unwrap()),
            _ => permits,
        })
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
