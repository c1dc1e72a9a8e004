//! The graph of waits: the locks that have waiters, and the chains of owners that hold one and wait for another.
//!
//! The module refuses a wait that would close a cycle. Owners that wait at several servers, or that took a lock by
//! Redisson's scripts, can form one.

mod chains;

use std::collections::{BTreeMap, BTreeSet};

use redis_lock_client::{LockInfo, Search, Server};
use serde_json::{json, Map, Value};

pub use self::chains::{chains, Chain};

use crate::escape::{shown, word};
use crate::failure::Failure;
use crate::info::describe;
use crate::ls;
use crate::report;

/// A lock that has waiters.
#[derive(Debug, Clone)]
pub struct Waited {
    pub server: String,
    pub key: Vec<u8>,
    pub info: LockInfo,
}

/// Locks with waiters, and the chains between them.
#[derive(Debug)]
pub struct Graph {
    pub locks: Vec<Waited>,
    pub chains: Vec<Chain>,
}

impl Graph {
    pub fn of(mut locks: Vec<Waited>) -> Graph {
        locks.retain(|lock| lock.info.waiters > 0);
        locks.sort_by(|one, other| (&one.server, &one.key).cmp(&(&other.server, &other.key)));
        let chains = chains(&locks);
        Graph { locks, chains }
    }

    /// Reads the graph of these servers. The locks are read one after another, so a cycle may never have been there at
    /// one moment: it is kept only if a second look finds it, too.
    pub async fn read(servers: &[Server], search: &Search, waiters: u64) -> Result<Graph, Failure> {
        let first = Graph::of(look(servers, search, waiters).await?);
        if !first.chains.iter().any(Chain::is_cycle) {
            return Ok(first);
        }
        let mut second = Graph::of(look(servers, search, waiters).await?);
        let seen: BTreeSet<Vec<Step>> = first.cycles().collect();
        let confirmed: BTreeSet<Vec<Step>> = second
            .cycles()
            .filter(|cycle| seen.contains(cycle))
            .collect();
        let mut chains = std::mem::take(&mut second.chains);
        chains.retain(|chain| !chain.is_cycle() || confirmed.contains(&second.steps(chain)));
        Ok(Graph { chains, ..second })
    }

    fn cycles(&self) -> impl Iterator<Item = Vec<Step>> + '_ {
        let cycles = self.chains.iter().filter(|chain| chain.is_cycle());
        cycles.map(|cycle| self.steps(cycle))
    }

    /// The owners and locks of a chain by name.
    fn steps(&self, chain: &Chain) -> Vec<Step> {
        let links = chain.links.iter().filter_map(|link| {
            let lock = self.locks.get(link.lock)?;
            Some((link.owner.clone(), lock.server.clone(), lock.key.clone()))
        });
        links.collect()
    }

    /// The locks with their queues, then the chains.
    pub fn text(&self) -> Vec<String> {
        let mut lines = self.lock_lines();
        lines.extend(self.chain_lines());
        lines
    }

    pub fn lock_lines(&self) -> Vec<String> {
        let locks = self.locks.iter();
        locks
            .flat_map(|lock| describe(&self.name(&lock.server, &lock.key), &lock.info))
            .collect()
    }

    pub fn chain_lines(&self) -> Vec<String> {
        let line = |chain: &Chain| {
            let kind = if chain.is_cycle() { "cycle" } else { "chain" };
            let steps = self.steps(chain);
            let first = steps.first().map(|(owner, ..)| owner);
            let end = chain.end.as_ref().or(first).map(|owner| holder(owner));
            let steps = steps.iter();
            let words = steps.map(|(owner, server, key)| {
                format!("{} -> {}", word(owner), self.name(server, key))
            });
            let words: Vec<String> = words.chain(end).collect();
            format!("{kind}: {}", words.join(" -> "))
        };
        self.chains.iter().map(line).collect()
    }

    /// The key, of several servers with its server.
    fn name(&self, server: &str, key: &[u8]) -> String {
        let first = self.locks.first().map(|lock| &lock.server);
        let last = self.locks.last().map(|lock| &lock.server);
        match first == last {
            true => word(key),
            false => format!("{} at {}", word(key), shown(server.as_bytes())),
        }
    }

    /// The locks, then the chains, each as an object.
    pub fn json(&self) -> Vec<Value> {
        let locks = self.locks.iter().map(|lock| {
            let mut object = report::fields(&lock.key, &lock.info);
            object.insert("server".into(), json!(lock.server));
            object.into()
        });
        let chains = self.chains.iter().map(|chain| {
            let mut links: Vec<Value> = self.steps(chain).into_iter().map(link).collect();
            links.extend(chain.end.as_ref().map(|owner| {
                let mut object = Map::new();
                report::put(&mut object, "owner", owner);
                object.into()
            }));
            json!({ "cycle": chain.is_cycle(), "chain": links })
        });
        locks.chain(chains).collect()
    }
}

/// An owner, the server and the key of the lock that it waits for.
type Step = (Vec<u8>, String, Vec<u8>);

fn link((owner, server, key): Step) -> Value {
    let mut object = Map::new();
    report::put(&mut object, "owner", &owner);
    report::put(&mut object, "waits_for", &key);
    object.insert("server".into(), json!(server));
    object.into()
}

/// A lock that is free for a moment has waiters and no holder.
fn holder(owner: &[u8]) -> String {
    match owner {
        [] => "no holder".into(),
        _ => word(owner),
    }
}

async fn look(servers: &[Server], search: &Search, waiters: u64) -> Result<Vec<Waited>, Failure> {
    let mut locks = BTreeMap::new();
    for server in servers {
        let failed = |error| Failure::of(&error, None);
        let mut scan = server.scan(search.clone()).await.map_err(failed)?;
        while let Some(keys) = scan.step().await.map_err(failed)? {
            for (key, info) in ls::ask(server, keys, waiters).await? {
                locks.insert((server.name().to_string(), key), info);
            }
        }
    }
    let locks = locks.into_iter();
    Ok(locks
        .map(|((server, key), info)| Waited { server, key, info })
        .collect())
}
