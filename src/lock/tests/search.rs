//! The search for deadlocks, compared with a plain search of a graph: random queues, holders and new requests, among
//! them requests on several keys, readers and writers, and owners with several requests.
//!
//! The graph comes from the scene of the test, not from the state of the core: the queue and the holders of each key.
//! It has an edge from an owner to every owner that its request waits for. Some requests are another user's: they are
//! no nodes of the graph, but a reader behind one waits for what that one waits for at the key.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::lock::tests::sim::key_ref;
use crate::lock::wait::deadlock::{self, Caller, Verdict, WantedKey, MAX_VISITS};
use crate::lock::wait::holders::{Holders, MOST_READERS};
use crate::lock::wait::request::Waiter;
use crate::lock::wait::waiters::Waiters;
use crate::lock::{Cx, Effects, Mode, Now, ReadWrite, Reader, UserId, WaiterId};

const KEYS: usize = 6;
const OWNERS: usize = 8;
const DEFAULT_CASES: u32 = 2_000;

const NAMES: [&str; KEYS] = ["k0", "k1", "k2", "k3", "k4", "k5"];
const WHO: [&str; OWNERS] = ["a", "b", "c", "d", "e", "f", "g", "h"];

const NOW: Now = Now {
    wall_ms: 1_000,
    wall_sub_us: 0,
    mono_ms: 1_000,
};

/// Whether a key is used as a read-write lock, and its holders.
#[derive(Debug, Clone)]
struct Held {
    shared: bool,
    owners: Vec<usize>,
    /// Of these the lease is over.
    over: Vec<bool>,
}

#[derive(Debug, Clone)]
struct Request {
    owner: usize,
    keys: Vec<usize>,
    reads: bool,
    /// Whether it has left again, and its places are kept.
    left: bool,
    /// Whether it is another user's than the caller.
    is_foreign: bool,
}

#[derive(Debug, Clone)]
struct Scene {
    held: Vec<Held>,
    requests: Vec<Request>,
    caller: Request,
}

fn held() -> impl Strategy<Value = Held> {
    let owners = prop::collection::btree_set(0..OWNERS, 0..=3);
    (
        any::<bool>(),
        owners,
        prop::collection::vec(prop::bool::weighted(0.1), 3),
    )
        .prop_map(|(shared, owners, over)| Held {
            shared,
            owners: owners
                .into_iter()
                .take(if shared { 3 } else { 1 })
                .collect(),
            over,
        })
}

fn request() -> impl Strategy<Value = Request> {
    let keys = prop_oneof![
        3 => (0..KEYS).prop_map(|key| vec![key]),
        2 => prop::collection::btree_set(0..KEYS, 2..=3).prop_map(|keys| keys.into_iter().collect()),
    ];
    let rarely = || prop::bool::weighted(0.1);
    (0..OWNERS, keys, any::<bool>(), rarely(), rarely()).prop_map(
        |(owner, keys, reads, left, is_foreign)| Request {
            owner,
            keys,
            reads,
            left,
            is_foreign,
        },
    )
}

fn scene() -> impl Strategy<Value = Scene> {
    let held = prop::collection::vec(held(), KEYS);
    let requests = prop::collection::vec(request(), 0..14);
    (held, requests, request()).prop_map(|(held, requests, caller)| Scene {
        held,
        requests,
        caller: Request {
            is_foreign: false,
            ..caller
        },
    })
}

/// A place in a queue: who, and what for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    owner: usize,
    reads: bool,
    /// Whether the request is on several keys.
    many: bool,
    request: usize,
    arrival: u64,
    live: bool,
    is_foreign: bool,
}

/// The same queues as the core's, as plain lists.
#[derive(Debug, Default)]
struct Plain {
    queues: [Vec<Place>; KEYS],
    arrivals: u64,
}

impl Plain {
    /// What the newest request of an owner does to its older ones.
    fn enqueue(&mut self, number: usize, request: &Request) {
        let mine = |place: &Place| place.owner == request.owner;
        let older: BTreeSet<usize> = request
            .keys
            .iter()
            .flat_map(|key| self.queues[*key].iter())
            .filter(|place| mine(place) && place.live)
            .map(|place| place.request)
            .collect();
        let kept: Vec<Option<usize>> = request
            .keys
            .iter()
            .map(|key| self.queues[*key].iter().position(mine))
            .collect();
        // Places are reused only if no other request can have a place between them.
        let arrivals: Option<BTreeSet<u64>> = request
            .keys
            .iter()
            .zip(&kept)
            .map(|(key, at)| at.map(|at| self.queues[*key][at].arrival))
            .collect();
        let stays = arrivals.is_some_and(|all| {
            let (first, last) = (all.first().unwrap(), all.last().unwrap());
            last - first == all.len() as u64 - 1
        });
        for (key, queue) in self.queues.iter_mut().enumerate() {
            let wanted = request.keys.contains(&key);
            queue.retain(|place| match wanted {
                true => !mine(place) || stays,
                false => !older.contains(&place.request),
            });
        }
        for key in &request.keys {
            let queue = &mut self.queues[*key];
            let mut place = Place {
                owner: request.owner,
                reads: request.reads,
                many: request.keys.len() > 1,
                request: number,
                arrival: self.arrivals,
                live: true,
                is_foreign: request.is_foreign,
            };
            match queue.iter_mut().find(|place| mine(place)) {
                Some(old) => {
                    place.arrival = old.arrival;
                    *old = place;
                }
                None => {
                    self.arrivals += 1;
                    queue.push(place);
                }
            }
        }
    }

    fn leave(&mut self, number: usize) {
        for place in self.queues.iter_mut().flatten() {
            place.live &= place.request != number;
        }
    }

    fn living(held: &Held) -> impl Iterator<Item = usize> + '_ {
        let owners = held.owners.iter().zip(&held.over);
        owners.filter(|(_, over)| !**over).map(|(owner, _)| *owner)
    }

    /// Everybody whom the live place of an owner at this key waits for.
    fn waits_for(&self, key: usize, at: usize, held: &Held) -> Vec<usize> {
        let place = self.queues[key][at];
        let holders: Vec<usize> = Plain::living(held).collect();
        let others = holders
            .iter()
            .copied()
            .filter(|owner| *owner != place.owner);
        if holders.contains(&place.owner) {
            // It holds already: it passes the queue, and only for writing waits for other readers.
            return match held.shared && !place.reads {
                true => others.collect(),
                false => Vec::new(),
            };
        }
        let before = self.queues[key][..at].iter().enumerate();
        let before = before.filter(|(_, before)| before.live);
        if !place.reads {
            let own = before.filter(|(_, before)| !before.is_foreign);
            return others.chain(own.map(|(_, before)| before.owner)).collect();
        }
        // A reader waits for the writers before it, and they for the owners that block them. And it waits for those
        // that are to read several keys.
        let blocking = before.filter(|(_, before)| !before.reads || before.many);
        let blocking = blocking.flat_map(|(at, before)| match before.is_foreign {
            false => vec![before.owner],
            true if before.reads => Vec::new(),
            true => {
                let holds = holders.iter().filter(|owner| **owner == before.owner);
                let waits_for = self.waits_for(key, at, held);
                waits_for.into_iter().chain(holds.copied()).collect()
            }
        });
        match held.shared {
            true => blocking.filter(|owner| *owner != place.owner).collect(),
            false => others.chain(blocking).collect(),
        }
    }

    fn edges(&self, scene: &Scene) -> Vec<BTreeSet<usize>> {
        let mut edges = vec![BTreeSet::new(); OWNERS];
        for key in 0..KEYS {
            for (at, place) in self.queues[key].iter().enumerate() {
                if place.live && !place.is_foreign {
                    edges[place.owner].extend(self.waits_for(key, at, &scene.held[key]));
                }
            }
        }
        edges
    }

    /// Whether a path leads from the request of this owner back to it.
    fn is_cyclic(&self, scene: &Scene, number: usize, owner: usize) -> bool {
        let edges = self.edges(scene);
        let mut next: Vec<usize> = Vec::new();
        for key in 0..KEYS {
            let at = self.queues[key]
                .iter()
                .position(|place| place.request == number && place.live);
            next.extend(
                at.into_iter()
                    .flat_map(|at| self.waits_for(key, at, &scene.held[key])),
            );
        }
        let mut seen = BTreeSet::new();
        while let Some(other) = next.pop() {
            if other == owner {
                return true;
            }
            if seen.insert(other) {
                next.extend(&edges[other]);
            }
        }
        false
    }
}

/// Exclusive and WRITE are alike here, but for readers.
fn mode(request: &Request) -> Mode {
    match request.reads {
        true => Mode::Read,
        false => Mode::Write,
    }
}

fn lock(held: &Held) -> ReadWrite {
    let readers = held
        .owners
        .iter()
        .zip(&held.over)
        .map(|(owner, over)| Reader {
            owner: WHO[*owner].as_bytes().into(),
            count: 1,
            first_ms: 0,
            until_ms: if *over { NOW.wall_ms } else { NOW.wall_ms + 1 },
        });
    ReadWrite {
        readers: readers.collect(),
        is_whole: true,
        ..ReadWrite::default()
    }
}

fn holders(held: &Held) -> Holders {
    match held.shared {
        true => Holders::of_shared(&lock(held), NOW),
        false => Plain::living(held)
            .next()
            .map_or(Holders::default(), |owner| {
                Holders::alone(WHO[owner].as_bytes().into())
            }),
    }
}

fn caller<'a>(owner: &'a [u8], mode: Mode, wants: &'a [WantedKey<'a>]) -> Caller<'a> {
    Caller {
        user: UserId::UNKNOWN,
        owner,
        mode,
        wants,
        replaces: &[],
    }
}

fn search(waiters: &Waiters, caller: &Caller<'_>, now: Now) -> Verdict {
    deadlock::search(waiters, caller, now)
}

/// Answers whether there was a cycle.
fn play(scene: &Scene) -> bool {
    let mut waiters = Waiters::default();
    (waiters.grace.ms, waiters.grace.max_places) = (1_000, 1_000);
    waiters.limits.user_share = 100;
    let mut plain = Plain::default();
    for (number, request) in scene.requests.iter().enumerate() {
        enqueue(&mut waiters, number, request);
        plain.enqueue(number, request);
        if request.left {
            waiters.leave(WaiterId(number as u64), NOW);
            plain.leave(number);
        }
    }
    for (key, held) in NAMES.iter().zip(&scene.held) {
        waiters.set_holders_for_test(key_ref(key), holders(held));
    }
    check_queues(&waiters, &plain);
    // Everything has been read.
    waiters.forget_unsettled();
    let caller = &scene.caller;
    let keys: Vec<_> = caller.keys.iter().map(|key| key_ref(NAMES[*key])).collect();
    let owner = WHO[caller.owner].as_bytes();
    let former = waiters.former(&keys, owner);
    let places = former.places.iter().flatten().map(|place| Some(place.seq));
    let wants: Vec<_> = caller
        .keys
        .iter()
        .zip(places.chain(std::iter::repeat(None)))
        .map(|(key, place)| WantedKey {
            key: key_ref(NAMES[*key]),
            place,
            holders: holders(&scene.held[*key]),
        })
        .collect();
    let asked = Caller {
        user: UserId::UNKNOWN,
        owner,
        mode: mode(caller),
        wants: &wants,
        replaces: &former.requests,
    };
    let verdict = search(&waiters, &asked, NOW);
    let number = scene.requests.len();
    plain.enqueue(number, caller);
    let expected = plain.is_cyclic(scene, number, caller.owner);
    match &verdict {
        Verdict::Cycle(keys) => {
            assert!(expected, "a false alarm: {keys:?}\n{plain:#?}");
            let first = String::from_utf8(keys[0].clone()).unwrap();
            assert!(caller.keys.iter().any(|key| NAMES[*key] == first));
        }
        Verdict::Clear => assert!(!expected, "not found\n{plain:#?}"),
        other => panic!("{other:?}"),
    }
    enqueue(&mut waiters, number, caller);
    check_queues(&waiters, &plain);
    expected
}

fn enqueue(waiters: &mut Waiters, number: usize, request: &Request) {
    let waiter = Waiter {
        user: UserId(request.is_foreign.into()),
        ..waiter(number, mode(request))
    };
    let owner = WHO[request.owner].as_bytes();
    let keys: Vec<_> = request
        .keys
        .iter()
        .map(|key| key_ref(NAMES[*key]))
        .collect();
    let former = waiters.former(&keys, owner);
    let (terms, mut fx) = ((keys.len() > 1).then(Default::default), Effects::new());
    let cx = &mut Cx::new(NOW, &mut fx);
    waiters.enqueue(&keys, (owner, terms), &waiter, &former, cx);
}

fn waiter(number: usize, mode: Mode) -> Waiter {
    Waiter {
        mode,
        ..Waiter::new(WaiterId(number as u64), 0, None, NOW)
    }
}

fn check_queues(waiters: &Waiters, plain: &Plain) {
    for (key, queue) in NAMES.iter().zip(&plain.queues) {
        let line = waiters.queue(key_ref(key));
        let line: Vec<&[u8]> = line.map_or(Vec::new(), |queue| queue.iter().map(|w| w.0).collect());
        let live = queue.iter().filter(|place| place.live);
        let expected: Vec<&[u8]> = live.map(|place| WHO[place.owner].as_bytes()).collect();
        assert_eq!(line, expected, "the line of {key}");
    }
}

#[test]
fn finds_what_a_search_of_the_graph_finds() {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = DEFAULT_CASES;
    }
    config.failure_persistence = None;
    config.max_shrink_iters = 20_000;
    let (cases, cycles) = (config.cases, std::cell::Cell::new(0));
    let run = TestRunner::new(config).run(&scene(), |scene| {
        cycles.set(cycles.get() + u32::from(play(&scene)));
        Ok(())
    });
    if let Err(error) = run {
        panic!("{error}");
    }
    let cycles = cycles.get();
    assert!(
        cycles > cases / 20 && cycles < cases / 2,
        "{cycles} cycles in {cases} cases"
    );
}

/// The owner that waits, its place, its wait, and the holder of the lock.
const VISITS_OF_A_WAIT: usize = 4;

/// So many locks, of which owner i holds lock i and waits for lock i + 1.
fn chain(length: usize) -> (Waiters, Vec<String>, Vec<String>) {
    let mut waiters = Waiters::default();
    let names: Vec<String> = (0..=length).map(|i| format!("lock:{i}")).collect();
    let owners: Vec<String> = (0..=length).map(|i| format!("owner:{i}")).collect();
    for i in 0..length {
        let next = key_ref(&names[i + 1]);
        let (owner, waiter) = (owners[i].as_bytes(), waiter(i, Mode::Exclusive));
        waiters.enqueue_for_test(next, owner, &waiter);
        waiters.set_holders_for_test(next, Holders::alone(owners[i + 1].as_bytes().into()));
    }
    (waiters, names, owners)
}

#[test]
fn a_chain_is_followed_so_far_and_no_further() {
    let is_found = |length: usize| {
        let (waiters, names, owners) = chain(length);
        let want = WantedKey {
            key: key_ref(&names[0]),
            place: None,
            holders: Holders::alone(owners[0].as_bytes().into()),
        };
        let wants = [want];
        let caller = caller(owners[length].as_bytes(), Mode::Exclusive, &wants);
        let verdict = search(&waiters, &caller, NOW);
        assert!(matches!(verdict, Verdict::Cycle(_) | Verdict::Cut));
        verdict != Verdict::Cut
    };
    assert!(is_found(MAX_VISITS / VISITS_OF_A_WAIT - 10));
    assert!(!is_found(MAX_VISITS / VISITS_OF_A_WAIT + 10));
}

/// Graphs in which every step leads to many others: owners that wait for many keys, queues of many such owners, locks
/// with as many readers as are recorded, writers that are readers, a request for many keys.
fn thicket(size: usize) -> (Waiters, Vec<String>) {
    let mut waiters = Waiters::default();
    let names: Vec<String> = (0..size).map(|i| format!("lock:{i}")).collect();
    let owners: Vec<String> = (0..size).map(|i| format!("owner:{i}")).collect();
    let mut park = |number: usize, owner: usize, name: &str, mode| {
        let (owner, waiter) = (owners[owner % size].as_bytes(), waiter(number, mode));
        waiters.enqueue_for_test(key_ref(name), owner, &waiter);
    };
    for i in 0..size {
        // All in the queue of the first two keys, and each in two more.
        for (at, key) in [0, 1, i, i + 1].into_iter().enumerate() {
            let mode = if (i + at) % 3 == 0 {
                Mode::Read
            } else {
                Mode::Write
            };
            park(4 * i + at, i, &names[key % size], mode);
        }
    }
    for (i, name) in names.iter().enumerate() {
        let readers = (0..MOST_READERS).map(|n| owners[(i * 7 + n) % size].clone());
        waiters.set_holders_for_test(key_ref(name), read_by(readers));
    }
    waiters.forget_unsettled();
    (waiters, names)
}

/// A search looks at a limited number of places, whatever the graph.
#[test]
fn the_places_that_a_search_looks_at_do_not_grow_with_the_graph() {
    for size in [200, 20_000] {
        let (waiters, names) = thicket(size);
        for keys in [1, 100] {
            let holders = Holders::alone(b"owner:7".as_slice().into());
            let wants = names[..keys].iter().map(|name| WantedKey {
                key: key_ref(name),
                place: None,
                holders: holders.clone(),
            });
            let wants: Vec<_> = wants.collect();
            for mode in [Mode::Read, Mode::Write] {
                let caller = caller(b"new", mode, &wants);
                waiters.places.looks.set(0);
                let verdict = search(&waiters, &caller, NOW);
                assert!(size == 200 || verdict == Verdict::Cut, "{verdict:?}");
                let (looks, most) = (waiters.places.looks.get(), MAX_VISITS + keys);
                assert!(looks <= most, "{looks} of {most}, {size} owners");
            }
        }
    }
}

/// The holders of a lock that these owners read.
fn read_by(owners: impl Iterator<Item = String>) -> Holders {
    let readers = owners.map(|owner| Reader {
        owner: owner.as_bytes().into(),
        count: 1,
        first_ms: 0,
        until_ms: NOW.wall_ms + 1,
    });
    let lock = ReadWrite {
        readers: readers.collect(),
        is_whole: true,
        ..ReadWrite::default()
    };
    Holders::of_shared(&lock, NOW)
}

/// More readers than are recorded are none, and not all are known.
#[test]
fn the_readers_of_a_lock_are_recorded_only_where_they_are_few() {
    for (count, recorded) in [
        (MOST_READERS, MOST_READERS),
        (MOST_READERS + 1, 0),
        (50_000, 0),
    ] {
        let holders = read_by((0..count).map(|n| n.to_string()));
        assert_eq!(
            (holders.owners.len(), holders.is_partial),
            (recorded, recorded == 0)
        );
    }
}

/// A reader waits for other readers only behind a request for WRITE: without one it need not know them.
#[test]
fn a_search_of_a_reader_is_cut_at_unknown_readers_only_behind_a_writer() {
    let mut waiters = Waiters::default();
    let want = WantedKey {
        key: key_ref("k"),
        place: None,
        holders: read_by((0..=MOST_READERS).map(|n| n.to_string())),
    };
    let wants = [want];
    let verdict = |waiters: &Waiters, mode| {
        let caller = caller(b"new", mode, &wants);
        search(waiters, &caller, NOW)
    };
    assert_eq!(verdict(&waiters, Mode::Read), Verdict::Clear);
    assert_eq!(verdict(&waiters, Mode::Write), Verdict::Cut);
    waiters.enqueue_for_test(key_ref("k"), b"reader", &waiter(1, Mode::Read));
    assert_eq!(verdict(&waiters, Mode::Read), Verdict::Clear);
    waiters.enqueue_for_test(key_ref("k"), b"writer", &waiter(2, Mode::Write));
    assert_eq!(verdict(&waiters, Mode::Read), Verdict::Cut);
}

/// The cost of a search along a chain of owners, each of which waits for the next:
/// `cargo test --release --lib cost_of_a_search -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn cost_of_a_search() {
    for length in [1, 10, 100, MAX_VISITS / VISITS_OF_A_WAIT - 1] {
        let (waiters, names, owners) = chain(length);
        let want = WantedKey {
            key: key_ref(&names[0]),
            place: None,
            holders: Holders::alone(owners[0].as_bytes().into()),
        };
        let wants = [want];
        let verdict = |owner: &str| {
            let caller = caller(owner.as_bytes(), Mode::Exclusive, &wants);
            let rounds = 100_000 / length;
            let start = std::time::Instant::now();
            let mut last = Verdict::Clear;
            for _ in 0..rounds {
                last = search(&waiters, &caller, NOW);
            }
            (last, start.elapsed().as_nanos() / rounds as u128)
        };
        let (clear, without) = verdict("another");
        let (cycle, with) = verdict(&owners[length]);
        assert_eq!(clear, Verdict::Clear);
        assert!(matches!(cycle, Verdict::Cycle(keys) if keys.len() == length + 1));
        println!("{length:>5} waits: {without:>8} ns, no cycle; {with:>8} ns, a cycle");
    }
}
