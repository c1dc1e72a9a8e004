//! `redis-lock watch`: the history of locks, followed live.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::process::exit;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use redis_lock_client::{Error, KeyEvent, KeyEvents, LockInfo, Mode, Server};
use serde_json::{json, Value};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::escape::{self, shown, word};
use crate::failure::{say, Failure, BY_SIGNAL};
use crate::info;
use crate::key::{unhex, Bytes};
use crate::output::{closed, print};
use crate::report::{self, span};
use crate::servers::Connect;
use crate::signals::Signals;
use crate::values::seconds;

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
    #[arg(long, value_name = "HEX", value_parser = unhex)]
    key_hex: Vec<Bytes>,

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
        let mut keys = self.key_hex.clone();
        keys.extend(self.keys.iter().map(|key| key.as_bytes().to_vec()));
        keys.sort();
        keys.dedup();
        keys
    }
}

/// The holders and the first waiters.
fn state(info: &LockInfo) -> String {
    let mut text = info::holders(info).unwrap_or_else(|| "free".into());
    if report::mode(info) != Mode::Exclusive {
        text = format!("{}: {text}", report::mode(info));
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
    let mut signals = Signals::listen()?;
    let (keys, args) = (args.keys(), Arc::new(args));
    let is_noted = Arc::new(AtomicBool::new(args.json));
    let is_one = keys.len() == 1;
    let mut followed = JoinSet::new();
    for key in keys {
        let follower = Follower {
            server: server.clone(),
            key,
            args: args.clone(),
            is_one,
            is_noted: is_noted.clone(),
            known: None,
        };
        followed.spawn(follower.follow());
    }
    tokio::select! {
        biased;
        signal = signals.next_fatal() => Ok(status(signal)),
        ended = followed.join_next() => match ended {
            Some(Ok(failure)) => Err(failure),
            Some(Err(error)) => Err(io::Error::from(error).into()),
            None => Ok(0),
        },
        () = closed() => Ok(0),
    }
}

/// The status after a signal: Ctrl-C is the way to end this.
pub fn status(signal: Signal) -> i32 {
    match signal {
        Signal::SIGINT => 0,
        other => BY_SIGNAL + other as i32,
    }
}

/// Follows one lock.
struct Follower {
    server: Server,
    key: Vec<u8>,
    args: Arc<Args>,
    /// Whether it is the only one.
    is_one: bool,
    /// Whether it was said what cannot be seen: once, however many locks are followed and connections made.
    is_noted: Arc<AtomicBool>,
    /// The state that was read last.
    known: Option<LockInfo>,
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
                return Failure::of(&error, Some(&self.key[..]));
            }
            if std::mem::take(&mut is_connected) {
                pause = FIRST_PAUSE;
                let cause = error.to_string();
                let fields = json!({ "cause": cause });
                let text = shown(cause.as_bytes());
                self.print(vec!["disconnected".into()], &text, fields);
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
            let seen = match events.info(self.args.waiters).await {
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
                let (server, note) = (events.node(), note(&events));
                if let Some(note) = note.as_ref().filter(|_| !self.is_noted.swap(true, Relaxed)) {
                    say(&format!("redis-lock: {note}"));
                }
                let fields = json!({ "server": server, "note": note });
                self.print(vec!["connected".into()], &shown(server.as_bytes()), fields);
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
            self.report(std::mem::take(&mut heard), seen);
            if has_more {
                continue;
            }
            match timeout(self.args.interval.max(SHORTEST_INTERVAL), events.next()).await {
                Ok(Ok(event)) => heard.extend(name(event)),
                Ok(Err(error)) => return error,
                Err(_) => {}
            }
        }
    }

    /// Prints the state if it is another one, or came with an event other than those of the key's data.
    fn report(&mut self, mut events: Vec<String>, seen: LockInfo) {
        let renewed = |known: &LockInfo| {
            let ends = |info: &LockInfo| {
                info.holders
                    .iter()
                    .map(|one| one.remaining)
                    .collect::<Vec<_>>()
            };
            self.args.renewals && ends(&seen) > ends(known)
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
            self.print(events, &state(&seen), fields);
        }
        self.known = Some(seen);
    }

    /// Prints events and what is known after them, as text or as JSON with these fields.
    fn print(&self, events: Vec<String>, text: &str, fields: Value) {
        let time = report::utc(SystemTime::now());
        let line = if self.args.json {
            let fields = report::merged(fields, json!({ "time": time, "events": events }));
            escape::json(&report::with_names(fields, [("key", Some(&self.key[..]))]))
        } else {
            let key = match self.is_one {
                true => String::new(),
                false => word(&self.key) + "  ",
            };
            let events = shown(counted(&events).as_bytes());
            format!("{time}  {key}{events:<12}  {text}")
        };
        if let Err(failure) = print([line]) {
            exit(failure.tell());
        }
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
        report::mode(info),
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
