//! `redis-lock run`: takes the lock, runs the command, releases.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::time::Duration;

use nix::sys::signal::Signal;
use redis_lock_client::{Error, Released, Server};
use tokio::task::JoinSet;
use tokio::time::timeout;
use uuid::Uuid;

use crate::args::{bytes, seconds, Connect};
use crate::child::{Before, Change, Child, Variables};
use crate::failure::{say, Failure, BY_SIGNAL, LOST, OS};
use crate::held::{Held, Terms, Wait, Wanted};
use crate::shown::shown;
use crate::signals::Signals;
use crate::terminal::{self, Terminal};
use crate::watch::{End, Watch};

/// How long the release at the end, or the withdrawal of a wait, may take: the lease ends by itself.
const FAREWELL: Duration = Duration::from_secs(2);

/// Run a command under a lock
///
/// Takes the lock, waiting in the server's queue if need be, runs the command, and releases. The lease is
/// renewed as long as the command runs. The command gets LOCK_KEY, LOCK_OWNER and LOCK_TOKEN, the fencing
/// token, in its environment; with several servers LOCK_TOKENS, too (server=token, with spaces between), and
/// with --all no LOCK_TOKEN.
///
/// The command is started after the grant, in a process group of its own. Signals (HUP, INT, QUIT, TERM, USR1,
/// USR2, WINCH, CONT) are passed on to that group. Ctrl-C and Ctrl-Z work as without redis-lock; while all is
/// stopped by Ctrl-Z nothing renews the lease, and a command whose lock is lost by then is ended rather than
/// continued.
///
/// When the lock is lost, because it was broken or the server could not be reached for a whole lease, the group
/// is sent SIGTERM and after --grace SIGKILL.
///
/// The lock is released when the command ends. What it has left running in the background is then without the
/// lock (flock(1) holds on until the last of them has closed the file). When redis-lock itself is killed (-9)
/// the command goes on, and the lock is somebody else's when the lease has run out: see --die-with-parent.
#[derive(Debug, clap::Args)]
#[command(after_help = STATUS)]
pub struct Args {
    /// The key of the lock.
    key: OsString,

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

    /// The owner, instead of host:process:random. Whoever names the same one has the same lock, at the same time;
    /// the first who ends releases it for all of them.
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

    /// From SIGTERM to SIGKILL, when the lock is lost.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    grace: Duration,

    /// Have the kernel kill the command (not its children) when redis-lock is killed. Linux only.
    #[arg(long)]
    die_with_parent: bool,

    /// Say on standard error what happens to the lock.
    #[arg(short, long)]
    verbose: bool,

    #[command(flatten)]
    connect: Connect,
}

const STATUS: &str = "\
Exit status: the command's; 128+n when signal n ended it, or the wait; 1 (see -E) when the lock was not to be \
had; 64 usage, or certificates that are not believed; 65 the key holds something else; 69 a server is unavailable or has no module; 75 the lock was \
lost and the command stopped because of it; 77 the user may not; 126 the command cannot be run; 127 there is \
no such command.";

pub async fn run(args: Args) -> Result<i32, Failure> {
    let servers = args.connect.open()?;
    let owner = args.owner.clone().unwrap_or_else(own_name);
    let terms = Terms {
        key: bytes(&args.key),
        owner: bytes(&owner),
        lease: args.lease,
        shared: args.shared,
        exclusive: args.exclusive,
    };
    let wanted = match servers.as_slice() {
        _ if args.all => Wanted::of_all(&servers, &terms),
        _ if args.quorum => Wanted::of_most(&servers, &terms),
        [server] => Ok(Wanted::of_one(server, &terms)),
        _ => Err(Error::Config(
            "several servers: say --all or --quorum".into(),
        )),
    };
    let wanted = wanted.map_err(|error| Failure::of(&error, None))?;
    let mut signals = Signals::listen().map_err(|error| Failure::new(OS, error))?;
    let terminal = Terminal::open();
    let held = tokio::select! {
        held = acquire(&args, &servers, &wanted) => held,
        signal = signals.next_deadly() => {
            farewell(&servers).await;
            return Ok(ended_by(signal, terminal.as_ref(), false));
        }
    };
    let Ok(Some(held)) = held else {
        farewell(&servers).await;
        args.say("not to be had");
        return held.map(|_| args.conflict_exit_code.into());
    };
    args.say(
        &held
            .token()
            .map_or("held".into(), |token| format!("held, token {token}")),
    );
    let variables = variables(&args.key, &held, &servers);
    let result = guard(&args, variables, &held, terminal.as_ref(), &mut signals).await;
    let was_lost = result.as_ref().is_ok_and(|(end, _)| end.lost.is_some());
    if was_lost {
        held.leave().await;
    } else {
        args.release(held, &mut signals).await;
    }
    let (end, had_terminal) = result?;
    if end.lost.is_some() && !args.keep {
        return Ok(LOST);
    }
    Ok(match end.change {
        Change::Exited(status) => status,
        Change::Killed(signal) | Change::Stopped(signal) => {
            ended_by(signal, terminal.as_ref(), had_terminal)
        }
    })
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
) -> Result<Option<Held>, Failure> {
    let failed = |error| Failure::of(&error, Some(bytes(&args.key)));
    // A wait outlasts a server's absence. One that is not there to begin with is a mistake.
    must_answer(servers, args.quorum).await.map_err(failed)?;
    let wait = match (args.no_wait, args.wait) {
        (true, _) => Wait::Not,
        (_, Some(wait)) if wait.is_zero() => Wait::Not,
        (_, Some(wait)) => Wait::For(wait),
        _ => Wait::Endlessly,
    };
    wanted.acquire(wait).await.map_err(failed)
}

/// All servers must answer, or of a quorum most of them: asked at once, so that a dead minority costs no time.
async fn must_answer(servers: &[Server], quorum: bool) -> Result<(), Error> {
    let mut spare = if quorum {
        servers.len().saturating_sub(1) / 2
    } else {
        0
    };
    let mut needed = servers.len() - spare;
    let mut answers = JoinSet::new();
    for server in servers {
        let server = server.clone();
        answers.spawn(async move { server.ping().await });
    }
    while let Some(Ok(answer)) = answers.join_next().await {
        match answer {
            Ok(()) => needed -= 1,
            Err(Error::Connection { server, what }) if spare == 0 && quorum => {
                let what = format!("{what} (no majority of {} servers answers)", servers.len());
                return Err(Error::Connection { server, what });
            }
            Err(error) if spare == 0 => return Err(error),
            Err(_) => spare -= 1,
        }
        if needed == 0 {
            return Ok(());
        }
    }
    Ok(())
}

/// Runs the command under the lock, to its end. Tells whether it had the terminal then.
async fn guard(
    args: &Args,
    variables: Variables,
    held: &Held,
    terminal: Option<&Terminal>,
    signals: &mut Signals,
) -> Result<(End, bool), Failure> {
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
    let had_terminal = terminal.is_some_and(|terminal| terminal.take_back(child.group()));
    Ok((end, had_terminal))
}

/// What the command finds in its environment, and what it does not: an outer lock's.
fn variables(key: &OsStr, held: &Held, servers: &[Server]) -> Variables {
    let tokens = held.tokens(servers).into_iter();
    let tokens: Vec<String> = tokens
        .map(|(server, token)| format!("{server}={token}"))
        .collect();
    let several = (!tokens.is_empty()).then(|| tokens.join(" ").into());
    vec![
        ("LOCK_KEY", Some(key.to_os_string())),
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

/// What is under way in the background is waited for, but not for long.
async fn farewell(servers: &[Server]) {
    let settled = async {
        for server in servers {
            server.settled().await;
        }
    };
    let _ = timeout(FAREWELL, settled).await;
}

/// Unique to this run, and telling to people.
fn own_name() -> OsString {
    let host = nix::unistd::gethostname().unwrap_or_default().into_vec();
    let host = String::from_utf8_lossy(&host).into_owned();
    let (process, random) = (std::process::id(), Uuid::new_v4().simple());
    format!("{host}:{process}:{random}").into()
}

impl Args {
    async fn release(&self, held: Held, signals: &mut Signals) {
        let released = tokio::select! {
            released = timeout(FAREWELL, held.release()) => released,
            // Asked twice: then without the server's word.
            _ = signals.next_deadly() => return,
        };
        let Ok(released) = released else {
            return self.tell("not released, it ends with its lease: no answer in time");
        };
        for said in released {
            match said {
                Ok(Released::Yes) => self.say("released"),
                Ok(Released::NotHeld) => self.tell("lost before it could be released"),
                Err(error) => self.tell(&format!("not released, it ends with its lease: {error}")),
            }
        }
    }

    /// With --verbose.
    fn say(&self, what: &str) {
        if self.verbose {
            self.tell(what);
        }
    }

    fn tell(&self, what: &str) {
        let key = shown(bytes(&self.key));
        say(&format!("redis-lock: {key}: {}", shown(what.as_bytes())));
    }
}
