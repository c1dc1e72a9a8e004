//! `redis-lock break`: ends the hold of a lock.

use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::thread;

use redis_lock_client::{BreakTarget, BreakWaiters, Holder, Semaphore, Server};
use serde_json::json;
use tokio::sync::oneshot;

use crate::escape::{self, shown};
use crate::failure::{say, Failure};
use crate::info::{holder, PERMITS};
use crate::key::Key;
use crate::output::print;
use crate::report;
use crate::servers::Connect;

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
    let failed = |error| Failure::of(&error, Some(key));
    let (mut holders, is_broken) = if let Some(owner) = &args.owner {
        let (permits, owner) = (Semaphore::new(&server, key), owner.as_bytes());
        let mut holders = permits.holders(PERMITS).await.unwrap_or_default();
        holders.retain(|holder| holder.owner == owner);
        if !confirms(key, &holders, args.yes).await? {
            return Ok(1);
        }
        (holders, permits.break_permit(owner).await.map_err(failed)?)
    } else {
        let end = async |grant| {
            let broken = server.break_lock(key, grant, waiters).await;
            Ok(broken.map_err(failed)?.then_some(()))
        };
        match break_shown(&server, key, args.yes, args.token, end).await? {
            Some((holders, broken)) => (holders, broken.is_some()),
            None => return Ok(1),
        }
    };
    holders.retain(|_| is_broken);
    let line = if args.json {
        let whom: Vec<_> = holders.iter().map(report::holder).collect();
        let fields = json!({ "broken": is_broken, "holders": whom });
        escape::json(&report::with_names(fields, [("key", Some(key))]))
    } else {
        let whom: Vec<_> = holders.iter().map(holder).collect();
        let what = match (is_broken, args.token) {
            (true, _) if whom.is_empty() => "broken".into(),
            (true, _) => format!("broken, was {}", whom.join("; ")),
            (false, None) => "not held".into(),
            (false, Some(_)) => "not held under that token".into(),
        };
        format!("{}: {what}", shown(key))
    };
    print([line])?;
    Ok((!is_broken).into())
}

/// Breaks a lock: the grant that was shown, or the one with this token, and no later one. Returns who has held it, and
/// what came of it; None if the operator at the terminal does not want it.
pub async fn break_shown<T>(
    server: &Server,
    key: &[u8],
    is_certain: bool,
    token: Option<u64>,
    end: impl AsyncFn(BreakTarget) -> Result<Option<T>, Failure>,
) -> Result<Option<(Vec<Holder>, Option<T>)>, Failure> {
    loop {
        // May be refused where to break is permitted.
        let info = server.info(key, 0).await.ok().flatten();
        let holders = info.map_or_else(Vec::new, |info| info.holders);
        if !confirms(key, &holders, is_certain).await? {
            return Ok(None);
        }
        let shown = holders.first().and_then(|holder| holder.token);
        let grant = token.or(shown);
        let ended = end(grant.map_or(BreakTarget::Any, BreakTarget::Token)).await?;
        if ended.is_some() || shown.is_none() || token.is_some() {
            return Ok(Some((holders, ended)));
        }
    }
}

/// Asks at the terminal, if there is one.
async fn confirms(key: &[u8], holders: &[Holder], is_certain: bool) -> Result<bool, Failure> {
    let is_asked = io::stdin().is_terminal() && io::stderr().is_terminal();
    if is_certain || holders.is_empty() || !is_asked {
        return Ok(true);
    }
    for one in holders {
        say(&format!("{}: {}", shown(key), holder(one)));
    }
    eprint!("break it? [y/N] ");
    // By another thread: signals are handled until there is an answer.
    let (sender, answer) = oneshot::channel();
    thread::Builder::new().spawn(move || sender.send(io::stdin().lines().next()))?;
    let answer = answer.await.ok().flatten().transpose()?;
    Ok(matches!(
        answer.as_deref().map(str::trim),
        Some("y" | "Y" | "yes")
    ))
}
