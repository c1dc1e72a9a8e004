//! Four locks, taken one by one and several at a time, with the search for deadlocks and without. Time passes with its
//! timers.

mod alone;
mod naive;

use proptest::prelude::*;

pub use self::naive::Ask;
use self::naive::{Key, Model, Owner, State, KEYS};
use crate::lock::tests::model::tickets::{Channel, CHANNELS};
use crate::lock::tests::model::{
    self, assert_queue, assert_same, conn_of, explore, grace, lease, limits, wait_of, Reply, Step,
    CONNS_PER_OWNER,
};
use crate::lock::tests::sim::{key_ref, sums, Out, Settings, Sim, Terms, START_MS};
use crate::lock::{KeyState, Lease, Mode, Released, Resource};

const NAMES: [&str; KEYS] = ["k0", "k1", "k2", "k3"];
const OWNERS: [&str; 5] = ["a", "b", "c", "d", "e"];
const STEPS: usize = 50;
const DEFAULT_CASES: u32 = 2_000;

#[derive(Debug, Clone)]
pub enum Op {
    /// One key is asked for by `LOCK.ACQUIRE`, several by `LOCK.MACQUIRE`.
    Acquire(Ask),
    /// One key by `LOCK.MACQUIRE`.
    AcquireOne(Ask),
    Release(Vec<Key>, Owner, bool),
    Renew(Vec<Key>, Owner, i64),
    Break(Key, bool),
    Pass(u64),
    Alarm,
    Disconnect(Owner, u64),
    /// A connection with a grant in flight closes.
    DropAddressee,
    Unblock(Owner, u64),
    Del(Key),
    ServerExpires(Key),
    SetTtl(Key, Option<i64>),
    Overwrite(Key),
    RedissonAcquires(Key, Owner, i64),
    RedissonReleases(Key, Owner, i64),
    /// A channel of tickets has a subscriber, or none.
    Hear(Channel, bool),
}

fn keys() -> impl Strategy<Value = Vec<Key>> {
    let several = prop::collection::vec(0..KEYS, 2..=KEYS).prop_map(|mut keys| {
        let mut seen = [false; KEYS];
        keys.retain(|key| !std::mem::replace(&mut seen[*key], true));
        keys
    });
    prop_oneof![2 => (0..KEYS).prop_map(|key| vec![key]), 3 => several]
}

fn ask(keys: impl Strategy<Value = Vec<Key>>) -> impl Strategy<Value = Ask> {
    let wait = prop_oneof![
        1 => Just(None),
        2 => Just(Some(None)),
        4 => (1..30u64).prop_map(|ms| Some(Some(ms))),
    ];
    let who = (0..OWNERS.len(), 0..CONNS_PER_OWNER);
    let notify = prop::option::of(0..CHANNELS.len());
    (keys, who, 1..30i64, wait, any::<bool>(), notify).prop_map(
        |(keys, (owner, conn), lease_ms, wait, once, notify)| Ask {
            keys,
            owner,
            conn: conn_of(owner, conn),
            lease_ms,
            wait,
            once,
            notify: notify.filter(|_| wait.is_some()),
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    let (key, owner, conn) = (0..KEYS, 0..OWNERS.len(), 0..CONNS_PER_OWNER);
    let lease = 1..30i64;
    let connection = (owner.clone(), conn);
    let at = (key.clone(), owner.clone());
    prop_oneof![
        30 => ask(keys()).prop_map(Op::Acquire),
        1 => ask((0..KEYS).prop_map(|key| vec![key])).prop_map(Op::AcquireOne),
        14 => (keys(), owner.clone(), any::<bool>()).prop_map(|(k, o, all)| Op::Release(k, o, all)),
        3 => (keys(), owner, lease.clone()).prop_map(|(k, o, ms)| Op::Renew(k, o, ms)),
        2 => (key.clone(), any::<bool>()).prop_map(|(k, purge)| Op::Break(k, purge)),
        10 => (0..8u64).prop_map(Op::Pass),
        8 => Just(Op::Alarm),
        6 => connection.clone().prop_map(|(o, c)| Op::Disconnect(o, c)),
        6 => Just(Op::DropAddressee),
        2 => connection.prop_map(|(o, c)| Op::Unblock(o, c)),
        3 => key.clone().prop_map(Op::Del),
        2 => key.clone().prop_map(Op::ServerExpires),
        2 => (key.clone(), prop::option::of(1..20i64)).prop_map(|(k, ms)| Op::SetTtl(k, ms)),
        1 => key.prop_map(Op::Overwrite),
        3 => (at.clone(), lease.clone()).prop_map(|((k, o), ms)| Op::RedissonAcquires(k, o, ms)),
        3 => (at, lease).prop_map(|((k, o), ms)| Op::RedissonReleases(k, o, ms)),
    ]
}

fn settings(deadlocks: bool) -> impl Strategy<Value = Settings> {
    (limits(), grace(Just(1_000))).prop_map(move |(limits, grace)| Settings {
        limits,
        grace,
        default_lease: Lease::TEN_SECONDS,
        deadlocks,
        ..Settings::default()
    })
}

#[test]
fn histories_of_many_keys() {
    run(false);
}

/// Here a tick ends before each request that may wait: an uncertain search is repeated later, which the model does not
/// distinguish.
#[test]
fn histories_with_deadlocks() {
    run(true);
}

fn run(deadlocks: bool) {
    let steps = model::steps(op(), (0.5, 0.4), STEPS);
    explore::<Case>((DEFAULT_CASES, 2), settings(deadlocks), steps);
}

#[derive(Debug)]
pub struct Case {
    pub sim: Sim,
    model: Model,
    deadlocks: bool,
}

impl model::Case for Case {
    type Settings = Settings;
    type Op = Op;

    fn new(settings: &Settings) -> Case {
        Case {
            sim: Sim::new(settings),
            model: Model::new(
                settings.limits,
                settings.grace,
                settings.deadlocks,
                START_MS,
            ),
            deadlocks: settings.deadlocks,
        }
    }

    fn apply(&mut self, op: &Op) -> (Option<Reply>, Option<Reply>) {
        let (sim, model) = (&mut self.sim, &mut self.model);
        match op {
            Op::Acquire(ask) | Op::AcquireOne(ask) => {
                if sim.is_blocked(ask.conn) {
                    return (None, None);
                }
                if self.deadlocks {
                    self.alarm();
                    self.sim.deliver_all();
                    self.model.delivered();
                }
                let single = matches!(op, Op::Acquire(_)) && ask.keys.len() == 1;
                let got = ask_sim(&mut self.sim, ask, single);
                return (Some(got), Some(self.model.acquire(ask, single)));
            }
            Op::Release(keys, owner, all) => {
                let got = match keys[..] {
                    [key] => sim
                        .release(NAMES[key], OWNERS[*owner], (None, *all, None))
                        .map(|released| usize::from(released != Released::NotHeld)),
                    _ => sim.release_many(&named(keys), OWNERS[*owner], *all),
                };
                return (
                    Some(Reply::of(got)),
                    Some(model.release(keys, *owner, *all)),
                );
            }
            Op::Renew(keys, owner, ms) => {
                let got = sim.renew_many(&named(keys), OWNERS[*owner], lease(*ms));
                return (Some(Reply::of(got)), Some(model.renew(keys, *owner, *ms)));
            }
            Op::Break(key, purge) => {
                let got = sim.break_lock(NAMES[*key], None, *purge);
                let got = got.map(usize::from);
                return (Some(Reply::of(got)), Some(model.break_lock(*key, *purge)));
            }
            Op::Pass(ms) => {
                sim.pass(*ms);
                model.mono_ms = sim.now.mono_ms;
                model.wall_ms = sim.now.wall_ms;
                self.alarm();
            }
            Op::Alarm => self.alarm(),
            Op::DropAddressee => {
                if let Some(request) = sim.granted.values().next() {
                    let conn = request.conn;
                    sim.disconnect(conn);
                    model.disconnect(conn);
                }
            }
            Op::Disconnect(owner, conn) => {
                sim.disconnect(conn_of(*owner, *conn));
                model.disconnect(conn_of(*owner, *conn));
            }
            Op::Unblock(owner, conn) => {
                sim.unblock(conn_of(*owner, *conn));
                model.unblock(conn_of(*owner, *conn));
            }
            Op::Hear(..) => {}
            _ => change_key(&mut self.sim, Some(&mut self.model), op),
        }
        (None, None)
    }

    fn end_tick(&mut self) {
        self.sim.settle_all();
        self.model.end_of_tick();
    }

    fn compare(&mut self, _op: &Op) {
        let (mut replies, mut published) = (Vec::new(), Vec::new());
        for out in std::mem::take(&mut self.sim.out) {
            match out {
                Out::Answer { conn, outcome, .. } => {
                    replies.push((conn, Reply::to_parked(&outcome)))
                }
                Out::Publish(key) => {
                    published.push(NAMES.iter().position(|name| *name == key).unwrap());
                }
                _ => {}
            }
        }
        let expected = std::mem::take(&mut self.model.replies);
        let mut freed = std::mem::take(&mut self.model.published);
        assert_same(replies, expected, "the replies of parked requests");
        if self.model.keys.contains(&State::Other) {
            // A request is refused before or after a grant is undone: only in one order the key is freed, in the other
            // it is handed off. Both orders are right.
            freed.retain(|key| published.contains(key));
        }
        assert_same(published, freed, "the publishes");
        for (key, name) in NAMES.iter().enumerate() {
            let got = match self.sim.state(name) {
                KeyState::Absent => None,
                KeyState::Held(hold) => Some((hold.owner.to_vec(), hold.count, hold.deadline_ms)),
                KeyState::OtherType => Some((b"other".to_vec(), 0, None)),
                other => panic!("{other:?}"),
            };
            let expected = match self.model.keys[key] {
                State::Absent => None,
                State::Held(hold) => Some((
                    OWNERS[hold.owner].as_bytes().to_vec(),
                    hold.count,
                    hold.deadline_ms,
                )),
                State::Other => Some((b"other".to_vec(), 0, None)),
            };
            assert_eq!(got, expected, "{name}");
        }
    }

    fn deliver(&mut self) {
        self.sim.deliver_all();
        self.model.delivered();
    }

    fn check(&mut self, _step: &Step<Op>) {
        let waiters = &self.sim.locks.shared.waiters;
        assert_eq!(waiters.live(), self.sim.parked.len());
        assert_eq!(waiters.live(), self.model.waiting());
        assert_eq!(waiters.live_places(), self.model.live_places());
        assert!(waiters.live_places() <= self.model.limits.max_waiters);
        assert_eq!(waiters.kept_places(), self.model.kept_places());
        for (key, name) in NAMES.iter().enumerate() {
            let queue = self.model.queue(key);
            assert_queue(&self.sim, name, queue.iter().map(|owner| OWNERS[*owner]));
        }
        let stats = &self.sim.locks.stats;
        sums::check(self.sim.fields(Resource::Lock));
        assert_eq!(stats.grants, self.model.grants);
        if waiters.live() + waiters.kept_places() == 0 {
            let queues = NAMES.iter().filter_map(|name| waiters.queue(key_ref(name)));
            assert_eq!(queues.count(), 0, "an empty queue was left");
        }
    }

    /// Left alone, every request gets its answer: leases end, and with them every deadlock.
    fn come_to_rest(&mut self) {
        for name in NAMES {
            if matches!(self.sim.state(name), KeyState::Held(hold) if hold.deadline_ms.is_none()) {
                self.sim.del(name);
            }
        }
        self.sim.alarm();
        self.sim.deliver_all();
        self.sim.advance(10_000);
        self.sim.deliver_all();
        assert!(self.sim.parked.is_empty(), "never answered");
        let waiters = &self.sim.locks.shared.waiters;
        assert_eq!((waiters.live(), waiters.kept_places()), (0, 0));
        assert!(waiters.is_quiet());
    }
}

impl Case {
    fn alarm(&mut self) {
        self.sim.alarm();
        self.model.alarm();
    }
}

fn ask_sim(sim: &mut Sim, ask: &Ask, single: bool) -> Reply {
    let (owner, lease, wait) = (OWNERS[ask.owner], lease(ask.lease_ms), wait_of(ask.wait));
    if single {
        let how = (Mode::Exclusive, Terms::Named(lease), wait, ask.once);
        return Reply::of(sim.acquire(NAMES[ask.keys[0]], owner, ask.conn, how));
    }
    let how = (Mode::Exclusive, lease, wait, ask.once);
    Reply::of(sim.acquire_many(&named(&ask.keys), owner, ask.conn, how))
}

fn named(keys: &[Key]) -> Vec<&'static str> {
    keys.iter().map(|key| NAMES[*key]).collect()
}

/// What is done to a key without a lock command, with the naive model or without.
fn change_key(sim: &mut Sim, model: Option<&mut Model>, op: &Op) {
    let mut unused = None;
    let model = match model {
        Some(model) => model,
        None => unused.insert(Model::new(
            Settings::default().limits,
            Default::default(),
            false,
            START_MS,
        )),
    };
    match *op {
        Op::Del(key) => {
            sim.del(NAMES[key]);
            model.set(key, State::Absent);
        }
        Op::ServerExpires(key) => {
            sim.server_expires(NAMES[key]);
            model.server_expires(key);
        }
        Op::SetTtl(key, ms) => {
            let deadline_ms = ms.map(|ms| sim.now.wall_ms + ms);
            sim.set_ttl(NAMES[key], deadline_ms);
            model.set_ttl(key, deadline_ms);
        }
        Op::Overwrite(key) => {
            sim.overwrite(NAMES[key], false);
            model.set(key, State::Other);
        }
        Op::RedissonAcquires(key, owner, ms) => {
            sim.foreign_acquire(NAMES[key], OWNERS[owner], lease(ms));
            model.redisson_acquires(key, owner, ms);
        }
        Op::RedissonReleases(key, owner, ms) => {
            sim.foreign_release(NAMES[key], OWNERS[owner], lease(ms));
            model.redisson_releases(key, owner, ms);
        }
        _ => unreachable!(),
    }
}
