//! Random histories of a semaphore, compared step by step with the contract written as plainly as it can be:
//! so many permits in all, a list of who holds one until when, a list of who waits.

use proptest::prelude::*;

use crate::lock::tests::semaphores::{Out, Sim};
use crate::lock::tests::sim::START_MS;
use crate::lock::{
    Answer, Grace, Lease, Limits, LockError, Outcome, SemAcquire, SetIf, Token, Wait, WaiterId,
};

const IDS: [&str; 5] = ["a", "b", "c", "d", "e"];
const MAX_WAITERS: usize = 4;

#[derive(Debug, Clone)]
enum Op {
    Set(u32, SetIf),
    Acquire(usize, i64, Wait, Option<u32>),
    Release(usize),
    Renew(usize, i64),
    Advance(u64),
    /// The connection of a parked id closes.
    Drop(usize),
    /// A release, and in the same turn the connection of whoever is granted closes.
    ReleaseAndDrop(usize),
    /// The same, but the id asks again before the turn is over.
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
    waiter: WaiterId,
    lease_ms: i64,
    until_ms: Option<u64>,
    limit: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Granted,
    Nil,
}

/// The contract.
#[derive(Debug, Default)]
struct Model {
    now_ms: u64,
    all: Option<i64>,
    /// Who holds, and until when.
    held: Vec<(usize, u64)>,
    queue: Vec<Waiting>,
    told: Vec<(WaiterId, Told)>,
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
            self.told.push((next.waiter, Told::Granted));
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

    /// What the core answered tells the number of the waiter, if it is to be parked.
    fn acquire(&mut self, op: (usize, i64, Wait, Option<u32>), got: Answer) -> Answer {
        let (id, lease_ms, wait, limit) = op;
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
        let Answer::Parked(waiter) = got else {
            assert_eq!(wait, Wait::No, "{id} should be parked");
            return Answer::Refused;
        };
        let waiting = Waiting {
            id,
            waiter,
            lease_ms,
            until_ms: match wait {
                Wait::Ms(ms) => Some(self.now_ms + ms),
                _ => None,
            },
            limit,
        };
        match self.queue.iter_mut().find(|other| other.id == id) {
            Some(older) => {
                self.told.push((older.waiter, Told::Nil));
                *older = waiting;
            }
            None => self.queue.push(waiting),
        }
        self.serve();
        Answer::Parked(waiter)
    }

    fn release(&mut self, id: usize) -> bool {
        if self.end_of(id).is_none() {
            if let Some(at) = self.queue.iter().position(|waiting| waiting.id == id) {
                let waiting = self.queue.remove(at);
                self.told.push((waiting.waiter, Told::Nil));
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
            self.told
                .extend(ended.iter().map(|w| (w.waiter, Told::Nil)));
            self.end_leases();
            self.serve();
        }
    }

    fn drop_waiter(&mut self, waiter: WaiterId) {
        self.queue.retain(|waiting| waiting.waiter != waiter);
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

fn request(id: usize, lease_ms: i64, wait: Wait, limit: Option<u32>) -> SemAcquire<'static> {
    SemAcquire {
        id: IDS[id].as_bytes(),
        lease: Lease::from_ms(lease_ms).unwrap(),
        names_lease: true,
        session: false,
        limit: limit.and_then(std::num::NonZeroU32::new),
        wait,
        client: 0,
    }
}

struct Both {
    sim: Sim,
    model: Model,
    tokens: Vec<Option<Token>>,
    highest: Option<Token>,
    /// Who asked, by the number of the parked request.
    parked: Vec<(WaiterId, usize)>,
    told: Vec<(WaiterId, Told)>,
}

impl Both {
    fn step(&mut self, op: &Op) {
        match *op {
            Op::Set(permits, set_if) => {
                let set = self.sim.set("k", permits, set_if).unwrap();
                assert_eq!(set, self.model.set(permits, set_if));
            }
            Op::Acquire(id, ms, wait, limit) => self.acquire(id, ms, wait, limit),
            Op::Release(id) => self.release(id),
            Op::Renew(id, ms) => {
                let renewed = self
                    .sim
                    .renew("k", IDS[id], Lease::from_ms(ms).unwrap(), true);
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
                let waiter = self
                    .model
                    .queue
                    .iter()
                    .find(|w| w.id == id)
                    .map(|w| w.waiter);
                if let Some(waiter) = waiter {
                    self.sim.drop_conn(waiter);
                    self.model.drop_waiter(waiter);
                }
            }
            Op::ReleaseAndDrop(id) => self.release_and_drop(id, false),
            Op::ReleaseDropAndAsk(id) => self.release_and_drop(id, true),
            Op::Delete => {
                let there = self.sim.sems.get_mut("k").and_then(|keys| keys.free.take());
                if there.is_some() {
                    self.sim.unsettled("k", false);
                }
                (self.model.all, self.model.held) = (None, Vec::new());
                self.model.serve();
            }
            Op::RedissonTake(id, ms) => self.redisson_take(id, ms),
            Op::RedissonGive(id) => {
                let Some(keys) = self.sim.sems.get_mut("k") else {
                    return;
                };
                if keys.free.is_some() && keys.set.remove(IDS[id]).is_some() {
                    keys.free = keys.free.map(|free| free + 1);
                    self.sim.unsettled("k", true);
                    self.model.held.retain(|(holder, _)| *holder != id);
                    self.model.serve();
                }
            }
        }
        self.sim.end_tick();
        self.compare();
    }

    fn acquire(&mut self, id: usize, ms: i64, wait: Wait, limit: Option<u32>) {
        let held = self.model.end_of(id).is_some();
        let is_parked = self.model.queue.iter().any(|waiting| waiting.id == id);
        let got = self.sim.acquire("k", &request(id, ms, wait, limit));
        if got == Err(LockError::Busy) {
            assert!(!is_parked && self.model.queue.len() >= MAX_WAITERS && wait != Wait::No);
            return;
        }
        let got = got.unwrap();
        assert_eq!(got, self.model.acquire((id, ms, wait, limit), got));
        if let Answer::Parked(waiter) = got {
            self.parked.push((waiter, id));
        }
        // Those who waited got theirs before.
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
        let released = self.sim.release("k", IDS[id]);
        assert_eq!(released, Ok(self.model.release(id)));
    }

    fn release_and_drop(&mut self, id: usize, asks: bool) {
        let first = self.model.queue.first().cloned();
        self.release(id);
        let Some(first) = first.filter(|first| self.sim.permit_in_flight.contains(&first.waiter))
        else {
            return;
        };
        self.sim.drop_conn(first.waiter);
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
        let now_ms = self.sim.now.wall_ms;
        let busy = self.tokens[id].is_some()
            || self.model.end_of(id).is_some()
            || self.model.queue.iter().any(|waiting| waiting.id == id);
        let Some(keys) = self.sim.sems.get_mut("k").filter(|_| !busy) else {
            return;
        };
        let Some(free) = &mut keys.free else {
            return;
        };
        keys.set
            .remove(IDS[id])
            .into_iter()
            .for_each(|_| *free += 1);
        if *free > 0 {
            *free -= 1;
            keys.set.insert(IDS[id].into(), now_ms + ms);
            assert!(self.model.has_permit());
            self.model.held.push((id, self.model.now_ms + ms as u64));
        }
        self.sim.unsettled("k", true);
    }

    /// Notes what parked requests were told.
    fn listen(&mut self) {
        for out in std::mem::take(&mut self.sim.out) {
            let Out::Answer(waiter, outcome) = out else {
                continue;
            };
            let told = match outcome {
                Outcome::Granted(token) => {
                    self.rises(token);
                    let (_, id) = self.parked.iter().find(|(w, _)| *w == waiter).unwrap();
                    self.tokens[*id] = Some(token);
                    Told::Granted
                }
                Outcome::Nil => Told::Nil,
                other => panic!("{other:?}"),
            };
            self.told.push((waiter, told));
        }
    }

    fn compare(&mut self) {
        self.listen();
        let mut expected = std::mem::take(&mut self.model.told);
        let mut told = std::mem::take(&mut self.told);
        expected.sort();
        told.sort();
        assert_eq!(told, expected, "what parked requests are told");
        assert_eq!(
            self.sim.locks.sems.waiters.live(),
            self.model.queue.len(),
            "how many wait"
        );
        let keys = self.sim.sems.get("k").cloned().unwrap_or_default();
        assert_eq!(keys.all(), self.model.all, "how many there are");
        let now_ms = self.sim.now.wall_ms;
        let live = keys.set.iter().filter(|(_, end)| **end > now_ms);
        let live = live.filter(|_| keys.free.is_some());
        let held: Vec<(String, i64)> = live.map(|(id, end)| (id.clone(), *end)).collect();
        let model = self.model.held.iter();
        let mut expected: Vec<(String, i64)> = model
            .map(|(id, end)| (IDS[*id].to_string(), START_MS + *end as i64))
            .collect();
        expected.sort();
        assert_eq!(held, expected, "who holds, and until when");
        if !self.model.queue.is_empty() {
            assert!(
                !self.model.has_permit(),
                "a permit is free, and somebody waits"
            );
        }
    }
}

fn play(ops: &[Op]) {
    let limits = Limits {
        max_waiters: MAX_WAITERS,
        max_waiters_per_key: MAX_WAITERS,
        max_tracked: 100,
    };
    let mut both = Both {
        sim: Sim::new(limits, Grace::default()),
        model: Model::default(),
        tokens: vec![None; IDS.len()],
        highest: None,
        parked: Vec::new(),
        told: Vec::new(),
    };
    for op in ops {
        both.step(op);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn histories_of_a_semaphore(ops in proptest::collection::vec(op(), 1..60)) {
        play(&ops);
    }
}
