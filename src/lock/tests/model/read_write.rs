//! One read-write lock. By the module alone: everything must be as the naive model states. Together with Redisson's
//! scripts, which record leases in another way: what must hold after every input ([`Case::check`]).

use proptest::prelude::*;

use crate::lock::tests::model::naive::{self, Ask, Model, Rule};
use crate::lock::tests::model::tickets::{
    assert_ends, assert_tickets, hearing_sim, Channel, Ticket, CHANNELS,
};
use crate::lock::tests::model::{
    self, assert_same, conn_of, explore, lease, wait_of, Case as _, Reply, Step, CONNS_PER_OWNER,
};
use crate::lock::tests::sim::{key_ref, scripts, sums, Out, Settings, Sim, Terms};
use crate::lock::{Answer, Grace, KeyState, Mode, Outcome, Resource};

const OWNERS: [&str; 4] = ["a", "b", "c", "d"];
const STEPS: usize = 50;
const DEFAULT_CASES: u32 = 1_500;
const SESSION_MS: i64 = 9;

#[derive(Debug, Clone)]
pub enum Op {
    Acquire {
        owner: usize,
        conn: u64,
        writes: bool,
        lease_ms: i64,
        wait: Option<Option<u64>>,
        once: bool,
        /// Bound to the connection, where there is no naive model, which knows no sessions.
        session: bool,
        notify: Option<Channel>,
    },
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
    let wait = prop_oneof![
        2 => Just(None),
        1 => Just(Some(None)),
        4 => (1..20u64).prop_map(|ms| Some(Some(ms))),
    ];
    let acquire = (
        (owner(), 0..CONNS_PER_OWNER),
        prop::bool::weighted(0.35),
        lease(),
        wait,
        (
            any::<bool>(),
            prop::bool::weighted(0.3),
            prop::option::of(0..CHANNELS.len()),
        ),
    );
    let acquire = acquire.prop_map(
        |((owner, conn), writes, lease_ms, wait, (once, session, notify))| Op::Acquire {
            owner,
            conn,
            writes,
            lease_ms,
            wait,
            once,
            session,
            notify: notify.filter(|_| wait.is_some()),
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
    let hears = (0..CHANNELS.len(), prop::bool::weighted(0.6));
    let of_the_server = prop_oneof![
        2 => Just(Op::Expire),
        1 => Just(Op::Del),
        6 => hears.prop_map(|(channel, is_subscribed)| Op::Hear(channel, is_subscribed)),
    ];
    prop_oneof![
        20 => acquire,
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
    Op::Acquire {
        owner,
        conn,
        writes,
        lease_ms,
        wait,
        once: false,
        session: false,
        notify: None,
    }
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
    let steps = [Op::DropAddressee, again].map(|op| Step {
        ends_tick: !matches!(op, Op::DropAddressee),
        ..undelivered(op)
    });
    case.play(&steps);
}

#[derive(Debug)]
pub struct Case {
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
            sim,
            model: (!with_scripts).then_some(model),
            highest_write: 0,
            latest: 0,
            tags: 0,
        }
    }

    fn apply(&mut self, op: &Op) -> (Option<Reply>, Option<Reply>) {
        self.tags += 1;
        let expected = self.apply_model(op);
        let got = self.apply_sim(op);
        let is_known = self.model.is_some();
        (got.filter(|_| is_known), expected)
    }

    fn end_tick(&mut self) {
        self.sim.alarm();
        if let Some(model) = &mut self.model {
            model.alarm(false);
        }
    }

    fn compare(&mut self, op: &Op) {
        let (mut replies, mut messages) = (Vec::new(), Vec::new());
        for out in std::mem::take(&mut self.sim.out) {
            let outcome = match out {
                Out::Answer { conn, outcome, .. } => {
                    replies.push((conn, Reply::to_parked(&outcome)));
                    outcome
                }
                Out::Tell {
                    channel,
                    tag,
                    outcome,
                } => {
                    messages.push((Ticket::of(&channel, &tag), Reply::to_parked(&outcome)));
                    outcome
                }
                _ => continue,
            };
            if let Outcome::Granted(token) = outcome {
                self.note(token.get());
            }
        }
        let Some(model) = &mut self.model else {
            return;
        };
        let expected = std::mem::take(&mut model.replies);
        let what = format!("the replies of parked requests after {op:?}");
        assert_same(replies, expected, &what);
        let expected = std::mem::take(&mut model.messages);
        let what = format!("the messages of tickets after {op:?}");
        assert_same(messages, expected, &what);
        model.published.clear();
        assert_ends(&self.sim, model.ends);
        assert_tickets(&self.sim, "k", model.tickets_of(0));
        let kept = self.sim.locks.shared.waiters.kept_places();
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
        if let Some(model) = &mut self.model {
            model.delivered();
        }
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
}

impl Case {
    fn apply_sim(&mut self, op: &Op) -> Option<Reply> {
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
                notify,
            } => {
                let conn = conn_of(owner, conn);
                if sim.is_blocked(conn) || is_deaf(sim, notify) {
                    return None;
                }
                sim.notify = notify.map(|channel| Ticket::new(channel, self.tags).named());
                let mode = if writes { Mode::Write } else { Mode::Read };
                let terms = match session && self.model.is_none() {
                    true => Terms::Session,
                    false => Terms::Named(lease(lease_ms)),
                };
                let wait = wait_of(wait);
                let answer = sim.acquire("k", OWNERS[owner], conn, (mode, terms, wait, once));
                if let Ok(Answer::Granted(token)) = answer {
                    self.note(token.get());
                }
                Some(Reply::of(answer))
            }
            Op::Release(owner, mode, all) => {
                let done = sim.release("k", OWNERS[owner], (mode, all, None));
                Some(Reply::of(done))
            }
            Op::Renew(owner, mode, lease_ms) => {
                let done = sim.renew(
                    "k",
                    OWNERS[owner],
                    (mode, Terms::Named(lease(lease_ms)), None),
                );
                Some(Reply::yes_or(done, Reply::Renewed, Reply::Lost))
            }
            Op::Break(purge) => {
                let done = sim.break_lock("k", None, purge);
                Some(Reply::yes_or(done, Reply::Broken, Reply::NotHeld))
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
            Op::Hear(channel, is_subscribed) => {
                sim.subscribe_channel(CHANNELS[channel], is_subscribed);
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

    fn apply_model(&mut self, op: &Op) -> Option<Reply> {
        let sim = &self.sim;
        let model = self.model.as_mut()?;
        match *op {
            Op::Acquire {
                owner,
                conn,
                writes,
                lease_ms,
                wait,
                once,
                session: _,
                notify,
            } => {
                let conn = conn_of(owner, conn);
                if sim.is_blocked(conn) || is_deaf(sim, notify) {
                    return None;
                }
                return Some(model.acquire(&Ask {
                    keys: vec![0],
                    owner,
                    conn,
                    mode: if writes { Mode::Write } else { Mode::Read },
                    terms: naive::Terms::Named(lease_ms),
                    wait,
                    once,
                    limit: None,
                    ticket: notify.map(|channel| Ticket::new(channel, self.tags)),
                }));
            }
            Op::Release(owner, mode, all) => {
                return Some(model.release(0, owner, (mode, all, None)))
            }
            Op::Renew(owner, mode, ms) => {
                return Some(model.renew(0, owner, (mode, naive::Terms::Named(ms), None)))
            }
            Op::Break(purge) => return Some(model.break_lock(0, None, purge)),
            Op::Pass(ms) => model.pass(ms),
            Op::Disconnect(owner, conn) => model.disconnect(conn_of(owner, conn), false),
            Op::DropAddressee => {
                if let Some(request) = sim.granted.values().next() {
                    model.disconnect(request.conn, false);
                }
            }
            Op::Hear(channel, is_subscribed) => {
                model.hearing.is_subscribed[channel] = is_subscribed;
            }
            Op::Expire => model.server_expires(0),
            Op::Del => model.del(0),
            Op::Script(..) => unreachable!(),
        }
        None
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

/// Whether the channel has no subscriber: the shell refuses the request.
fn is_deaf(sim: &Sim, notify: Option<Channel>) -> bool {
    notify.is_some_and(|channel| !sim.subscribed.contains(CHANNELS[channel]))
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
