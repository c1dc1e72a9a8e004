//! One semaphore. The contract as plainly as it can be written: the number of permits, a list of permits with their
//! ends, and a list of requests.

use proptest::prelude::*;

use crate::lock::tests::model::{self, assert_same, explore, lease, Reply, Step};
use crate::lock::tests::sim::{scripts, Out, Settings, Sim, Terms, START_MS};
use crate::lock::{Answer, Grace, Limits, LockError, Outcome, SetIf, Token, Wait, WaiterId};

const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];
const MAX_WAITERS: usize = 4;
const STEPS: usize = 59;
const DEFAULT_CASES: u32 = 400;

#[derive(Debug, Clone)]
enum Op {
    Set(u32, SetIf),
    Acquire(usize, i64, Wait, Option<u32>),
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
        12 => (id.clone(), ms.clone(), wait, limit)
            .prop_map(|(id, ms, wait, limit)| Op::Acquire(id, ms, wait, limit)),
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
        if self.all.is_none() {
            let limit = self.queue.iter().find_map(|waiting| waiting.limit);
            self.all = limit.map(i64::from);
        }
        while self.has_permit() && !self.queue.is_empty() {
            let next = self.queue.remove(0);
            self.held
                .push((next.id, self.now_ms + next.lease_ms as u64));
            self.replies.push((next.conn, Reply::Granted));
        }
    }

    fn set(&mut self, permits: u32, set_if: SetIf) -> Option<u32> {
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
        got: Answer,
    ) -> Answer {
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
        };
        match self.queue.iter_mut().find(|other| other.id == id) {
            Some(older) => {
                self.replies.push((older.conn, Reply::Refused));
                *older = waiting;
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
        if self.end_of(id).is_none() {
            if let Some(at) = self.queue.iter().position(|waiting| waiting.id == id) {
                let waiting = self.queue.remove(at);
                self.replies.push((waiting.conn, Reply::Refused));
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
            self.replies
                .extend(ended.iter().map(|w| (w.conn, Reply::Refused)));
            self.end_leases();
            self.serve();
        }
    }

    fn disconnect(&mut self, conn: u64) {
        self.queue.retain(|waiting| waiting.conn != conn);
        self.serve();
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

struct Case {
    sim: Sim,
    model: Model,
    tokens: Vec<Option<Token>>,
    highest: Option<Token>,
    /// The ids of the requests, by connection: each has a connection of its own.
    ids: Vec<usize>,
    replies: Vec<(u64, Reply)>,
}

impl model::Case for Case {
    type Settings = ();
    type Op = Op;

    fn new(_: &()) -> Case {
        let limits = Limits {
            max_waiters: MAX_WAITERS,
            max_tickets: 4,
            max_waiters_per_key: MAX_WAITERS,
            max_tracked: 100,
        };
        Case {
            sim: Sim::new(&Settings {
                limits,
                grace: Grace::default(),
                ..Settings::default()
            }),
            model: Model::default(),
            tokens: vec![None; IDS.len()],
            highest: None,
            ids: Vec::new(),
            replies: Vec::new(),
        }
    }

    fn apply(&mut self, op: &Op) -> (Option<Reply>, Option<Reply>) {
        match *op {
            Op::Set(permits, set_if) => {
                let set = self.sim.sem_set("k", permits, set_if);
                let expected = Reply::Permits(self.model.set(permits, set_if));
                return (Some(Reply::of(set.map(Reply::Permits))), Some(expected));
            }
            Op::Acquire(id, ms, wait, limit) => self.acquire(id, ms, wait, limit),
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
                self.model.serve();
            }
            Op::RedissonTake(id, ms) => self.redisson_take(id, ms),
            Op::RedissonGive(id) => {
                let held = self.sim.keys.permits("k").contains_key(IDS[id]);
                if held && self.sim.free("k").is_some() {
                    self.sim
                        .foreign("k", |keys, _| scripts::give_permit(keys, "k", IDS[id]));
                    self.model.held.retain(|(holder, _)| *holder != id);
                    self.model.serve();
                }
            }
        }
        (None, None)
    }

    fn end_tick(&mut self) {
        self.sim.settle_all();
    }

    fn compare(&mut self, _op: &Op) {
        self.listen();
        let expected = std::mem::take(&mut self.model.replies);
        let replies = std::mem::take(&mut self.replies);
        assert_same(replies, expected, "the replies of parked requests");
        assert_eq!(
            self.sim.locks.sems.waiters.live(),
            self.model.queue.len(),
            "the requests that wait"
        );
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
    fn acquire(&mut self, id: usize, ms: i64, wait: Wait, limit: Option<u32>) {
        let held = self.model.end_of(id).is_some();
        let is_parked = self.model.queue.iter().any(|waiting| waiting.id == id);
        let conn = self.ids.len() as u64;
        self.ids.push(id);
        let how = (named(ms), wait, limit);
        let got = self.sim.sem_acquire("k", IDS[id], conn, how);
        if got == Err(LockError::Busy) {
            assert!(!is_parked && self.model.queue.len() >= MAX_WAITERS && wait != Wait::No);
            return;
        }
        let got = got.unwrap();
        assert_eq!(got, self.model.acquire(conn, (id, ms, wait, limit), got));
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
            self.acquire(first.id, 200, Wait::No, None);
        } else {
            self.model.held.retain(|(holder, _)| *holder != first.id);
            self.model.serve();
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

    /// Notes the replies of parked requests.
    fn listen(&mut self) {
        for out in std::mem::take(&mut self.sim.out) {
            let Out::Answer { conn, outcome, .. } = out else {
                continue;
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
            self.replies.push((conn, reply));
        }
    }
}
