//! The search for chains: owners that hold one lock and wait for another.

use std::collections::{BTreeMap, BTreeSet};

use super::Waited;

/// Upper bound of chains that are shown. (Readers that wait elsewhere make one chain each.)
const MAX_CHAINS: usize = 1_000;
/// Upper bound of steps of the search: some graphs have more paths than can be followed.
const MAX_STEPS: usize = 100_000;

/// A way through the graph: each owner waits for a lock that the next one holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chain {
    pub links: Vec<Link>,
    /// The owner that waits for nothing; none in a cycle, where the last lock is held by the first owner.
    pub end: Option<Vec<u8>>,
}

/// An owner and the lock that it waits for, by its place in the list of locks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Link {
    pub owner: Vec<u8>,
    pub lock: usize,
}

impl Chain {
    pub fn is_cycle(&self) -> bool {
        self.end.is_none()
    }
}

/// The chains over two locks or more, and the cycles.
pub fn chains(locks: &[Waited]) -> Vec<Chain> {
    let mut search = Search {
        edges: edges(locks),
        found: BTreeSet::new(),
        steps: 0,
    };
    let reached: BTreeSet<usize> = search.edges.values().flatten().map(|(_, to)| *to).collect();
    let blocked: Vec<usize> = search.edges.keys().copied().collect();
    for lock in blocked.iter().filter(|lock| !reached.contains(lock)) {
        search.follow(locks, *lock, true);
    }
    // A cycle has no beginning.
    for lock in blocked {
        search.follow(locks, lock, false);
    }
    search.found.into_iter().collect()
}

/// From each lock, by its holders that wait, to the locks that they wait for. A reader that waits to write the lock
/// that it reads waits for the other readers, not for itself.
fn edges(locks: &[Waited]) -> BTreeMap<usize, Vec<(Vec<u8>, usize)>> {
    let mut waits: BTreeMap<&[u8], Vec<usize>> = BTreeMap::new();
    for (place, lock) in locks.iter().enumerate() {
        for waiter in &lock.info.queue {
            waits.entry(&waiter.owner).or_default().push(place);
        }
    }
    let mut edges: BTreeMap<usize, Vec<(Vec<u8>, usize)>> = BTreeMap::new();
    for (place, lock) in locks.iter().enumerate() {
        for holder in &lock.info.holders {
            let waits = waits.get(holder.owner.as_slice()).into_iter().flatten();
            for to in waits.filter(|to| **to != place) {
                let ways = edges.entry(place).or_default();
                ways.push((holder.owner.clone(), *to));
            }
        }
    }
    edges
}

struct Search {
    edges: BTreeMap<usize, Vec<(Vec<u8>, usize)>>,
    found: BTreeSet<Chain>,
    steps: usize,
}

impl Search {
    /// Follows every way from this lock: to the owners that wait for nothing, and to the locks that it has passed.
    fn follow(&mut self, locks: &[Waited], start: usize, with_chains: bool) {
        let mut path: Vec<(usize, Option<Vec<u8>>)> = vec![(start, None)];
        let mut left: Vec<Vec<(Vec<u8>, usize)>> = vec![self.ways(start)];
        while let Some(ways) = left.last_mut() {
            self.steps += 1;
            if self.steps > MAX_STEPS || self.found.len() >= MAX_CHAINS {
                return;
            }
            let Some((owner, to)) = ways.pop() else {
                left.pop();
                path.pop();
                continue;
            };
            if let Some(place) = path.iter().position(|(lock, _)| *lock == to) {
                self.found
                    .insert(cycle(path.get(place..).unwrap_or_default(), owner, to));
                continue;
            }
            path.push((to, Some(owner)));
            let ways = self.ways(to);
            if ways.is_empty() && with_chains {
                self.found.extend(ended(locks, &path));
            }
            left.push(ways);
        }
    }

    fn ways(&self, lock: usize) -> Vec<(Vec<u8>, usize)> {
        self.edges.get(&lock).cloned().unwrap_or_default()
    }
}

/// The cycle that closes when this owner, a holder of the last lock of the path, waits for the first one. Begins with
/// its smallest link, so that it is the same wherever the search came upon it.
fn cycle(path: &[(usize, Option<Vec<u8>>)], owner: Vec<u8>, to: usize) -> Chain {
    let within = path.iter().skip(1);
    let mut links: Vec<Link> = vec![Link { owner, lock: to }];
    links.extend(within.filter_map(|(lock, by)| {
        let owner = by.clone()?;
        Some(Link { owner, lock: *lock })
    }));
    let first = links.iter().enumerate().min_by_key(|(_, link)| *link);
    let first = first.map_or(0, |(place, _)| place);
    links.rotate_left(first);
    Chain { links, end: None }
}

/// The chain of a path that leads to an owner without a wait: it begins with the first waiter of the first lock.
fn ended(locks: &[Waited], path: &[(usize, Option<Vec<u8>>)]) -> Option<Chain> {
    let (start, _) = path.first()?;
    let (last, _) = path.last()?;
    let waiter = locks.get(*start)?.info.queue.first()?;
    let mut links = vec![Link {
        owner: waiter.owner.clone(),
        lock: *start,
    }];
    links.extend(path.iter().filter_map(|(lock, by)| {
        let owner = by.clone()?;
        Some(Link { owner, lock: *lock })
    }));
    let end = locks.get(*last)?.info.holders.first();
    let end = end.map(|holder| holder.owner.clone()).unwrap_or_default();
    Some(Chain {
        links,
        end: Some(end),
    })
}

#[cfg(test)]
mod tests {
    use redis_lock_client::{Holder, LockInfo, Waiter};

    use super::*;

    fn waiter(owner: &str) -> Waiter {
        let mut waiter = Waiter::default();
        waiter.owner = owner.into();
        waiter
    }

    /// Locks as `key: holders < waiters`.
    fn locks(lines: &[&str]) -> Vec<Waited> {
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
            Waited {
                server: "s".into(),
                key: key.into(),
                info,
            }
        };
        lines.iter().map(read).collect()
    }

    fn shown(lines: &[&str]) -> Vec<String> {
        let locks = locks(lines);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let show = |chain: &Chain| {
            let links = chain.links.iter();
            let mut words: Vec<String> = links
                .map(|link| format!("{} {}", text(&link.owner), text(&locks[link.lock].key)))
                .collect();
            words.push(chain.end.as_ref().map_or("again".into(), |end| text(end)));
            words.join(" ")
        };
        chains(&locks).iter().map(show).collect()
    }

    #[test]
    fn a_lock_whose_holder_waits_for_nothing_makes_no_chain() {
        assert!(shown(&["a: anna < bert cleo", "b: dora < emil"]).is_empty());
        assert!(shown(&["a: anna bert < anna"]).is_empty(), "an upgrade");
    }

    #[test]
    fn a_chain_runs_from_the_first_waiter_to_the_owner_that_waits_for_nothing() {
        let lines = ["a: anna < bert", "b: bert < cleo dora", "c: cleo < emil"];
        assert_eq!(shown(&lines), ["emil c cleo b bert a anna"]);
    }

    #[test]
    fn readers_that_wait_make_a_chain_each() {
        let lines = ["a: anna < bert cleo", "b: bert cleo < dora"];
        assert_eq!(shown(&lines), ["dora b bert a anna", "dora b cleo a anna"]);
    }

    #[test]
    fn a_cycle_is_found_once_also_behind_a_chain() {
        let lines = ["a: anna < bert", "b: bert < anna cleo", "c: cleo < emil"];
        assert_eq!(shown(&lines), ["anna b bert a again"]);
        let lines = ["b: bert < anna", "c: cleo < bert", "a: anna < cleo"];
        assert_eq!(shown(&lines), ["anna b bert c cleo a again"]);
    }

    #[test]
    fn the_search_ends_in_a_graph_with_more_ways_than_steps() {
        let lines: Vec<String> = (0..30)
            .map(|i| format!("k{i}: x{i} y{i} < x{} y{}", i + 1, i + 1))
            .collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert!(chains(&locks(&lines)).len() <= MAX_CHAINS);
    }
}
