//! Random histories of four locks, taken one by one and several at a time, compared step by step with a
//! naive model of the contract: with the search for deadlocks, and without.
//!
//! As in [`crate::lock::tests::model`], a step may end a turn or not, and replies are delivered or not. Time passes
//! with its timers. `PROPTEST_CASES` sets the number of histories.

mod naive;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use self::naive::{Ask, Key, Model, Owner, Reply, State, Told, KEYS};
use crate::lock::tests::sim::{key_ref, Out, Settings, Sim, Terms, START_MS};
use crate::lock::tests::sums;
use crate::lock::{
    Answer, Grace, KeyState, Lease, Limits, LockError, ManyAnswer, Mode, Outcome, Released, Wait,
    WindowRule,
};

const NAMES: [&str; KEYS] = ["k0", "k1", "k2", "k3"];
const OWNERS: [&str; 5] = ["a", "b", "c", "d", "e"];
const CONNS_PER_OWNER: u64 = 3;
const STEPS: usize = 50;
const DEFAULT_CASES: u32 = 2_000;

#[derive(Debug, Clone)]
enum Op {
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
    /// A connection to which a grant is on its way closes.
    DropAddressee,
    Unblock(Owner, u64),
    Del(Key),
    ServerExpires(Key),
    SetTtl(Key, Option<i64>),
    Overwrite(Key),
    RedissonAcquires(Key, Owner, i64),
    RedissonReleases(Key, Owner, i64),
}

#[derive(Debug, Clone)]
struct Step {
    op: Op,
    ends_tick: bool,
    delivers: bool,
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
    (keys, who, 1..30i64, wait, any::<bool>()).prop_map(
        |(keys, (owner, conn), lease_ms, wait, once)| Ask {
            keys,
            owner,
            conn: conn_of(owner, conn),
            lease_ms,
            wait,
            once,
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

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (op(), prop::bool::weighted(0.5), prop::bool::weighted(0.4));
    let step = step.prop_map(|(op, ends_tick, delivers)| Step {
        op,
        ends_tick,
        delivers,
    });
    prop::collection::vec(step, 1..=STEPS)
}

fn settings(deadlocks: bool) -> impl Strategy<Value = Settings> {
    let some = |few: Vec<usize>| prop::sample::select(few);
    let limits = (
        some(vec![2, 5, 100]),
        some(vec![1, 3, 100]),
        some(vec![0, 1, 100]),
    );
    (limits, prop::sample::select(vec![0, 3, 12])).prop_map(move |(limits, ms)| Settings {
        limits: Limits {
            max_waiters: limits.0,
            max_waiters_per_key: limits.1,
            max_tracked: limits.2,
        },
        grace: Grace {
            ms,
            max_places: 1_000,
        },
        session_lease: Lease::TEN_SECONDS,
        windows: WindowRule::default(),
        default_lease: Lease::TEN_SECONDS,
        cluster: false,
        deadlocks,
    })
}

#[test]
fn histories_of_many_keys() {
    explore(false);
}

/// Here a turn ends before each request that may wait: what is not known for sure is judged later, which
/// the model does not tell apart.
#[test]
fn histories_with_deadlocks() {
    explore(true);
}

fn explore(deadlocks: bool) {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = DEFAULT_CASES;
    }
    config.cases = config.cases.div_ceil(2);
    config.failure_persistence = None;
    config.max_shrink_iters = 20_000;
    let all = (settings(deadlocks), steps());
    let result = TestRunner::new(config).run(&all, |(settings, steps)| {
        Case::new(settings).play(&steps);
        Ok(())
    });
    if let Err(TestError::Fail(reason, (settings, steps))) = result {
        let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
        panic!("{reason}\n{settings:?}\n{}", steps.join("\n"));
    }
    result.unwrap();
}

struct Case {
    sim: Sim,
    model: Model,
    deadlocks: bool,
}

impl Case {
    fn new(settings: Settings) -> Case {
        Case {
            sim: Sim::new(&settings),
            model: Model::new(
                settings.limits,
                settings.grace,
                settings.deadlocks,
                START_MS,
            ),
            deadlocks: settings.deadlocks,
        }
    }

    fn play(&mut self, steps: &[Step]) {
        for step in steps {
            let (got, expected) = self.apply(&step.op);
            assert_eq!(got, expected, "the reply to {:?}", step.op);
            if step.ends_tick {
                self.sim.settle_all();
                self.model.end_of_tick();
            }
            self.compare();
            if step.delivers {
                self.sim.deliver_all();
                self.model.delivered();
            }
            self.check();
        }
        self.come_to_rest();
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
                return (Some(done(got)), Some(model.release(keys, *owner, *all)));
            }
            Op::Renew(keys, owner, ms) => {
                let got = sim.renew_many(&named(keys), OWNERS[*owner], lease(*ms));
                return (Some(done(got)), Some(model.renew(keys, *owner, *ms)));
            }
            Op::Break(key, purge) => {
                let got = sim.break_lock(NAMES[*key], None, *purge);
                let got = got.map(usize::from);
                return (Some(done(got)), Some(model.break_lock(*key, *purge)));
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
            _ => self.change_key(op),
        }
        (None, None)
    }

    fn change_key(&mut self, op: &Op) {
        let (sim, model) = (&mut self.sim, &mut self.model);
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

    fn alarm(&mut self) {
        self.sim.alarm();
        self.model.alarm();
    }

    fn compare(&mut self) {
        let (mut told, mut published) = (Vec::new(), Vec::new());
        for out in std::mem::take(&mut self.sim.out) {
            match out {
                Out::Answer { conn, outcome, .. } => told.push((conn, tell(&outcome))),
                Out::Publish(key) => {
                    published.push(NAMES.iter().position(|name| *name == key).unwrap());
                }
                _ => {}
            }
        }
        let mut expected = std::mem::take(&mut self.model.told);
        let mut freed = std::mem::take(&mut self.model.published);
        told.sort_unstable();
        expected.sort_unstable();
        published.sort_unstable();
        freed.sort_unstable();
        assert_eq!(told, expected, "what parked requests were told");
        if self.model.keys.contains(&State::Other) {
            // A request that is sent away makes room before or after a grant is taken back: only then is
            // the key handed on, and not freed. Both orders are right.
            freed.retain(|key| published.contains(key));
        }
        assert_eq!(published, freed, "what was published");
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

    fn check(&self) {
        let waiters = &self.sim.locks.waiters;
        assert_eq!(waiters.live(), self.sim.parked.len());
        assert_eq!(waiters.live(), self.model.waiting());
        assert_eq!(waiters.live_places(), self.model.live_places());
        assert!(waiters.live_places() <= self.model.limits.max_waiters);
        assert_eq!(waiters.kept_places(), self.model.kept_places());
        for (key, name) in NAMES.iter().enumerate() {
            let queue = waiters.queue(key_ref(name));
            let line: Vec<&[u8]> = queue.map_or(Vec::new(), |q| q.iter().map(|w| w.0).collect());
            let expected = self.model.line(key);
            let expected: Vec<_> = expected.iter().map(|o| OWNERS[*o].as_bytes()).collect();
            assert_eq!(line, expected, "the line of {name}");
        }
        let stats = &self.sim.locks.stats;
        sums::check(self.sim.locks.fields());
        assert_eq!(stats.grants, self.model.grants);
        if waiters.live() + waiters.kept_places() == 0 {
            let lines = NAMES.iter().filter_map(|name| waiters.queue(key_ref(name)));
            assert_eq!(lines.count(), 0, "an empty line was left");
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
        let waiters = &self.sim.locks.waiters;
        assert_eq!((waiters.live(), waiters.kept_places()), (0, 0));
        assert!(waiters.is_quiet());
    }
}

fn ask_sim(sim: &mut Sim, ask: &Ask, single: bool) -> Reply {
    let wait = match ask.wait {
        None => Wait::No,
        Some(None) => Wait::ForEver,
        Some(Some(ms)) => Wait::Ms(ms),
    };
    let owner = OWNERS[ask.owner];
    let how = (lease(ask.lease_ms), wait, ask.once);
    let answer = if single {
        let terms = Terms::Named(how.0);
        let key = NAMES[ask.keys[0]];
        let answer = sim.acquire(key, owner, ask.conn, (Mode::Exclusive, terms, how.1, how.2));
        answer.map(|answer| match answer {
            Answer::Granted(_) => Reply::Granted,
            Answer::Refused => Reply::Refused,
            Answer::Parked(_) => Reply::Parked,
        })
    } else {
        let answer = sim.acquire_many(&named(&ask.keys), owner, ask.conn, how);
        answer.map(|answer| match answer {
            ManyAnswer::Granted(_) => Reply::Granted,
            ManyAnswer::Refused(_) => Reply::Refused,
            ManyAnswer::Parked(_) => Reply::Parked,
        })
    };
    answer.unwrap_or_else(|error| Reply::Error(code(&error)))
}

fn named(keys: &[Key]) -> Vec<&'static str> {
    keys.iter().map(|key| NAMES[*key]).collect()
}

fn done(result: Result<usize, LockError>) -> Reply {
    match result {
        Ok(count) => Reply::Done(count),
        Err(error) => Reply::Error(code(&error)),
    }
}

fn conn_of(owner: Owner, conn: u64) -> u64 {
    owner as u64 * CONNS_PER_OWNER + conn
}

fn lease(ms: i64) -> Lease {
    Lease::from_ms(ms).unwrap()
}

fn tell(outcome: &Outcome) -> Told {
    match outcome {
        Outcome::Granted(_) | Outcome::GrantedAll(_) => Told::Granted,
        Outcome::Nil => Told::Nil,
        Outcome::Failed(error) => Told::Error(code(error)),
        Outcome::Open => unreachable!("nobody waits for a latch here"),
    }
}

fn code(error: &LockError) -> &'static str {
    match error {
        LockError::WrongType => "WRONGTYPE",
        LockError::Busy => "LOCKBUSY",
        LockError::Broken => "LOCKBROKEN",
        LockError::Deadlock(_) => "DEADLOCK",
        other => panic!("unexpected: {other}"),
    }
}
