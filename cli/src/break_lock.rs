//! `redis-lock break`: ends the hold of a lock.

use serde_json::{json, Map};

use redis_lock_client::{BreakTarget, BreakWaiters};

use crate::escape::{self, shown};
use crate::failure::Failure;
use crate::key::Key;
use crate::output::print;
use crate::report;
use crate::servers::Connect;

/// Break a lock, whichever owner holds it
///
/// The lock goes to its next waiter. The former holder is told when it renews; see to it that it has stopped, or
/// that what the lock protects checks tokens. Ends with 1 when the lock was not held.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    key: Key,

    /// Only if this is still the grant that holds: the token that `info` shows.
    #[arg(long)]
    token: Option<u64>,

    /// Send those who wait for it away, too.
    #[arg(long)]
    purge: bool,

    /// A JSON object.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connect: Connect,
}

pub async fn run(args: Args) -> Result<i32, Failure> {
    let server = args.connect.open_one()?;
    let key = args.key.bytes();
    let grant = args.token.map_or(BreakTarget::Any, BreakTarget::Token);
    let waiters = match args.purge {
        true => BreakWaiters::Purge,
        false => BreakWaiters::Keep,
    };
    let broken = server.break_lock(key, grant, waiters).await;
    let broken = broken.map_err(|error| Failure::of(&error, Some(key)))?;
    let line = if args.json {
        let mut object = Map::new();
        report::put(&mut object, "key", key);
        object.insert("broken".into(), json!(broken));
        escape::json(&object.into())
    } else {
        let what = match (broken, args.token) {
            (true, _) => "broken",
            (false, None) => "not held",
            (false, Some(_)) => "not held under that token",
        };
        format!("{}: {what}", shown(key))
    };
    print([line].into_iter())?;
    Ok((!broken).into())
}
