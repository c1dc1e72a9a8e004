//! `redis-lock run`: acquires the lock, runs the command, releases.

mod acquire;
mod child;
mod descendants;
mod lock;
mod options;
mod reachability;
mod terminal;
mod waiting;
mod watch;

use std::env::{var, var_os};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use redis_lock_client::{Error, LostReason, Released, Server};
use tokio::time::{timeout, timeout_at, Instant};

pub use self::acquire::{own_name, Acquired};
pub use self::descendants::is_living;
pub use self::lock::Sought;
pub use self::options::{Args, Request};
pub use self::terminal::{give, Terminal};

use self::acquire::LEAST_OVERTIME;
use self::child::{start_hook, Change, Child, Variables};
use self::descendants::named;
use self::lock::Held;
use self::watch::{End, Rest, Watch};
use crate::escape::shown;
use crate::failure::{Failure, BY_SIGNAL, LOST, STILL_HELD, TIMED_OUT, USAGE};
use crate::info::{state, State};
use crate::key;
use crate::os::{start_witness, Before};
use crate::report::utc;
use crate::signals::Signals;

/// Variables of the command's environment.
const OWNER: &str = "LOCK_OWNER";
/// The locks of all runs that it is below, each as KEY@OWNER@SERVER with key and owner in hexadecimal.
const HELD: &str = "LOCK_HELD";
/// In bytes, with some space for its name.
const LONGEST_VARIABLE: usize = 128 * 1024 - 64;

pub async fn run(args: Args) -> Result<i32, Failure> {
    if args.quorum && args.at_least.is_some() {
        return Err(Failure::new(USAGE, "--at-least is not for --quorum"));
    }
    let servers = args.request.connect.open()?;
    let own = own_name();
    let sought = Sought {
        request: &args.request,
        servers: &servers,
        keys: args.keys(),
        owner: args.request.owner(&own),
        margin: args.margin(),
        permits: args.permits,
        is_all: args.all,
        is_quorum: args.quorum,
    };
    let outer = nested(&sought).await;
    if outer > 0 && args.reentrant && outer == sought.keys.len() {
        return Err(child::become_command(&args.command));
    } else if outer > 0 {
        let help = "; --reentrant runs the command without a hold of its own";
        return Err(waits_for_itself(&sought, help));
    }
    // Only systemd is known to signal a whole control group.
    let witness = var_os("INVOCATION_ID").and_then(|_| start_witness());
    let mut signals = Signals::listen()?;
    let held = match sought.acquire(&mut signals).await? {
        Acquired::Held(held) => held,
        Acquired::Not => return Ok(args.request.conflict_exit_code.into()),
        Acquired::By(signal) => return Ok(ended_by(signal as i32, false)),
    };
    let granted = Instant::now();
    let variables = variables(&sought, &held);
    start_hook(args.on_acquire.as_ref(), &variables);
    let result = guard(&args, &sought, &variables, witness, &held, &mut signals).await;
    let rest = args.at_least.filter(|_| result.is_ok()).unwrap_or_default();
    let rest = rest.saturating_sub(granted.elapsed());
    let left = leave(&sought, held, result.as_ref().ok(), rest, &mut signals).await;
    let end = result?;
    if left == Left::Lost && end.lost.is_none() {
        start_hook(args.on_loss.as_ref(), &variables);
    }
    Ok(match end.change {
        _ if left == Left::Lost && !args.keep => LOST,
        _ if end.is_late => TIMED_OUT,
        Change::Exited(0) if left == Left::Held && !args.keep => STILL_HELD,
        Change::Exited(status) => status,
        Change::Killed(signal) | Change::Stopped(signal) => ended_by(signal, end.had_terminal),
    })
}

/// How many of the keys this program runs under already: a wait for one would be a wait for itself.
pub async fn nested(sought: &Sought<'_>) -> usize {
    let owner = sought.request.owner.as_ref();
    let is_other = sought.request.shared
        || sought.permits.is_some_and(|permits| permits > 1)
        || owner.is_some_and(|owner| var_os(OWNER).is_some_and(|outer| outer == *owner));
    let outer = var(HELD).ok().filter(|_| !is_other).unwrap_or_default();
    let mut nested = 0;
    for key in &sought.keys {
        let start = key::hex(key) + "@";
        let outer = outer
            .split(' ')
            .filter_map(|lock| lock.strip_prefix(&*start)?.split_once('@'));
        let (owners, places): (Vec<_>, Vec<_>) = outer.unzip();
        let is_named = places.contains(&&*place(sought));
        nested += usize::from(is_named || is_held_by(&owners, sought, key).await);
    }
    nested
}

/// Whether one of these owners holds the lock: a server may have several names.
async fn is_held_by(owners: &[&str], sought: &Sought<'_>, key: &[u8]) -> bool {
    let asked = async {
        for server in sought.servers.iter().filter(|_| !owners.is_empty()) {
            let holders = match state(server, key, 0).await {
                Ok(Some(State::Lock(info))) => info.holders,
                Ok(Some(State::Semaphore(_, holders))) => holders,
                _ => continue,
            };
            let mut holders = holders.iter().map(|holder| key::hex(&holder.owner));
            if holders.any(|owner| owners.contains(&&*owner)) {
                return true;
            }
        }
        false
    };
    let bound = sought.request.bound();
    let limit = bound.map_or(Duration::MAX, |bound| bound + LEAST_OVERTIME);
    timeout(limit, asked).await.unwrap_or(false)
}

pub fn waits_for_itself(sought: &Sought<'_>, help: &str) -> Failure {
    let key = shown(sought.key());
    let why = "this program runs under that lock already, and would wait for itself";
    let what = format!("{key}: {why} ({HELD} in its environment{help})");
    Failure::new(USAGE, what)
}

/// The servers in [`HELD`].
fn place(sought: &Sought<'_>) -> String {
    names_of(sought.servers).replace(' ', ",")
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
    sought: &Sought<'_>,
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
        let until = SystemTime::now() + sought.request.lease;
        stays(sought, until, "processes are left running");
        held.forget();
        return Left::Held;
    }
    // No loss was noticed in time, because this process was stopped or the machine suspended.
    let is_over = end.is_some() && !held.is_valid();
    if is_over {
        sought.tell(&LostReason::Unconfirmed.to_string());
    }
    match release(sought, held, rest, signals).await {
        _ if is_over => Left::Lost,
        left => left,
    }
}

/// The status after a signal. A signal of the keyboard concerns the whole foreground: a script around redis-lock ends
/// too if redis-lock was ended by the signal.
fn ended_by(number: i32, had_terminal: bool) -> i32 {
    let mut keys = [Signal::SIGINT, Signal::SIGQUIT].into_iter();
    if let Some(key) = keys.find(|key| *key as i32 == number) {
        if Terminal::open().is_some_and(|terminal| terminal.is_ours()) {
            terminal::end_by(key, had_terminal);
        }
    }
    BY_SIGNAL + number
}

/// Runs the command under the lock, to its end.
async fn guard(
    args: &Args,
    sought: &Sought<'_>,
    variables: &Variables,
    witness: Option<Pid>,
    held: &Held,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let terminal = &Terminal::open();
    let terminal = terminal.as_ref();
    let foreground = terminal.is_some_and(Terminal::is_ours) && terminal::is_all_ours();
    signals.also(Signal::SIGCHLD)?;
    if terminal.is_some() && !foreground {
        signals.also(Signal::SIGTSTP)?;
    }
    let before = Before {
        foreground: terminal.filter(|_| foreground),
        die_with_parent: args.die_with_parent,
    };
    let child = Child::start(&args.command, variables, before, witness)?;
    let watch = Watch {
        args,
        held,
        child: &child,
        terminal,
        foreground,
        on_loss: &|| start_hook(args.on_loss.as_ref(), variables),
    };
    let end = watch.until_end(signals, |what| sought.tell(what)).await;
    if args.request.verbose && end.rest == Rest::Alone {
        let left = child.members();
        if !left.is_empty() {
            sought.tell(&format!("left running without the lock: {}", named(&left)));
        }
    }
    Ok(end)
}

/// The variables of the command's environment; those of an outer lock are removed.
fn variables(sought: &Sought<'_>, held: &Held) -> Variables {
    let keys = &sought.keys;
    let tokens = held.tokens(sought);
    let several = (!tokens.is_empty()).then(|| tokens.join(" ").into());
    // No variable can hold a NUL, and the kernel limits their length to 128 kB.
    let fits = |text: &[u8]| !text.contains(&0) && text.len() <= LONGEST_VARIABLE;
    let text = keys.first().filter(|key| fits(key));
    let hexes: Vec<_> = keys.iter().map(|key| key::hex(key)).collect();
    let hex = hexes.join(" ");
    let token = held.token(sought).map(|token| token.to_string());
    let (owner, place) = (key::hex(held.owner()), place(sought));
    let own = hexes.iter().map(|key| format!("{key}@{owner}@{place}"));
    let all: Vec<_> = var(HELD).into_iter().chain(own).collect();
    let all = all.join(" ");
    vec![
        ("LOCK_KEY", text.map(|key| OsStr::from_bytes(key).into())),
        ("LOCK_SERVER", Some(names_of(sought.servers).into())),
        ("LOCK_KEY_HEX", fits(hex.as_bytes()).then(|| hex.into())),
        (HELD, fits(all.as_bytes()).then(|| all.into())),
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

/// Releases the lock, or leaves it held for the rest of its time. The library repeats a request without a reply on a
/// new connection.
async fn release(sought: &Sought<'_>, held: Held, rest: Duration, signals: &mut Signals) -> Left {
    let is_left = !rest.is_zero();
    // After its lease nothing is held.
    let end = Instant::now() + sought.request.connect.timeout.min(sought.request.lease);
    let held_until = SystemTime::now() + sought.request.lease;
    let releasing = async {
        if is_left {
            return (held.leave_for(rest).await, false);
        }
        let released = held.release().await;
        let unheard = |said: &Result<_, Error>| said.as_ref().is_err_and(Error::is_passing);
        let is_settled = released.said.iter().any(unheard) && sought.settled(end).await;
        (released, is_settled)
    };
    let released = tokio::select! {
        released = timeout_at(end, releasing) => released.map_err(|_| "no answer in time"),
        _ = signals.next_fatal() => Err("a second signal has ended the release"),
    };
    let (released, is_settled) = match released {
        Ok(released) => released,
        Err(why) => {
            stays(sought, held_until, why);
            return Left::Held;
        }
    };
    let mut left = Left::Released;
    for said in &released.said {
        match said {
            Ok(Released::Yes) if is_left => sought.say("left held (--at-least)"),
            Ok(Released::Yes) => sought.say("released"),
            Ok(Released::NotHeld) => sought.tell("lost before it could be released"),
            Err(error) if error.is_passing() && is_settled => sought.say("released"),
            Err(error) => {
                stays(sought, held_until, &error.to_string());
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
fn stays(sought: &Sought<'_>, until: SystemTime, why: &str) {
    let until = utc(until);
    sought.tell(&format!(
        "not released, held until {until} at the latest: {why}"
    ));
}
