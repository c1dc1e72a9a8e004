//! Two exclusive locks, each with a horizon of its own or with one for both: sessions, Redisson windows, forged
//! horizons and restarts.

mod inputs;

use self::inputs::{op, settings};
pub use self::inputs::{Names, Op};
use crate::lock::tests::model::naive::{self, Ask, Key, Model, Rule, State, Terms};
use crate::lock::tests::model::tickets::{assert_ends, assert_tickets, hearing_sim, CHANNELS};
use crate::lock::tests::model::{
    self, acquire, assert_queue, assert_same, conn_of, explore, lease, sim_terms, Reply, Sent,
    Step, CONNS_PER_OWNER,
};
use crate::lock::tests::sim::{key_ref, sums, Out, Settings, Sim, CONNS, START_MS};
use crate::lock::token::SPAN_US;
use crate::lock::{Answer, BoundRef, Hold, KeyState, Mode, Resource, Wait, WindowRule};

const KEYS: usize = 2;
const NAMES: [&str; KEYS] = ["k0", "k1"];
const OWNERS: [&str; 4] = ["a", "b", "c", "d"];
const STEPS: usize = 60;
const DEFAULT_CASES: u32 = 2_000;

#[test]
fn histories_on_one_server() {
    run(false);
}

/// The same with a horizon for each key.
#[test]
fn histories_in_a_cluster() {
    run(true);
}

/// Half of the histories: the two tests share the number.
fn run(cluster: bool) {
    let steps = model::steps(op(), (0.5, 0.4), STEPS);
    explore::<Case>((DEFAULT_CASES, 2), settings(cluster), steps);
}

/// A client of Redisson takes the lock in the millisecond in which its window ends: the window was used, though the end
/// of the tick has the turn of the windows before that of the keys to settle.
#[test]
fn a_window_that_is_used_as_it_ends_is_used() {
    let rule = |after| WindowRule {
        after,
        window_ms: 1,
        polled: false,
    };
    let settings = Settings {
        windows: rule(1),
        ..Settings::default()
    };
    let ask = |owner, wait| {
        let how = (Mode::Exclusive, Terms::Named(1_000));
        Op::Acquire(Ask::new(0, (owner, 0), how, wait))
    };
    let steps = [
        (ask(0, None), true),
        (ask(1, Some(None)), true),
        (ask(2, Some(None)), true),
        (Op::Release(0, 0, false, Names::Nothing), true),
        // One hand-off: now a window begins.
        (Op::Del(0), true),
        (Op::Pass(1), false),
        (Op::RedissonAcquires(0, 0, 1), true),
    ];
    let steps = steps.map(|(op, ends_tick)| Step {
        op,
        ends_tick,
        delivers: true,
    });
    let mut case: Case = model::Case::new(&settings);
    case.sim.in_order = false;
    model::Case::play(&mut case, &steps);
    assert_eq!(case.model.windows.taken, 1);
}

#[derive(Debug)]
pub struct Case {
    settings: Settings,
    pub sim: Sim,
    model: Model,
    /// The keys before the step.
    before: Vec<State>,
    /// Tokens that each key has had.
    past: [Vec<u64>; KEYS],
    /// The clock may not be set back behind this, see [`Case::bind_clock`].
    least_clock_ms: i64,
    tags: u32,
}

impl model::Case for Case {
    type Settings = Settings;
    type Op = Op;

    fn new(settings: &Settings) -> Case {
        let mut sim = hearing_sim(settings);
        sim.in_order = true;
        Case {
            settings: *settings,
            sim,
            model: Model::new(Rule::Exclusive, KEYS, settings, START_MS),
            before: Vec::new(),
            past: Default::default(),
            least_clock_ms: 0,
            tags: 0,
        }
    }

    fn apply(&mut self, op: &Op) -> (Option<Reply>, Option<Reply>) {
        self.before = self.model.keys.clone();
        let touches_all = matches!(op, Op::Flush | Op::MayGrant(_) | Op::SetWindowRule(_));
        if touches_all && self.is_tied() {
            return (None, None);
        }
        match *op {
            Op::Acquire(_) | Op::Release(..) | Op::Renew(..) | Op::Break(..) | Op::BreakTo(..) => {
                return self.command(op)
            }
            Op::Pass(ms) => self.sim.pass(ms),
            Op::Alarm => self.alarm(),
            Op::ShortAlarm => {
                self.sim.fire(true);
                self.model.alarm(true);
            }
            Op::Advance(ms) => {
                self.sim.pass(ms);
                self.model.mono_ms = self.sim.now.mono_ms;
                self.model.wall_ms = self.sim.now.wall_ms;
                self.alarm();
            }
            Op::Delay(ms) => {
                self.sim.begin_startup_delay(ms);
                self.model.delay_until_ms = self.model.mono_ms + ms;
            }
            Op::ChangeRole => self.change_role(),
            Op::SetClock(ms) => {
                self.sim.now.wall_ms = self.least_clock_ms.max(self.sim.now.wall_ms + ms);
            }
            Op::HolderAsks(key, conn, terms, once) => {
                let Some(hold) = self.model.holder(key) else {
                    return (None, None);
                };
                let how = (Mode::Exclusive, terms);
                let ask = Ask::new(key, (hold.owner, conn), how, None);
                return self.command(&Op::Acquire(Ask { once, ..ask }));
            }
            Op::DropAddressee => {
                if let Some(request) = self.sim.granted.values().next() {
                    let conn = request.conn;
                    let had_holds = self.sim.disconnect(conn);
                    self.model.disconnect(conn, had_holds);
                }
            }
            Op::Disconnect(owner, conn) => {
                let had_holds = self.sim.disconnect(conn_of(owner, conn));
                self.model.disconnect(conn_of(owner, conn), had_holds);
            }
            Op::Unblock(owner, conn) => {
                // A granted request is not parked: CLIENT UNBLOCK does not find it.
                self.sim.unblock(conn_of(owner, conn));
                self.model.unblock(conn_of(owner, conn));
            }
            Op::Counter(key, above) => {
                let highest = self.sim.highest.get(NAMES[key]).copied().unwrap_or(50);
                self.sim.counters.insert(NAMES[key].into(), highest + above);
                self.limit_counters();
            }
            Op::Forge(key, horizon) => {
                self.settle_ties();
                let domain = self.sim.domain(NAMES[key]);
                let unread = !self.sim.locks.shared.tokens.knows(domain);
                self.bind_clock(NAMES.map(|name| unread && self.sim.domain(name) == domain));
                self.settle_ties();
                self.sim.set_horizon(NAMES[key], horizon);
            }
            Op::Flush => {
                self.settle_ties();
                let tokens = &self.sim.locks.shared.tokens;
                let unread = NAMES.map(|name| !tokens.knows(self.sim.domain(name)));
                self.bind_clock(unread);
                self.sim.flush();
                self.model.flush();
                self.settle_ties();
            }
            Op::Subscribe(key, is_subscribed) => {
                match is_subscribed {
                    true => self.sim.has_subscriber.insert(NAMES[key].into()),
                    false => self.sim.has_subscriber.remove(NAMES[key]),
                };
                self.model.windows.has_subscriber[key] = is_subscribed;
            }
            Op::SetWindowRule(rule) => {
                self.settings.windows = rule;
                self.settle_ties();
                self.sim.locks.shared.waiters.set_window_rule(rule);
                self.model.set_window_rule(rule);
                self.settle_ties();
            }
            Op::Hear(channel, is_subscribed) => {
                let name = CHANNELS[channel];
                self.sim.subscribe_channel(name, is_subscribed);
                self.model.hearing.is_subscribed[channel] = is_subscribed;
            }
            Op::Restart(back_ms) => self.restart(back_ms),
            Op::MayGrant(may_grant) => {
                self.settle_ties();
                self.sim.set_may_grant(may_grant);
                self.model.set_may_grant(may_grant);
                self.settle_ties();
            }
            _ => self.change_key(op),
        }
        self.model.wall_ms = self.sim.now.wall_ms;
        self.model.mono_ms = self.sim.now.mono_ms;
        (None, None)
    }

    fn end_tick(&mut self) {
        self.sim.settle_all();
        self.model.end_of_tick();
    }

    /// Everything that can be observed is as the model states.
    fn compare(&mut self, op: &Op) {
        let sent = Sent::by(&mut self.sim);
        sent.assert_as(&mut self.model);
        let (mut published, mut written) = (Vec::new(), [false; KEYS]);
        for out in sent.rest {
            match out {
                Out::Publish(key) => published.push(index_of(&key)),
                Out::Write(key, _) => written[index_of(&key)] = true,
                Out::Horizon | Out::Counter(..) | Out::Notify(..) | Out::PublishShorter => {}
                other => panic!("{other:?} of an exclusive lock"),
            }
        }
        let freed = std::mem::take(&mut self.model.published);
        assert_same(published, freed, "the publishes");
        for (key, written) in written.into_iter().enumerate() {
            self.compare_key(key);
            // A renewal to the end that the lease had is the one write that changes nothing; and
            // what was written just before a FLUSHALL is gone.
            let excused = matches!(op, Op::Renew(..) | Op::Flush);
            let same = self.model.keys[key] == self.before[key] && !excused;
            assert!(!same || !written, "a write that changes nothing");
        }
    }

    fn deliver(&mut self) {
        self.sim.deliver_all();
        self.model.delivered();
    }

    /// What must hold in any case.
    fn check(&mut self, step: &Step<Op>) {
        let settled = step.ends_tick || matches!(step.op, Op::Alarm | Op::ShortAlarm);
        let waiters = &self.sim.locks.shared.waiters;
        assert_eq!(waiters.live() - waiters.tickets(), self.sim.parked.len());
        assert_eq!(self.sim.parked.len(), self.model.parked());
        assert_eq!(waiters.places.used().kept, self.model.kept_places());
        assert!(waiters.places.used().kept <= self.settings.grace.max_places);
        let limits = self.settings.limits;
        assert!(waiters.places.live() - waiters.ticket_places() <= limits.max_waiters);
        assert!(waiters.ticket_places() <= limits.max_tickets);
        for (key, name) in NAMES.iter().enumerate() {
            let queue = self.model.queue(key);
            assert_queue(&self.sim, name, queue.iter().map(|owner| OWNERS[*owner]));
            assert_tickets(&self.sim, name, self.model.tickets_of(key));
            let hold = self.model.holder(key);
            self.check_session(name, hold);
            let held = hold.is_some();
            if settled && self.model.grants() {
                assert!(
                    held || queue.is_empty() || self.model.is_left_free(key),
                    "{name} is free and has waiters"
                );
            }
        }
        self.check_sums();
        assert_ends(&self.sim, self.model.ends);
        if settled && waiters.live() == 0 {
            let end = waiters.windows.next_end(self.sim.now);
            assert_eq!(waiters.next_settle(self.sim.now), end);
            let nothing_kept = waiters.places.used().kept == 0;
            assert_eq!(waiters.next_wait(self.sim.now).is_none(), nothing_kept);
            let queues = NAMES.iter().filter_map(|name| waiters.queue(key_ref(name)));
            assert!(
                !nothing_kept || queues.count() == 0,
                "an empty queue was left"
            );
        }
    }

    /// Left alone, every request gets its answer, every lease ends, and nothing is left over.
    fn come_to_rest(&mut self) {
        self.sim.set_may_grant(true);
        for name in NAMES {
            if matches!(self.sim.state(name), KeyState::Held(hold) if hold.deadline_ms.is_none()) {
                self.sim.del(name);
            }
        }
        // What is bound is held as long as its connection lives.
        for conn in 0..OWNERS.len() as u64 * CONNS_PER_OWNER {
            self.sim.disconnect(conn);
        }
        self.sim.alarm();
        self.sim.deliver_all();
        // Each lease is short, but the wall clock may have been set back before.
        let ends = NAMES.iter().filter_map(|name| self.sim.keys.end(name));
        let last = ends.max().unwrap_or(0).max(self.sim.now.wall_ms);
        self.sim
            .advance((last - self.sim.now.wall_ms) as u64 + 1_000);
        self.sim.deliver_all();
        assert!(self.sim.parked.is_empty(), "never answered");
        assert!(self.sim.tickets.is_empty(), "never told");
        let waiters = &self.sim.locks.shared.waiters;
        assert_eq!((waiters.live(), waiters.places.used().kept), (0, 0));
        assert_eq!(waiters.next_wait(self.sim.now), None);
        assert_eq!(waiters.next_settle(self.sim.now), None);
        assert!(NAMES
            .iter()
            .all(|name| waiters.queue(key_ref(name)).is_none()));
        let sessions = &self.sim.locks.shared.sessions;
        assert_eq!((sessions.holds(), sessions.clients()), (0, 0));
        assert_eq!(sessions.next_due(self.sim.now), None);
        assert_eq!(self.sim.locks.shared.waiters.windows.open(), 0);
        let stats = &self.sim.locks.stats;
        let tracked = self.sim.locks.tracked.len() as u64;
        assert!(tracked <= KEYS as u64 && stats.grants >= tracked);
        self.sim.leave_nothing(&self.settings);
    }
}

impl Case {
    fn command(&mut self, op: &Op) -> (Option<Reply>, Option<Reply>) {
        let (sim, model) = (&mut self.sim, &mut self.model);
        let named = |sim: &Sim, key: Key, names: Names| match names {
            Names::Nothing => None,
            Names::Present => Some(token_of(sim, key).unwrap_or(7)),
            Names::Past(index) => Some(self.past[key].iter().rev().nth(index).map_or(7, |t| *t)),
        };
        let (got, expected) = match *op {
            Op::Acquire(ref ask) => {
                let (key, owner) = (ask.keys[0], ask.owner);
                self.tags += 1;
                let names = (NAMES[key], OWNERS[owner]);
                let replies = acquire(sim, Some(model), names, ask, self.tags);
                let Some((got, expected)) = replies else {
                    return (None, None);
                };
                if let Ok(Answer::Granted(token)) = got {
                    assert_eq!(Some(token.get()), token_of(sim, key), "granted and written");
                }
                return (Some(Reply::of(got)), expected);
            }
            Op::Release(key, owner, all, names) => {
                let token = named(sim, key, names);
                let got = sim.release(NAMES[key], OWNERS[owner], (None, all, token));
                (
                    Reply::of(got),
                    model.release(key, owner, (None, all, token)),
                )
            }
            Op::Renew(key, owner, terms, names) => {
                let token = named(sim, key, names);
                let got = sim.renew(NAMES[key], OWNERS[owner], (None, sim_terms(terms), token));
                let got = Reply::yes_or(got, Reply::Renewed, Reply::Lost);
                (got, model.renew(key, owner, (None, terms, token)))
            }
            Op::Break(key, names, purge) => {
                let token = named(sim, key, names);
                let got = sim.break_lock(NAMES[key], token, purge);
                let got = Reply::yes_or(got, Reply::Broken, Reply::NotHeld);
                (got, model.break_lock(key, token, purge))
            }
            Op::BreakTo(ref ask, names) => {
                let (key, owner) = (ask.keys[0], OWNERS[ask.owner]);
                if sim.is_blocked(ask.conn) {
                    return (None, None);
                }
                let token = named(sim, key, names);
                sim.breaks = Some(token);
                let how = (ask.mode, sim_terms(ask.terms), Wait::No, ask.once);
                let got = sim.acquire(NAMES[key], owner, ask.conn, how);
                (Reply::of(got), model.break_to(token, ask))
            }
            _ => unreachable!(),
        };
        (Some(got), Some(expected))
    }

    /// The server unblocks the parked clients, then it is a replica, then the primary again.
    fn change_role(&mut self) {
        for request in std::mem::take(&mut self.sim.parked).into_keys() {
            self.sim
                .locks
                .shared
                .waiters
                .unblocked(request, self.sim.now);
        }
        self.sim.demote();
        self.sim.locks.reloaded();
        self.model.change_role();
    }

    /// What is done to a key without a lock command, on both sides.
    fn change_key(&mut self, op: &Op) {
        let (sim, model) = (&mut self.sim, &mut self.model);
        match *op {
            Op::Del(key) => {
                sim.del(NAMES[key]);
                model.del(key);
            }
            Op::ServerExpires(key) => {
                sim.server_expires(NAMES[key]);
                model.server_expires(key);
            }
            Op::Hdel(key) => {
                sim.hdel_holder(NAMES[key]);
                model.hdel_holder(key);
            }
            Op::SetTtl(key, ms) => {
                let deadline_ms = ms.map(|ms| sim.now.wall_ms + ms);
                sim.set_ttl(NAMES[key], deadline_ms);
                model.set_ttl(key, deadline_ms);
            }
            Op::Overwrite(key, hash) => {
                sim.overwrite(NAMES[key], hash);
                model.overwrite(
                    key,
                    match hash {
                        true => State::OtherHash,
                        false => State::OtherType,
                    },
                );
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
        self.model.alarm(false);
    }

    /// Whether two keys have waiters, and the order in which they are settled shows: only one can keep its place.
    fn is_tied(&self) -> bool {
        let is_waited = |key| !self.model.queue(key).is_empty();
        self.settings.grace.max_places == 1 && (0..KEYS).all(is_waited)
    }

    /// Where several keys are touched at once their order is the core's own, and it shows when the
    /// last kept place is given away. Then nothing may be due before, nor be left open after.
    fn settle_ties(&mut self) {
        if self.settings.grace.max_places == 1 {
            self.alarm();
        }
    }

    /// A new process, the clock perhaps set back.
    fn restart(&mut self, back_ms: i64) {
        self.sim.restart(&self.settings);
        self.model.restart(&self.settings);
        self.bind_clock(NAMES.map(|name| !self.sim.has_true_horizon(name)));
        self.sim.now.wall_ms = self.least_clock_ms.max(self.sim.now.wall_ms - back_ms);
        self.limit_counters();
    }

    /// A counter above every token that is also more than an hour ahead of the clock would be refused.
    fn limit_counters(&mut self) {
        let ahead = self.sim.now.wall_us() + SPAN_US / 2;
        for (name, counter) in &mut self.sim.counters {
            let highest = self.sim.highest.get(name).copied().unwrap_or(0);
            *counter = (*counter).min(highest.max(ahead));
        }
    }

    /// Tokens rest on the clock, or on a horizon that the process has read. Where FLUSHALL took one
    /// away, or another number was written over it, and no process remembers it (no grant wrote it again
    /// before a restart, or none read it after one), the clock alone is left, and from here on it may not be behind the
    /// tokens.
    fn bind_clock(&mut self, forgotten: [bool; KEYS]) {
        for (name, forgotten) in NAMES.iter().zip(forgotten) {
            if let (Some(highest), true) = (self.sim.highest.get(*name), forgotten) {
                self.least_clock_ms = self.least_clock_ms.max((highest / 1_000) as i64 + 1);
            }
        }
        self.sim.now.wall_ms = self.sim.now.wall_ms.max(self.least_clock_ms);
        self.model.wall_ms = self.sim.now.wall_ms;
    }

    fn compare_key(&mut self, key: Key) {
        match (self.sim.state(NAMES[key]), &self.model.keys[key]) {
            (KeyState::Bare(_), State::Bare)
            | (KeyState::OtherHash, State::OtherHash)
            | (KeyState::OtherType, State::OtherType) => {}
            (KeyState::Absent, State::Holds(holds)) if holds.is_empty() => {}
            (KeyState::Held(hold), State::Holds(holds)) => {
                let Hold {
                    owner,
                    count,
                    token,
                    deadline_ms,
                } = hold;
                assert!(count > 0);
                let [expected] = holds[..] else {
                    panic!("held, expected {holds:?}");
                };
                assert_eq!(
                    (&owner[..], count, deadline_ms),
                    (
                        OWNERS[expected.owner].as_bytes(),
                        expected.count,
                        expected.deadline_ms
                    )
                );
                let token = token.map(|token| token.get());
                if self.model.learn_token(key, token) {
                    let past = &mut self.past[key];
                    assert!(past.last().copied() < token, "the token did not rise");
                    past.extend(token);
                }
            }
            (got, expected) => panic!("{} is {got:?}, expected {expected:?}", NAMES[key]),
        }
    }

    /// A hold is bound as the model states, and every binding is due at some time.
    fn check_session(&self, name: &str, hold: Option<naive::Hold>) {
        let state = self.sim.state(name);
        let (Some(_), KeyState::Held(held)) = (hold, state) else {
            return;
        };
        let what = BoundRef::lock(Mode::Exclusive, key_ref(name), &held.owner);
        let sessions = &self.sim.locks.shared.sessions;
        let expected = hold.and_then(|hold| hold.session);
        assert_eq!(
            sessions.client_of(what, held.token).map(|id| id % CONNS),
            expected.map(|session| session.conn)
        );
        assert!(expected.is_none() || sessions.next_due(self.sim.now).is_some());
    }

    /// The sums that src/lock/stats.rs promises.
    fn check_sums(&self) {
        let stats = &self.sim.locks.stats;
        sums::check(self.sim.fields(Resource::Lock));
        assert_eq!(stats.grants, self.model.grants);
        let expected = &self.model.windows;
        let windows = &self.sim.locks.shared.waiters.windows;
        let (open, seen) = (windows.open(), &windows.stats);
        assert_eq!(open, expected.window.iter().flatten().count());
        assert_eq!(
            (seen.windows, seen.windows_taken),
            (expected.begun, expected.taken)
        );
        let ended = seen.windows_taken + seen.windows_unused;
        assert_eq!(seen.windows, ended + open as u64, "{seen:?}");
    }
}

fn index_of(name: &str) -> Key {
    NAMES.iter().position(|other| *other == name).unwrap()
}

fn token_of(sim: &Sim, key: Key) -> Option<u64> {
    let token = sim.state(NAMES[key]).token()?;
    Some(token.get())
}
