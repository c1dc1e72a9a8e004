//! `redis-lock run`: acquires the lock, runs the command, releases.

mod child;
mod descendants;
mod leftovers;
mod lock;
mod options;
mod reachability;
mod terminal;
mod waiting;
mod watch;

use std::env::var_os;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use redis_lock_client::{Error, LostReason, Released, Semaphore, Server};
use tokio::time::{sleep, timeout_at, Instant};

pub use self::options::Args;

use self::child::{Change, Child, Variables};
use self::descendants::{named, pids};
use self::lock::{Held, Owner, Terms, Wait, Wanted};
use self::reachability::must_answer;
pub use self::terminal::{give, Terminal};
use self::waiting::{in_the_way, tell_of_the_wait, NEXT_REPORT};
use self::watch::{End, Rest, Watch};
use crate::escape::shown;
use crate::failure::{Failure, BY_SIGNAL, LOST, OS, STILL_HELD, TIMED_OUT, USAGE};
use crate::key;
use crate::os::Before;
use crate::report::utc;
use crate::signals::Signals;
use crate::values::bytes;

/// How much longer than its limit a wait may last at least, for a pending reply and for the withdrawal.
const LEAST_OVERTIME: Duration = Duration::from_millis(200);
/// The pause between two attempts to reach servers that do not answer.
const RETRY: Duration = Duration::from_millis(500);
/// The shortest time that a withdrawal gets.
const WITHDRAWAL: Duration = Duration::from_millis(80);

/// Variables of the command's environment by which a run below it sees the lock.
const KEY_HEX: &str = "LOCK_KEY_HEX";
const OWNER: &str = "LOCK_OWNER";
const SERVER: &str = "LOCK_SERVER";
/// In bytes, with some space for its name.
const LONGEST_VARIABLE: usize = 128 * 1024 - 64;

pub async fn run(args: Args) -> Result<i32, Failure> {
    let servers = args.connect.open()?;
    let outer = nested(&args, &servers);
    if outer > 0 {
        return under_the_outer_lock(&args, outer);
    }
    let own = own_name();
    let owner = match &args.owner {
        Some(owner) => Owner::Named(bytes(owner)),
        None => Owner::Fresh(own.as_bytes()),
    };
    let terms = Terms {
        keys: args.keys(),
        owner,
        lease: args.lease,
        margin: args.margin(),
        shared: args.shared,
        exclusive: args.exclusive,
    };
    let wanted = match servers.as_slice() {
        _ if args.all => Wanted::of_all(&servers, &terms),
        _ if args.quorum => Wanted::of_most(&servers, &terms),
        [server] => match args.permits {
            Some(permits) => Ok(Wanted::of_permit(server, &terms, permits)),
            None if args.and.is_empty() => Ok(Wanted::of_one(server, &terms)),
            None => Wanted::of_all(&servers, &terms),
        },
        _ => {
            let message = "several servers: say --all or --quorum";
            return Err(Failure::new(USAGE, message));
        }
    };
    let wanted = wanted.map_err(|error| Failure::of(&error, None))?;
    let mut signals = Signals::listen().map_err(|error| Failure::new(OS, error))?;
    let terminal = Terminal::open();
    let overtime = (args.connect.timeout / 25).max(LEAST_OVERTIME);
    let over = args.bound().map(|bound| Instant::now() + bound + overtime);
    let held = tokio::select! {
        held = acquire(&args, &servers, &wanted, over) => held,
        never = tell_of_the_wait(&args, &servers, owner), if !args.quiet => match never {},
        signal = signals.next_fatal() => {
            tokio::select! {
                is_settled = settled(&servers, Instant::now() + args.connect.timeout) => if !is_settled {
                    args.tell("the wait may stay: granted late, the lock is held for its lease");
                },
                // One more signal ends the program without the reply.
                _ = signals.next_fatal() => {}
            }
            return Ok(ended_by(signal as i32, terminal.as_ref(), false));
        }
    };
    let Ok(Some(held)) = held else {
        // The limit of the wait is that of its withdrawal, too.
        let now = Instant::now();
        let end = over.map(|over| over.max(now + WITHDRAWAL));
        settled(&servers, end.unwrap_or(now + args.connect.timeout)).await;
        if args.verbose {
            let holder = in_the_way(&args, &servers, None).await;
            let holder = holder.map_or(String::new(), |holder| format!(": {holder}"));
            args.tell(&format!("not to be had{holder}"));
        }
        return held.map(|_| args.conflict_exit_code.into());
    };
    let granted = Instant::now();
    args.say(
        &held
            .token(&servers)
            .map_or("held".into(), |token| format!("held, token {token}")),
    );
    let variables = variables(&args.keys(), &held, &servers);
    let result = guard(&args, variables, &held, terminal.as_ref(), &mut signals).await;
    let rest = args.at_least.filter(|_| result.is_ok()).unwrap_or_default();
    let rest = rest.saturating_sub(granted.elapsed());
    let left = leave(
        &args,
        &servers,
        held,
        result.as_ref().ok(),
        rest,
        &mut signals,
    )
    .await;
    let end = result?;
    Ok(match end.change {
        _ if left == Left::Lost && !args.keep => LOST,
        _ if end.is_late => TIMED_OUT,
        Change::Exited(0) if left == Left::Held && !args.keep => STILL_HELD,
        Change::Exited(status) => status,
        Change::Killed(signal) | Change::Stopped(signal) => {
            ended_by(signal, terminal.as_ref(), end.had_terminal)
        }
    })
}

/// How many of the keys this program runs under already: a wait for one would be a wait for itself.
fn nested(args: &Args, servers: &[Server]) -> usize {
    let is_same = |name: &str, value: &OsStr| var_os(name).is_some_and(|outer| outer == *value);
    let owner = args.owner.as_ref();
    let is_other = args.shared
        || args.permits.is_some_and(|permits| permits > 1)
        || owner.is_some_and(|owner| is_same(OWNER, owner))
        || !is_same(SERVER, names_of(servers).as_ref());
    let outer = var_os(KEY_HEX).filter(|_| !is_other).unwrap_or_default();
    let outer: Vec<&[u8]> = outer.as_bytes().split(|byte| *byte == b' ').collect();
    let keys = args.keys().into_iter().map(key::hex);
    keys.filter(|key| outer.contains(&key.as_bytes())).count()
}

/// Becomes the command, if it may do without a hold of its own.
fn under_the_outer_lock(args: &Args, keys: usize) -> Result<i32, Failure> {
    if args.reentrant && keys == args.keys().len() {
        return Err(child::become_command(&args.command));
    }
    let key = shown(args.key());
    let why = "this program runs under that lock already, and would wait for itself";
    let help =
        "(LOCK_KEY_HEX in its environment; --reentrant runs the command without a hold of its own)";
    Err(Failure::new(USAGE, format!("{key}: {why} {help}")))
}

/// What became of the lock.
#[derive(PartialEq, Eq)]
enum Left {
    Released,
    /// It was lost before.
    Lost,
    /// It stays until its lease ends.
    Held,
}

/// Releases the lock after the command's end, or when it was not started, unless it is to be held for a rest of time.
async fn leave(
    args: &Args,
    servers: &[Server],
    held: Held,
    end: Option<&End>,
    rest: Duration,
    signals: &mut Signals,
) -> Left {
    if end.is_some_and(|end| end.lost.is_some()) {
        held.leave().await;
        return Left::Lost;
    }
    if end.is_some_and(|end| end.rest == Rest::Left) {
        stays(
            args,
            SystemTime::now() + args.lease,
            "processes are left running",
        );
        // A drop would release it in the background.
        std::mem::forget(held);
        return Left::Held;
    }
    // No loss was noticed in time, because this process was stopped or the machine suspended.
    let is_over = end.is_some() && !held.is_valid();
    if is_over {
        args.tell(&LostReason::Unconfirmed.to_string());
    }
    match release(args, servers, held, rest, signals).await {
        _ if is_over => Left::Lost,
        left => left,
    }
}

/// The status after a signal. A signal of the keyboard concerns the whole foreground: a script around redis-lock ends
/// too if redis-lock was ended by the signal.
fn ended_by(number: i32, terminal: Option<&Terminal>, had_terminal: bool) -> i32 {
    let key = [Signal::SIGINT, Signal::SIGQUIT]
        .into_iter()
        .find(|key| *key as i32 == number);
    if let Some(key) = key.filter(|_| terminal.is_some_and(Terminal::is_ours)) {
        terminal::end_by(key, had_terminal);
    }
    BY_SIGNAL + number
}

async fn acquire(
    args: &Args,
    servers: &[Server],
    wanted: &Wanted,
    over: Option<Instant>,
) -> Result<Option<Held>, Failure> {
    let failed = |error| Failure::of(&error, Some(args.key()));
    let start = Instant::now();
    let mut told: Option<Instant> = None;
    while let Err(failure) = must_answer(servers, args.quorum, args.key(), over).await {
        let is_over = over.is_some_and(|over| over < Instant::now() + RETRY);
        if args.no_wait || is_over || !failure.is_passing {
            return Err(failure);
        }
        if !args.quiet && told.is_none_or(|told| told.elapsed() >= NEXT_REPORT) {
            failure.tell();
            args.tell("trying again");
            told = Some(Instant::now());
        }
        sleep(RETRY).await;
    }
    let is_there = agrees(args, servers).await?;
    // From here on the library keeps the limit and withdraws pending requests.
    let wait = match args.bound() {
        Some(bound) if bound.is_zero() => Wait::Not,
        Some(bound) => Wait::For(bound.saturating_sub(start.elapsed())),
        None => Wait::Endlessly,
    };
    match wanted.acquire(wait).await {
        Err(Error::Refused { code, .. }) if code == "LOCKBROKEN" => {
            args.tell("an operator has ended the wait (break --purge)");
            Ok(None)
        }
        Err(error) => Err(failed(error)),
        Ok(held) => {
            if held.is_some() && !is_there {
                agrees(args, servers).await?;
            }
            Ok(held)
        }
    }
}

/// Whether there is a semaphore already; one with another number of permits is refused.
async fn agrees(args: &Args, servers: &[Server]) -> Result<bool, Failure> {
    let (Some(permits), [server]) = (args.permits, servers) else {
        return Ok(true);
    };
    let info = Semaphore::new(server, args.key()).info().await;
    let info = info.map_err(|error| Failure::of(&error, Some(args.key())))?;
    match info {
        Some(info) if info.permits != u64::from(permits) => {
            let key = shown(args.key());
            let what = format!("{key} has {} permits, not {permits}", info.permits);
            Err(Failure::new(
                USAGE,
                format!("{what}: all runs name the same number (SEM.SET changes it)"),
            ))
        }
        info => Ok(info.is_some()),
    }
}

/// Runs the command under the lock, to its end.
async fn guard(
    args: &Args,
    variables: Variables,
    held: &Held,
    terminal: Option<&Terminal>,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let os = |error| Failure::new(OS, error);
    let foreground = terminal.is_some_and(Terminal::is_ours) && terminal::is_all_ours();
    signals.also(Signal::SIGCHLD).map_err(os)?;
    if terminal.is_some() && !foreground {
        signals.also(Signal::SIGTSTP).map_err(os)?;
    }
    let before = Before {
        foreground: terminal.filter(|_| foreground),
        die_with_parent: args.die_with_parent,
    };
    let child = Child::start(&args.command, variables, before)?;
    let watch = Watch {
        held,
        child: &child,
        terminal,
        foreground,
        keep: args.keep,
        grace: args.grace,
        at_most: args.at_most,
    };
    let end = watch.until_end(signals, |what| args.tell(what)).await;
    if args.verbose && end.rest == Rest::Alone {
        let left = pids(child.members());
        if !left.is_empty() {
            args.tell(&format!("left running without the lock: {}", named(left)));
        }
    }
    Ok(end)
}

/// The variables of the command's environment; those of an outer lock are removed.
fn variables(keys: &[&[u8]], held: &Held, servers: &[Server]) -> Variables {
    let tokens = held.tokens(servers);
    let several = (!tokens.is_empty()).then(|| tokens.join(" ").into());
    // No variable can hold a NUL, and the kernel limits their length to 128 kB.
    let fits = |text: &[u8]| !text.contains(&0) && text.len() <= LONGEST_VARIABLE;
    let text = keys.first().filter(|key| fits(key));
    let hex: Vec<_> = keys.iter().map(|key| key::hex(key)).collect();
    let hex = hex.join(" ");
    let token = held.token(servers).map(|token| token.to_string());
    vec![
        ("LOCK_KEY", text.map(|key| OsStr::from_bytes(key).into())),
        (SERVER, Some(names_of(servers).into())),
        (KEY_HEX, fits(hex.as_bytes()).then(|| hex.into())),
        (OWNER, Some(OsStr::from_bytes(held.owner()).into())),
        ("LOCK_TOKEN", token.map(Into::into)),
        ("LOCK_TOKENS", several),
    ]
}

/// The names of servers, without credentials.
fn names_of(servers: &[Server]) -> String {
    let names: Vec<_> = servers.iter().map(Server::name).collect();
    names.join(" ")
}

/// Waits until all is withdrawn and released; false when something may be left.
async fn settled(servers: &[Server], end: Instant) -> bool {
    let all = async {
        let mut is_all = true;
        for server in servers {
            is_all &= server.settled().await.is_empty();
        }
        is_all
    };
    timeout_at(end, all).await.unwrap_or(false)
}

/// What the owner begins with, readable: host and process.
fn own_name() -> OsString {
    let host = nix::unistd::gethostname().unwrap_or_default();
    let host = host.to_string_lossy();
    format!("{host}:{}:", std::process::id()).into()
}

/// Releases the lock, or leaves it held for the rest of its time. The library repeats a request without a reply on a new
/// connection.
async fn release(
    args: &Args,
    servers: &[Server],
    held: Held,
    rest: Duration,
    signals: &mut Signals,
) -> Left {
    let is_left = !rest.is_zero();
    // After its lease nothing is held.
    let end = Instant::now() + args.connect.timeout.min(args.lease);
    let held_until = SystemTime::now() + args.lease;
    let releasing = async {
        if is_left {
            return (held.leave_for(rest).await, false);
        }
        let released = held.release().await;
        let unheard = |said: &Result<_, Error>| said.as_ref().is_err_and(Error::is_passing);
        let is_settled = released.said.iter().any(unheard) && settled(servers, end).await;
        (released, is_settled)
    };
    let released = tokio::select! {
        released = timeout_at(end, releasing) => released.map_err(|_| "no answer in time"),
        _ = signals.next_fatal() => Err("a second signal has ended the release"),
    };
    let (released, is_settled) = match released {
        Ok(released) => released,
        Err(why) => {
            stays(args, held_until, why);
            return Left::Held;
        }
    };
    let mut left = Left::Released;
    for said in &released.said {
        match said {
            Ok(Released::Yes) if is_left => args.say("left held (--at-least)"),
            Ok(Released::Yes) => args.say("released"),
            Ok(Released::NotHeld) => args.tell("lost before it could be released"),
            Err(error) if error.is_passing() && is_settled => args.say("released"),
            Err(error) => {
                stays(args, held_until, &error.to_string());
                left = Left::Held;
            }
        }
    }
    match released.is_lost {
        true => Left::Lost,
        false => left,
    }
}

/// Says that the lock stays, and until when.
fn stays(args: &Args, until: SystemTime, why: &str) {
    let until = utc(until);
    args.tell(&format!(
        "not released, held until {until} at the latest: {why}"
    ));
}
