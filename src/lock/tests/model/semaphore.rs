//! One semaphore, whose every tick ends and whose every reply is delivered.

use proptest::prelude::*;

use crate::lock::tests::model::naive::{self, Ask, Model, Rule};
use crate::lock::tests::model::tickets::{assert_ends, hearing_sim, Channel, Ticket, CHANNELS};
use crate::lock::tests::model::{
    self, assert_same, explore, grace, lease, queue, wait_of, Reply, Sent, Step,
};
use crate::lock::tests::sim::{scripts, sem_ref, Settings, Sim, Terms, START_MS};
use crate::lock::{Answer, Grace, Limits, Mode, SetIf, Token};

const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];
const MAX_WAITERS: usize = 4;
const MAX_TICKETS: usize = 3;
const STEPS: usize = 59;
const DEFAULT_CASES: u32 = 400;

#[derive(Debug, Clone)]
pub enum Op {
    Set(u32, SetIf),
    Acquire(Asked),
    /// A channel of tickets has a subscriber, or none.
    Hear(Channel, bool),
    Release(usize),
    Renew(usize, i64),
    Advance(u64),
    /// The connection of a parked id closes.
    Drop(usize),
    /// A release, and in the same tick the connection of the granted request closes.
    ReleaseAndDrop(usize),
    /// The same, but the id asks again before the tick ends.
    ReleaseDropAndAsk(usize),
    Delete,
    RedissonTake(usize, i64),
    RedissonGive(usize),
}

/// A request for permits.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    pub id: usize,
    pub ms: i64,
    pub wait: Option<Option<u64>>,
    pub count: u32,
    pub limit: Option<u32>,
    pub notify: Option<Channel>,
    pub queue: Option<u32>,
}

impl Asked {
    pub fn new(id: usize, ms: i64, wait: Option<Option<u64>>) -> Asked {
        Asked {
            id,
            ms,
            wait,
            count: 1,
            limit: None,
            notify: None,
            queue: None,
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    let id = 0..IDS.len();
    let ms = prop_oneof![Just(5i64), Just(30), Just(200)];
    let wait = prop_oneof![
        2 => Just(None),
        2 => Just(Some(None)),
        1 => Just(Some(Some(20))),
    ];
    let limit = prop_oneof![2 => Just(None), 1 => Just(Some(1)), 1 => Just(Some(2))];
    let count = prop_oneof![5 => Just(1u32), 2 => Just(2), 1 => Just(3)];
    let options = (count, limit, prop::option::of(0..CHANNELS.len()), queue());
    let set_if = prop_oneof![Just(SetIf::Always), Just(SetIf::Absent), Just(SetIf::There)];
    prop_oneof![
        2 => (0..4u32, set_if).prop_map(|(permits, set_if)| Op::Set(permits, set_if)),
        12 => (id.clone(), ms.clone(), wait, options).prop_map(
            |(id, ms, wait, (count, limit, notify, queue))| {
                let notify = notify.filter(|_| wait.is_some());
                let limit = limit.map(|limit: u32| limit.max(count));
                Op::Acquire(Asked { count, limit, notify, queue, ..Asked::new(id, ms, wait) })
            }
        ),
        4 => (0..CHANNELS.len(), prop::bool::weighted(0.6)).prop_map(|(c, on)| Op::Hear(c, on)),
        5 => id.clone().prop_map(Op::Release),
        3 => (id.clone(), ms.clone()).prop_map(|(id, ms)| Op::Renew(id, ms)),
        5 => (1..40u64).prop_map(Op::Advance),
        2 => id.clone().prop_map(Op::Drop),
        2 => id.clone().prop_map(Op::ReleaseAndDrop),
        2 => id.clone().prop_map(Op::ReleaseDropAndAsk),
        1 => Just(Op::Delete),
        2 => (id.clone(), ms).prop_map(|(id, ms)| Op::RedissonTake(id, ms)),
        2 => id.prop_map(Op::RedissonGive),
    ]
}

/// The entry of the set for the permit of this id with this number.
fn entry(id: usize, number: u32) -> String {
    match number {
        1 => IDS[id].to_string(),
        number => format!("#{number}:{}", IDS[id]),
    }
}

fn named(ms: i64) -> Terms {
    Terms::Named(lease(ms))
}

#[derive(Debug)]
pub struct Case {
    settings: Settings,
    sim: Sim,
    model: Model,
    tokens: Vec<Option<Token>>,
    highest: Option<Token>,
    /// The ids of the requests, by connection: each has a connection of its own.
    ids: Vec<usize>,
    sent: Sent,
}

impl model::Case for Case {
    type Settings = Grace;
    type Op = Op;

    fn new(grace: &Grace) -> Case {
        let limits = Limits {
            max_waiters: MAX_WAITERS,
            max_tickets: MAX_TICKETS,
            max_waiters_per_key: MAX_WAITERS,
            max_wait_bytes: 10_000_000,
            user_share: 100,
            max_tracked: 100,
        };
        let settings = Settings {
            limits,
            grace: *grace,
            ..Settings::default()
        };
        Case {
            settings,
            sim: hearing_sim(&settings),
            model: Model::new(Rule::Permits(None), 1, &settings, START_MS),
            tokens: vec![None; IDS.len()],
            highest: None,
            ids: Vec::new(),
            sent: Sent::default(),
        }
    }

    fn apply(&mut self, op: &Op) -> (Option<Reply>, Option<Reply>) {
        match *op {
            Op::Set(permits, set_if) => {
                let set = self.sim.sem_set("k", permits, set_if);
                let expected = self.model.set_permits(0, permits, set_if);
                return (Some(Reply::of(set.map(Reply::Permits))), Some(expected));
            }
            Op::Acquire(ref asked) => return self.acquire(asked),
            Op::Hear(channel, is_subscribed) => {
                self.sim.subscribe_channel(CHANNELS[channel], is_subscribed);
                self.model.hearing.is_subscribed[channel] = is_subscribed;
            }
            Op::Release(id) => return self.release(id),
            Op::Renew(id, ms) => {
                let renewed = self.sim.sem_renew("k", IDS[id], named(ms));
                let renewed = Reply::yes_or(renewed, Reply::Renewed, Reply::Lost);
                let terms = naive::Terms::Named(ms);
                let expected = self.model.renew(0, id, (None, terms, None));
                return (Some(renewed), Some(expected));
            }
            Op::Advance(ms) => {
                self.sim.advance(ms);
                for _ in 0..ms {
                    self.model.pass(1);
                    self.model.alarm(false);
                }
            }
            Op::Drop(id) => {
                if let Some(conn) = self.model.conn_of(0, id) {
                    self.sim.disconnect(conn);
                    self.model.disconnect(conn, false);
                }
            }
            Op::ReleaseAndDrop(id) => return self.release_and_drop(id, false),
            Op::ReleaseDropAndAsk(id) => return self.release_and_drop(id, true),
            Op::Delete => {
                self.sim.del("k");
                self.model.del(0);
            }
            Op::RedissonTake(id, ms) => self.redisson_take(id, ms),
            Op::RedissonGive(id) => {
                let held = self.sim.keys.permits("k").contains_key(IDS[id]);
                if held && self.sim.free("k").is_some() {
                    for number in 1..=3 {
                        let entry = entry(id, number);
                        let gives = |keys: &mut _, _| scripts::give_permit(keys, "k", &entry);
                        self.sim.foreign("k", gives);
                    }
                    self.model.redisson_releases(0, id, 0);
                }
            }
        }
        (None, None)
    }

    fn end_tick(&mut self) {
        self.sim.settle_all();
        self.model.end_of_tick();
    }

    fn compare(&mut self, _op: &Op) {
        self.listen();
        std::mem::take(&mut self.sent).assert_as(&mut self.model);
        assert_ends(&self.sim, self.model.ends);
        self.model.published.clear();
        let tickets = self.model.tickets_of(0).into_iter();
        let queue = self.model.queue(0).into_iter().zip(tickets);
        let queue: Vec<_> = queue
            .map(|(id, ticket)| (IDS[id].to_string(), ticket.is_some()))
            .collect();
        assert_eq!(self.queue(), queue, "the requests that wait");
        let kept = self.sim.locks.shared.waiters.places.used().kept;
        assert_eq!(kept, self.model.kept_places(), "the places kept");
        let all = self.sim.all_permits("k").map(|all| all as u32);
        assert_eq!(Rule::Permits(all), self.model.rule, "all permits");
        let held = self.sim.keys.permits("k").into_iter();
        let held: Vec<_> = held
            .filter(|(entry, _)| self.sim.holds_permit("k", entry))
            .collect();
        let model = self.model.live(0).into_iter();
        let expected = model.flat_map(|hold| {
            let end = hold.deadline_ms.unwrap();
            (1..=hold.permits).map(move |number| (entry(hold.owner, number), end))
        });
        assert_same(held, expected.collect(), "the permits and their ends");
    }

    fn deliver(&mut self) {
        self.sim.deliver_all();
    }

    fn check(&mut self, _step: &Step<Op>) {
        assert!(
            !self.model.could_grant(0),
            "permits are free, and a request waits for so many"
        );
    }

    fn come_to_rest(&mut self) {
        self.sim.leave_nothing(&self.settings);
    }
}

#[test]
fn histories_of_a_semaphore() {
    let steps = model::steps(op(), (1.0, 1.0), STEPS);
    explore::<Case>((DEFAULT_CASES, 1), grace(Just(100)), steps);
}

impl Case {
    fn acquire(&mut self, asked: &Asked) -> (Option<Reply>, Option<Reply>) {
        let Asked {
            id,
            ms,
            wait,
            count,
            limit,
            notify,
            queue,
        } = *asked;
        if notify.is_some_and(|channel| !self.model.hearing.is_subscribed[channel]) {
            return (None, None);
        }
        let held = self.model.hold_of(0, id, None).is_some();
        let conn = self.ids.len() as u64;
        self.ids.push(id);
        let ticket = notify.map(|channel| Ticket::new(channel, conn as u32));
        self.sim.notify = ticket.map(Ticket::named);
        self.sim.queue = queue;
        self.sim.count = Some(count as u8);
        let how = (named(ms), wait_of(wait), limit);
        let got = self.sim.sem_acquire("k", IDS[id], conn, how);
        let expected = self.model.acquire(&Ask {
            keys: vec![0],
            owner: id,
            conn,
            mode: Mode::Exclusive,
            terms: naive::Terms::Named(ms),
            wait,
            once: true,
            count,
            limit,
            queue,
            ticket,
        });
        // Parked requests were granted before.
        self.listen();
        if let Ok(Answer::Granted(token)) = got {
            match self.tokens[id].filter(|_| held) {
                Some(own) => assert_eq!(token, own, "its own token again"),
                None => self.rises(token),
            }
            self.tokens[id] = Some(token);
        }
        (Some(Reply::of(got)), Some(expected))
    }

    fn rises(&mut self, token: Token) {
        assert!(Some(token) > self.highest, "tokens rise");
        self.highest = Some(token);
    }

    fn release(&mut self, id: usize) -> (Option<Reply>, Option<Reply>) {
        let released = self.sim.sem_release("k", IDS[id]);
        let released = Reply::yes_or(released, Reply::Freed, Reply::NotHeld);
        let expected = self.model.release(0, id, (None, false, None));
        (Some(released), Some(expected))
    }

    fn release_and_drop(&mut self, id: usize, asks: bool) -> (Option<Reply>, Option<Reply>) {
        let released = self.release(id);
        let granted = self.sim.granted.values().next().map(|request| request.conn);
        if let Some(conn) = granted {
            self.sim.disconnect(conn);
            self.model.disconnect(conn, false);
            if asks {
                self.listen();
                let again = Asked::new(self.ids[conn as usize], 200, None);
                let (got, expected) = self.acquire(&again);
                assert_eq!(got, expected, "the reply to the id that asks again");
            }
        }
        released
    }

    /// A script of Redisson's takes a permit, under an id that is always a new one.
    fn redisson_take(&mut self, id: usize, ms: i64) {
        let busy = self.tokens[id].is_some()
            || self.model.hold_of(0, id, None).is_some()
            || self.model.queue(0).contains(&id);
        if busy || self.sim.free("k").is_none() {
            return;
        }
        let took = self.sim.foreign("k", |keys, now| {
            scripts::give_permit(keys, "k", IDS[id]);
            scripts::take_permit(keys, "k", IDS[id], now.wall_ms + ms)
        });
        if took {
            assert!(self.model.has_room(0));
            self.model.redisson_acquires(0, id, ms);
        }
    }

    /// The ids in the queue, and which of them wait for a message.
    fn queue(&self) -> Vec<(String, bool)> {
        let queue = self.sim.locks.shared.waiters.queue(sem_ref("k"));
        let waiters = queue.into_iter().flat_map(|queue| queue.iter());
        let name = |id: &[u8]| String::from_utf8(id.to_vec()).unwrap();
        let waiters = waiters.map(|(id, waiter)| (name(id), waiter.ticket.is_some()));
        waiters.collect()
    }

    /// Notes the replies of parked requests and the messages of tickets.
    fn listen(&mut self) {
        let sent = Sent::by(&mut self.sim);
        for (conn, token) in sent.granted {
            self.rises(token);
            self.tokens[self.ids[conn as usize]] = Some(token);
        }
        self.sent.replies.extend(sent.replies);
        self.sent.messages.extend(sent.messages);
    }
}
