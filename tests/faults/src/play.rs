//! One run: servers, clients, a watcher and a nemesis, which causes faults; then all faults are healed, all requests
//! get their last replies, and the history is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use redis_lock_harness::patience;

use crate::bulk;
use crate::check::{check, Findings};
use crate::client::{Client, Habits, World};
use crate::counter::{Counter, Updates};
use crate::history::{History, Journal, TicketCounters};
use crate::latches::{self, Latches};
use crate::look;
use crate::many;
use crate::outside;
use crate::porcupine::{Porcupine, Verdict};
use crate::route::Route;
use crate::stall;
use crate::tickets;
use crate::watcher::watch;

/// How long participants wait for their last outcomes when the run is over and all faults are healed: by then every
/// holder has released its lock or slept through its lease, and every earlier waiter has been granted. On a machine
/// that stops processes for long, `LOCK_PATIENCE` makes it longer.
fn drain() -> Duration {
    patience() / 2
}

/// The number of participants of each kind.
#[derive(Debug, Clone)]
pub struct Plan {
    pub keys: usize,
    /// Clients with all habits.
    pub clients: u32,
    /// Clients that send batches of short holds.
    pub bulk: u32,
    /// Clients that request several locks at once.
    pub many: u32,
    /// Redisson instances.
    pub outside: u32,
    /// Processes that wait by tickets.
    pub tickets: u32,
    /// Clients that use latches.
    pub latches: u32,
    pub habits: Habits,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            keys: 6,
            clients: 16,
            bulk: 1,
            many: 0,
            outside: 0,
            tickets: 0,
            latches: 0,
            habits: Habits::default(),
        }
    }
}

/// The tools of a nemesis.
pub struct Hand<'a> {
    pub rng: fastrand::Rng,
    /// The journal that marks faults.
    pub journal: &'a Journal,
    pub keys: &'a [String],
    /// The keys of latches.
    pub latches: &'a [String],
    /// The number of faults of each kind, for the report.
    pub tally: BTreeMap<String, u64>,
}

impl Hand<'_> {
    /// Sleeps for a random number of milliseconds in this range.
    pub fn pause(&mut self, ms: std::ops::Range<u64>) {
        std::thread::sleep(Duration::from_millis(self.rng.u64(ms)));
    }

    /// Counts one more of these.
    pub fn count(&mut self, what: &str) {
        *self.tally.entry(what.into()).or_default() += 1;
    }
}

/// The nemesis: owns the servers and causes faults.
pub trait Nemesis {
    /// The route by which clients find the servers.
    fn route(&self) -> Box<dyn Route>;

    /// The names of the keys; the servers that have them may matter.
    fn keys(&self, count: usize) -> Vec<String> {
        (0..count).map(|n| format!("k{n}")).collect()
    }

    /// The names of the keys of latches. (A latch may also use names with this one as their hash tag.)
    fn latches(&self, count: usize) -> Vec<String> {
        (0..count).map(|n| format!("l{n}")).collect()
    }

    /// Causes a fault, and usually heals it.
    fn strike(&mut self, hand: &mut Hand);

    /// Heals all remaining faults.
    fn heal(&mut self, _: &mut Hand) {}

    /// The counters of tickets when all clients have ended, if one server ran all the time.
    fn counters(&self) -> Option<TicketCounters> {
        None
    }

    /// Checks that the servers are alive and their counters add up, and ends them.
    fn finish(self: Box<Self>) -> Result<(), String>;

    /// The version of the servers.
    fn version(&self) -> String;
}

/// The result of a run.
#[derive(Debug)]
pub struct Played {
    pub findings: Findings,
    pub verdict: Verdict,
    pub tally: BTreeMap<String, u64>,
    /// The reasons why overlaps were expected.
    pub excuses: BTreeSet<String>,
    pub updates: Updates,
    pub version: String,
    pub seconds: f64,
    /// The defects of the servers themselves.
    pub broken: Option<String>,
    /// The file with the history of a failed run.
    pub file: Option<PathBuf>,
}

impl Played {
    /// Prints the defects, and where the history is.
    pub fn complain(&self) {
        for violation in self.findings.violations.iter().take(5) {
            println!("    {:?}: {}", violation.rule, violation.text);
        }
        if let Verdict::Refused(text) | Verdict::Undecided(text) = &self.verdict {
            println!("    Porcupine: {text}");
        }
        if let Some(broken) = &self.broken {
            println!("    {broken}");
        }
        if let Some(file) = &self.file {
            println!("    the history: {}", file.display());
        }
    }

    /// Whether there is any defect.
    pub fn is_bad(&self) -> bool {
        !self.findings.violations.is_empty()
            || matches!(self.verdict, Verdict::Refused(_))
            || self.broken.is_some()
            || self.updates.lost_checked != 0
    }
}

/// Plays one run of this length. Without `porcupine` only the rules of `check` are judged.
pub fn play(
    name: &str,
    plan: &Plan,
    mut nemesis: Box<dyn Nemesis>,
    seed: u64,
    length: Duration,
    porcupine: Option<&Porcupine>,
) -> Played {
    let start = Instant::now();
    let keys = nemesis.keys(plan.keys);
    let latches = nemesis.latches(plan.latches.div_ceil(latches::CLIENTS_EACH) as usize);
    let journal = Journal::default();
    let mut hand = Hand {
        rng: fastrand::Rng::with_seed(seed),
        journal: &journal,
        keys: &keys,
        latches: &latches,
        tally: BTreeMap::new(),
    };
    let version = nemesis.version();
    let counters: Vec<Counter> = keys.iter().map(|_| Counter::default()).collect();
    let (mut history, panicked) = act(plan, &mut *nemesis, &mut hand, &counters, start, length);
    history.marks = journal.marks();
    let mut updates = Updates::default();
    counters
        .iter()
        .for_each(|counter| updates += counter.updates());
    let tally = hand.tally;
    let finished = catch_unwind(AssertUnwindSafe(|| {
        history.counters.extend(nemesis.counters());
        nemesis.finish()
    }));
    let finished = finished.unwrap_or_else(|panic| Err(said(&*panic)));
    let excuses = history.marks.iter().filter_map(|mark| mark.fault.excuse());
    let mut played = Played {
        findings: check(&history),
        verdict: Verdict::None,
        tally,
        excuses: excuses.map(str::to_string).collect(),
        updates,
        version,
        seconds: start.elapsed().as_secs_f64(),
        broken: [panicked, finished.err()]
            .into_iter()
            .flatten()
            .reduce(|one, other| one + "\n" + &other),
        file: None,
    };
    if let Some(porcupine) = porcupine {
        match porcupine.judge(&history, &format!("{name}.{seed}")) {
            Ok(verdict) => played.verdict = verdict,
            Err(error) => played.broken = Some(error.to_string()),
        }
    }
    if played.is_bad() {
        let path = PathBuf::from(format!("target/faults/{name}.{seed}.jsonl"));
        match history.write(&path) {
            Ok(()) => played.file = Some(path),
            Err(error) => eprintln!("{}: {error}", path.display()),
        }
    }
    played
}

/// Runs all participants at the same time; returns their recorded requests, and the reason if the nemesis stopped
/// early.
fn act(
    plan: &Plan,
    nemesis: &mut dyn Nemesis,
    hand: &mut Hand,
    counters: &[Counter],
    start: Instant,
    length: Duration,
) -> (History, Option<String>) {
    let (stop, blind) = (AtomicBool::new(false), AtomicBool::new(false));
    let sleeps = AtomicU64::new(0);
    let route = nemesis.route();
    let latches = Latches::of(hand.latches, hand.keys.len() as u32);
    let world = World {
        keys: hand.keys,
        latches: &latches,
        counters,
        route: &*route,
        habits: &plan.habits,
        stop: &stop,
        drain: drain(),
        sleeps: &sleeps,
    };
    let participants =
        plan.clients + plan.bulk + plan.many + plan.outside + plan.tickets + plan.latches;
    let mut history = History::default();
    let mut panicked = None;
    std::thread::scope(|scope| {
        let world = &world;
        let mut workers = Vec::new();
        for id in 0..participants {
            let seed = hand.rng.u64(..);
            workers.push(scope.spawn(move || participate(plan, id, world, seed)));
        }
        let watcher = scope.spawn(|| watch(world.keys, world.route, world.beat(), &blind));
        let looks = plan.many > 0 || plan.habits.many_tickets > 0;
        let onlooker = looks.then(|| scope.spawn(|| look::watch(world, &blind)));
        let journal = hand.journal;
        scope.spawn(|| stall::watch(journal, &blind));
        scope.spawn(|| stall::watch_disk(journal, &blind));
        scope.spawn(|| stall::watch_servers(world.keys, world.route, journal, &blind));
        let striking = catch_unwind(AssertUnwindSafe(|| {
            while start.elapsed() < length {
                nemesis.strike(hand);
            }
            nemesis.heal(hand);
        }));
        panicked = striking.err().map(|panic| said(&*panic));
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            history.add(worker.join().expect("a client"));
        }
        blind.store(true, Ordering::Relaxed);
        history.seen = watcher.join().expect("the watcher");
        let looks = onlooker.map(|onlooker| onlooker.join().expect("the onlooker"));
        history.looks = looks.unwrap_or_default();
    });
    hand.tally
        .insert("holder sleeps".into(), sleeps.into_inner());
    (history, panicked)
}

/// The work of the participant of this number, by its kind.
fn participate(plan: &Plan, id: u32, world: &World, seed: u64) -> History {
    let first_bulk = plan.clients;
    let first_many = first_bulk + plan.bulk;
    let first_outside = first_many + plan.many;
    let first_tickets = first_outside + plan.outside;
    let first_latches = first_tickets + plan.tickets;
    match id {
        id if id < first_bulk => Client::new(id, world, seed).work().into(),
        id if id < first_many => bulk::work(id, world, seed).into(),
        id if id < first_outside => many::work(id, world, seed).into(),
        id if id < first_tickets => outside::work(id, world, seed).into(),
        id if id < first_latches => tickets::work(id, world, seed),
        id => latches::work(id, world, seed),
    }
}

fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
    text.unwrap_or_else(|| "a panic".into())
}
