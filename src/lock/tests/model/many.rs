//! Four locks, taken one by one and several at a time, with the search for deadlocks and without. Time passes with its
//! timers.

use proptest::prelude::*;

use crate::lock::tests::model::naive::{Ask, Key, Model, Owner, Rule, State, Terms};
use crate::lock::tests::model::tickets::{hearing_sim, Channel, Ticket, CHANNELS};
use crate::lock::tests::model::{
    self, assert_queue, assert_same, conn_of, explore, grace, lease, limits, sim_terms, wait,
    wait_of, Case as _, Reply, Sent, Step, CONNS_PER_OWNER,
};
use crate::lock::tests::sim::{key_ref, sums, Out, Settings, Sim, START_MS};
use crate::lock::{KeyState, Lease, Mode, Released, Resource, Waiter, WaiterId};

const KEYS: usize = 4;
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
    let how = (1..30i64).prop_map(|ms| (Mode::Exclusive, Terms::Named(ms)));
    model::ask(keys, OWNERS.len(), how, wait([1, 2, 4], 30))
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

#[derive(Debug, Clone)]
pub struct Setup {
    pub server: Settings,
    /// Then there is no naive model: which ticket is asked for when depends on the order in which keys and requests are
    /// settled.
    pub with_tickets: bool,
}

fn setup(deadlocks: bool, with_tickets: bool) -> impl Strategy<Value = Setup> {
    (limits(), grace(Just(1_000))).prop_map(move |(limits, grace)| Setup {
        server: Settings {
            limits,
            grace,
            default_lease: Lease::TEN_SECONDS,
            deadlocks,
            ..Settings::default()
        },
        with_tickets,
    })
}

#[test]
fn histories_of_many_keys() {
    run(op(), setup(false, false));
}

/// Here a tick ends before each request that may wait: a search that meets a key which is still to be settled is
/// repeated later, which the model does not distinguish.
#[test]
fn histories_with_deadlocks() {
    run(op(), setup(true, false));
}

#[test]
fn histories_of_many_keys_with_tickets() {
    run(op_with_tickets(), setup(false, true));
}

#[test]
fn histories_with_tickets_and_deadlocks() {
    run(op_with_tickets(), setup(true, true));
}

fn op_with_tickets() -> impl Strategy<Value = Op> {
    let hears = (0..CHANNELS.len(), prop::bool::weighted(0.6));
    prop_oneof![10 => op(), 1 => hears.prop_map(|(channel, on)| Op::Hear(channel, on))]
}

fn run(op: impl Strategy<Value = Op>, setup: impl Strategy<Value = Setup>) {
    explore::<Case>(
        (DEFAULT_CASES, 2),
        setup,
        model::steps(op, (0.5, 0.4), STEPS),
    );
}

#[derive(Debug)]
pub struct Case {
    pub sim: Sim,
    model: Option<Model>,
    settings: Settings,
    deadlocks: bool,
    tags: u32,
}

impl model::Case for Case {
    type Settings = Setup;
    type Op = Op;

    fn new(setup: &Setup) -> Case {
        Case {
            sim: hearing_sim(&setup.server),
            model: (!setup.with_tickets)
                .then(|| Model::new(Rule::Exclusive, KEYS, &setup.server, START_MS)),
            settings: setup.server,
            deadlocks: setup.server.deadlocks,
            tags: 0,
        }
    }

    fn apply(&mut self, op: &Op) -> (Option<Reply>, Option<Reply>) {
        let (sim, model) = (&mut self.sim, self.model.iter_mut());
        match *op {
            Op::Acquire(ref ask) | Op::AcquireOne(ref ask) => {
                let single = matches!(op, Op::Acquire(_)) && ask.keys.len() == 1;
                return self.acquire(ask, single);
            }
            Op::Release(ref keys, owner, all) => {
                let got = match keys[..] {
                    [key] => sim
                        .release(NAMES[key], OWNERS[owner], (None, all, None))
                        .map(|released| usize::from(released != Released::NotHeld)),
                    _ => sim.release_many(&named(keys), OWNERS[owner], all),
                };
                let expected = model
                    .map(|model| model.release_many(keys, owner, all))
                    .next();
                return (Some(Reply::of(got)), expected);
            }
            Op::Renew(ref keys, owner, ms) => {
                let got = sim.renew_many(&named(keys), OWNERS[owner], lease(ms));
                let terms = Terms::Named(ms);
                let expected = model
                    .map(|model| model.renew_many(keys, owner, terms))
                    .next();
                return (Some(Reply::of(got)), expected);
            }
            Op::Break(key, purge) => {
                let got = sim.break_lock(NAMES[key], None, purge);
                let got = Reply::yes_or(got, Reply::Broken, Reply::NotHeld);
                let expected = model.map(|model| model.break_lock(key, None, purge)).next();
                return (Some(got), expected);
            }
            Op::Pass(ms) => {
                sim.pass(ms);
                model.for_each(|model| model.pass(ms));
                self.alarm();
            }
            Op::Alarm => self.alarm(),
            Op::DropAddressee => {
                if let Some(request) = sim.granted.values().next() {
                    let conn = request.conn;
                    sim.disconnect(conn);
                    model.for_each(|model| model.disconnect(conn, false));
                }
            }
            Op::Disconnect(owner, conn) => {
                sim.disconnect(conn_of(owner, conn));
                model.for_each(|model| model.disconnect(conn_of(owner, conn), false));
            }
            Op::Unblock(owner, conn) => {
                sim.unblock(conn_of(owner, conn));
                model.for_each(|model| model.unblock(conn_of(owner, conn)));
            }
            Op::Hear(channel, on) => sim.subscribe_channel(CHANNELS[channel], on),
            Op::Del(key) => {
                sim.del(NAMES[key]);
                model.for_each(|model| model.del(key));
            }
            Op::ServerExpires(key) => {
                sim.server_expires(NAMES[key]);
                model.for_each(|model| model.server_expires(key));
            }
            Op::SetTtl(key, ms) => {
                let deadline_ms = ms.map(|ms| sim.now.wall_ms + ms);
                sim.set_ttl(NAMES[key], deadline_ms);
                model.for_each(|model| model.set_ttl(key, deadline_ms));
            }
            Op::Overwrite(key) => {
                sim.overwrite(NAMES[key], false);
                model.for_each(|model| model.overwrite(key, State::OtherType));
            }
            Op::RedissonAcquires(key, owner, ms) => {
                sim.foreign_acquire(NAMES[key], OWNERS[owner], lease(ms));
                model.for_each(|model| model.redisson_acquires(key, owner, ms));
            }
            Op::RedissonReleases(key, owner, ms) => {
                sim.foreign_release(NAMES[key], OWNERS[owner], lease(ms));
                model.for_each(|model| model.redisson_releases(key, owner, ms));
            }
        }
        (None, None)
    }

    fn end_tick(&mut self) {
        self.sim.settle_all();
        self.model.iter_mut().for_each(Model::end_of_tick);
    }

    fn compare(&mut self, _op: &Op) {
        let Some(model) = &mut self.model else {
            return self.sim.out.clear();
        };
        let sent = Sent::by(&mut self.sim);
        sent.assert_as(model);
        let published = sent.rest.iter().filter_map(|out| match out {
            Out::Publish(key) => NAMES.iter().position(|name| name == key),
            _ => None,
        });
        let published: Vec<Key> = published.collect();
        let mut freed = std::mem::take(&mut model.published);
        if model.keys.contains(&State::OtherType) {
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
            let expected = match &model.keys[key] {
                State::Holds(holds) => holds.first().map(|hold| {
                    let owner = OWNERS[hold.owner].as_bytes().to_vec();
                    (owner, hold.count, hold.deadline_ms)
                }),
                _ => Some((b"other".to_vec(), 0, None)),
            };
            assert_eq!(got, expected, "{name}");
        }
    }

    fn deliver(&mut self) {
        self.sim.deliver_all();
        self.model.iter_mut().for_each(Model::delivered);
    }

    fn check(&mut self, step: &Step<Op>) {
        let waiters = &self.sim.locks.shared.waiters;
        let limits = self.settings.limits;
        assert_eq!(waiters.live() - waiters.tickets(), self.sim.parked.len());
        assert!(waiters.places.live() - waiters.ticket_places() <= limits.max_waiters);
        assert!(waiters.ticket_places() <= limits.max_tickets);
        sums::check(self.sim.fields(Resource::Lock));
        sums::check_tickets(self.sim.ticket_fields());
        if waiters.live() + waiters.places.used().kept == 0 {
            let queues = NAMES.iter().filter_map(|name| waiters.queue(key_ref(name)));
            assert_eq!(queues.count(), 0, "an empty queue was left");
        }
        let Some(model) = &self.model else {
            let settled = NAMES.iter().filter(|_| step.ends_tick);
            return settled.for_each(|name| self.check_first(name));
        };
        assert_eq!(waiters.live(), model.parked());
        assert_eq!(waiters.places.live(), model.live_places());
        assert_eq!(waiters.places.used().kept, model.kept_places());
        for (key, name) in NAMES.iter().enumerate() {
            let queue = model.queue(key);
            assert_queue(&self.sim, name, queue.iter().map(|owner| OWNERS[*owner]));
        }
        assert_eq!(self.sim.locks.stats.grants, model.grants);
    }

    /// Left alone, every request gets its answer: leases end, and with them every deadlock.
    fn come_to_rest(&mut self) {
        for name in NAMES {
            if self.sim.keys.contains(name) && self.sim.keys.end(name).is_none() {
                self.sim.del(name);
            }
        }
        self.sim.alarm();
        self.sim.deliver_all();
        self.sim.advance(10_000);
        self.sim.deliver_all();
        assert!(self.sim.parked.is_empty(), "never answered");
        assert!(self.sim.tickets.is_empty(), "never told");
        let waiters = &self.sim.locks.shared.waiters;
        assert_eq!((waiters.live(), waiters.places.used().kept), (0, 0));
        assert!(waiters.is_quiet());
        self.sim.leave_nothing(&self.settings);
    }
}

impl Case {
    fn acquire(&mut self, ask: &Ask, single: bool) -> (Option<Reply>, Option<Reply>) {
        let ask = match &self.model {
            None => ask.clone(),
            Some(_) => ask.clone().notify(None),
        };
        if self.deadlocks && self.model.is_some() && !self.sim.is_blocked(ask.conn) {
            self.alarm();
            self.deliver();
        }
        self.tags += 1;
        let (sim, model) = (&mut self.sim, self.model.as_mut());
        if single {
            let names = (NAMES[ask.keys[0]], OWNERS[ask.owner]);
            let replies = model::acquire(sim, model, names, &ask, self.tags);
            return replies.map_or((None, None), |(got, expected)| {
                (Some(Reply::of(got)), expected)
            });
        }
        let is_deaf = |ticket: Ticket| !sim.subscribed.contains(CHANNELS[ticket.channel]);
        if sim.is_blocked(ask.conn) || ask.ticket.is_some_and(is_deaf) {
            return (None, None);
        }
        let ticket = ask.ticket.map(|one| Ticket::new(one.channel, self.tags));
        sim.notify = ticket.map(Ticket::named);
        sim.queue = ask.queue;
        let how = (ask.mode, sim_terms(ask.terms), wait_of(ask.wait), ask.once);
        let got = sim.acquire_many(&named(&ask.keys), OWNERS[ask.owner], ask.conn, how);
        (
            Some(Reply::of(got)),
            model.map(|model| model.acquire_many(&ask)),
        )
    }

    fn alarm(&mut self) {
        self.sim.alarm();
        self.model.iter_mut().for_each(|model| model.alarm(false));
    }

    /// The first request at a free key waits only if another of its keys is not to be had. (A ticket whose owner holds
    /// all its keys waits for the end of a hold.)
    fn check_first(&self, name: &str) {
        let Some((owner, first)) = self.first(name) else {
            return;
        };
        let keys = self.sim.locks.shared.waiters.keys_of(first.id);
        let names = NAMES.into_iter().filter(|other| {
            *other == name || keys.iter().any(|key| key.as_ref() == key_ref(other))
        });
        let is_to_be_had = |key: &str| match self.holder(key) {
            Some(holder) => holder == owner && !keys.is_empty(),
            None => self.is_first(key, first.id),
        };
        let names: Vec<_> = names.collect();
        let is_asked = first.ticket.is_none() || names.iter().any(|key| self.holder(key).is_none());
        assert!(
            !(is_asked && names.into_iter().all(is_to_be_had)),
            "{owner:?} waits for {name}"
        );
    }

    fn first(&self, name: &str) -> Option<(&[u8], &Waiter)> {
        self.sim.locks.shared.waiters.first(key_ref(name))
    }

    fn is_first(&self, name: &str, request: WaiterId) -> bool {
        self.first(name)
            .is_some_and(|(_, first)| first.id == request)
    }

    fn holder(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.sim.state(name);
        let hold = state.hold(self.sim.now);
        hold.map(|hold| hold.owner.to_vec())
    }
}

fn named(keys: &[Key]) -> Vec<&'static str> {
    keys.iter().map(|key| NAMES[*key]).collect()
}
