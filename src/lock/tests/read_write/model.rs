//! Random histories of one read-write lock.
//!
//! By the module alone: after each step the reply, what waiters were told, who holds how many times until
//! when, and the line must be what the naive model says. Together with Redisson's scripts, which keep
//! other books of leases, it is what must hold whoever did what: see [`Case::check`].

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};

use crate::lock::tests::read_write::naive::{Naive, Said};
use crate::lock::tests::sim::{key_ref, scripts, Out, Settings, Sim, Terms};
use crate::lock::tests::sums;
use crate::lock::{Answer, Grace, KeyState, Lease, Mode, Outcome, Released, Wait};

const OWNERS: [&str; 4] = ["a", "b", "c", "d"];
const STEPS: usize = 50;
const DEFAULT_CASES: u32 = 1_500;
const SESSION_MS: i64 = 9;

#[derive(Debug, Clone)]
enum Op {
    Acquire {
        owner: usize,
        conn: u8,
        writes: bool,
        lease_ms: i64,
        wait: Option<Option<u64>>,
        once: bool,
        /// Bound to the connection, where there is no naive model, which knows no sessions.
        session: bool,
    },
    Release(usize, Option<Mode>, bool),
    Renew(usize, Option<Mode>, i64),
    Break(bool),
    Pass(u64),
    Disconnect(usize, u8),
    /// A connection to which a grant is on its way closes.
    DropAddressee,
    Expire,
    Del,
    Script(Script, usize, i64),
}

#[derive(Debug, Clone, Copy)]
enum Script {
    Read,
    Write,
    Unread,
    Unwrite,
    Renew,
    Force,
}

#[derive(Debug, Clone)]
struct Step {
    op: Op,
    delivers: bool,
}

fn op(with_scripts: bool) -> impl Strategy<Value = Op> {
    let owner = || 0..OWNERS.len();
    let mode = || {
        prop_oneof![
            2 => Just(None),
            2 => Just(Some(Mode::Read)),
            1 => Just(Some(Mode::Write)),
        ]
    };
    let lease = || 1..20i64;
    let wait = prop_oneof![
        2 => Just(None),
        1 => Just(Some(None)),
        4 => (1..20u64).prop_map(|ms| Some(Some(ms))),
    ];
    let acquire = (
        (owner(), 0..3u8),
        prop::bool::weighted(0.35),
        lease(),
        wait,
        (any::<bool>(), prop::bool::weighted(0.3)),
    );
    let acquire =
        acquire.prop_map(
            |((owner, conn), writes, lease_ms, wait, (once, session))| Op::Acquire {
                owner,
                conn,
                writes,
                lease_ms,
                wait,
                once,
                session,
            },
        );
    let script = prop_oneof![
        4 => Just(Script::Read),
        2 => Just(Script::Write),
        4 => Just(Script::Unread),
        3 => Just(Script::Unwrite),
        2 => Just(Script::Renew),
        1 => Just(Script::Force),
    ];
    let script = (script, owner(), lease()).prop_map(|(s, o, ms)| Op::Script(s, o, ms));
    prop_oneof![
        20 => acquire,
        10 => (owner(), mode(), any::<bool>()).prop_map(|(o, m, all)| Op::Release(o, m, all)),
        4 => (owner(), mode(), lease()).prop_map(|(o, m, ms)| Op::Renew(o, m, ms)),
        1 => any::<bool>().prop_map(Op::Break),
        8 => (0..8u64).prop_map(Op::Pass),
        4 => (owner(), 0..3u8).prop_map(|(o, c)| Op::Disconnect(o, c)),
        3 => Just(Op::DropAddressee),
        2 => Just(Op::Expire),
        1 => Just(Op::Del),
        (if with_scripts { 14 } else { 0 }) => script,
    ]
}

fn explore(with_scripts: bool) {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = DEFAULT_CASES;
    }
    config.failure_persistence = None;
    config.max_shrink_iters = 20_000;
    if let RngSeed::Random = config.rng_seed {
        let seed = std::time::UNIX_EPOCH.elapsed().unwrap();
        config.rng_seed = RngSeed::Fixed(seed.as_nanos() as u64);
    }
    let seed = config.rng_seed;
    let step = (op(with_scripts), prop::bool::weighted(0.5));
    let step = step.prop_map(|(op, delivers)| Step { op, delivers });
    let steps = prop::collection::vec(step, 1..=STEPS);
    let history = (prop::sample::select(vec![0, 6]), steps);
    let result = TestRunner::new(config).run(&history, |(grace_ms, steps)| {
        Case::new(grace_ms, with_scripts).play(&steps);
        Ok(())
    });
    if let Err(TestError::Fail(reason, (grace_ms, steps))) = result {
        let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
        let steps = steps.join("\n");
        panic!("PROPTEST_RNG_SEED={seed}: {reason}\ngrace {grace_ms}\n{steps}");
    }
    result.unwrap();
}

#[test]
fn histories_of_the_module_alone() {
    explore(false);
}

#[test]
fn histories_with_redissons_scripts() {
    explore(true);
}

fn undelivered(op: Op) -> Step {
    Step {
        op,
        delivers: false,
    }
}

fn acquire(owner: usize, conn: u8, writes: bool, lease_ms: i64, wait: Option<Option<u64>>) -> Op {
    Op::Acquire {
        owner,
        conn,
        writes,
        lease_ms,
        wait,
        once: false,
        session: false,
    }
}

/// Until the lease of a READ grant has ended whose reply is not written.
fn expired_grant_in_flight() -> Case {
    let mut case = Case::new(0, false);
    let ops = [
        acquire(0, 0, false, 60, None),
        acquire(1, 0, true, 1, Some(Some(8))),
        acquire(3, 1, false, 1, Some(None)),
        // The wait of the writer ends: the reader behind it is granted.
        Op::Pass(8),
        acquire(3, 2, true, 1, Some(None)),
        // The lease ends.
        Op::Pass(1),
    ];
    case.play(&ops.map(undelivered));
    case
}

/// The owner is granted READ again, under the token of the same phase: the end of the first connection ends nothing.
#[test]
fn an_expired_grant_in_flight_does_not_undo_the_next_one() {
    let again = acquire(3, 0, false, 1, Some(None));
    expired_grant_in_flight().play(&[again, Op::DropAddressee].map(undelivered));
}

/// The same where the connection ends first, and the owner is granted READ again before the key is settled.
#[test]
fn a_lost_expired_grant_does_not_undo_the_next_one() {
    let mut case = expired_grant_in_flight();
    let again = acquire(3, 0, false, 1, Some(None));
    for op in [&Op::DropAddressee, &again] {
        let expected = case.apply_naive(op);
        assert_eq!(case.apply(op), expected, "the reply to {op:?}");
    }
    case.sim.alarm();
    case.naive.as_mut().unwrap().alarm();
    case.compare(&again);
    case.check();
}

struct Case {
    sim: Sim,
    naive: Option<Naive>,
    /// The highest token that was answered for WRITE, and the latest of all.
    highest_write: u64,
    latest: u64,
}

fn conn_of(owner: usize, conn: u8) -> u64 {
    (owner * 3 + usize::from(conn)) as u64
}

fn lease(ms: i64) -> Lease {
    Lease::from_ms(ms).unwrap()
}

impl Case {
    fn new(grace_ms: u64, with_scripts: bool) -> Case {
        let mut sim = Sim::new(&Settings {
            grace: Grace {
                ms: grace_ms,
                max_places: 100,
            },
            session_lease: lease(SESSION_MS),
            ..Settings::default()
        });
        sim.scripts_ran = with_scripts;
        let naive = (!with_scripts).then(|| Naive::new(grace_ms, sim.now.wall_ms));
        Case {
            sim,
            naive,
            highest_write: 0,
            latest: 0,
        }
    }

    fn play(&mut self, steps: &[Step]) {
        for step in steps {
            let expected = self.apply_naive(&step.op);
            let got = self.apply(&step.op);
            if self.naive.is_some() {
                assert_eq!(got, expected, "the reply to {:?}", step.op);
            }
            self.sim.alarm();
            if step.delivers {
                self.sim.deliver_all();
            }
            if let Some(naive) = &mut self.naive {
                naive.alarm();
                if step.delivers {
                    naive.delivered();
                }
            }
            self.compare(&step.op);
            self.check();
        }
    }

    fn apply(&mut self, op: &Op) -> Option<Said> {
        let sim = &mut self.sim;
        match *op {
            Op::Acquire {
                owner,
                conn,
                writes,
                lease_ms,
                wait,
                once,
                session,
            } => {
                let conn = conn_of(owner, conn);
                if sim.is_blocked(conn) {
                    return None;
                }
                let mode = if writes { Mode::Write } else { Mode::Read };
                let terms = match session && self.naive.is_none() {
                    true => Terms::Session,
                    false => Terms::Named(lease(lease_ms)),
                };
                let wait = match wait {
                    None => Wait::No,
                    Some(None) => Wait::ForEver,
                    Some(Some(ms)) => Wait::Ms(ms),
                };
                let answer = sim.acquire("k", OWNERS[owner], conn, (mode, terms, wait, once));
                if let Ok(Answer::Granted(token)) = answer {
                    self.note(token.get());
                }
                Some(answer.map_or_else(Said::error, |answer| match answer {
                    Answer::Granted(_) => Said::Granted,
                    Answer::Refused => Said::Refused,
                    Answer::Parked(_) => Said::Parked,
                }))
            }
            Op::Release(owner, mode, all) => {
                let done = sim.release("k", OWNERS[owner], (mode, all, None));
                Some(done.map_or_else(Said::error, |done| match done {
                    Released::Freed => Said::Freed,
                    Released::StillHeld => Said::StillHeld,
                    Released::NotHeld => Said::NotHeld,
                }))
            }
            Op::Renew(owner, mode, lease_ms) => {
                let done = sim.renew(
                    "k",
                    OWNERS[owner],
                    (mode, Terms::Named(lease(lease_ms)), None),
                );
                let said = |done| if done { Said::Renewed } else { Said::Lost };
                Some(done.map_or_else(Said::error, said))
            }
            Op::Break(purge) => {
                let done = sim.break_lock("k", None, purge);
                let said = |done| if done { Said::Broken } else { Said::NotHeld };
                Some(done.map_or_else(Said::error, said))
            }
            Op::Pass(ms) => {
                sim.pass(ms);
                None
            }
            Op::Disconnect(owner, conn) => {
                sim.disconnect(conn_of(owner, conn));
                None
            }
            Op::DropAddressee => {
                if let Some(request) = sim.granted.values().next() {
                    let conn = request.conn;
                    sim.disconnect(conn);
                }
                None
            }
            Op::Expire => {
                sim.server_expires_all();
                None
            }
            Op::Del => {
                sim.foreign("k", |keys, _| keys.remove("k"));
                None
            }
            Op::Script(script, owner, ms) => {
                let owner = OWNERS[owner];
                sim.foreign("k", |keys, now| match script {
                    Script::Read => drop(scripts::read_acquire(keys, "k", owner, ms, now)),
                    Script::Write => drop(scripts::write_acquire(keys, "k", owner, ms, now)),
                    Script::Unread => drop(scripts::read_release(keys, "k", owner, now)),
                    Script::Unwrite => drop(scripts::write_release(keys, "k", owner, ms, now)),
                    Script::Renew => drop(scripts::read_renew(keys, "k", owner, ms, now)),
                    Script::Force => drop(scripts::force(keys, "k")),
                });
                None
            }
        }
    }

    fn apply_naive(&mut self, op: &Op) -> Option<Said> {
        let blocked = match *op {
            Op::Acquire { owner, conn, .. } => self.sim.is_blocked(conn_of(owner, conn)),
            _ => false,
        };
        let addressee = self.sim.granted.values().next().map(|request| request.conn);
        let naive = self.naive.as_mut()?;
        match *op {
            Op::Acquire { .. } if blocked => None,
            Op::Acquire {
                owner,
                conn,
                writes,
                lease_ms,
                wait,
                once,
                session: _,
            } => {
                let conn = conn_of(owner, conn);
                Some(naive.acquire(OWNERS[owner], conn, writes, (lease_ms, wait, once)))
            }
            Op::Release(owner, mode, all) => Some(naive.release(OWNERS[owner], mode, all)),
            Op::Renew(owner, mode, ms) => Some(naive.renew(OWNERS[owner], mode, ms)),
            Op::Break(purge) => Some(naive.break_lock(purge)),
            Op::Pass(ms) => {
                naive.pass(ms);
                None
            }
            Op::Disconnect(owner, conn) => {
                naive.disconnect(conn_of(owner, conn));
                None
            }
            Op::DropAddressee => {
                if let Some(conn) = addressee {
                    naive.disconnect(conn);
                }
                None
            }
            Op::Expire => None,
            Op::Del => {
                naive.del();
                None
            }
            Op::Script(..) => unreachable!(),
        }
    }

    fn compare(&mut self, op: &Op) {
        let outs = std::mem::take(&mut self.sim.out).into_iter();
        let told: Vec<(u64, Outcome)> = outs
            .filter_map(|out| match out {
                Out::Answer { conn, outcome, .. } => Some((conn, outcome)),
                _ => None,
            })
            .collect();
        for (_, outcome) in &told {
            if let Outcome::Granted(token) = outcome {
                self.note(token.get());
            }
        }
        let Some(naive) = &mut self.naive else {
            return;
        };
        let mut told: Vec<_> = told
            .into_iter()
            .map(|(conn, outcome)| match outcome {
                Outcome::Granted(_) => (conn, Said::Granted),
                Outcome::Failed(error) => (conn, Said::error(error)),
                _ => (conn, Said::Refused),
            })
            .collect();
        let mut expected = std::mem::take(&mut naive.told);
        told.sort();
        expected.sort();
        assert_eq!(told, expected, "what waiters were told after {op:?}");
        assert_eq!(
            holders(&self.sim),
            naive.holders(),
            "who holds after {op:?}"
        );
        assert_eq!(line(&self.sim), naive.line(), "who waits after {op:?}");
    }

    fn note(&mut self, token: u64) {
        assert!(token >= self.highest_write, "a token of the past");
        let writes = |mode: &Mode| *mode == Mode::Write;
        let state = self.sim.state("k");
        let mode = match &state {
            KeyState::ReadWrite(lock) if lock.writer.is_some() => Mode::Write,
            _ => Mode::Read,
        };
        if writes(&mode) {
            self.highest_write = token;
        }
        self.latest = token;
    }

    /// What holds whoever did what.
    fn check(&mut self) {
        let now = self.sim.now;
        let state = self.sim.state("k");
        assert_ne!(state, KeyState::OtherHash, "{:?}", self.sim.keys);
        let key = key_ref("k");
        let waiters = &self.sim.locks.waiters;
        // Nobody sleeps who could be let in, and whoever waits for a lease is woken when it ends.
        if let Some((owner, waiter)) = waiters.first(key) {
            let may_enter = crate::lock::may_enter(&state, waiter.mode, owner, now);
            assert!(!may_enter, "{owner:?} sleeps: {state:?}");
            let aside = waiters.first_writer(key);
            let ends = match &state {
                KeyState::ReadWrite(lock) => lock.ends(now, aside),
                _ => None,
            };
            let due = waiters.next_settle(now);
            let left = ends.map(|end| (end - now.wall_ms) as u64);
            assert!(
                due <= left || left.is_none(),
                "woken too late: {due:?} {left:?}"
            );
            assert!(due.is_some() || left.is_none(), "never woken");
        }
        sums::check(self.sim.locks.fields());
    }
}

/// (owner, mode, count, end) of every hold. The layout knows no lease of a writer that reads, apart from
/// the hash's.
fn holders(sim: &Sim) -> Vec<(String, Mode, u32, i64)> {
    let state = sim.state("k");
    let KeyState::ReadWrite(lock) = state else {
        return Vec::new();
    };
    let name = |owner: &[u8]| String::from_utf8(owner.to_vec()).unwrap();
    let mut holders: Vec<_> = lock
        .readers(sim.now)
        .map(|r| (name(&r.owner), Mode::Read, r.count, r.until_ms))
        .collect();
    if let Some(writer) = lock.writer(sim.now) {
        let end_ms = lock.deadline_ms.unwrap();
        holders.push((name(&writer.owner), Mode::Write, writer.count, end_ms));
    }
    holders.sort();
    holders
}

fn line(sim: &Sim) -> Vec<(String, Mode)> {
    let queue = sim.locks.waiters.queue(key_ref("k"));
    let one = |(owner, waiter): (&[u8], &crate::lock::Waiter)| {
        (String::from_utf8(owner.to_vec()).unwrap(), waiter.mode)
    };
    queue.map_or_else(Vec::new, |queue| queue.iter().map(one).collect())
}
