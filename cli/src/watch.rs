//! `redis-lock watch`: the history of locks, followed live.

use std::collections::HashSet;
use std::ffi::OsString;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use redis_lock_client::{Error, KeyEvent, KeyEvents, LockInfo, Mode, Server};
use serde_json::{json, Map, Value};
use tokio::sync::mpsc::{channel, Receiver, Sender};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::escape::{self, shown, word};
use crate::failure::{say, Failure, BY_SIGNAL, OS};
use crate::info;
use crate::key::Hex;
use crate::output::{closed, print};
use crate::report::{self, span};
use crate::servers::Connect;
use crate::signals::Signals;
use crate::values::{bytes, seconds};

/// Lines that wait to be printed.
const MAX_LINES: usize = 256;
/// Waiters that a line of text names.
const MAX_NAMED: usize = 3;
/// Looks in a row while events keep coming.
const MAX_LOOKS: u32 = 5;
/// The shortest time between two looks without an event.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);
/// Pauses between two attempts to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Follow the history of locks
///
/// Prints a line for each change of a lock: the events that the server announced (lock.acquire, lock.release,
/// lock.break, lock.expire, lock.lost, lock.wait, and what else happened to the key) and the state after them. For the
/// events, notify-keyspace-events must have K and A. Without them the state is read at each change of the key and at
/// each interval. Changes nothing on the server. Ctrl-C ends it with 0.
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

/// What is printed of a key: its events, and beside them as text and as fields of JSON what is known after them.
struct Line {
    key: Vec<u8>,
    events: Vec<String>,
    text: String,
    fields: Map<String, Value>,
}

impl Line {
    fn text(&self, with_key: bool) -> String {
        let time = report::utc(SystemTime::now());
        let key = if with_key {
            word(&self.key) + "  "
        } else {
            String::new()
        };
        let events = shown(counted(&self.events).as_bytes());
        format!("{time}  {key}{events:<12}  {}", self.text)
    }

    fn json(self) -> Value {
        let mut object = self.fields;
        report::put(&mut object, "key", &self.key);
        object.insert("time".into(), json!(report::utc(SystemTime::now())));
        object.insert("events".into(), json!(self.events));
        object.into()
    }
}

/// The holders and the first waiters.
fn state(info: &LockInfo) -> String {
    let mut text = match info.holders.as_slice() {
        [] => "free".into(),
        [one] => info::holder(one),
        [first, others @ ..] => format!("{}, and {} more", info::holder(first), others.len()),
    };
    if info.mode != Mode::Exclusive {
        text = format!("{}: {text}", info.mode);
    }
    if info.waiters > 0 {
        let name = |waiter: &redis_lock_client::Waiter| {
            format!("{} {}", word(&waiter.owner), span(Some(waiter.waited)))
        };
        let named: Vec<String> = info.queue.iter().take(MAX_NAMED).map(name).collect();
        text += &format!("; {} waiting: {}", info.waiters, named.join(", "));
    }
    text
}

/// The events in their order, those that are repeated with their number: while a lock changes hands quickly, one state
/// comes after many.
fn counted(events: &[String]) -> String {
    let mut counts: Vec<(&String, usize)> = Vec::new();
    for event in events {
        match counts.iter_mut().find(|(name, _)| *name == event) {
            Some((_, count)) => *count += 1,
            None => counts.push((event, 1)),
        }
    }
    let word = |(name, count): (&String, usize)| match count {
        1 => name.clone(),
        count => format!("{name}*{count}"),
    };
    counts.into_iter().map(word).collect::<Vec<_>>().join(" ")
}

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
            known: None,
            renewals: args.renewals,
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
    while let Some(line) = lines.recv().await {
        if is_json {
            print([escape::json(&line.json())].into_iter())?;
            continue;
        }
        // Once, however many locks are followed and connections made.
        if let Some(note) = line.fields.get("note").and_then(Value::as_str) {
            if notes.insert(note.to_string()) {
                say(&format!("redis-lock: {note}"));
            }
        }
        print([line.text(!is_one)].into_iter())?;
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
    /// The state that was read last.
    known: Option<LockInfo>,
    renewals: bool,
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
            if self.known.is_none() || !error.is_passing() {
                return Failure::of(&error, Some(&self.key));
            }
            if std::mem::take(&mut is_connected) {
                pause = FIRST_PAUSE;
                let cause = error.to_string();
                let fields = json!({ "cause": cause });
                let text = shown(cause.as_bytes());
                self.print(vec!["disconnected".into()], text, fields).await;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Follows the lock over one connection, until that fails.
    async fn listen(&mut self, mut events: KeyEvents, is_connected: &mut bool) -> Error {
        let mut heard = vec!["state".to_string()];
        let mut looks = 0;
        loop {
            looks += 1;
            let seen = match events.info(self.waiters).await {
                Ok(seen) => seen.unwrap_or_default(),
                // The key is overwritten with other data: that is the end of the lock, and another may follow.
                Err(Error::Refused { code, .. })
                    if self.known.is_some() && matches!(&*code, "WRONGTYPE" | "LOCKTYPE") =>
                {
                    LockInfo::default()
                }
                Err(error) => return error,
            };
            if !*is_connected {
                *is_connected = true;
                let server = events.node().to_string();
                let fields = json!({ "server": server, "note": note(&events) });
                let text = shown(server.as_bytes());
                self.print(vec!["connected".into()], text, fields).await;
            }
            // Another look, so that the state is that after all events.
            let mut has_more = false;
            while let Some(event) = events.arrived() {
                has_more = true;
                heard.extend(name(event));
            }
            if has_more && looks < MAX_LOOKS {
                continue;
            }
            looks = 0;
            self.report(std::mem::take(&mut heard), seen).await;
            if has_more {
                continue;
            }
            match timeout(self.interval, events.next()).await {
                Ok(Ok(event)) => heard.extend(name(event)),
                Ok(Err(error)) => return error,
                Err(_) => {}
            }
        }
    }

    /// Prints the state if it is another one, or came with an event other than those of the key's data.
    async fn report(&mut self, mut events: Vec<String>, seen: LockInfo) {
        let renewed = |known: &LockInfo| {
            let ends =
                |info: &LockInfo| info.holders.iter().map(|one| one.lease).collect::<Vec<_>>();
            self.renewals && ends(&seen) > ends(known)
        };
        let is_other = self
            .known
            .as_ref()
            .is_none_or(|known| essence(known) != essence(&seen));
        if !is_other && self.known.as_ref().is_some_and(renewed) {
            events.push("renewed".into());
        } else if is_other && events.is_empty() {
            events.push("changed".into());
        } else if !is_other && events.iter().all(|name| is_of_data(name)) {
            events.clear();
        }
        if !events.is_empty() {
            let fields = report::lock(&self.key, &seen);
            self.print(events, state(&seen), fields).await;
        }
        self.known = Some(seen);
    }

    async fn print(&self, events: Vec<String>, text: String, fields: Value) {
        let line = Line {
            key: self.key.clone(),
            events,
            text,
            fields: fields.as_object().cloned().unwrap_or_default(),
        };
        // The receiver is dropped when the program ends.
        let _ = self.lines.send(line).await;
    }
}

/// An event by its name. Others are only a reason to read the state.
fn name(event: KeyEvent) -> Option<String> {
    match event {
        KeyEvent::Named(name) => Some(name),
        KeyEvent::Dropped => Some("missed".into()),
        _ => None,
    }
}

/// Whether the event is neither the module's nor one of this program.
fn is_of_data(name: &str) -> bool {
    !name.starts_with("lock.") && !matches!(name, "state" | "missed")
}

/// What makes a state another one: not the time that passes.
fn essence(info: &LockInfo) -> impl PartialEq + '_ {
    let holders = info.holders.iter();
    let holders = holders.map(|one| (&one.owner, one.token, one.holds));
    let queue = info.queue.iter().map(|waiter| &waiter.owner);
    (
        info.mode,
        info.waiters,
        holders.collect::<Vec<_>>(),
        queue.collect::<Vec<_>>(),
    )
}

/// What cannot be seen with the settings of the server and the permissions of the user, and what to change.
fn note(events: &KeyEvents) -> Option<String> {
    let has = |class: char| {
        events
            .setting()
            .is_some_and(|setting| setting.contains(class))
    };
    let has_all = has('A') || ['d', 'g', 'x', 'e'].into_iter().all(has);
    let why = match (events.has_key_events(), events.setting()) {
        (false, _) => "key events cannot be subscribed to here (no permission, or no RESP3)".into(),
        (true, None) => "notify-keyspace-events cannot be read (CONFIG GET)".into(),
        (true, Some(_)) if has('K') && has_all => return None,
        (true, Some(setting)) => format!("notify-keyspace-events is \"{setting}\""),
    };
    Some(format!(
        "{why}: only with K and A in it (K and d at least) the events say how a hold ended"
    ))
}
