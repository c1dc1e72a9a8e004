//! `redis-lock break`: ends the hold of a lock.

use std::ffi::OsString;
use std::io::{self, IsTerminal};

use serde_json::{json, Map};

use redis_lock_client::{BreakTarget, BreakWaiters, Error, Holder, Semaphore};

use crate::escape::{self, shown};
use crate::failure::{say, Failure, DATA, OS};
use crate::info::{holder, is_no_lock, PERMITS};
use crate::key::Key;
use crate::output::print;
use crate::report;
use crate::servers::Connect;
use crate::values::bytes;

/// Break a lock, whichever owner holds it
///
/// Says whom it broke: the owner, its token, since when it held the lock and from where. At a terminal it asks first.
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

    /// Of a semaphore: break the permit of this owner, which `info` shows.
    #[arg(long, conflicts_with_all = ["token", "purge"])]
    owner: Option<OsString>,

    /// Do not ask at a terminal.
    #[arg(short, long)]
    yes: bool,

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
    let waiters = match args.purge {
        true => BreakWaiters::Purge,
        false => BreakWaiters::Keep,
    };
    let permits = Semaphore::new(&server, key);
    let owner = args.owner.as_ref().map(bytes);
    let asks = !args.yes && io::stdin().is_terminal() && io::stderr().is_terminal();
    let (holders, broken) = loop {
        // May be refused where to break is permitted.
        let holders = match owner {
            Some(_) => permits.holders(PERMITS).await.unwrap_or_default(),
            None => match server.info(key, 0).await {
                Ok(Some(info)) => info.holders,
                _ => vec![],
            },
        };
        let is_meant = |holder: &Holder| owner.is_none_or(|owner| owner == holder.owner);
        let holders: Vec<_> = holders.into_iter().filter(is_meant).collect();
        if asks && !holders.is_empty() && !confirms(&args, &holders)? {
            return Ok(1);
        }
        // The grant that was shown, and no later one.
        let token = holders.first().and_then(|holder| holder.token);
        let broken = match (owner, args.token.or(token)) {
            (Some(owner), _) => permits.break_permit(owner).await,
            (None, None) => server.break_lock(key, BreakTarget::Any, waiters).await,
            (None, Some(token)) => {
                let grant = BreakTarget::Token(token);
                server.break_lock(key, grant, waiters).await
            }
        };
        let broken = broken.map_err(|error| failed(&error, &args))?;
        if broken || token.is_none() || args.token.is_some() {
            break (holders, broken);
        }
    };
    let line = if args.json {
        let mut object = Map::new();
        report::put(&mut object, "key", key);
        object.insert("broken".into(), json!(broken));
        let whom = holders.iter().filter(|_| broken).map(report::holder);
        object.insert("holders".into(), whom.collect());
        escape::json(&object.into())
    } else {
        let whom: Vec<_> = holders.iter().map(holder).collect();
        let what = match (broken, args.token) {
            (true, _) if whom.is_empty() => "broken".into(),
            (true, _) => format!("broken, was {}", whom.join("; ")),
            (false, None) => "not held".into(),
            (false, Some(_)) => "not held under that token".into(),
        };
        format!("{}: {what}", shown(key))
    };
    print([line].into_iter())?;
    Ok((!broken).into())
}

/// What is no lock may be a semaphore.
fn failed(error: &Error, args: &Args) -> Failure {
    let key = args.key.bytes();
    match is_no_lock(error) && args.owner.is_none() {
        true => Failure::new(
            DATA,
            format!("{}: no lock; of a semaphore name an --owner", shown(key)),
        ),
        false => Failure::of(error, Some(key)),
    }
}

/// Asks at the terminal.
fn confirms(args: &Args, holders: &[Holder]) -> Result<bool, Failure> {
    let key = shown(args.key.bytes());
    for one in holders {
        say(&format!("{key}: {}", holder(one)));
    }
    eprint!("break it? [y/N] ");
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.map_err(|error| Failure::new(OS, error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
