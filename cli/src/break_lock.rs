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
/// The next waiter gets the lock. The former holder learns of it when it renews: ensure that it has stopped, or that
/// the resource which the lock protects checks tokens. The exit status is 1 when the lock was not held.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    key: Key,

    /// Break only the grant with this token, which `info` shows.
    #[arg(long)]
    token: Option<u64>,

    /// End all waits for the lock, too.
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
