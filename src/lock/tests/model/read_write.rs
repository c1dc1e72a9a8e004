//! One read-write lock. By the module alone: everything must be as the naive model states. Together with Redisson's
//! scripts, which record leases in another way: what must hold after every input ([`Case::check`]).

use proptest::prelude::*;

use crate::lock::tests::model::naive::{self, Ask, Model, Rule, Terms};
use crate::lock::tests::model::tickets::{
    assert_ends, assert_tickets, hearing_sim, Channel, CHANNELS,
};
use crate::lock::tests::model::{
    self, conn_of, explore, lease, sim_terms, wait, Case as _, Reply, Sent, Step, CONNS_PER_OWNER,
};
use crate::lock::tests::sim::{key_ref, scripts, sums, Settings, Sim};
use crate::lock::{Answer, Grace, KeyState, Mode, Resource};

const OWNERS: [&str; 4] = ["a", "b", "c", "d"];
const STEPS: usize = 50;
const DEFAULT_CASES: u32 = 1_500;
const SESSION_MS: i64 = 9;

#[derive(Debug, Clone)]
pub enum Op {
    Acquire(Ask),
    /// A channel of tickets has a subscriber, or none.
    Hear(Channel, bool),
    Release(usize, Option<Mode>, bool),
    Renew(usize, Option<Mode>, i64),
    Break(bool),
    Pass(u64),
    Disconnect(usize, u64),
    /// A connection with a grant in flight closes.
    DropAddressee,
    Expire,
    Del,
    Script(Script, usize, i64),
}

#[derive(Debug, Clone, Copy)]
pub enum Script {
    Read,
    Write,
    Unread,
    Unwrite,
    Renew,
    Force,
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
    let mode_of = |writes| if writes { Mode::Write } else { Mode::Read };
    // The naive model has no readers' tickets of a connection that has closed.
    let session = if with_scripts { 3 } else { 0 };
    let terms = prop_oneof![7 => lease().prop_map(Terms::Named), session => Just(Terms::Session)];
    let how = (prop::bool::weighted(0.35).prop_map(mode_of), terms);
    let keys = Just(vec![0]);
    let ask = model::ask(keys, OWNERS.len(), how, wait([2, 1, 4], 20));
    let script = prop_oneof![
        4 => Just(Script::Read),
        2 => Just(Script::Write),
        4 => Just(Script::Unread),
        3 => Just(Script::Unwrite),
        2 => Just(Script::Renew),
        1 => Just(Script::Force),
    ];
    let script = (script, owner(), lease()).prop_map(|(s, o, ms)| Op::Script(s, o, ms));
    let hears = (0..CHANNELS.len(), prop::bool::weighted(0.6));
    let of_the_server = prop_oneof![
        2 => Just(Op::Expire),
        1 => Just(Op::Del),
        6 => hears.prop_map(|(channel, is_subscribed)| Op::Hear(channel, is_subscribed)),
    ];
    prop_oneof![
        20 => ask.prop_map(Op::Acquire),
        10 => (owner(), mode(), any::<bool>()).prop_map(|(o, m, all)| Op::Release(o, m, all)),
        4 => (owner(), mode(), lease()).prop_map(|(o, m, ms)| Op::Renew(o, m, ms)),
        1 => any::<bool>().prop_map(Op::Break),
        8 => (0..8u64).prop_map(Op::Pass),
        4 => (owner(), 0..CONNS_PER_OWNER).prop_map(|(o, c)| Op::Disconnect(o, c)),
        3 => Just(Op::DropAddressee),
        9 => of_the_server,
        (if with_scripts { 14 } else { 0 }) => script,
    ]
}

#[test]
fn histories_of_the_module_alone() {
    run(false);
}

#[test]
fn histories_with_redissons_scripts() {
    run(true);
}

fn run(with_scripts: bool) {
    let setup = prop::sample::select(vec![0, 6]).prop_map(move |grace_ms| Setup {
        grace_ms,
        with_scripts,
    });
    let steps = model::steps(op(with_scripts), (1.0, 0.5), STEPS);
    explore::<Case>((DEFAULT_CASES, 1), setup, steps);
}

#[derive(Debug, Clone)]
pub struct Setup {
    pub grace_ms: u64,
    pub with_scripts: bool,
}

fn undelivered(op: Op) -> Step<Op> {
    Step {
        op,
        ends_tick: true,
        delivers: false,
    }
}

fn acquire(owner: usize, conn: u64, writes: bool, lease_ms: i64, wait: Option<Option<u64>>) -> Op {
    let mode = if writes { Mode::Write } else { Mode::Read };
    let how = (mode, Terms::Named(lease_ms));
    Op::Acquire(Ask::new(0, (owner, conn), how, wait))
}

/// Until the lease of a READ grant has ended whose reply is not written.
fn expired_grant_in_flight() -> Case {
    let mut case: Case = model::Case::new(&Setup {
        grace_ms: 0,
        with_scripts: false,
    });
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
    ops.map(undelivered)
        .iter()
        .for_each(|step| case.play_one(step));
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
    let steps = [Op::DropAddressee, again].map(|op| Step {
        ends_tick: !matches!(op, Op::DropAddressee),
        ..undelivered(op)
    });
    case.play(&steps);
}

#[derive(Debug)]
pub struct Case {
    settings: Settings,
    pub sim: Sim,
    model: Option<Model>,
    /// The highest token that was answered for WRITE, and the latest of all.
    highest_write: u64,
    latest: u64,
    tags: u32,
}

impl model::Case for Case {
    type Settings = Setup;
    type Op = Op;

    fn new(setup: &Setup) -> Case {
        let Setup {
            grace_ms,
            with_scripts,
        } = *setup;
        let settings = Settings {
            grace: Grace {
                ms: grace_ms,
                max_places: 100,
            },
            session_lease: lease(SESSION_MS),
            ..Settings::default()
        };
        let mut sim = hearing_sim(&settings);
        sim.scripts_ran = with_scripts;
        let model = Model::new(Rule::ReadWrite, 1, &settings, sim.now.wall_ms);
        Case {
            settings,
            sim,
            model: (!with_scripts).then_some(model),
            highest_write: 0,
            latest: 0,
            tags: 0,
        }
    }

    fn apply(&mut self, op: &Op) -> (Option<Reply>, Option<Reply>) {
        self.tags += 1;
        let (sim, model) = (&mut self.sim, self.model.iter_mut());
        match *op {
            Op::Acquire(ref ask) => {
                let names = ("k", OWNERS[ask.owner]);
                let replies = model::acquire(sim, self.model.as_mut(), names, ask, self.tags);
                let Some((got, expected)) = replies else {
                    return (None, None);
                };
                if let Ok(Answer::Granted(token)) = got {
                    self.note(token.get());
                }
                return (Some(Reply::of(got)), expected);
            }
            Op::Release(owner, mode, all) => {
                let got = sim.release("k", OWNERS[owner], (mode, all, None));
                let expected = model
                    .map(|model| model.release(0, owner, (mode, all, None)))
                    .next();
                return (Some(Reply::of(got)), expected);
            }
            Op::Renew(owner, mode, ms) => {
                let terms = Terms::Named(ms);
                let got = sim.renew("k", OWNERS[owner], (mode, sim_terms(terms), None));
                let expected = model
                    .map(|model| model.renew(0, owner, (mode, terms, None)))
                    .next();
                return (
                    Some(Reply::yes_or(got, Reply::Renewed, Reply::Lost)),
                    expected,
                );
            }
            Op::Break(purge) => {
                let got = sim.break_lock("k", None, purge);
                let expected = model.map(|model| model.break_lock(0, None, purge)).next();
                return (
                    Some(Reply::yes_or(got, Reply::Broken, Reply::NotHeld)),
                    expected,
                );
            }
            Op::Pass(ms) => {
                sim.pass(ms);
                model.for_each(|model| model.pass(ms));
            }
            Op::Disconnect(owner, conn) => self.disconnect(conn_of(owner, conn)),
            Op::DropAddressee => {
                if let Some(request) = sim.granted.values().next() {
                    let conn = request.conn;
                    self.disconnect(conn);
                }
            }
            Op::Hear(channel, on) => {
                sim.subscribe_channel(CHANNELS[channel], on);
                model.for_each(|model| model.hearing.is_subscribed[channel] = on);
            }
            Op::Expire => {
                sim.server_expires_all();
                model.for_each(|model| model.server_expires(0));
            }
            Op::Del => {
                sim.foreign("k", |keys, _| keys.remove("k"));
                model.for_each(|model| model.del(0));
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
            }
        }
        (None, None)
    }

    fn end_tick(&mut self) {
        self.sim.alarm();
        self.model.iter_mut().for_each(|model| model.alarm(false));
    }

    fn compare(&mut self, op: &Op) {
        let sent = Sent::by(&mut self.sim);
        for (_, token) in &sent.granted {
            self.note(token.get());
        }
        let Some(model) = &mut self.model else {
            return;
        };
        sent.assert_as(model);
        model.published.clear();
        assert_ends(&self.sim, model.ends);
        assert_tickets(&self.sim, "k", model.tickets_of(0));
        let kept = self.sim.locks.shared.waiters.places.used().kept;
        assert_eq!(kept, model.kept_places(), "the places kept after {op:?}");
        let mut held: Vec<_> = model.live(0).iter().map(holder).collect();
        held.sort();
        assert_eq!(holders(&self.sim), held, "the holders after {op:?}");
        let owners = model.queue(0).into_iter().map(|owner| OWNERS[owner].into());
        let queue: Vec<_> = owners.zip(model.modes_of(0)).collect();
        assert_eq!(queue_of(&self.sim), queue, "the queue after {op:?}");
    }

    fn deliver(&mut self) {
        self.sim.deliver_all();
        self.model.iter_mut().for_each(Model::delivered);
    }

    fn check(&mut self, step: &Step<Op>) {
        sums::check(self.sim.fields(Resource::Lock));
        sums::check_tickets(self.sim.ticket_fields());
        if !step.ends_tick {
            return;
        }
        let now = self.sim.now;
        let state = self.sim.state("k");
        assert_ne!(state, KeyState::OtherHash, "{:?}", self.sim.keys);
        let key = key_ref("k");
        let waiters = &self.sim.locks.shared.waiters;
        // No waiter that could be granted waits, and the key is settled at the end of each lease.
        if let Some((owner, waiter)) = waiters.first(key) {
            let may_enter = crate::lock::read_write::may_enter(&state, waiter.mode, owner, now);
            assert!(!may_enter, "{owner:?} waits: {state:?}");
            let aside = waiters.first_writer(key);
            let ends = match &state {
                KeyState::ReadWrite(lock) => lock.ends(now, aside),
                _ => None,
            };
            let due = waiters.next_settle(now);
            let left = ends.map(|end| (end - now.wall_ms) as u64);
            assert!(
                due <= left || left.is_none(),
                "settled too late: {due:?} {left:?}"
            );
            assert!(due.is_some() || left.is_none(), "never settled");
        }
    }

    fn come_to_rest(&mut self) {
        self.sim.leave_nothing(&self.settings);
    }
}

impl Case {
    fn disconnect(&mut self, conn: u64) {
        let had_holds = self.sim.disconnect(conn);
        let model = self.model.iter_mut();
        model.for_each(|model| model.disconnect(conn, had_holds));
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
}

fn holder(hold: &naive::Hold) -> (String, Mode, u32, i64) {
    let end_ms = hold.deadline_ms.unwrap();
    (OWNERS[hold.owner].into(), hold.mode, hold.count, end_ms)
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

fn queue_of(sim: &Sim) -> Vec<(String, Mode)> {
    let queue = sim.locks.shared.waiters.queue(key_ref("k"));
    let one = |(owner, waiter): (&[u8], &crate::lock::Waiter)| {
        (String::from_utf8(owner.to_vec()).unwrap(), waiter.mode)
    };
    queue.map_or_else(Vec::new, |queue| queue.iter().map(one).collect())
}
