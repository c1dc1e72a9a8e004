//! `redis-lock info`: the state of one lock.

use std::time::Duration;

use redis_lock_client::{Error, Holder, LockInfo, Semaphore, SemaphoreInfo, Server, Waiter};

use crate::escape::{json, shown, word};
use crate::failure::{has_code, Failure};
use crate::key::Key;
use crate::output::print;
use crate::report::{self, span};
use crate::servers::Connect;

/// Upper bound of permits whose holders are read.
pub const PERMITS: usize = 1_000;

/// Show the holders and the waiters of a lock
///
/// Of a semaphore it shows how many permits there are, who holds them, and how many wait. Ends with 1 when there is no
/// holder and no waiter.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    key: Key,

    /// How many of the waiters to show, from the head of the queue.
    #[arg(long, value_name = "COUNT", default_value = "10",
          value_parser = clap::value_parser!(u64).range(..1 << 31))]
    waiters: u64,

    /// A JSON object, or null.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    pub connect: Connect,
}

pub async fn run(args: Args) -> Result<i32, Failure> {
    let server = args.connect.open_one()?;
    let key = args.key.bytes();
    let info = state(&server, key, args.waiters).await;
    let info = info.map_err(|error| Failure::of(&error, Some(key)))?;
    let is_idle = match &info {
        Some(State::Semaphore(info, _)) => info.held == 0 && info.waiters == 0,
        Some(State::Lock(_)) => false,
        None => true,
    };
    let lines = match (&info, args.json) {
        (Some(state), true) => vec![json(&report::state(key, state))],
        (None, true) => vec!["null".into()],
        (Some(State::Lock(info)), false) => describe(&shown(key), info),
        // Without permits held nothing tells it from a latch or another counter.
        (Some(State::Semaphore(info, holders)), false) => {
            let or = if is_idle { ", or another number" } else { "" };
            let lines = [
                format!("{}: semaphore{or}", shown(key)),
                format!("  {}", permits(info)),
            ];
            let holders = holders.iter().map(|one| format!("  {}", holder(one)));
            lines.into_iter().chain(holders).collect()
        }
        (None, false) => vec![format!("{}: neither held nor waited for", shown(key))],
    };
    print(lines)?;
    Ok(is_idle.into())
}

/// The state of a key.
pub enum State {
    Lock(LockInfo),
    /// With the holders of permits, as far as the user may read them.
    Semaphore(SemaphoreInfo, Vec<Holder>),
}

/// The state of a lock with at most so many waiters, or of a semaphore; None of neither.
pub async fn state(server: &Server, key: &[u8], waiters: u64) -> Result<Option<State>, Error> {
    match server.info(key, waiters).await {
        Err(error) if is_no_lock(&error) => {
            let semaphore = Semaphore::new(server, key);
            let info = match semaphore.info().await {
                Ok(Some(info)) => info,
                Err(refused) if has_code(&refused, "NOPERM") => return Err(refused),
                _ => return Err(error),
            };
            let holders = semaphore.holders(PERMITS).await.unwrap_or_default();
            Ok(Some(State::Semaphore(info, holders)))
        }
        info => Ok(info?.map(State::Lock)),
    }
}

/// Whether the key holds something of another type.
pub fn is_no_lock(error: &Error) -> bool {
    has_code(error, "WRONGTYPE")
}

/// The permits of a semaphore and its waiters.
pub fn permits(info: &SemaphoreInfo) -> String {
    let mut line = format!("{} of {} permits held", info.held, info.permits);
    if let Some(end) = info.next_end {
        line += &format!(", the next lease ends in {}", span(Some(end)));
    }
    if info.waiters > 0 {
        line += &format!("; {}", waiting(info.waiters, info.longest_wait));
    }
    line
}

fn waiting(waiters: u64, longest: Duration) -> String {
    format!("{waiters} waiting, the first for {}", span(Some(longest)))
}

/// The lock of this name, its holders and its queue.
pub fn describe(name: &str, info: &LockInfo) -> Vec<String> {
    let mut lines = vec![format!("{name}: {}", report::mode(info))];
    if info.holders.is_empty() {
        lines.push("  no holder".into());
    }
    lines.extend(info.holders.iter().map(|one| format!("  {}", holder(one))));
    if info.waiters > 0 {
        lines.push(format!("  {}", waiting(info.waiters, info.longest_wait)));
    }
    lines.extend(info.queue.iter().map(waiter));
    lines
}

/// What is known of the first holder, and how many others there are; none without a holder.
pub fn holders(info: &LockInfo) -> Option<String> {
    let (first, others) = info.holders.split_first()?;
    Some(match others.len() {
        0 => holder(first),
        more => format!("{}, and {more} more", holder(first)),
    })
}

/// What is known of a holder.
pub fn holder(holder: &Holder) -> String {
    let mut line = format!("held by {}", word(&holder.owner));
    if let Some(token) = holder.token {
        line += &format!(", token {token}");
    }
    if holder.holds > 1 {
        line += &format!(", {} times", holder.holds);
    }
    if let Some(held) = holder.held {
        line += &format!(", for {}", span(Some(held)));
    }
    line += &match holder.remaining {
        Some(lease) => format!(", lease {}", span(Some(lease))),
        None => ", without an end".into(),
    };
    if holder.session {
        line += ", bound to its connection";
    }
    if let Some(addr) = &holder.addr {
        line += &format!(", from {}", shown(addr.as_bytes()));
    }
    if let Some(name) = &holder.client_name {
        line += &format!(" ({})", shown(name));
    }
    line + &note(&holder.note)
}

fn note(note: &Option<Vec<u8>>) -> String {
    note.as_ref()
        .map_or(String::new(), |note| format!(", note: {}", shown(note)))
}

fn waiter(waiter: &Waiter) -> String {
    let mut line = format!("    {}, {}", word(&waiter.owner), waiter.mode);
    line += &format!(", for {}", span(Some(waiter.waited)));
    if let Some(left) = waiter.left {
        line += &format!(", {} more", span(Some(left)));
    }
    if let Some(id) = waiter.client_id {
        line += &format!(", client {id}");
    }
    line + &note(&waiter.note)
}
