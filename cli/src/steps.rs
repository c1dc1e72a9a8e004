//! `redis-lock acquire`, `renew` and `release`: a lock that is held over several commands of a script or a pipeline.

use std::env::{var, var_os};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::unistd::Pid;
use redis_lock_client::{Guard, Lock, Released};
use serde_json::json;
use tokio::time::{sleep, Instant};

use crate::escape::{self, shown};
use crate::failure::{Failure, BY_SIGNAL, LOST, USAGE};
use crate::key::Key;
use crate::os::Starter;
use crate::report::{millis, with_names};
use crate::run::{is_living, nested, own_name, waits_for_itself, Acquired, Request, Sought};
use crate::servers::Connect;
use crate::signals::Signals;
use crate::values::seconds;

/// The pause between two looks for the process of --hold-while.
const LOOK: Duration = Duration::from_millis(500);

/// The lease in which a release has to come through.
const LEASE: Duration = Duration::from_secs(30);

/// Acquire a lock for several commands
///
/// Prints LOCK_OWNER=... and LOCK_TOKEN=..., a line each: in a shell `lock=$(redis-lock acquire KEY) && export $lock`.
/// `renew` and `release` take both from the environment. The lock is not renewed, unless --hold-while is given: its
/// lease (--lease) must last.
#[derive(Debug, clap::Args)]
pub struct AcquireArgs {
    #[command(flatten)]
    key: Key,

    /// Renew the lock in the background as long as this process lives (such as $$, the shell's), then release it.
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub hold_while: Option<i32>,

    /// A JSON object.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    request: Request,
}

/// Renew a lock of `acquire`: its lease begins anew
#[derive(Debug, clap::Args)]
pub struct RenewArgs {
    /// The new lease.
    #[arg(short, long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    lease: Duration,

    // With the options of servers, under whose heading all that follows would stand.
    #[command(flatten)]
    hold: Hold,
}

/// Release a lock of `acquire`
#[derive(Debug, clap::Args)]
pub struct ReleaseArgs {
    #[command(flatten)]
    hold: Hold,
}

/// A lock that is held already.
#[derive(Debug, clap::Args)]
struct Hold {
    #[command(flatten)]
    key: Key,

    /// The owner, instead of LOCK_OWNER.
    #[arg(short, long)]
    owner: Option<OsString>,

    /// The token, instead of LOCK_TOKEN.
    #[arg(long)]
    token: Option<u64>,

    #[command(flatten)]
    connect: Connect,
}

pub async fn acquire(args: AcquireArgs, starter: Option<Starter>) -> Result<i32, Failure> {
    let own = own_name();
    let sought = Sought {
        request: &args.request,
        servers: &[args.request.connect.open_one()?],
        keys: vec![args.key.bytes()],
        owner: args.request.owner(&own),
        margin: None,
        permits: None,
        is_all: false,
        is_quorum: false,
    };
    // What is printed needs no quotation marks, in a shell and elsewhere.
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:@/".contains(byte);
    let named = args.request.owner.as_ref();
    if named.is_some_and(|owner| !owner.as_bytes().iter().all(is_plain)) {
        let what = "an owner here has letters, digits and -_.:@/";
        return Err(Failure::new(USAGE, what));
    }
    let process = args.hold_while.map(Pid::from_raw);
    if let Some(process) = process.filter(|process| !is_living(*process)) {
        return Err(Failure::new(
            USAGE,
            format!("there is no process {process}"),
        ));
    }
    if nested(&sought).await > 0 {
        return Err(waits_for_itself(&sought, ""));
    }
    let mut signals = Signals::listen()?;
    let held = match sought.acquire(&mut signals).await? {
        Acquired::Held(held) => held,
        Acquired::Not => return Ok(args.request.conflict_exit_code.into()),
        Acquired::By(signal) => return Ok(BY_SIGNAL + signal as i32),
    };
    let token = held.token(&sought).unwrap_or_default();
    let owner = String::from_utf8_lossy(held.owner()).into_owned();
    let text = if args.json {
        let lease = millis(Some(args.request.lease));
        let fields = json!({ "owner": owner, "token": token, "lease_ms": lease });
        escape::json(&with_names(fields, [("key", Some(sought.key()))]))
    } else {
        format!("LOCK_OWNER={owner}\nLOCK_TOKEN={token}")
    };
    let told = writeln!(io::stdout(), "{text}");
    // Without owner and token no program can release the lock.
    if let Err(error) = told.and_then(|()| starter.map_or(Ok(()), Starter::let_go)) {
        held.release().await;
        return Err(error.into());
    }
    let Some(process) = process else {
        held.forget();
        return Ok(0);
    };
    let gone = async {
        while is_living(process) {
            sleep(LOOK).await;
        }
    };
    tokio::select! {
        _ = held.lost() => return Ok(LOST),
        () = gone => {}
        _ = signals.next_fatal() => {}
    }
    let end = Instant::now() + args.request.lease;
    let released = async {
        held.release().await;
        // A server that does not answer is asked again: no other process can release this lock.
        sought.settled(end).await
    };
    tokio::select! {
        _ = released => {}
        _ = signals.next_fatal() => {}
    }
    Ok(0)
}

pub async fn renew(args: RenewArgs) -> Result<i32, Failure> {
    let guard = args.hold.adopt(args.lease).await?;
    // A drop would release it in the background.
    std::mem::forget(guard);
    Ok(0)
}

pub async fn release(args: ReleaseArgs) -> Result<i32, Failure> {
    let guard = args.hold.adopt(LEASE).await?;
    match guard.release().await {
        Ok(Released::Yes) => Ok(0),
        Ok(Released::NotHeld) => Err(args.hold.lost()),
        Err(error) => Err(Failure::of(&error, Some(args.hold.key.bytes()))),
    }
}

impl Hold {
    /// Takes it over with this lease.
    async fn adopt(&self, lease: Duration) -> Result<Guard, Failure> {
        let missing = |what| Failure::new(USAGE, format!("{what}, as acquire has printed it"));
        let owner = self.owner.clone().or_else(|| var_os("LOCK_OWNER"));
        let owner = owner.ok_or_else(|| missing("--owner is needed, or LOCK_OWNER"))?;
        let token = self.token.or_else(|| var("LOCK_TOKEN").ok()?.parse().ok());
        let token = token.ok_or_else(|| missing("--token is needed, or LOCK_TOKEN"))?;
        let key = self.key.bytes();
        let lock = Lock::new(&self.connect.open_one()?, key).owner(owner.as_bytes());
        let adopted = lock.lease(lease).adopt(token).await;
        let adopted = adopted.map_err(|error| Failure::of(&error, Some(key)))?;
        adopted.ok_or_else(|| self.lost())
    }

    fn lost(&self) -> Failure {
        let key = shown(self.key.bytes());
        Failure::new(
            LOST,
            format!("{key}: not held by this owner under this token"),
        )
    }
}
