//! The process of the contenders in Rust of `make bench-clients`: tasks of one current_thread runtime. It obeys the
//! orders of python/load.py, line by line.

mod ways;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{stdin, AsyncBufReadExt, BufReader};
use tokio::task::{yield_now, JoinHandle};
use tokio::time::{sleep, timeout};

use ways::{Acquire, Client, Failure};

const LOCK: &str = "lock:clients";
/// Ends a contender that is never told to stop.
const MOST_PAIRS: u64 = 1_000_000;
/// In one of so many pairs other contenders get the chance to come between.
const LETS_OTHERS_RUN: u64 = 50;
const STOPS_WITHIN: Duration = Duration::from_secs(60);

/// What the lock guards: a count and the last fencing token, in a file that the bench reads as well. A lost update is a
/// lock that two had at a time.
struct Guarded(File);

impl Guarded {
    /// The count. Fails when a new holder's token is not above that of the one before.
    fn enter(&self, token: u64) -> Result<u64, Failure> {
        let mut words = [0; 16];
        self.0.read_exact_at(&mut words, 0)?;
        let words = u128::from_ne_bytes(words);
        let (count, last) = (words as u64, (words >> 64) as u64);
        if token > 0 {
            if token <= last {
                return Err(format!("token {token} after {last}").into());
            }
            self.0.write_all_at(&token.to_ne_bytes(), 8)?;
        }
        Ok(count)
    }

    fn leave(&self, count: u64) -> Result<(), Failure> {
        Ok(self.0.write_all_at(&(count + 1).to_ne_bytes(), 0)?)
    }
}

/// Contenders of one way on one lock, spread over client objects.
struct Cell {
    contenders: Vec<Arc<Contender>>,
    shared: Arc<Shared>,
    running: Vec<JoinHandle<()>>,
    open: Vec<u64>,
    /// Their connections end with them.
    _clients: Vec<Client>,
}

/// What the contenders of a cell share.
struct Shared {
    guarded: Guarded,
    pause: Duration,
    began: Instant,
    measuring: AtomicBool,
    stopped: AtomicBool,
    failure: Mutex<Option<String>>,
}

/// A task that takes the lock and gives it back at once, again and again.
struct Contender {
    acquire: Acquire,
    pairs: AtomicU64,
    /// When the open wait began, in nanoseconds; 0 without one.
    asked: AtomicU64,
    /// Nanoseconds of the waits that ended in the measured time.
    waits: Mutex<Vec<u64>>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }
}

impl Contender {
    async fn run(&self, shared: &Shared) {
        while !shared.stopped.load(Relaxed) && self.pairs.load(Relaxed) < MOST_PAIRS {
            if let Err(error) = self.pair(shared).await {
                locked(&shared.failure).get_or_insert(error.to_string());
                shared.stopped.store(true, Relaxed);
            }
        }
    }

    async fn pair(&self, shared: &Shared) -> Result<(), Failure> {
        let asked = shared.now();
        self.asked.store(asked, Relaxed);
        let held = (self.acquire)().await?;
        if shared.measuring.load(Relaxed) {
            locked(&self.waits).push(shared.now() - asked);
        }
        self.asked.store(0, Relaxed);
        let count = shared.guarded.enter(held.token())?;
        if self.pairs.load(Relaxed) % LETS_OTHERS_RUN == 0 {
            yield_now().await;
        }
        shared.guarded.leave(count)?;
        self.pairs.fetch_add(1, Relaxed);
        held.release().await?;
        if !shared.pause.is_zero() {
            sleep(shared.pause).await;
        }
        Ok(())
    }
}

impl Cell {
    /// The words of the order: way, port, contenders, clients, milliseconds of the pause, path of the file.
    async fn new(words: &[&str]) -> Result<Cell, Failure> {
        let [way, port, contenders, clients, pause, path] = words else {
            return Err("usage: cell WAY PORT CONTENDERS CLIENTS PAUSE FILE".into());
        };
        let clients = (0..clients.parse()?).map(|_| Client::new(way, port.parse()?));
        let clients = clients.collect::<Result<Vec<_>, Failure>>()?;
        for client in &clients {
            // Its connection is opened by a pair on another lock.
            let held = client.lock(&format!("{LOCK}:connect"))().await?;
            held.release().await?;
        }
        let file = File::options().read(true).write(true).open(path)?;
        let shared = Arc::new(Shared {
            guarded: Guarded(file),
            pause: Duration::from_millis(pause.parse()?),
            began: Instant::now(),
            measuring: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            failure: Mutex::new(None),
        });
        let locks = clients.iter().cycle().take(contenders.parse()?);
        let contenders = locks.map(|client| {
            Arc::new(Contender {
                acquire: client.lock(LOCK),
                pairs: AtomicU64::new(0),
                asked: AtomicU64::new(0),
                waits: Mutex::new(Vec::new()),
            })
        });
        Ok(Cell {
            contenders: contenders.collect(),
            shared,
            running: Vec::new(),
            open: Vec::new(),
            _clients: clients,
        })
    }

    fn start(&mut self) {
        for each in &self.contenders {
            let (each, shared) = (each.clone(), self.shared.clone());
            let task = tokio::spawn(async move { each.run(&shared).await });
            self.running.push(task);
        }
    }

    /// Ends the measured time. The waits that are still open count with their age.
    fn end_measured(&mut self) {
        self.shared.measuring.store(false, Relaxed);
        let moment = self.shared.now();
        let asked = self.contenders.iter().map(|each| each.asked.load(Relaxed));
        self.open = asked
            .filter(|asked| *asked > 0)
            .map(|asked| moment - asked)
            .collect();
    }

    /// Ends the contenders. One that waits is granted the lock once more.
    async fn figures(self) -> Result<String, Failure> {
        self.shared.stopped.store(true, Relaxed);
        for task in self.running {
            timeout(STOPS_WITHIN, task)
                .await
                .map_err(|_| "the contenders do not end")??;
        }
        let of_each = |each: &Arc<Contender>| locked(&each.waits).clone();
        let waits: Vec<Vec<u64>> = self.contenders.iter().map(of_each).collect();
        let pairs: u64 = self
            .contenders
            .iter()
            .map(|each| each.pairs.load(Relaxed))
            .sum();
        let grants: Vec<usize> = waits.iter().map(Vec::len).collect();
        let failure = locked(&self.shared.failure).take();
        let figures = json!({
            "waits": waits.concat(), "grants": grants, "open": self.open, "pairs": pairs, "failure": failure,
        });
        Ok(figures.to_string())
    }
}

/// The versions that Cargo.lock pins, of the crates of locks and of their client.
fn versions() -> String {
    let mut lines = include_str!("../Cargo.lock").lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        for name in ["redis", "rslock", "tokio"] {
            if line == format!("name = \"{name}\"") {
                let version = lines.next().unwrap_or_default();
                found.push(format!(
                    "{name} {}",
                    version.trim_start_matches("version = ").trim_matches('"')
                ));
            }
        }
    }
    found.join(", ")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let mut orders = BufReader::new(stdin()).lines();
    let mut present: Option<Cell> = None;
    while let Some(line) = orders.next_line().await? {
        let words: Vec<_> = line.split_whitespace().collect();
        let Some((order, words)) = words.split_first() else {
            continue;
        };
        let mut answer = "done".to_owned();
        match (*order, &mut present) {
            ("versions", _) => answer = versions(),
            ("cell", _) => {
                answer = match Cell::new(words).await {
                    Ok(cell) => {
                        present = Some(cell);
                        "ready".to_owned()
                    }
                    Err(error) => error.to_string(),
                }
            }
            ("start", Some(cell)) => cell.start(),
            ("measure", Some(cell)) => cell.shared.measuring.store(true, Relaxed),
            ("pause", Some(cell)) => cell.end_measured(),
            ("stop", _) => {
                if let Some(cell) = present.take() {
                    answer = cell.figures().await?;
                }
            }
            _ => {}
        }
        println!("{answer}");
    }
    Ok(())
}
