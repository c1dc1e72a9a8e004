//! `redis-lock acquire`, `renew` and `release`: a lock that is held over several commands of a script or a pipeline.

use std::env::{var, var_os};
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use nix::unistd::Pid;
use redis_lock_client::{Error, Guard, Lock, Released, Semaphore};
use serde_json::json;
use tokio::time::{sleep, Instant};

use crate::escape::{self, shown};
use crate::failure::{Failure, BY_SIGNAL, LOST, USAGE};
use crate::key::Key;
use crate::os::Starter;
use crate::output::must_be_open;
use crate::report::{merged, millis, with_names};
use crate::run::{
    is_living, nested, own_name, waits_for_itself, Acquired, Request, Sought, OWNER, TOKEN, TOKENS,
};
use crate::servers::Connect;
use crate::signals::Signals;
use crate::values::{prefix, seconds, tokens, Tokens};

/// The pause between two looks for the process of --hold-while.
const LOOK: Duration = Duration::from_millis(500);

/// The lease in which a release has to come through.
const LEASE: Duration = Duration::from_secs(30);

/// Acquire a lock for several commands
///
/// Prints LOCK_OWNER=... and LOCK_TOKEN=..., a line each: in a shell `lock=$(redis-lock acquire KEY) && export $lock`.
/// `renew` and `release` take both from the environment. With --and LOCK_TOKEN is that of the first key, and
/// LOCK_TOKENS has those of all in their order, with commas between them; with --permits LOCK_TOKEN is empty. The lock
/// is not renewed, unless --hold-while is given: its lease (--lease) must last.
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

    /// The token, instead of LOCK_TOKEN; empty of a permit. With --and the tokens of all keys, instead of LOCK_TOKENS,
    /// with commas between them.
    #[arg(long, value_parser = tokens)]
    token: Option<Tokens>,

    /// One more key of the same acquisition. Can be repeated.
    #[arg(long, value_name = "KEY")]
    and: Vec<OsString>,

    /// What the names of the variables begin with, as in `acquire`.
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = prefix, hide_default_value = true)]
    prefix: String,

    #[command(flatten)]
    connect: Connect,
}

pub async fn acquire(args: AcquireArgs, starter: Option<Starter>) -> Result<i32, Failure> {
    let own = own_name();
    let sought = Sought {
        request: &args.request,
        servers: &[args.request.connect.open_one()?],
        keys: args.request.keys(args.key.bytes()),
        owner: args.request.owner(&own),
        margin: args.request.lease / 6,
        permits: args.request.permits,
        is_all: false,
        is_quorum: false,
    };
    must_be_open()?;
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
    if nested(&sought).await.some > 0 {
        return Err(waits_for_itself(&sought, ""));
    }
    let mut signals = Signals::listen()?;
    let held = match sought.acquire(&mut signals).await? {
        Acquired::Held(held) => held,
        Acquired::Not => return Ok(args.request.conflict_exit_code.into()),
        Acquired::By(signal) => return Ok(BY_SIGNAL + signal as i32),
    };
    let (token, tokens) = (held.token(&sought), held.numbers());
    let is_several = sought.keys.len() > 1;
    let owner = String::from_utf8_lossy(held.owner()).into_owned();
    let text = if args.json {
        let lease = millis(Some(args.request.lease));
        let fields = json!({ "owner": owner, "token": token, "lease_ms": lease });
        let fields = match is_several {
            true => merged(fields, json!({ "tokens": tokens })),
            false => fields,
        };
        escape::json(&with_names(fields, [("key", Some(sought.key()))]))
    } else {
        let tokens: Vec<_> = tokens.iter().map(u64::to_string).collect();
        let token = token.map_or(String::new(), |token| token.to_string());
        let mut variables = vec![(OWNER, owner), (TOKEN, token)];
        variables.extend(is_several.then(|| (TOKENS, tokens.join(","))));
        let prefix = &args.request.prefix;
        let lines = variables
            .iter()
            .map(|(name, value)| format!("{prefix}{name}={value}"));
        lines.collect::<Vec<_>>().join("\n")
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
        () = signals.one_more_fatal() => {}
    }
    Ok(0)
}

pub async fn renew(args: RenewArgs) -> Result<i32, Failure> {
    args.hold.take_over(Some(args.lease)).await
}

pub async fn release(args: ReleaseArgs) -> Result<i32, Failure> {
    args.hold.take_over(None).await
}

/// Releases what was resumed, or leaves it with its new lease.
async fn end<Of>(resumed: Result<Guard<Of>, Error>, is_left: bool) -> Result<Released, Error> {
    match resumed {
        Ok(guard) if is_left => {
            // A drop would release it in the background.
            std::mem::forget(guard);
            Ok(Released::Yes)
        }
        Ok(guard) => guard.release().await,
        Err(Error::Lost(_)) => Ok(Released::NotHeld),
        Err(error) => Err(error),
    }
}

impl Hold {
    /// Takes each lock over and leaves it with this lease; None: releases it.
    async fn take_over(&self, lease: Option<Duration>) -> Result<i32, Failure> {
        let missing = |what| Failure::new(USAGE, format!("{what}, as acquire has printed it"));
        let others = self.and.iter().map(|key| key.as_bytes());
        let keys: Vec<_> = [self.key.bytes()].into_iter().chain(others).collect();
        let [of_owner, of_token] = [OWNER, if keys.len() > 1 { TOKENS } else { TOKEN }]
            .map(|name| format!("{}{name}", self.prefix));
        let owner = self.owner.clone().or_else(|| var_os(&of_owner));
        let owner = owner.ok_or_else(|| missing(format!("--owner is needed, or {of_owner}")))?;
        let own = || tokens(&var(&of_token).ok()?).ok();
        let tokens = self.token.clone().or_else(own);
        let tokens = tokens.ok_or_else(|| missing(format!("--token is needed, or {of_token}")))?;
        let is_permit = tokens.is_empty() && keys.len() == 1;
        if !is_permit && tokens.len() != keys.len() {
            let (keys, tokens) = (keys.len(), tokens.len());
            let what = format!("{keys} keys need {keys} tokens, not {tokens}");
            return Err(missing(what));
        }
        let (server, owner) = (self.connect.open_one()?, owner.as_bytes());
        let mut failures = Vec::new();
        for (i, key) in keys.into_iter().enumerate() {
            let (is_left, lease) = (lease.is_some(), lease.unwrap_or(LEASE));
            let ended = match tokens.get(i) {
                Some(token) => {
                    let lock = Lock::new(&server, key).lease(lease);
                    end(lock.resume(owner, *token).await, is_left).await
                }
                None => {
                    let semaphore = Semaphore::new(&server, key).lease(lease);
                    end(semaphore.resume(owner, 0).await, is_left).await
                }
            };
            match ended {
                Ok(Released::Yes) => {}
                Ok(_) => {
                    let what = match is_permit {
                        true => "no permit of this owner",
                        false => "not held by this owner under this token",
                    };
                    failures.push(Failure::new(LOST, format!("{}: {what}", shown(key))));
                }
                Err(error) => failures.push(Failure::of(&error, Some(key))),
            }
        }
        match failures.is_empty() {
            true => Ok(0),
            false => Err(Failure::of_several("not all of the locks".into(), failures)),
        }
    }
}
