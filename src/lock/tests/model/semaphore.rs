//! One semaphore. The contract as plainly as it can be written: the number of permits, a list of permits with their
//! ends, and a list of requests: parked clients and tickets.

mod tickets;

use proptest::prelude::*;

use crate::lock::tests::model::tickets::{
    assert_ends, hearing_sim, Channel, Ends, Hearing, CHANNELS,
};
use crate::lock::tests::model::{self, assert_same, explore, lease, Reply, Step};
use crate::lock::tests::sim::{scripts, sem_ref, Out, Settings, Sim, Terms, START_MS};
use crate::lock::{Answer, Grace, Limits, LockError, Outcome, SetIf, Token, Wait, WaiterId};

const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];
const MAX_WAITERS: usize = 4;
const MAX_TICKETS: usize = 3;
const STEPS: usize = 59;
const DEFAULT_CASES: u32 = 400;

#[derive(Debug, Clone)]
pub enum Op {
    Set(u32, SetIf),
    Acquire(usize, i64, Wait, Option<u32>, Option<Channel>),
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

fn op() -> impl Strategy<Value = Op> {
    let id = 0..IDS.len();
    let ms = prop_oneof![Just(5i64), Just(30), Just(200)];
    let wait = prop_oneof![
        2 => Just(Wait::No),
        2 => Just(Wait::ForEver),
        1 => Just(Wait::Ms(20)),
    ];
    let limit = prop_oneof![2 => Just(None), 1 => Just(Some(1)), 1 => Just(Some(2))];
    let set_if = prop_oneof![Just(SetIf::Always), Just(SetIf::Absent), Just(SetIf::There)];
    prop_oneof![
        2 => (0..4u32, set_if).prop_map(|(permits, set_if)| Op::Set(permits, set_if)),
        12 => (id.clone(), ms.clone(), wait, limit, prop::option::of(0..CHANNELS.len()))
            .prop_map(|(id, ms, wait, limit, notify)| {
                Op::Acquire(id, ms, wait, limit, notify.filter(|_| wait != Wait::No))
            }),
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

#[derive(Debug, Clone)]
struct Waiting {
    id: usize,
    conn: u64,
    lease_ms: i64,
    until_ms: Option<u64>,
    limit: Option<u32>,
    notify: Option<Channel>,
}

/// The naive model.
#[derive(Debug, Default)]
struct Model {
    now_ms: u64,
    all: Option<i64>,
    /// The ids with a permit, and the ends.
    held: Vec<(usize, u64)>,
    queue: Vec<Waiting>,
    replies: Vec<(u64, Reply)>,
    /// As the replies, by the number of the request.
    messages: Vec<(u64, Reply)>,
    ends: Ends,
    hearing: Hearing,
    /// The semaphore is to be settled in this tick, whether a permit is free or not.
    unsettled: bool,
}

impl Model {
    fn end_leases(&mut self) {
        self.held.retain(|(_, end)| *end > self.now_ms);
    }

    fn end_of(&self, id: usize) -> Option<u64> {
        let held = self.held.iter().find(|(holder, _)| *holder == id);
        held.map(|(_, end)| *end)
    }

    fn has_permit(&self) -> bool {
        self.all.is_some_and(|all| all > self.held.len() as i64)
    }

    fn serve(&mut self) {
        while self.has_permit() && self.next_is_heard() {
            let next = self.queue.remove(0);
            self.held
                .push((next.id, self.now_ms + next.lease_ms as u64));
            self.granted(&next);
        }
    }

    /// The end of a tick.
    fn settle(&mut self) {
        loop {
            let waits = self.all.is_none() && self.limit_of_queue().is_some();
            let is_due = waits || (self.has_permit() && !self.queue.is_empty());
            if !std::mem::take(&mut self.unsettled) && !is_due {
                return;
            }
            self.ask();
            if self.all.is_none() {
                self.all = self.limit_of_queue();
            }
            self.serve();
        }
    }

    fn limit_of_queue(&self) -> Option<i64> {
        let limit = self.queue.iter().find_map(|waiting| waiting.limit);
        limit.map(i64::from)
    }

    fn set(&mut self, permits: u32, set_if: SetIf) -> Option<u32> {
        self.ask();
        let allowed = match set_if {
            SetIf::Always => true,
            SetIf::Absent => self.all.is_none(),
            SetIf::There => self.all.is_some(),
        };
        if !allowed {
            return None;
        }
        self.all = Some(permits.into());
        self.serve();
        Some(permits)
    }

    fn acquire(
        &mut self,
        conn: u64,
        (id, lease_ms, wait, limit): (usize, i64, Wait, Option<u32>),
        notify: Option<Channel>,
        got: Answer,
    ) -> Answer {
        self.ask();
        let end = self.now_ms + lease_ms as u64;
        if let Some((_, held)) = self.held.iter_mut().find(|(holder, _)| *holder == id) {
            *held = end.max(*held);
            return same_token(got);
        }
        if self.all.is_none() {
            self.all = limit.map(i64::from);
        }
        if wait == Wait::No {
            let is_parked = self.queue.iter().any(|waiting| waiting.id == id);
            self.serve();
            if is_parked {
                return Answer::Refused;
            }
        }
        if self.queue.is_empty() && self.has_permit() {
            self.held.push((id, end));
            return same_token(got);
        }
        if wait == Wait::No {
            return Answer::Refused;
        }
        let waiting = Waiting {
            id,
            conn,
            lease_ms,
            until_ms: match wait {
                Wait::Ms(ms) => Some(self.now_ms + ms),
                _ => None,
            },
            limit,
            notify,
        };
        self.note_queued(&waiting);
        match self.queue.iter_mut().find(|other| other.id == id) {
            Some(older) => {
                let older = std::mem::replace(older, waiting);
                self.taken_over(&older);
            }
            None => self.queue.push(waiting),
        }
        self.serve();
        match got {
            Answer::Parked(_) => got,
            _ => Answer::Parked(WaiterId(u64::MAX)),
        }
    }

    fn release(&mut self, id: usize) -> bool {
        self.ask();
        if self.end_of(id).is_none() {
            if let Some(at) = self.queue.iter().position(|waiting| waiting.id == id) {
                let waiting = self.queue.remove(at);
                self.withdrawn(&waiting);
            }
            return false;
        }
        self.held.retain(|(holder, _)| *holder != id);
        self.serve();
        true
    }

    fn advance(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now_ms += 1;
            let now_ms = self.now_ms;
            let over = |waiting: &Waiting| waiting.until_ms.is_some_and(|end| end <= now_ms);
            let ended: Vec<_> = self.queue.iter().filter(|w| over(w)).cloned().collect();
            self.queue.retain(|waiting| !over(waiting));
            ended.iter().for_each(|waiting| self.timed_out(waiting));
            self.end_leases();
            self.settle();
        }
    }

    fn disconnect(&mut self, conn: u64) {
        self.queue
            .retain(|waiting| waiting.conn != conn || waiting.notify.is_some());
    }
}

/// Tokens are not predicted; that they rise is checked elsewhere.
fn same_token(got: Answer) -> Answer {
    match got {
        Answer::Granted(_) => got,
        _ => Answer::Granted(Token::MAX),
    }
}

fn named(ms: i64) -> Terms {
    Terms::Named(lease(ms))
}

#[derive(Debug)]
pub struct Case {
    sim: Sim,
    model: Model,
    tokens: Vec<Option<Token>>,
    highest: Option<Token>,
    /// The ids of the requests, by connection: each has a connection of its own.
    ids: Vec<usize>,
    replies: Vec<(u64, Reply)>,
    messages: Vec<(u64, Reply)>,
}

impl model::Case for Case {
    type Settings = ();
    type Op = Op;

    fn new(_: &()) -> Case {
        let limits = Limits {
            max_waiters: MAX_WAITERS,
            max_tickets: MAX_TICKETS,
            max_waiters_per_key: MAX_WAITERS,
            max_wait_bytes: 10_000_000,
            user_share: 100,
            max_tracked: 100,
        };
        Case {
            sim: hearing_sim(&Settings {
                limits,
                grace: Grace::default(),
                ..Settings::default()
            }),
            model: Model::default(),
            tokens: vec![None; IDS.len()],
            highest: None,
            ids: Vec::new(),
            replies: Vec::new(),
            messages: Vec::new(),
        }
    }

    fn apply(&mut self, op: &Op) -> (Option<Reply>, Option<Reply>) {
        match *op {
            Op::Set(permits, set_if) => {
                let set = self.sim.sem_set("k", permits, set_if);
                let expected = Reply::Permits(self.model.set(permits, set_if));
                return (Some(Reply::of(set.map(Reply::Permits))), Some(expected));
            }
            Op::Acquire(id, ms, wait, limit, notify) => self.acquire(id, ms, wait, limit, notify),
            Op::Hear(channel, is_subscribed) => {
                self.sim.subscribe_channel(CHANNELS[channel], is_subscribed);
                self.model.hearing.is_subscribed[channel] = is_subscribed;
            }
            Op::Release(id) => self.release(id),
            Op::Renew(id, ms) => {
                let renewed = self.sim.sem_renew("k", IDS[id], named(ms));
                let end = self.model.now_ms + ms as u64;
                let held = self.model.held.iter_mut().find(|(holder, _)| *holder == id);
                assert_eq!(renewed, Ok(held.is_some()));
                held.into_iter().for_each(|held| held.1 = end);
            }
            Op::Advance(ms) => {
                self.sim.advance(ms);
                self.model.advance(ms);
            }
            Op::Drop(id) => {
                let mut queue = self.model.queue.iter();
                if let Some(conn) = queue.find(|w| w.id == id).map(|w| w.conn) {
                    self.sim.disconnect(conn);
                    self.model.disconnect(conn);
                }
            }
            Op::ReleaseAndDrop(id) => self.release_and_drop(id, false),
            Op::ReleaseDropAndAsk(id) => self.release_and_drop(id, true),
            Op::Delete => {
                self.sim.del("k");
                (self.model.all, self.model.held) = (None, Vec::new());
            }
            Op::RedissonTake(id, ms) => self.redisson_take(id, ms),
            Op::RedissonGive(id) => {
                let held = self.sim.keys.permits("k").contains_key(IDS[id]);
                if held && self.sim.free("k").is_some() {
                    self.sim
                        .foreign("k", |keys, _| scripts::give_permit(keys, "k", IDS[id]));
                    self.model.held.retain(|(holder, _)| *holder != id);
                }
            }
        }
        (None, None)
    }

    fn end_tick(&mut self) {
        self.sim.settle_all();
        self.model.settle();
    }

    fn compare(&mut self, _op: &Op) {
        self.listen();
        let expected = std::mem::take(&mut self.model.replies);
        let replies = std::mem::take(&mut self.replies);
        assert_same(replies, expected, "the replies of parked requests");
        let expected = std::mem::take(&mut self.model.messages);
        let messages = std::mem::take(&mut self.messages);
        assert_same(messages, expected, "the messages of tickets");
        assert_ends(&self.sim, self.model.ends);
        assert_eq!(self.queue(), self.model.queue(), "the requests that wait");
        assert_eq!(self.sim.all_permits("k"), self.model.all, "all permits");
        let held = self.sim.keys.permits("k").into_iter();
        let held: Vec<_> = held
            .filter(|(id, _)| self.sim.holds_permit("k", id))
            .collect();
        let model = self.model.held.iter();
        let expected = model.map(|(id, end)| (IDS[*id].to_string(), START_MS + *end as i64));
        assert_same(held, expected.collect(), "the permits and their ends");
    }

    fn deliver(&mut self) {
        self.sim.deliver_all();
    }

    fn check(&mut self, _step: &Step<Op>) {
        if !self.model.queue.is_empty() {
            assert!(
                !self.model.has_permit(),
                "a permit is free, and a request waits"
            );
        }
    }
}

#[test]
fn histories_of_a_semaphore() {
    let steps = model::steps(op(), (1.0, 1.0), STEPS);
    explore::<Case>((DEFAULT_CASES, 1), Just(()), steps);
}

impl Case {
    fn acquire(
        &mut self,
        id: usize,
        ms: i64,
        wait: Wait,
        limit: Option<u32>,
        notify: Option<Channel>,
    ) {
        if notify.is_some_and(|channel| !self.model.hearing.is_subscribed[channel]) {
            return;
        }
        let held = self.model.end_of(id).is_some();
        let conn = self.ids.len() as u64;
        self.ids.push(id);
        let how = (named(ms), wait, limit);
        self.sim.notify = notify.map(|channel| (CHANNELS[channel].into(), conn.to_string()));
        let got = self.sim.sem_acquire("k", IDS[id], conn, how);
        if got == Err(LockError::Busy) {
            self.model.ask();
            assert!(self.model.is_full(id, notify.is_some()) && wait != Wait::No);
            return;
        }
        let got = got.unwrap();
        assert_eq!(
            got,
            self.model.acquire(conn, (id, ms, wait, limit), notify, got)
        );
        // Parked requests were granted before.
        self.listen();
        if let Answer::Granted(token) = got {
            match self.tokens[id].filter(|_| held) {
                Some(own) => assert_eq!(token, own, "its own token again"),
                None => self.rises(token),
            }
            self.tokens[id] = Some(token);
        }
    }

    fn rises(&mut self, token: Token) {
        assert!(Some(token) > self.highest, "tokens rise");
        self.highest = Some(token);
    }

    fn release(&mut self, id: usize) {
        let released = self.sim.sem_release("k", IDS[id]);
        assert_eq!(released, Ok(self.model.release(id)));
    }

    fn release_and_drop(&mut self, id: usize, asks: bool) {
        let first = self.model.queue.first().cloned();
        self.release(id);
        let granted: Vec<u64> = self.sim.granted.values().map(|one| one.conn).collect();
        let Some(first) = first.filter(|first| granted.contains(&first.conn)) else {
            return;
        };
        self.sim.disconnect(first.conn);
        if asks {
            self.listen();
            self.acquire(first.id, 200, Wait::No, None, None);
        } else {
            self.model.held.retain(|(holder, _)| *holder != first.id);
            self.model.unsettled = true;
        }
    }

    /// A script of Redisson's takes a permit, under an id that is always a new one.
    fn redisson_take(&mut self, id: usize, ms: i64) {
        let busy = self.tokens[id].is_some()
            || self.model.end_of(id).is_some()
            || self.model.queue.iter().any(|waiting| waiting.id == id);
        if busy || self.sim.free("k").is_none() {
            return;
        }
        let took = self.sim.foreign("k", |keys, now| {
            scripts::give_permit(keys, "k", IDS[id]);
            scripts::take_permit(keys, "k", IDS[id], now.wall_ms + ms)
        });
        if took {
            assert!(self.model.has_permit());
            self.model.held.push((id, self.model.now_ms + ms as u64));
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
        for out in std::mem::take(&mut self.sim.out) {
            let (conn, outcome, is_message) = match out {
                Out::Answer { conn, outcome, .. } => (conn, outcome, false),
                Out::Tell { tag, outcome, .. } => (tag.parse().unwrap(), outcome, true),
                _ => continue,
            };
            let reply = match outcome {
                Outcome::Granted(token) => {
                    self.rises(token);
                    self.tokens[self.ids[conn as usize]] = Some(token);
                    Reply::Granted
                }
                Outcome::Nil => Reply::Refused,
                other => panic!("{other:?}"),
            };
            match is_message {
                true => self.messages.push((conn, reply)),
                false => self.replies.push((conn, reply)),
            }
        }
    }
}
