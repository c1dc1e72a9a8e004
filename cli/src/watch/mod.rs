//! `redis-lock watch`: the history of locks, followed live.

mod entry;
mod history;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::ffi::OsString;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::Signal;
use redis_lock_client::{Error, KeyEvent, KeyEvents, LockInfo, Server};
use tokio::sync::mpsc::{channel, Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use self::entry::Entry;
use self::history::{Heard, History, Look};
use crate::escape::json;
use crate::failure::{say, Failure, BY_SIGNAL, OS};
use crate::key::Hex;
use crate::output::{closed, print};
use crate::servers::Connect;
use crate::signals::Signals;
use crate::values::{bytes, seconds};

/// Lines that wait to be printed.
const MAX_LINES: usize = 256;
/// Events that are attributed to one look.
const MAX_HEARD: usize = 1_024;
/// Looks in a row while events keep coming.
const MAX_LOOKS: u32 = 5;
/// The shortest time between two looks without an event.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// Pauses between two attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Follow the history of locks
///
/// Prints a line for each event: grants and hand-offs, the ends of holds, and waiters that come and go. The server's
/// key events (notify-keyspace-events with K and d) say how a hold ended; without them the state is read at each change
/// of the key and at each interval, and an end is just an end. Changes nothing on the server. Ctrl-C ends it with 0.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The keys of the locks.
    #[arg(value_name = "KEY", required_unless_present = "key_hex")]
    keys: Vec<OsString>,

    /// A key in hexadecimal, beside or instead of KEY; may be repeated.
    #[arg(long, value_name = "HEX")]
    key_hex: Vec<Hex>,

    /// Also the renewals of leases.
    #[arg(long)]
    renewals: bool,

    /// The longest time from one look at the state to the next.
    #[arg(short, long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    /// How many waiters to follow by name, from the head of the queue.
    #[arg(long, value_name = "COUNT", default_value = "100",
          value_parser = clap::value_parser!(u64).range(1..1 << 31))]
    waiters: u64,

    /// A JSON object per line.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connect: Connect,
}

impl Args {
    fn keys(&self) -> Vec<Vec<u8>> {
        let named = self.keys.iter().map(|key| bytes(key).to_vec());
        let mut keys: Vec<Vec<u8>> = named.collect();
        keys.extend(self.key_hex.iter().map(|hex| hex.bytes().to_vec()));
        keys.sort();
        keys.dedup();
        keys
    }
}

/// A line and its key.
type Line = (Vec<u8>, Entry);

pub async fn run(args: Args) -> Result<i32, Failure> {
    let server = args.connect.open_one()?;
    let mut signals = Signals::listen().map_err(|error| Failure::new(OS, error))?;
    let keys = args.keys();
    let is_one = keys.len() == 1;
    let (sender, lines) = channel(MAX_LINES);
    let mut followed = JoinSet::new();
    for key in keys {
        let follower = Follower {
            server: server.clone(),
            history: History::new(args.renewals),
            interval: args.interval.max(SHORTEST_INTERVAL),
            waiters: args.waiters,
            lines: sender.clone(),
            key,
        };
        followed.spawn(follower.follow());
    }
    drop(sender);
    tokio::select! {
        // The lines before a failure are printed first.
        biased;
        signal = signals.next_fatal() => return Ok(status(signal)),
        ended = printed(lines, is_one, args.json) => ended?,
        failure = failed(&mut followed) => return Err(failure),
        () = closed() => return Ok(0),
    }
    // The lines end with the followers.
    Err(failed(&mut followed).await)
}

/// The status after a signal: Ctrl-C is the way to end this.
pub fn status(signal: Signal) -> i32 {
    match signal {
        Signal::SIGINT => 0,
        other => BY_SIGNAL + other as i32,
    }
}

async fn printed(mut lines: Receiver<Line>, is_one: bool, is_json: bool) -> Result<(), Failure> {
    let mut notes = HashSet::new();
    while let Some((key, entry)) = lines.recv().await {
        // Once, however many locks are followed and connections made.
        if let Some(note) = entry.note.as_ref().filter(|_| !is_json) {
            if notes.insert(note.clone()) {
                say(&format!("redis-lock: {note}"));
            }
        }
        let line = match is_json {
            true => json(&entry.json(&key)),
            false => entry.text((!is_one).then_some(key.as_slice())),
        };
        print([line].into_iter())?;
    }
    Ok(())
}

/// The failure of the first of them that fails.
async fn failed(followed: &mut JoinSet<Failure>) -> Failure {
    match followed.join_next().await {
        Some(Ok(failure)) => failure,
        Some(Err(error)) => Failure::new(OS, error),
        None => std::future::pending().await,
    }
}

/// Follows one lock.
struct Follower {
    server: Server,
    key: Vec<u8>,
    history: History,
    interval: Duration,
    waiters: u64,
    lines: Sender<Line>,
}

impl Follower {
    /// Returns when the server refuses, and when it cannot be reached in the beginning.
    async fn follow(mut self) -> Failure {
        let mut pause = FIRST_PAUSE;
        let mut is_connected = false;
        loop {
            let error = match self.server.key_events(&self.key).await {
                Ok(events) => self.listen(events, &mut is_connected).await,
                Err(error) => error,
            };
            if !self.history.is_begun() || !error.is_passing() {
                return Failure::of(&error, Some(&self.key));
            }
            if std::mem::take(&mut is_connected) {
                pause = FIRST_PAUSE;
                let mut line = Entry::new("disconnected");
                line.cause = Some(error.to_string());
                self.print(vec![line]).await;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Follows the lock over one connection, until that fails.
    async fn listen(&mut self, mut events: KeyEvents, is_connected: &mut bool) -> Error {
        let mut heard: Vec<Heard> = Vec::new();
        let mut after_gap = self.history.is_begun();
        let mut looks = 0;
        loop {
            looks += 1;
            let seen = match events.info(self.waiters).await {
                Ok(seen) => seen.unwrap_or_default(),
                // The key is overwritten with other data: that is the end of the lock, and another may follow.
                Err(Error::Refused { code, .. })
                    if self.history.is_begun() && is_other_data(&code) =>
                {
                    LockInfo::default()
                }
                Err(error) => return error,
            };
            if !*is_connected {
                *is_connected = true;
                self.connected(&events).await;
            }
            // The state is that after these events only if no other grant or end has come with it.
            let mut later = arrived(&mut events);
            let first = later.iter().position(|(_, event)| is_of_module(event));
            if first.is_some() && looks < MAX_LOOKS {
                heard.extend(later);
                continue;
            }
            heard.extend(later.drain(..first.unwrap_or(later.len())));
            looks = 0;
            let look = Look {
                heard: &heard,
                seen,
                is_settled: first.is_none(),
                now: Instant::now(),
                after_gap: std::mem::take(&mut after_gap),
            };
            let lines = self.history.step(look);
            self.print(lines).await;
            heard = later;
            if !heard.is_empty() {
                continue;
            }
            let next = Instant::now() + self.interval;
            let next = self.history.due().map_or(next, |due| due.min(next));
            tokio::select! {
                event = events.next() => match event {
                    Ok(event) => heard.push((SystemTime::now(), event)),
                    Err(error) => return error,
                },
                () = sleep_until(next.into()) => {}
            }
            heard.extend(arrived(&mut events));
        }
    }

    /// Says to which server, and what cannot be seen there.
    async fn connected(&mut self, events: &KeyEvents) {
        let unseen = Unseen::of(events);
        self.history.expects_events = unseen == Unseen::Nothing || unseen == Unseen::Causes;
        let mut line = Entry::new("connected");
        line.server = Some(events.node().to_string());
        line.unseen = Some(unseen.names());
        line.note = unseen.note(events);
        self.print(vec![line]).await;
    }

    async fn print(&self, lines: Vec<Entry>) {
        for line in lines {
            // The receiver is dropped when the program ends.
            let _ = self.lines.send((self.key.clone(), line)).await;
        }
    }
}

/// The events that have arrived.
fn arrived(events: &mut KeyEvents) -> Vec<Heard> {
    let next = std::iter::from_fn(|| events.arrived());
    next.take(MAX_HEARD)
        .map(|event| (SystemTime::now(), event))
        .collect()
}

fn is_of_module(event: &KeyEvent) -> bool {
    matches!(event, KeyEvent::Named(name) if name.starts_with("lock."))
}

fn is_other_data(code: &str) -> bool {
    matches!(code, "WRONGTYPE" | "LOCKTYPE")
}

/// What cannot be seen with the settings of the server and the permissions of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unseen {
    Nothing,
    Causes,
    Ends,
}

impl Unseen {
    fn of(events: &KeyEvents) -> Unseen {
        let setting = events.setting().unwrap_or_default();
        let has = |class: &[char]| setting.contains(class) && events.has_key_events();
        // A stands for all classes.
        if !has(&['K', 'E']) || !has(&['d', 'A']) {
            return Unseen::Ends;
        }
        let has_all = ['g', 'x', 'e'].iter().all(|class| has(&[*class, 'A']));
        match has(&['K']) && has_all {
            true => Unseen::Nothing,
            false => Unseen::Causes,
        }
    }

    /// As the field `unseen` has it.
    fn names(self) -> Vec<&'static str> {
        match self {
            Unseen::Nothing => vec![],
            Unseen::Causes => vec!["cause"],
            Unseen::Ends => vec!["release", "break", "expire", "lost", "cause"],
        }
    }

    /// The same for a reader, with what to change.
    fn note(self, events: &KeyEvents) -> Option<String> {
        let why = match (events.has_key_events(), events.setting()) {
            (false, _) => {
                "key events cannot be subscribed to here (no permission, or no RESP3)".into()
            }
            (true, None) => "notify-keyspace-events cannot be read (CONFIG GET)".into(),
            (true, Some(setting)) => format!("notify-keyspace-events is \"{setting}\""),
        };
        match self {
            Unseen::Nothing => None,
            Unseen::Causes => Some(format!(
                "{why}: without K, g, x and e in it the causes of losses are not seen"
            )),
            Unseen::Ends => Some(format!(
                "{why}: without K and d in it release, break, expire and lost are not told apart and listed \
                 as end, and a hold between two looks is not seen"
            )),
        }
    }
}
