//! The options of `run`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use crate::key::{unhex, Bytes};
use crate::run::lock::Owner;
use crate::servers::Connect;
use crate::values::{prefix, seconds};

/// Time that a killed process needs to end.
const KILLED: Duration = Duration::from_millis(500);

/// Run a command under a lock
///
/// Waits in the server's queue if necessary, runs the command, and releases the lock. The lease is renewed as long as
/// the command runs.
///
/// The environment of the command has LOCK_KEY, LOCK_KEY_HEX (the key in hexadecimal), LOCK_SERVER, LOCK_OWNER and
/// LOCK_TOKEN, the fencing token: pass it to the resource that the lock protects, which has to refuse lower ones. With
/// --and, LOCK_KEY and LOCK_TOKEN are those of the first key, LOCK_KEY_HEX and LOCK_TOKENS those of all in their order,
/// separated by spaces. With several servers LOCK_TOKENS has server=token for each, and LOCK_TOKEN is the highest of
/// --quorum. LOCK_HELD names all locks that the command runs under. There is no LOCK_TOKEN with --all and --permits,
/// and no LOCK_KEY where the key contains a NUL. With --prefix the names begin with its text, but for LOCK_HELD.
///
/// The command has a process group of its own. HUP, INT, QUIT, TERM, USR1, USR2, WINCH and CONT are passed on to that
/// group, the first four of them to all descendants; a signal that was ignored at the start (nohup) stays ignored. When
/// the command has ended after one of these four, what it has left running is sent SIGTERM and after --grace SIGKILL,
/// and the lock is released when all have ended. For a process that cannot be killed redis-lock prints its pid and
/// waits; one more signal ends redis-lock without a release.
///
/// When the lock is lost, because it was broken or no renewal was confirmed until --margin before the lease's end, the
/// command and all its descendants are ended likewise, including those that have left its process group (timeout,
/// setsid, daemons).
///
/// Otherwise the lock is released when the command ends. What it has left in the background runs on without the lock,
/// and --verbose names it (flock(1) would keep the lock). Descendants are found in /proc; without /proc (not Linux)
/// only the process group is known.
///
/// Ctrl-C and Ctrl-Z work as without redis-lock. While it is stopped by Ctrl-Z the lease is not renewed; a command
/// whose lock is lost meanwhile is ended instead of continued. When redis-lock is killed (-9) the command goes on, and
/// another client can get the lock when the lease has run out: see --die-with-parent.
#[derive(Debug, clap::Args)]
#[command(after_help = STATUS, override_usage = USAGES)]
pub struct Args {
    /// The key of the lock.
    pub key: OsString,

    /// The key in hexadecimal, instead of KEY: a NUL cannot be in an argument.
    #[arg(long, value_name = "HEX", value_parser = unhex)]
    pub key_hex: Option<Bytes>,

    /// The command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,

    /// Leave the lock held until so long after the grant, however the command ends: for hosts that start a quick job
    /// later. Not with --quorum.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) at_least: Option<Duration>,

    /// End the command when it has run for so long, with status 124.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) at_most: Option<Duration>,

    /// Below a run of the same key and server (see LOCK_HELD), which otherwise is refused because it would wait for
    /// itself: run the command under that lock, without a hold of its own. If that run does not hold the lock any more,
    /// this one acquires it.
    #[arg(long)]
    pub(super) reentrant: bool,

    /// With several servers: the lock on each of them, or none.
    #[arg(long, conflicts_with_all = ["quorum", "and", "permits"])]
    pub(super) all: bool,

    /// With three or more independent servers: the lock on a majority of them (RedLock). No server's lock.startup-delay
    /// may be shorter than the lease.
    #[arg(long, conflicts_with_all = ["owner", "and", "permits", "queue", "replicas"])]
    pub(super) quorum: bool,

    /// Let the command continue when the lock is lost.
    #[arg(long)]
    pub(super) keep: bool,

    /// Start this script of the shell when the lock is granted, beside the command and with its variables.
    #[arg(long, value_name = "SCRIPT")]
    pub(super) on_acquire: Option<OsString>,

    /// Start this script of the shell when the lock is lost. Where the command is stopped, it has the grace to end.
    #[arg(long, value_name = "SCRIPT")]
    pub(super) on_loss: Option<OsString>,

    /// The time from SIGTERM to SIGKILL.
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    pub(super) grace: Duration,

    /// How long before the end of the lease the lock counts as lost: the time to stop the command. [default: the grace
    /// and half a second; a third of the lease if that is more than half of it]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) margin: Option<Duration>,

    /// Have the kernel kill the command (not its children) when redis-lock is killed. Linux only.
    #[arg(long)]
    pub(super) die_with_parent: bool,

    #[command(flatten)]
    pub(super) request: Request,
}

/// The options of an acquisition.
#[derive(Debug, clap::Args)]
pub struct Request {
    /// One more key: all are locked, or none. Can be repeated.
    #[arg(long, value_name = "KEY")]
    and: Vec<OsString>,

    /// Instead of a lock: one of so many permits. All requests for the key give the same number.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..1 << 31),
          conflicts_with_all = ["shared", "exclusive", "and"])]
    pub permits: Option<u32>,

    /// With --permits: take so many of them in one step, all or none.
    #[arg(long, value_name = "COUNT", default_value = "1", requires = "permits",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub count: u32,

    /// Do not join a long queue: end at once (see -E) when the lock is not free and so many other requests wait for it.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub queue: Option<u32>,

    /// The lock counts as granted only when so many replicas have it; otherwise it is given up, with status 69.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub replicas: Option<u32>,

    /// How long the replicas may take to confirm it.
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = seconds)]
    pub replicas_within: Duration,

    /// What the names of the variables begin with, but for LOCK_HELD: with DB_ the token is DB_LOCK_TOKEN. For a lock
    /// inside another one, whose variables stay.
    #[arg(long, value_name = "TEXT", default_value = "", value_parser = prefix, hide_default_value = true)]
    pub prefix: String,

    /// Do not wait: end at once (see -E) when the lock is not free.
    #[arg(short, long, alias = "nonblock", conflicts_with = "wait")]
    pub no_wait: bool,

    /// The longest wait, such as 2.5. Default: no limit.
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub wait: Option<Duration>,

    /// The exit status when the lock was not granted.
    #[arg(short = 'E', long, value_name = "STATUS", default_value = "1",
          value_parser = clap::value_parser!(u8))]
    pub conflict_exit_code: u8,

    /// How long the server keeps the lock without a renewal; renewed every third of it.
    #[arg(short, long, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub lease: Duration,

    /// Share the lock with other holders that use --shared.
    #[arg(short, long, conflicts_with = "exclusive")]
    pub shared: bool,

    /// Exclude holders that use --shared, too. (Without either option the lock is a plain one, and requests with these
    /// two are refused.)
    #[arg(short = 'x', long)]
    pub exclusive: bool,

    /// The owner, instead of host:process:random. Two runs with the same owner hold the lock at the same time; the
    /// first that ends releases it for both.
    #[arg(short, long)]
    pub owner: Option<OsString>,

    /// Break the lock if another owner holds it, and take it in the same step, before all waiters: an operator's
    /// decision (see break). Not with --shared, --exclusive, --and, --permits, --all and --quorum.
    #[arg(long)]
    pub steal: bool,

    /// With --steal: do not ask at a terminal.
    #[arg(short, long, requires = "steal")]
    pub yes: bool,

    /// A text beside the lock, which info and break show: who works there, and why. At most 256 bytes; not with
    /// --shared, --exclusive, --and, --permits, --all and --quorum.
    #[arg(long, value_name = "TEXT")]
    pub note: Option<OsString>,

    /// Report on standard error what happens to the lock.
    #[arg(short, long)]
    pub verbose: bool,

    /// Do not report on standard error what a wait of more than a second waits for.
    #[arg(short, long, conflicts_with = "verbose")]
    pub quiet: bool,

    #[command(flatten)]
    pub connect: Connect,
}

const USAGES: &str = "redis-lock run [OPTIONS] <KEY> <COMMAND>...
       redis-lock run [OPTIONS] --key-hex <HEX> <COMMAND>...";

const STATUS: &str = "\
Exit status: the command's; 128+n when signal n ended it, or the wait; 1 (see -E) when the lock was not granted; \
74 the command has ended with 0, but the lock could not be released and stays for the rest of its lease; \
75 the lock was lost before it was released (with --keep the command's status instead of both); \
124 ended by --at-most; 126 the command cannot be run; 127 there is no such command; and 64 to 77 as below \
(redis-lock --help).";

impl Args {
    /// With --keep that of the library: the command needs no time to stop.
    pub(super) fn margin(&self) -> Duration {
        // In whole milliseconds, as the library counts it.
        let lease = u64::try_from(self.request.lease.as_millis()).unwrap_or(u64::MAX);
        let lease = Duration::from_millis(lease);
        let stop = self.grace.saturating_add(KILLED);
        self.margin.unwrap_or(match stop <= lease / 2 {
            _ if self.keep => lease / 6,
            true => stop,
            false => lease / 3,
        })
    }

    pub(super) fn key(&self) -> &[u8] {
        self.key_hex.as_deref().unwrap_or(self.key.as_bytes())
    }
}

impl Request {
    /// This key and those of --and.
    pub fn keys<'a>(&'a self, first: &'a [u8]) -> Vec<&'a [u8]> {
        let others = self.and.iter().map(|key| key.as_bytes());
        [first].into_iter().chain(others).collect()
    }

    /// The named owner, or a fresh one that begins with this.
    pub fn owner<'a>(&'a self, prefix: &'a OsStr) -> Owner<'a> {
        match &self.owner {
            Some(owner) => Owner::Named(owner.as_bytes()),
            None => Owner::Fresh(prefix.as_bytes()),
        }
    }

    /// The limit of the wait, if there is one.
    pub fn bound(&self) -> Option<Duration> {
        match self.no_wait {
            true => Some(Duration::ZERO),
            false => self.wait,
        }
    }
}
