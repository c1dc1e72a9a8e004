//! `redis-lock run`: takes the lock, runs the command, releases.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use nix::sys::signal::Signal;
use redis_lock_client::{LostReason, Released, Server};
use tokio::time::{timeout, timeout_at, Instant};
use uuid::Uuid;

use crate::answers::must_answer;
use crate::child::{Before, Change, Child, Variables};
use crate::connect::Connect;
use crate::descendants::{named, pids};
use crate::failure::{say, Failure, BY_SIGNAL, LOST, OS, USAGE};
use crate::held::{Held, Terms, Wait, Wanted};
use crate::key::{self, Hex};
use crate::shown::shown;
use crate::signals::Signals;
use crate::terminal::{self, Terminal};
use crate::values::{bytes, seconds};
use crate::watch::{End, Rest, Watch};

/// How long the release at the end, or the withdrawal of a wait, may take: the lease ends by itself.
const FAREWELL: Duration = Duration::from_secs(2);
/// How much longer than its bound a wait may last, for an answer that is owed and for the withdrawal.
const OVERTIME: Duration = Duration::from_millis(200);
/// How long a withdrawal may take, at least.
const WITHDRAWAL: Duration = Duration::from_millis(80);
/// How long a process that is killed needs to end.
const KILLED: Duration = Duration::from_millis(500);

/// Run a command under a lock
///
/// Takes the lock, waiting in the server's queue if need be, runs the command, and releases. The lease is
/// renewed as long as the command runs. The command gets LOCK_KEY (not if there is a NUL in the key),
/// LOCK_KEY_HEX, LOCK_OWNER and LOCK_TOKEN, the fencing token, in its environment; with several servers LOCK_TOKENS, too (server=token, with spaces between), and
/// with --all no LOCK_TOKEN.
///
/// The command is started after the grant, in a process group of its own. Signals (HUP, INT, QUIT, TERM, USR1,
/// USR2, WINCH, CONT) are passed on to that group. Ctrl-C and Ctrl-Z work as without redis-lock; while all is
/// stopped by Ctrl-Z nothing renews the lease, and a command whose lock is lost by then is ended rather than
/// continued.
///
/// When the lock is lost, because it was broken or no renewal was confirmed until --margin before the lease's end,
/// the command and all its descendants are sent SIGTERM and after --grace SIGKILL, also those that have left its process group
/// (timeout, setsid, daemons). redis-lock ends when all of them have.
///
/// TERM, INT, HUP and QUIT are passed on to all descendants. When the command has ended after one of these, what it
/// has left running is sent SIGTERM and after --grace SIGKILL, and the lock is released when all have ended. A
/// process that cannot be killed is named by its pid and waited for; one more of these signals ends redis-lock
/// without a release.
///
/// Otherwise the lock is released when the command ends. What it has left running in the background is then
/// without the lock, and --verbose names it (flock(1) holds on until the last of them has closed the file).
/// Descendants are found in /proc; where there is none (not Linux) the process group takes their place.
///
/// When redis-lock itself is killed (-9) the command goes on, and another client can get the lock when the lease
/// has run out: see --die-with-parent.
#[derive(Debug, clap::Args)]
#[command(after_help = STATUS, override_usage = USAGES)]
pub struct Args {
    /// The key of the lock.
    pub key: OsString,

    /// The key in hexadecimal, in place of KEY: for names that no argument can hold (NUL).
    #[arg(long, value_name = "HEX")]
    pub key_hex: Option<Hex>,

    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    /// Do not wait: end at once (see -E) when the lock is not free.
    #[arg(short, long, alias = "nonblock", conflicts_with = "wait")]
    no_wait: bool,

    /// Wait so long at most (2.5). Without it: as long as it takes.
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    wait: Option<Duration>,

    /// What the command ends with when the lock is not to be had.
    #[arg(short = 'E', long, value_name = "STATUS", default_value = "1",
          value_parser = clap::value_parser!(u8))]
    conflict_exit_code: u8,

    /// How long the server keeps the lock when it hears nothing; renewed at every third of it.
    #[arg(short, long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    lease: Duration,

    /// Share the lock with others who come with --shared.
    #[arg(short, long, conflicts_with = "exclusive")]
    shared: bool,

    /// Exclude those who come with --shared, too. (Without either option the lock is a plain one, and those two
    /// are refused.)
    #[arg(short = 'x', long)]
    exclusive: bool,

    /// The owner, instead of host:process:random. Two runs that name the same one have the same lock, at the same time;
    /// the first that ends releases it for both.
    #[arg(short, long)]
    owner: Option<OsString>,

    /// With several servers: the lock of each of them, or none. They need not know of each other.
    #[arg(long, conflicts_with = "quorum")]
    all: bool,

    /// With three or more independent servers: the lock of most of them (RedLock). No server's
    /// lock.startup-delay may be shorter than the lease.
    #[arg(long, conflicts_with = "owner")]
    quorum: bool,

    /// Let the command go on when the lock is lost.
    #[arg(long)]
    keep: bool,

    /// From SIGTERM to SIGKILL, when the lock is lost, or a signal has ended the command and it left processes.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    grace: Duration,

    /// How long before the lease's end the lock counts as lost when no renewal is confirmed: the time to stop the
    /// command in, before another owner can have the lock. [default: the grace and half a second; a third of the lease
    /// where that is more than half of it]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    margin: Option<Duration>,

    /// Have the kernel kill the command (not its children) when redis-lock is killed. Linux only.
    #[arg(long)]
    die_with_parent: bool,

    /// Say on standard error what happens to the lock.
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    connect: Connect,
}

const USAGES: &str = "redis-lock run [OPTIONS] <KEY> <COMMAND>...
       redis-lock run [OPTIONS] --key-hex <HEX> <COMMAND>...";

const STATUS: &str = "\
Exit status: the command's; 128+n when signal n ended it, or the wait; 1 (see -E) when the lock was not to be \
had; 64 usage, or certificates that are not believed; 65 the key holds something else; 69 a server is unavailable or has no module; 75 the lock was \
lost: the command was stopped because of it, or had ended when the loss was found (not with --keep); 77 the user may not; 126 the command cannot be run; 127 there is \
no such command.";

pub async fn run(args: Args) -> Result<i32, Failure> {
    let servers = args.connect.open()?;
    let owner = args.owner.clone().unwrap_or_else(own_name);
    let terms = Terms {
        key: args.key(),
        owner: bytes(&owner),
        lease: args.lease,
        margin: args.margin(),
        shared: args.shared,
        exclusive: args.exclusive,
    };
    let wanted = match servers.as_slice() {
        _ if args.all => Wanted::of_all(&servers, &terms),
        _ if args.quorum => Wanted::of_most(&servers, &terms),
        [server] => Ok(Wanted::of_one(server, &terms)),
        _ => {
            let message = "several servers: say --all or --quorum";
            return Err(Failure::new(USAGE, message));
        }
    };
    let wanted = wanted.map_err(|error| Failure::of(&error, None))?;
    let mut signals = Signals::listen().map_err(|error| Failure::new(OS, error))?;
    let terminal = Terminal::open();
    let over = args.bound().map(|bound| Instant::now() + bound + OVERTIME);
    let held = tokio::select! {
        held = acquire(&args, &servers, &wanted, over) => held,
        signal = signals.next_deadly() => {
            farewell(&servers, None).await;
            return Ok(ended_by(signal, terminal.as_ref(), false));
        }
    };
    let Ok(Some(held)) = held else {
        farewell(&servers, over).await;
        args.say("not to be had");
        return held.map(|_| args.conflict_exit_code.into());
    };
    args.say(
        &held
            .token()
            .map_or("held".into(), |token| format!("held, token {token}")),
    );
    let variables = variables(args.key(), &held, &servers);
    let result = guard(&args, variables, &held, terminal.as_ref(), &mut signals).await;
    let is_lost = leave(&args, held, result.as_ref().ok(), &mut signals).await;
    let end = result?;
    if is_lost && !args.keep {
        return Ok(LOST);
    }
    Ok(match end.change {
        Change::Exited(status) => status,
        Change::Killed(signal) | Change::Stopped(signal) => {
            ended_by(signal, terminal.as_ref(), end.had_terminal)
        }
    })
}

/// Gives up the lock after the command's end, or when it was not started; true when the lock was lost before.
async fn leave(args: &Args, held: Held, end: Option<&End>, signals: &mut Signals) -> bool {
    if end.is_some_and(|end| end.lost.is_some()) {
        held.leave().await;
        return true;
    }
    if end.is_some_and(|end| end.rest == Rest::Left) {
        args.tell("not released, it ends with its lease");
        // Dropped, it would be released in the background.
        std::mem::forget(held);
        return false;
    }
    // Where no loss was noticed in time, because this process was stopped or the machine slept.
    let is_over = end.is_some() && !held.is_valid();
    if is_over {
        args.tell(&LostReason::Unconfirmed.to_string());
    }
    args.release(held, signals).await || is_over
}

/// The status after a signal. One of the keyboard's is for all of the foreground: a script around us, which
/// sees whether we ended by it, ends too.
fn ended_by(signal: Signal, terminal: Option<&Terminal>, had_terminal: bool) -> i32 {
    let is_key = matches!(signal, Signal::SIGINT | Signal::SIGQUIT);
    if is_key && terminal.is_some_and(Terminal::is_ours) {
        terminal::end_by(signal, had_terminal);
    }
    BY_SIGNAL + signal as i32
}

async fn acquire(
    args: &Args,
    servers: &[Server],
    wanted: &Wanted,
    over: Option<Instant>,
) -> Result<Option<Held>, Failure> {
    let failed = |error| Failure::of(&error, Some(args.key()));
    let start = Instant::now();
    must_answer(servers, args.quorum, args.key(), over).await?;
    // From here on the library keeps the bound, and withdraws what is under way.
    let wait = match args.bound() {
        Some(bound) if bound.is_zero() => Wait::Not,
        Some(bound) => Wait::For(bound.saturating_sub(start.elapsed())),
        None => Wait::Endlessly,
    };
    wanted.acquire(wait).await.map_err(failed)
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
        foreground,
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

/// What the command finds in its environment, and what it does not: an outer lock's.
fn variables(key: &[u8], held: &Held, servers: &[Server]) -> Variables {
    let tokens = held.tokens(servers).into_iter();
    let tokens: Vec<String> = tokens
        .map(|(server, token)| format!("{server}={token}"))
        .collect();
    let several = (!tokens.is_empty()).then(|| tokens.join(" ").into());
    // No variable can hold a NUL.
    let text = (!key.contains(&0)).then(|| OsStr::from_bytes(key).to_os_string());
    vec![
        ("LOCK_KEY", text),
        ("LOCK_KEY_HEX", Some(key::hex(key).into())),
        (
            "LOCK_OWNER",
            Some(OsStr::from_bytes(held.owner()).to_os_string()),
        ),
        (
            "LOCK_TOKEN",
            held.token().map(|token| token.to_string().into()),
        ),
        ("LOCK_TOKENS", several),
    ]
}

/// What is under way in the background is waited for, but not for long, and not much longer than the bound of the wait.
async fn farewell(servers: &[Server], over: Option<Instant>) {
    let longest = Instant::now() + FAREWELL;
    let end = over.map_or(longest, |over| over.max(Instant::now() + WITHDRAWAL));
    let end = end.min(longest);
    let settled = async {
        for server in servers {
            server.settled().await;
        }
    };
    let _ = timeout_at(end, settled).await;
}

/// Unique to this run, and telling to people.
fn own_name() -> OsString {
    let host = nix::unistd::gethostname().unwrap_or_default().into_vec();
    let host = String::from_utf8_lossy(&host).into_owned();
    let (process, random) = (std::process::id(), Uuid::new_v4().simple());
    format!("{host}:{process}:{random}").into()
}

impl Args {
    /// How long the lock may be waited for, if not endlessly.
    fn bound(&self) -> Option<Duration> {
        match self.no_wait {
            true => Some(Duration::ZERO),
            false => self.wait,
        }
    }

    /// None is the library's own. A command that goes on needs no time to stop.
    fn margin(&self) -> Option<Duration> {
        // As the library has it, in whole milliseconds.
        let lease = u64::try_from(self.lease.as_millis()).unwrap_or(u64::MAX);
        let lease = Duration::from_millis(lease);
        let stop = self.grace.saturating_add(KILLED);
        let stop = if stop <= lease / 2 { stop } else { lease / 3 };
        self.margin.or((!self.keep).then_some(stop))
    }

    /// Gives the lock back; true when it was lost before.
    async fn release(&self, held: Held, signals: &mut Signals) -> bool {
        let released = tokio::select! {
            released = timeout(FAREWELL, held.release()) => released,
            // Asked twice: then without the server's word.
            _ = signals.next_deadly() => return false,
        };
        let Ok(released) = released else {
            self.tell("not released, it ends with its lease: no answer in time");
            return false;
        };
        for said in &released.said {
            match said {
                Ok(Released::Yes) => self.say("released"),
                Ok(Released::NotHeld) => self.tell("lost before it could be released"),
                Err(error) => self.tell(&format!("not released, it ends with its lease: {error}")),
            }
        }
        released.is_lost
    }

    fn key(&self) -> &[u8] {
        match &self.key_hex {
            Some(key) => key.bytes(),
            None => bytes(&self.key),
        }
    }

    /// With --verbose.
    fn say(&self, what: &str) {
        if self.verbose {
            self.tell(what);
        }
    }

    fn tell(&self, what: &str) {
        let key = shown(self.key());
        say(&format!("redis-lock: {key}: {}", shown(what.as_bytes())));
    }
}
