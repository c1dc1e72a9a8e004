//! Several independent servers that a test may kill, stop, and bring back.

use std::collections::HashSet;
use std::future::{Future, IntoFuture};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis_lock_client::Server;
use redis_lock_harness::{patience, wait_for, TestServer, Tries};
use tokio::runtime::Handle;

/// How much longer than its bound a wait may last.
pub const OVERTIME: Duration = Duration::from_millis(300);
/// How often a test asks servers that may be too busy to answer in time.
pub const MAX_TRIES: usize = 20;
const SIGSTOP: i32 = 19;
const SIGCONT: i32 = 18;

/// A server that has long for a reply, also for that to a `try_acquire`.
pub fn patient(port: u16) -> Server {
    with_timeout(port, Duration::from_secs(100))
}

pub fn with_timeout(port: u16, timeout: Duration) -> Server {
    let server = Server::builder(&format!("redis://127.0.0.1:{port}"));
    let server = server.response_timeout(timeout);
    // Servers that are used together have neighbouring ports: of some the runtime of the test carries the requests.
    let server = match Handle::try_current() {
        Ok(runtime) if port % 2 == 1 => server.runtime(runtime),
        _ => server,
    };
    server.build().expect("a URL")
}

/// Servers that know nothing of each other.
pub struct Fleet {
    pub servers: Vec<TestServer>,
    dead: HashSet<usize>,
    stopped: HashSet<usize>,
}

impl Fleet {
    /// Three servers that grant at once, with this startup delay after a restart.
    pub fn of_three(startup_delay: Duration) -> Fleet {
        let delay = startup_delay.as_millis().to_string();
        let servers: Vec<_> = (0..3)
            .map(|_| TestServer::with(&["--lock.startup-delay", &delay]))
            .collect();
        let fleet = Fleet {
            servers,
            dead: HashSet::new(),
            stopped: HashSet::new(),
        };
        (0..3).for_each(|place| fleet.set_startup_delay(place, startup_delay));
        fleet
    }

    /// Ends a delay that is under way, and sets the next.
    pub fn set_startup_delay(&self, place: usize, delay: Duration) {
        let mut conn = self.servers[place].conn();
        conn.line("CONFIG SET lock.startup-delay 0");
        let set = format!("CONFIG SET lock.startup-delay {}", delay.as_millis());
        assert_eq!(conn.line(&set).text(), "OK");
    }

    /// As a patient client names them, by place.
    pub fn clients(&self) -> Vec<Server> {
        self.servers.iter().map(|real| patient(real.port)).collect()
    }

    /// As a client names them that gives silent servers up after a moment.
    pub fn hasty(&self) -> Vec<Server> {
        self.clients_with(Duration::from_secs(2))
    }

    /// With this response timeout.
    pub fn clients_with(&self, timeout: Duration) -> Vec<Server> {
        let each = self.servers.iter();
        each.map(|real| with_timeout(real.port, timeout)).collect()
    }

    pub fn is_free(&self, place: usize, key: &str) -> bool {
        let info = self.servers[place].conn().run(["LOCK.INFO", key]);
        info.field("holders")
            .is_none_or(|list| list.list().is_empty())
    }

    pub fn wait_until_free(&self, key: &str) {
        for place in 0..self.servers.len() {
            if !self.dead.contains(&place) {
                wait_for(&format!("{key} is free on server {place}"), || {
                    self.is_free(place, key)
                });
            }
        }
    }

    /// The place of the n-th server in the order of names, which is that of the line.
    pub fn in_line(&self, n: usize) -> usize {
        let mut places: Vec<usize> = (0..self.servers.len()).collect();
        let names = self.clients();
        places.sort_by_key(|place| names[*place].name().to_string());
        places[n]
    }

    /// kill -9.
    pub fn kill(&mut self, place: usize) {
        self.servers[place].crash();
        self.dead.insert(place);
    }

    /// Starts it again, without what it knew.
    pub fn revive(&mut self, place: usize) {
        self.servers[place].start_again();
        self.dead.remove(&place);
    }

    /// Silent, with its connections open.
    pub fn stop(&mut self, place: usize) {
        self.servers[place].signal(SIGSTOP);
        self.stopped.insert(place);
    }

    pub fn go_on(&mut self, place: usize) {
        self.servers[place].signal(SIGCONT);
        self.stopped.remove(&place);
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for place in self.stopped.clone() {
            self.go_on(place);
        }
        if !std::thread::panicking() {
            for place in self.dead.clone() {
                self.revive(place);
            }
        }
    }
}

/// A number that is read, and written a moment later: without the lock, updates are lost.
#[derive(Clone, Default)]
pub struct Counter(Arc<AtomicU64>);

impl Counter {
    pub async fn add_one(&self) {
        let seen = self.0.load(Ordering::SeqCst);
        tokio::task::yield_now().await;
        // sleep: the work of a holder
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.0.store(seen + 1, Ordering::SeqCst);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Ten contenders, each with another order of the servers: `work` counts to ten under the lock and returns how long
/// each grant took.
pub async fn ten_count<F>(what: &str, fleet: &Fleet, work: impl Fn(Vec<Server>, Counter) -> F)
where
    F: Future<Output = Vec<Duration>> + Send + 'static,
{
    let counter = Counter::default();
    let tasks: Vec<_> = (0..10)
        .map(|n| {
            let mut servers = fleet.clients();
            servers.rotate_left(n % 3);
            tokio::spawn(work(servers, counter.clone()))
        })
        .collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await.unwrap());
    }
    assert_eq!(counter.value(), 100);
    measured(
        &format!("{what}, ten contenders on three servers, wait"),
        waits,
    );
}

/// For the figures of docs/REDLOCK.md: shown with `--nocapture`.
pub fn measured(what: &str, mut spans: Vec<Duration>) {
    spans.sort();
    let (middle, last) = (spans[spans.len() / 2], spans[spans.len() - 1]);
    println!(
        "measured: {what}: median {middle:?}, longest {last:?}, of {}",
        spans.len()
    );
}

/// Waits for an event that must come.
pub async fn soon<T>(work: impl IntoFuture<Output = T>) -> T {
    let waited = tokio::time::timeout(patience(), work.into_future()).await;
    waited.expect("it comes in time")
}

/// Repeats a scenario a few times, until it ends less than `over` too late.
pub async fn in_time<F>(over: Duration, play: impl Fn() -> F)
where
    F: Future<Output = Duration>,
{
    let mut tries = Tries::of(&[()]);
    while tries.next_case().is_some() {
        tries.took((), play().await, Duration::ZERO, over);
    }
}

/// How long this takes.
pub async fn timed<T>(work: impl std::future::Future<Output = T>) -> (T, Duration) {
    let begin = Instant::now();
    (work.await, begin.elapsed())
}
