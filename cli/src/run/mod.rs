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

use std::cell::Cell;
use std::env::{var, var_os};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use redis_lock_client::{Error, Holder, LostReason, Mode, Released, Server};
use tokio::time::{timeout_at, Instant};

pub use self::acquire::{own_name, Acquired};
pub use self::descendants::is_living;
pub use self::lock::Sought;
pub use self::options::{Args, Request};
pub use self::terminal::{give, Terminal};

use self::acquire::LEAST_OVERTIME;
use self::child::{start_hook, Change, Child, Variables};
use self::descendants::named;
use self::lock::Held;
use self::reachability::ENDLESS;
use self::watch::{End, Rest, Watch};
use crate::escape::shown;
use crate::failure::{Failure, BY_SIGNAL, LOST, STILL_HELD, TIMED_OUT, UNAVAILABLE, USAGE};
use crate::info::{state, State};
use crate::key;
use crate::os::{start_witness, Before};
use crate::report::utc;
use crate::signals::Signals;

/// Variables of the command's environment, to which --prefix is put, and of the output of `acquire`.
pub const OWNER: &str = "LOCK_OWNER";
pub const TOKEN: &str = "LOCK_TOKEN";
pub const TOKENS: &str = "LOCK_TOKENS";
/// The locks of all runs that it is below, each as KEY@OWNER@TOKEN@SERVER with key and owner in hexadecimal. Of several
/// keys or servers there are as many tokens, with commas between them, and of a permit none.
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
        keys: args.request.keys(args.key()),
        owner: args.request.owner(&own),
        margin: args.margin(),
        permits: args.request.permits,
        is_all: args.all,
        is_quorum: args.quorum,
    };
    let outer = nested(&sought).await;
    if args.reentrant && outer.whole == sought.keys.len() {
        return Err(child::become_command(&args.command));
    } else if let Some(why) = outer.why.filter(|_| args.reentrant && outer.some > 0) {
        return Err(why);
    } else if outer.some > 0 {
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

/// What the servers say of the locks that this program runs under: a wait for one would be a wait for itself; or, under
/// the owner's name, a hold whose release gives that lock back.
#[derive(Default)]
pub struct Nested {
    /// The keys that a run above holds on a server, or may hold, because a server that it names does not say.
    pub some: usize,
    /// The keys that it certainly holds wherever this request would.
    whole: usize,
    /// Why a server does not say.
    why: Option<Failure>,
}

/// A lock that a run above had when it started its command.
struct Above<'a> {
    owner: &'a str,
    /// None for a permit, several on several servers.
    tokens: Vec<&'a str>,
    place: &'a str,
}

impl<'a> Above<'a> {
    /// One of [`HELD`], without its key.
    fn parse(lock: &'a str) -> Option<Above<'a>> {
        let mut parts = lock.splitn(3, '@');
        let (owner, tokens, place) = (parts.next()?, parts.next()?, parts.next()?);
        let tokens = tokens.split(',').filter(|token| !token.is_empty());
        Some(Above {
            owner,
            tokens: tokens.collect(),
            place,
        })
    }
}

/// Asks the servers for the locks that this program runs under. Its environment alone proves nothing: the run above may
/// have ended, or lost the lock.
pub async fn nested(sought: &Sought<'_>) -> Nested {
    let held = var(HELD).unwrap_or_default();
    let needed = match sought.is_quorum {
        true => sought.servers.len() / 2 + 1,
        false => sought.servers.len(),
    };
    let bound = sought.request.bound();
    let end = Instant::now() + bound.map_or(ENDLESS, |bound| bound + LEAST_OVERTIME);
    let mut nested = Nested::default();
    for key in &sought.keys {
        let start = key::hex(key) + "@";
        let own = held
            .split(' ')
            .filter_map(|lock| lock.strip_prefix(&*start));
        let above: Vec<_> = own.filter_map(Above::parse).collect();
        if above.is_empty() {
            continue;
        }
        let is_named = above.iter().any(|lock| lock.place == place(sought));
        let (mut holding, mut unknown) = (0, false);
        let asked = sought.servers.iter();
        let asked = asked.map(|server| timeout_at(end, is_held_above(server, sought, key, &above)));
        for (server, asked) in sought.servers.iter().zip(join_all(asked).await) {
            let why = match asked {
                Ok(Ok(is_held)) => {
                    holding += usize::from(is_held);
                    continue;
                }
                Ok(Err(error)) => Failure::of(&error, Some(*key)),
                Err(_) => {
                    Failure::new(UNAVAILABLE, format!("{}: no answer in time", server.name()))
                }
            };
            unknown |= is_named;
            nested.why.get_or_insert(why);
        }
        nested.some += usize::from(holding > 0 || unknown);
        nested.whole += usize::from(holding >= needed);
    }
    nested
}

/// Whether one of these locks is held, so that this request would wait for it: by its owner, under its token.
async fn is_held_above(
    server: &Server,
    sought: &Sought<'_>,
    key: &[u8],
    above: &[Above<'_>],
) -> Result<bool, Error> {
    let state = state(server, key, 0).await?;
    let (holders, most) = match state {
        // Readers hold it beside each other.
        Some(State::Lock(info)) if sought.request.shared && info.mode == Some(Mode::Read) => {
            return Ok(false)
        }
        Some(State::Lock(info)) => (info.holders, 1),
        Some(State::Semaphore(_, holders)) => {
            let others = sought.request.count.saturating_sub(1);
            (holders, sought.permits.unwrap_or(1).saturating_sub(others))
        }
        None => return Ok(false),
    };
    let is_above = |holder: &&Holder| {
        let (owner, token) = (
            key::hex(&holder.owner),
            holder.token.map(|token| token.to_string()),
        );
        above.iter().any(|lock| {
            let is_token = |token: &String| lock.tokens.contains(&&**token);
            lock.owner == owner && (lock.tokens.is_empty() || token.as_ref().is_some_and(is_token))
        })
    };
    let own = holders.iter().filter(is_above).map(|holder| holder.holds);
    Ok(own.sum::<u64>() >= u64::from(most))
}

pub fn waits_for_itself(sought: &Sought<'_>, help: &str) -> Failure {
    let key = shown(sought.key());
    let why =
        "this program runs under that lock already, and would wait for itself or give it back";
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
        // Of several locks some may be held still.
        let rest_of_it = async {
            match rest.is_zero() {
                true => held.leave().await,
                false => drop(held.leave_for(rest).await),
            }
        };
        tokio::select! {
            () = rest_of_it => {}
            () = signals.one_more_fatal() => {}
        }
        return Left::Lost;
    }
    if end.is_some_and(|end| end.rest == Rest::Left) {
        let until = SystemTime::now() + sought.request.lease;
        stays(sought, until, "processes are left running");
        held.forget();
        return Left::Held;
    }
    // By one of the clocks the lease is over: this process was stopped, the machine suspended, or its clock was set.
    // The lock was held all the time if the servers release it under its token.
    let is_over = end.is_some() && !held.is_valid();
    match release(sought, held, rest, signals).await {
        Left::Held if is_over => {
            sought.tell(&LostReason::Unconfirmed.to_string());
            Left::Lost
        }
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
        is_to_resume: Cell::new(false),
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
    let numbers: Vec<_> = held.numbers().iter().map(u64::to_string).collect();
    let numbers = numbers.join(",");
    let own = hexes
        .iter()
        .map(|key| format!("{key}@{owner}@{numbers}@{place}"));
    let all: Vec<_> = var(HELD).into_iter().chain(own).collect();
    let all = all.join(" ");
    let own = [
        ("LOCK_KEY", text.map(|key| OsStr::from_bytes(key).into())),
        ("LOCK_SERVER", Some(names_of(sought.servers).into())),
        ("LOCK_KEY_HEX", fits(hex.as_bytes()).then(|| hex.into())),
        (OWNER, Some(OsStr::from_bytes(held.owner()).into())),
        (TOKEN, token.map(Into::into)),
        (TOKENS, several),
    ];
    let prefix = &sought.request.prefix;
    let own = own.map(|(name, value)| (format!("{prefix}{name}"), value));
    let all = (HELD.into(), fits(all.as_bytes()).then(|| all.into()));
    own.into_iter().chain([all]).collect()
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
    let timeout = sought.request.connect.timeout;
    let end = Instant::now()
        + match is_left {
            // Each server has the response timeout for its answer.
            true => timeout + LEAST_OVERTIME,
            // After its lease nothing is held.
            false => timeout.min(sought.request.lease),
        };
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
        () = signals.one_more_fatal() => Err("a second signal has ended the release"),
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
            Ok(_) => sought.tell("lost before it could be released"),
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
