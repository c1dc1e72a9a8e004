//! `redis-lock ls`: the list of locks.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use clap::builder::{OsStringValueParser, TypedValueParser};
use futures_util::future::join_all;
use redis_lock_client::{Error, LockInfo, Search, Server};

use crate::escape::{json, shown, word};
use crate::failure::Failure;
use crate::graph::Graph;
use crate::info::{is_no_lock, state, State};
use crate::output::{print, table};
use crate::report;
use crate::servers::Connect;
use crate::values::not_empty;

/// List the locks of a server
///
/// Lists the locks that are held, or with --waited those that have waiters; in a cluster those of all nodes. A lock
/// that is acquired or released meanwhile may be listed or not. Of semaphores --waited lists those that have waiters,
/// and --semaphores those of which a permit is held.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Locks that have waiters, held or not.
    #[arg(long)]
    waited: bool,

    /// Semaphores of which a permit is held.
    #[arg(long, conflicts_with_all = ["waited", "owner", "graph"])]
    semaphores: bool,

    /// Locks that this owner holds.
    #[arg(long, value_parser = OsStringValueParser::new().try_map(not_empty))]
    owner: Option<OsString>,

    /// Locks whose key matches a pattern such as `orders:*`, by the rules of KEYS.
    #[arg(long = "match", value_name = "PATTERN")]
    pattern: Option<OsString>,

    /// The graph of waits: the locks that have waiters, with their queues, and the chains of owners that hold one lock
    /// and wait for another. With several servers the chains lead from one to another.
    #[arg(long, conflicts_with = "names")]
    graph: bool,

    /// With --graph: how many of the waiters of each lock to read, from the head of the queue.
    #[arg(long, value_name = "COUNT", default_value = "100", requires = "graph",
          value_parser = clap::value_parser!(u64).range(1..1 << 31))]
    waiters: u64,

    /// Only the keys, one per line.
    #[arg(long, conflicts_with = "json")]
    names: bool,

    /// A JSON object per line.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    connect: Connect,
}

impl Args {
    fn search(&self) -> Search {
        let mut search = match self.waited || self.graph {
            true => Search::waited(),
            false if self.semaphores => Search::semaphores(),
            false => Search::held(),
        };
        if let Some(pattern) = &self.pattern {
            search = search.matching(pattern.as_bytes());
        }
        if let Some(owner) = &self.owner {
            search = search.owner(owner.as_bytes());
        }
        search
    }
}

pub async fn run(args: Args) -> Result<i32, Failure> {
    if args.graph {
        return graph(&args).await;
    }
    let server = args.connect.open_one()?;
    let mut scan = server.scan(args.search()).await?;
    let mut seen = HashSet::new();
    let mut lines = Vec::new();
    while let Some(keys) = scan.step().await? {
        let fresh: Vec<_> = keys
            .into_iter()
            .filter(|key| seen.insert(key.clone()))
            .collect();
        if args.names && !args.semaphores {
            print(fresh.iter().map(|key| shown(key)))?;
            continue;
        }
        // What is beside a semaphore may be another program's.
        let states = states(&server, fresh).await?;
        if args.names {
            print(states.iter().map(|(key, _)| shown(key)))?;
        } else if args.json {
            let objects = states.iter().map(|(key, state)| report::state(key, state));
            print(objects.map(|object| json(&object)))?;
        } else {
            lines.extend(states.iter().map(|(key, state)| line(key, state)));
        }
    }
    if !args.names && !args.json {
        lines.sort();
        let titles = ["KEY", "MODE", "HOLDER", "LEASE", "WAITERS", "WAIT"];
        lines.insert(0, titles.map(String::from).into());
        print(table(&lines))?;
    }
    Ok(0)
}

async fn graph(args: &Args) -> Result<i32, Failure> {
    let servers = args.connect.open()?;
    let graph = Graph::read(&servers, &args.search(), args.waiters).await?;
    match args.json {
        true => print(graph.json().iter().map(json))?,
        false => print(graph.lock_lines().into_iter().chain(graph.chain_lines()))?,
    }
    Ok(0)
}

/// The state of these locks with at most so many waiters each; semaphores are left out.
pub async fn ask(
    server: &Server,
    keys: Vec<Vec<u8>>,
    waiters: u64,
) -> Result<Vec<(Vec<u8>, LockInfo)>, Failure> {
    let asked = join_all(keys.iter().map(|key| server.info(key, waiters))).await;
    found(keys, asked)
}

async fn states(server: &Server, keys: Vec<Vec<u8>>) -> Result<Vec<(Vec<u8>, State)>, Failure> {
    let asked = join_all(keys.iter().map(|key| state(server, key, 0))).await;
    let mut states = found(keys, asked)?;
    // A latch, or a semaphore whose permits have been returned.
    states.retain(|(_, state)| match state {
        State::Semaphore(info, _) => info.waiters > 0 || info.held > 0,
        State::Lock(_) => true,
    });
    Ok(states)
}

/// The keys with the answers about them. Locks that are free by now, and keys of another type, are left out.
fn found<T>(
    keys: Vec<Vec<u8>>,
    answers: Vec<Result<Option<T>, Error>>,
) -> Result<Vec<(Vec<u8>, T)>, Failure> {
    let mut found = Vec::new();
    for (key, answer) in keys.into_iter().zip(answers) {
        match answer {
            Ok(Some(one)) => found.push((key, one)),
            Ok(None) => {}
            Err(error) if is_no_lock(&error) => {}
            Err(error) => return Err(Failure::of(&error, Some(&key[..]))),
        }
    }
    Ok(found)
}

fn line(key: &[u8], state: &State) -> Vec<String> {
    let (mode, holders, lease, waiters, wait) = match state {
        State::Lock(info) => (
            report::mode(info).to_string(),
            report::holders(info),
            report::lease(info),
            info.waiters,
            info.longest_wait,
        ),
        State::Semaphore(info, _) => (
            "semaphore".into(),
            format!("{} of {} permits", info.held, info.permits),
            info.next_end,
            info.waiters,
            info.longest_wait,
        ),
    };
    let cells = [
        word(key),
        mode,
        holders,
        report::span(lease),
        waiters.to_string(),
        report::span((waiters > 0).then_some(wait)),
    ];
    cells.into()
}
