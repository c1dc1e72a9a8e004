//! The graph of waits: the locks that have waiters, and the chains of owners that hold one and wait for another.
//!
//! The module refuses a wait that would close a cycle. Owners that wait at several servers, or that took a lock by
//! Redisson's scripts, can form one.

use std::collections::{BTreeMap, BTreeSet};

use redis_lock_client::{LockInfo, Search, Server};
use serde_json::{json, Value};

use crate::escape::{shown, word};
use crate::failure::Failure;
use crate::info::describe;
use crate::ls;
use crate::report::{self, merged, with_names};

/// Upper bound of chains that are shown. (Readers that wait elsewhere make one chain each.)
const MAX_CHAINS: usize = 1_000;
/// Upper bound of the locks of a chain.
const MAX_LENGTH: usize = 200;
/// Upper bound of steps of the search: some graphs have more paths than can be followed.
const MAX_STEPS: usize = 100_000;

/// A lock by its server and its key.
pub type Named = ((String, Vec<u8>), LockInfo);

/// Locks with waiters, and the chains between them.
#[derive(Debug)]
pub struct Graph {
    locks: Vec<Named>,
    chains: Vec<Chain>,
}

/// A way through the graph: each owner waits for a lock that the next one holds.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Chain {
    steps: Vec<Step>,
    /// The owner that waits for nothing; none in a cycle, where the last lock is held by the first owner.
    end: Option<Vec<u8>>,
}

/// An owner, and the lock that it waits for.
type Step = (Vec<u8>, (String, Vec<u8>));

impl Chain {
    fn is_cycle(&self) -> bool {
        self.end.is_none()
    }
}

impl Graph {
    pub fn of(mut locks: Vec<Named>) -> Graph {
        locks.retain(|(_, info)| info.waiters > 0);
        locks.sort_by(|(one, _), (other, _)| one.cmp(other));
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
        let is_sure = |chain: &Chain| !chain.is_cycle() || first.chains.contains(chain);
        second.chains.retain(is_sure);
        Ok(second)
    }

    pub fn lock_lines(&self) -> Vec<String> {
        let lines = |(place, info): &Named| describe(&self.name(place), info);
        self.locks.iter().flat_map(lines).collect()
    }

    pub fn chain_lines(&self) -> Vec<String> {
        let line = |chain: &Chain| {
            let kind = if chain.is_cycle() { "cycle" } else { "chain" };
            let first = chain.steps.first().map(|(owner, _)| owner);
            let end = chain.end.as_ref().or(first).map(|owner| holder(owner));
            let words = chain.steps.iter();
            let words =
                words.map(|(owner, lock)| format!("{} -> {}", word(owner), self.name(lock)));
            let words: Vec<String> = words.chain(end).collect();
            format!("{kind}: {}", words.join(" -> "))
        };
        self.chains.iter().map(line).collect()
    }

    /// The key, of several servers with its server.
    fn name(&self, (server, key): &(String, Vec<u8>)) -> String {
        let [first, last] = [self.locks.first(), self.locks.last()];
        match first.map(|((server, _), _)| server) == last.map(|((server, _), _)| server) {
            true => word(key),
            false => format!("{} at {}", word(key), shown(server.as_bytes())),
        }
    }

    /// The locks, then the chains, each as an object.
    pub fn json(&self) -> Vec<Value> {
        let locks = self.locks.iter().map(|((server, key), info)| {
            merged(report::lock(key, info), json!({ "server": server }))
        });
        let chains = self.chains.iter().map(|chain| {
            let mut links: Vec<Value> = chain.steps.iter().map(link).collect();
            let end = chain.end.as_deref();
            links.extend(end.map(|end| with_names(json!({}), [("owner", Some(end))])));
            json!({ "cycle": chain.is_cycle(), "chain": links })
        });
        locks.chain(chains).collect()
    }
}

fn link((owner, (server, key)): &Step) -> Value {
    let names = [("owner", Some(&owner[..])), ("waits_for", Some(&key[..]))];
    with_names(json!({ "server": server }), names)
}

/// A lock that is free for a moment has waiters and no holder.
fn holder(owner: &[u8]) -> String {
    match owner {
        [] => "no holder".into(),
        _ => word(owner),
    }
}

async fn look(servers: &[Server], search: &Search, waiters: u64) -> Result<Vec<Named>, Failure> {
    let mut locks = BTreeMap::new();
    for server in servers {
        let mut scan = server.scan(search.clone()).await?;
        while let Some(keys) = scan.step().await? {
            for (key, info) in ls::ask(server, keys, waiters).await? {
                locks.insert((server.name().to_string(), key), info);
            }
        }
    }
    Ok(locks.into_iter().collect())
}

/// The chains over two locks or more, and the cycles.
fn chains(locks: &[Named]) -> Vec<Chain> {
    let mut waits: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (place, (_, info)) in locks.iter().enumerate() {
        for waiter in &info.queue {
            waits.entry(&waiter.owner).or_default().push(place);
        }
    }
    // From each lock, by its holders that wait, to the locks that they wait for. A reader that waits to write the lock
    // that it reads waits for the other readers, not for itself.
    let ways = locks.iter().enumerate().map(|(place, (_, info))| {
        let holders = info.holders.iter();
        let ways = holders.flat_map(|holder| {
            let waits = waits.get(&holder.owner[..]).into_iter().flatten();
            waits.map(|to| (&holder.owner[..], *to))
        });
        ways.filter(|(_, to)| *to != place).collect()
    });
    let mut paths = Paths {
        locks,
        ways: ways.collect(),
        found: BTreeSet::new(),
        steps: 0,
    };
    let reached: BTreeSet<usize> = paths.ways.iter().flatten().map(|(_, to)| *to).collect();
    // A chain begins at a lock that no other leads to; a cycle has no beginning.
    for is_chain in [true, false] {
        for (place, (_, info)) in locks.iter().enumerate() {
            let waiters = info.queue.iter().take(1);
            for waiter in waiters.filter(|_| !is_chain || !reached.contains(&place)) {
                paths.follow(&mut vec![(&waiter.owner, place)], is_chain);
            }
        }
    }
    paths.found.into_iter().collect()
}

/// The search for paths through the graph.
struct Paths<'a> {
    locks: &'a [Named],
    ways: Vec<Vec<(&'a [u8], usize)>>,
    found: BTreeSet<Chain>,
    steps: usize,
}

impl<'a> Paths<'a> {
    /// Follows every way from the end of this path: to the owners that wait for nothing, and to locks on the path.
    fn follow(&mut self, path: &mut Vec<(&'a [u8], usize)>, is_chain: bool) {
        self.steps += 1;
        let is_out = self.steps > MAX_STEPS || self.found.len() >= MAX_CHAINS;
        let Some((_, last)) = path.last().filter(|_| !is_out && path.len() <= MAX_LENGTH) else {
            return;
        };
        let holders = self.locks.get(*last).map(|(_, info)| &info.holders);
        let ways = self.ways.get(*last).cloned().unwrap_or_default();
        if is_chain && ways.is_empty() && path.len() > 1 {
            let holder = holders.and_then(|holders| holders.first());
            let end = holder.map_or_else(Vec::new, |holder| holder.owner.clone());
            self.found.insert(self.chain(path, Some(end)));
        }
        for (owner, to) in ways {
            if let Some(start) = path.iter().position(|(_, lock)| *lock == to) {
                let within = path.iter().skip(start + 1).copied();
                let mut cycle: Vec<_> = [(owner, to)].into_iter().chain(within).collect();
                // The same wherever the search came upon it.
                let first = (0..cycle.len()).min_by_key(|place| cycle.get(*place));
                cycle.rotate_left(first.unwrap_or_default());
                self.found.insert(self.chain(&cycle, None));
            } else {
                path.push((owner, to));
                self.follow(path, is_chain);
                path.pop();
            }
        }
    }

    fn chain(&self, path: &[(&[u8], usize)], end: Option<Vec<u8>>) -> Chain {
        let step = |(owner, lock): &(&[u8], usize)| {
            let (place, _) = self.locks.get(*lock)?;
            Some((owner.to_vec(), place.clone()))
        };
        let steps = path.iter().filter_map(step).collect();
        Chain { steps, end }
    }
}

#[cfg(test)]
mod tests {
    use redis_lock_client::{Holder, Waiter};

    use super::*;

    fn waiter(owner: &str) -> Waiter {
        let mut waiter = Waiter::default();
        waiter.owner = owner.into();
        waiter
    }

    /// The chains of locks that are given as `key: holders < waiters`.
    fn shown(lines: &[&str]) -> Vec<String> {
        let read = |line: &&str| {
            let (key, rest) = line.split_once(": ").expect("a key");
            let (holders, waiters) = rest.split_once(" < ").expect("waiters");
            let mut info = LockInfo::default();
            for owner in holders.split_whitespace() {
                let mut holder = Holder::default();
                holder.owner = owner.into();
                info.holders.push(holder);
            }
            info.queue = waiters.split_whitespace().map(waiter).collect();
            info.waiters = info.queue.len() as u64;
            (("s".into(), key.into()), info)
        };
        let graph = Graph::of(lines.iter().map(read).collect());
        let lines = graph.chain_lines().into_iter();
        lines.map(|line| line.replace(" -> ", " ")).collect()
    }

    #[test]
    fn a_lock_whose_holder_waits_for_nothing_makes_no_chain() {
        assert!(shown(&["a: anna < bert cleo", "b: dora < emil"]).is_empty());
        assert!(shown(&["a: anna bert < anna"]).is_empty(), "an upgrade");
    }

    #[test]
    fn a_chain_runs_from_the_first_waiter_to_the_owner_that_waits_for_nothing() {
        let lines = ["a: anna < bert", "b: bert < cleo dora", "c: cleo < emil"];
        assert_eq!(shown(&lines), ["chain: emil c cleo b bert a anna"]);
    }

    #[test]
    fn readers_that_wait_make_a_chain_each() {
        let lines = ["a: anna < bert cleo", "b: bert cleo < dora"];
        assert_eq!(
            shown(&lines),
            ["chain: dora b bert a anna", "chain: dora b cleo a anna"]
        );
    }

    #[test]
    fn a_cycle_is_found_once_also_behind_a_chain() {
        let lines = ["a: anna < bert", "b: bert < anna cleo", "c: cleo < emil"];
        assert_eq!(shown(&lines), ["cycle: anna b bert a anna"]);
        let lines = ["b: bert < anna", "c: cleo < bert", "a: anna < cleo"];
        assert_eq!(shown(&lines), ["cycle: anna b bert c cleo a anna"]);
    }

    #[test]
    fn the_search_ends_in_a_graph_with_more_ways_than_steps() {
        let lines: Vec<String> = (0..30)
            .map(|i| format!("k{i}: x{i} y{i} < x{} y{}", i + 1, i + 1))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert!(shown(&lines).len() <= MAX_CHAINS);
    }
}
