//! Every option of a request with every way in which a wait or a hold ends, in random order and without a model. After
//! each step the usages are the sums of what they count, and at the end nothing is left.

use proptest::prelude::*;

use crate::lock::tests::model::tickets::{hearing_sim, CHANNELS};
use crate::lock::tests::model::{self, explore, grace, lease, queue, wait, wait_of, Reply, Step};
use crate::lock::tests::sim::{key_ref, sem_ref, Settings, Sim, Terms};
use crate::lock::{
    Cx, Effects, FinalRule, KeyRef, Limits, LockError, Mode, Resource, SetIf, UserId, Wait,
    WindowRule,
};

const LOCKS: [&str; 3] = ["k0", "k1", "k2"];
const READ_WRITE: [&str; 2] = ["r0", "r1"];
const OWNERS: [&str; 4] = ["a", "b", "c", "d"];
const USERS: u32 = 3;
const CONNS: u64 = 8;
const STEPS: usize = 60;
const DEFAULT_CASES: u32 = 1_000;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Exclusive,
    Read,
    Write,
    /// Several keys, for this kind of hold.
    Many(Mode),
    Permit,
    Latch,
}

#[derive(Debug, Clone)]
pub struct Request {
    kind: Kind,
    /// The first key, and how many.
    keys: (usize, usize),
    owner: usize,
    conn: u64,
    user: u32,
    /// `None`: `SESSION`.
    lease_ms: Option<i64>,
    wait: Option<Option<u64>>,
    once: bool,
    note: bool,
    channel: Option<usize>,
    queue: Option<u32>,
    count: u8,
    limit: Option<u32>,
}

#[derive(Debug, Clone)]
pub enum Op {
    Ask(Request),
    Release(Kind, usize, usize),
    /// `FINAL`, by this user.
    GiveUp(Kind, usize, usize, u32),
    Break(Kind, usize, bool),
    BreakTo(usize, usize),
    PurgeUser(Kind, usize, u32),
    Permits(u32),
    Count(i64),
    Pass(u64),
    Alarm,
    /// The server's cron.
    Sweep,
    Disconnect(u64),
    /// A connection with a grant in flight closes.
    DropAddressee,
    Unblock(u64),
    Hear(usize, bool),
    Permit(u32, bool),
    DeleteUser(u32),
    Del(Kind, usize),
    Expire,
    Overwrite(Kind, usize, bool),
    Flush,
    /// `SWAPDB 0 1`, twice.
    Swap,
    ChangeRole,
    /// The key has left with its slot.
    Left(Kind, usize),
    MayGrant(bool),
}

fn kind() -> impl Strategy<Value = Kind> + Clone {
    prop_oneof![
        4 => Just(Kind::Exclusive),
        2 => Just(Kind::Read),
        2 => Just(Kind::Write),
        3 => Just(Kind::Many(Mode::Exclusive)),
        1 => Just(Kind::Many(Mode::Read)),
        1 => Just(Kind::Many(Mode::Write)),
        3 => Just(Kind::Permit),
        1 => Just(Kind::Latch),
    ]
}

fn request() -> impl Strategy<Value = Op> {
    let who = (0..OWNERS.len(), 0..CONNS, 1..=USERS);
    let lease_ms = prop::option::weighted(0.6, 1..20i64);
    let options = (
        any::<bool>(),
        any::<bool>(),
        prop::option::of(0..CHANNELS.len()),
        (queue(), 1..=3u8),
        prop::option::of(0..3u32),
    );
    (
        kind(),
        (0..3usize, 1..=3usize),
        who,
        lease_ms,
        wait([1, 2, 4], 20),
        options,
    )
        .prop_map(
            |(
                kind,
                keys,
                (owner, conn, user),
                lease_ms,
                wait,
                (once, note, channel, (queue, count), limit),
            )| {
                Op::Ask(Request {
                    kind,
                    keys,
                    owner,
                    conn,
                    user,
                    lease_ms,
                    wait,
                    once,
                    note,
                    channel: channel.filter(|_| wait.is_some()),
                    queue,
                    count,
                    limit: limit.map(|limit| limit.max(count.into())),
                })
            },
        )
}

fn op() -> impl Strategy<Value = Op> {
    let (key, owner) = (0..3usize, 0..OWNERS.len());
    let at = (kind(), key.clone());
    let user = 1..=USERS;
    let of_waits = prop_oneof![
        2 => (at.clone(), user.clone()).prop_map(|((k, at), user)| Op::PurgeUser(k, at, user)),
        4 => (0..CONNS).prop_map(Op::Disconnect),
        4 => Just(Op::DropAddressee),
        2 => (0..CONNS).prop_map(Op::Unblock),
        4 => (0..CHANNELS.len(), prop::bool::weighted(0.6)).prop_map(|(c, on)| Op::Hear(c, on)),
        2 => (user.clone(), prop::bool::weighted(0.6)).prop_map(|(u, on)| Op::Permit(u, on)),
        1 => user.clone().prop_map(Op::DeleteUser),
        2 => Just(Op::Sweep),
        1 => Just(Op::ChangeRole),
    ];
    let of_keys = prop_oneof![
        3 => at.clone().prop_map(|(k, at)| Op::Del(k, at)),
        2 => Just(Op::Expire),
        1 => (at.clone(), any::<bool>()).prop_map(|((k, at), hash)| Op::Overwrite(k, at, hash)),
        1 => Just(Op::Flush),
        1 => Just(Op::Swap),
        1 => at.clone().prop_map(|(k, at)| Op::Left(k, at)),
        1 => prop::bool::weighted(0.7).prop_map(Op::MayGrant),
    ];
    prop_oneof![
        30 => request(),
        10 => (at.clone(), owner.clone()).prop_map(|((k, at), o)| Op::Release(k, at, o)),
        4 => (at.clone(), owner.clone(), user).prop_map(|((k, at), o, u)| Op::GiveUp(k, at, o, u)),
        2 => (at, any::<bool>()).prop_map(|((k, at), purge)| Op::Break(k, at, purge)),
        1 => (key, owner).prop_map(|(at, o)| Op::BreakTo(at, o)),
        3 => (0..4u32).prop_map(Op::Permits),
        2 => (0..3i64).prop_map(Op::Count),
        8 => (0..8u64).prop_map(Op::Pass),
        6 => Just(Op::Alarm),
        14 => of_waits,
        6 => of_keys,
    ]
}

fn settings() -> impl Strategy<Value = Settings> {
    let some = |few: Vec<usize>| prop::sample::select(few);
    let limits = (
        some(vec![3, 100]),
        some(vec![3, 100]),
        some(vec![50, 100]),
        some(vec![0, 2, 100]),
    );
    let limits = limits.prop_map(
        |(max_waiters, max_tickets, user_share, max_tracked)| Limits {
            max_waiters,
            max_waiters_per_key: 100,
            max_tickets,
            max_wait_bytes: 10_000_000,
            user_share,
            max_tracked,
        },
    );
    let grace = grace(prop::sample::select(vec![0, 1, 100]));
    let windows = prop::sample::select(vec![0, 2]).prop_map(|after| WindowRule {
        after,
        window_ms: 3,
        polled: false,
    });
    // Room for 5 and 10 bound holds.
    let session = prop::sample::select(vec![1, 2]);
    (limits, grace, windows, session).prop_map(|(limits, grace, windows, session)| Settings {
        limits,
        grace,
        deadlocks: true,
        default_lease: lease(9),
        session_lease: lease(session),
        windows,
        cluster: false,
    })
}

#[test]
fn nothing_is_left_whatever_ends_what_was_asked_for() {
    let steps = model::steps(op(), (0.5, 0.5), STEPS);
    explore::<Case>((DEFAULT_CASES, 1), settings(), steps);
}

#[derive(Debug)]
pub struct Case {
    settings: Settings,
    sim: Sim,
    tags: u64,
}

fn name(kind: Kind, at: usize) -> &'static str {
    match kind {
        Kind::Exclusive | Kind::Many(Mode::Exclusive) => LOCKS[at % LOCKS.len()],
        Kind::Read | Kind::Write | Kind::Many(_) => READ_WRITE[at % READ_WRITE.len()],
        Kind::Permit => "s",
        Kind::Latch => "l",
    }
}

fn key_of(kind: Kind, at: usize) -> KeyRef<'static> {
    match kind {
        Kind::Permit => sem_ref("s"),
        Kind::Latch => key_ref("l").of(Resource::Latch),
        _ => key_ref(name(kind, at)),
    }
}

impl model::Case for Case {
    type Settings = Settings;
    type Op = Op;

    fn new(settings: &Settings) -> Case {
        let mut sim = hearing_sim(settings);
        sim.locks.shared.finals.rule = FinalRule { ms: 20, most: 3 };
        Case {
            settings: *settings,
            sim,
            tags: 0,
        }
    }

    fn apply(&mut self, op: &Op) -> (Option<Reply>, Option<Reply>) {
        let sim = &mut self.sim;
        match *op {
            Op::Ask(ref request) => self.ask(request),
            Op::Release(kind, at, owner) => release(sim, kind, at, OWNERS[owner]),
            Op::GiveUp(kind, at, owner, user) => {
                let (key, owner) = (key_of(kind, at), OWNERS[owner]);
                let whose = (key, owner.as_bytes());
                let what = (1, UserId(user));
                let ends = self.event(|sim, cx| sim.locks.shared.give_up(whose, what, cx));
                if ends.is_some() && kind != Kind::Latch {
                    release(&mut self.sim, kind, at, owner);
                    self.sim.locks.shared.finals.done(key, owner.as_bytes());
                }
            }
            Op::Break(Kind::Permit | Kind::Latch, at, _) => {
                let key = key_of(Kind::Permit, at);
                self.event(|sim, cx| {
                    sim.locks
                        .shared
                        .waiters
                        .fail_all(key, &LockError::Broken, cx)
                });
            }
            Op::Break(kind, at, purge) => drop(sim.break_lock(name(kind, at), None, purge)),
            Op::BreakTo(at, owner) if !sim.is_blocked(0) => {
                sim.breaks = Some(None);
                let how = (Mode::Exclusive, Terms::Unnamed, Wait::No, true);
                drop(sim.acquire(LOCKS[at], OWNERS[owner], 0, how));
            }
            Op::BreakTo(..) => {}
            Op::PurgeUser(kind, at, user) => {
                let (key, user) = (key_of(kind, at), UserId(user));
                self.event(|sim, cx| sim.locks.shared.waiters.purge_user(key, user, cx));
            }
            Op::Permits(permits) => drop(sim.sem_set("s", permits, SetIf::Always)),
            Op::Count(count) => drop(sim.latch_set("l", count, SetIf::Always)),
            Op::Pass(ms) => sim.pass(ms),
            Op::Alarm => sim.alarm(),
            Op::Sweep => sim.sweep(),
            Op::Disconnect(conn) => drop(sim.disconnect(conn)),
            Op::DropAddressee => {
                if let Some(request) = sim.granted.values().next() {
                    let conn = request.conn;
                    sim.disconnect(conn);
                }
            }
            Op::Unblock(conn) => sim.unblock(conn),
            Op::Hear(channel, on) => sim.subscribe_channel(CHANNELS[channel], on),
            Op::Permit(user, true) => drop(sim.forbidden.remove(&UserId(user))),
            Op::Permit(user, false) => drop(sim.forbidden.insert(UserId(user))),
            Op::DeleteUser(user) => sim.locks.shared.waiters.user_is_deleted(UserId(user)),
            Op::Del(kind, at) => sim.del(name(kind, at)),
            Op::Expire => sim.server_expires_all(),
            Op::Overwrite(kind, at, hash) => sim.overwrite(name(kind, at), hash),
            Op::Flush => sim.flush(),
            Op::Swap => (0..2).for_each(|_| sim.locks.swapped(0, 1)),
            Op::ChangeRole => {
                for request in std::mem::take(&mut sim.parked).into_keys() {
                    sim.locks.shared.waiters.unblocked(request, sim.now);
                }
                sim.demote();
                sim.locks.reloaded();
            }
            Op::Left(kind, at) => self.left(kind, at),
            Op::MayGrant(may_grant) => sim.set_may_grant(may_grant),
        }
        (None, None)
    }

    fn end_tick(&mut self) {
        self.sim.settle_all();
    }

    fn compare(&mut self, _op: &Op) {
        self.sim.out.clear();
    }

    fn deliver(&mut self) {
        self.sim.deliver_all();
    }

    fn check(&mut self, _step: &Step<Op>) {
        let shared = &self.sim.locks.shared;
        shared.waiters.places.assert_usage();
        assert!(shared.sessions.holds() <= shared.sessions.max_holds());
        assert!(shared.waiters.places.used().kept <= self.settings.grace.max_places);
    }

    fn come_to_rest(&mut self) {
        self.sim.leave_nothing(&self.settings);
    }
}

fn release(sim: &mut Sim, kind: Kind, at: usize, owner: &str) {
    match kind {
        Kind::Exclusive => drop(sim.release(name(kind, at), owner, (None, true, None))),
        Kind::Read => drop(sim.release(name(kind, at), owner, (Some(Mode::Read), true, None))),
        Kind::Write => drop(sim.release(name(kind, at), owner, (Some(Mode::Write), true, None))),
        Kind::Many(Mode::Exclusive) => drop(sim.release_many(&LOCKS, owner, true)),
        Kind::Many(_) => drop(sim.release_many(&READ_WRITE, owner, true)),
        Kind::Permit => drop(sim.sem_release("s", owner)),
        Kind::Latch => drop(sim.latch_down("l", 1)),
    }
}

impl Case {
    fn ask(&mut self, request: &Request) {
        let sim = &mut self.sim;
        let is_deaf = |channel: usize| !sim.subscribed.contains(CHANNELS[channel]);
        if sim.is_blocked(request.conn) || request.channel.is_some_and(is_deaf) {
            return;
        }
        self.tags += 1;
        let (first, count) = request.keys;
        let (kind, owner, conn) = (request.kind, OWNERS[request.owner], request.conn);
        let late =
            sim.locks
                .shared
                .finals
                .refuses(key_of(kind, first), owner.as_bytes(), 1, sim.now);
        if late && self.tags % 2 == 0 {
            return;
        }
        sim.user = UserId(request.user);
        let named = |channel: usize| (CHANNELS[channel].into(), self.tags.to_string());
        sim.notify = request.channel.map(named);
        sim.queue = request.queue;
        sim.count = (kind == Kind::Permit).then_some(request.count);
        sim.note = (request.note && kind == Kind::Exclusive).then(|| "note".repeat(10));
        let terms = request
            .lease_ms
            .map_or(Terms::Session, |ms| Terms::Named(lease(ms)));
        let wait = wait_of(request.wait);
        let how = |mode| (mode, terms, wait, request.once);
        match kind {
            Kind::Exclusive => {
                drop(sim.acquire(name(kind, first), owner, conn, how(Mode::Exclusive)))
            }
            Kind::Read => drop(sim.acquire(name(kind, first), owner, conn, how(Mode::Read))),
            Kind::Write => drop(sim.acquire(name(kind, first), owner, conn, how(Mode::Write))),
            Kind::Many(mode) => {
                let of_kind: &[&str] = match mode {
                    Mode::Exclusive => &LOCKS,
                    _ => &READ_WRITE,
                };
                let keys =
                    (0..count.min(of_kind.len())).map(|at| of_kind[(first + at) % of_kind.len()]);
                let keys: Vec<&str> = keys.collect();
                drop(sim.acquire_many(&keys, owner, conn, how(mode)));
            }
            Kind::Permit => drop(sim.sem_acquire("s", owner, conn, (terms, wait, request.limit))),
            Kind::Latch => drop(sim.latch_wait("l", conn, wait)),
        }
        sim.notify = None;
        sim.queue = None;
        sim.note = None;
    }

    /// A call of the shell whose effects are answers.
    fn event<T>(&mut self, act: impl FnOnce(&mut Sim, &mut Cx<'_>) -> T) -> T {
        let mut fx = Effects::new();
        let now = self.sim.now;
        let done = act(&mut self.sim, &mut Cx::new(now, &mut fx));
        self.sim.carry_out_answers(fx);
        done
    }

    /// Its tickets fail, and the server redirects its parked clients.
    fn left(&mut self, kind: Kind, at: usize) {
        let (key, name) = (key_of(kind, at), name(kind, at));
        let parked = self.sim.parked.values();
        let here = parked
            .filter(|request| request.key == name || request.further.iter().any(|key| key == name));
        let conns: Vec<u64> = here.map(|request| request.conn).collect();
        conns.into_iter().for_each(|conn| self.sim.unblock(conn));
        self.event(|sim, cx| {
            sim.locks
                .shared
                .waiters
                .fail_tickets_at(key, &LockError::Moved, cx)
        });
        self.sim.keys.remove(name);
        self.sim.locks.left(|other| other == name.as_bytes());
        self.sim.locks.shared.waiters.schedule_settle_all(None);
    }
}
