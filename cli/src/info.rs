//! `redis-lock info`: the state of one lock.

use redis_lock_client::{Holder, LockInfo, Waiter};

use crate::escape::{json, shown};
use crate::failure::Failure;
use crate::key::Key;
use crate::output::print;
use crate::report::{self, span};
use crate::servers::Connect;

/// Show the holders and the waiters of a lock
///
/// Ends with 1 when there is no holder and no waiter.
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
    connect: Connect,
}

pub async fn run(args: Args) -> Result<i32, Failure> {
    let server = args.connect.open_one()?;
    let key = args.key.bytes();
    let info = server.info(key, args.waiters).await;
    let info = info.map_err(|error| Failure::of(&error, Some(key)))?;
    let lines = match (&info, args.json) {
        (Some(info), true) => vec![json(&report::lock(key, info))],
        (None, true) => vec!["null".into()],
        (Some(info), false) => describe(&shown(key), info),
        (None, false) => vec![format!("{}: neither held nor waited for", shown(key))],
    };
    print(lines.into_iter())?;
    Ok(info.is_none().into())
}

/// The lock of this name, its holders and its queue.
pub fn describe(name: &str, info: &LockInfo) -> Vec<String> {
    let mut lines = vec![format!("{name}: {}", info.mode)];
    if info.holders.is_empty() {
        lines.push("  no holder".into());
    }
    lines.extend(info.holders.iter().map(|one| format!("  {}", holder(one))));
    if info.waiters > 0 {
        let wait = span(Some(info.longest_wait));
        lines.push(format!("  {} waiting, the first for {wait}", info.waiters));
    }
    lines.extend(info.queue.iter().map(waiter));
    lines
}

/// What is known of a holder.
pub fn holder(holder: &Holder) -> String {
    let mut line = format!("held by {}", shown(&holder.owner));
    if let Some(token) = holder.token {
        line += &format!(", token {token}");
    }
    if holder.holds > 1 {
        line += &format!(", {} times", holder.holds);
    }
    if let Some(held) = holder.held {
        line += &format!(", for {}", span(Some(held)));
    }
    line += &match holder.lease {
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
    line
}

fn waiter(waiter: &Waiter) -> String {
    let mut line = format!("    {}, {}", shown(&waiter.owner), waiter.mode);
    line += &format!(", for {}", span(Some(waiter.waited)));
    if let Some(left) = waiter.left {
        line += &format!(", {} more", span(Some(left)));
    }
    if let Some(id) = waiter.client_id {
        line += &format!(", client {id}");
    }
    line
}
