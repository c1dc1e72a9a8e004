//! Random histories, compared step by step with a naive model of the contract.
//!
//! A history is a list of [`Step`]s: everything that can happen to the simulated server, each with or without the end
//! of the tick and the delivery of replies. After each step the reply and all that can be observed must be as the naive
//! model states. What no effect may do is asserted by the simulated server.
//!
//! `PROPTEST_CASES` sets the number of histories, `PROPTEST_RNG_SEED` repeats a run. A failure prints the seed and the
//! smallest history that shows it.

mod endings;
pub mod exclusive;
pub mod many;
pub mod naive;
pub mod read_write;
pub mod semaphore;
mod tickets;

use std::fmt::Debug;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestError, TestRunner};

use self::naive::{Ask, Key, Model, Terms};
use self::tickets::{Ticket, CHANNELS};
use crate::lock::tests::sim::{self, key_ref, Out, Sim};
use crate::lock::{Answer, Grace, Lease, Limits, LockError, Mode, Outcome, Released, Token, Wait};

/// Connections of each owner.
const CONNS_PER_OWNER: u64 = 3;

/// One server and its naive model.
pub trait Case {
    type Settings: Debug + Clone;
    type Op: Debug + Clone;

    fn new(settings: &Self::Settings) -> Self;

    /// Does it on both sides. Returns both replies; there may be no model.
    fn apply(&mut self, op: &Self::Op) -> (Option<Reply>, Option<Reply>);

    fn end_tick(&mut self);

    /// Compares all that can be observed.
    fn compare(&mut self, op: &Self::Op);

    fn deliver(&mut self);

    /// What must hold whatever the model states.
    fn check(&mut self, step: &Step<Self::Op>);

    /// Without further inputs every request gets a reply, every lease ends, and nothing is left.
    fn come_to_rest(&mut self) {}

    fn play(&mut self, steps: &[Step<Self::Op>]) {
        for step in steps {
            self.play_one(step);
        }
        self.come_to_rest();
    }

    fn play_one(&mut self, step: &Step<Self::Op>) {
        let (got, expected) = self.apply(&step.op);
        if expected.is_some() {
            assert_eq!(got, expected, "the reply to {:?}", step.op);
        }
        if step.ends_tick {
            self.end_tick();
        }
        self.compare(&step.op);
        if step.delivers {
            self.deliver();
        }
        self.check(step);
    }
}

#[derive(Debug, Clone)]
pub struct Step<Op> {
    pub op: Op,
    pub ends_tick: bool,
    pub delivers: bool,
}

/// Histories of at most so many steps, with the probability that a step ends a tick and that replies are delivered.
fn steps<Op: Debug + Clone>(
    op: impl Strategy<Value = Op>,
    (ends_tick, delivers): (f64, f64),
    most: usize,
) -> impl Strategy<Value = Vec<Step<Op>>> {
    let flags = (
        prop::bool::weighted(ends_tick),
        prop::bool::weighted(delivers),
    );
    let step = (op, flags).prop_map(|(op, (ends_tick, delivers))| Step {
        op,
        ends_tick,
        delivers,
    });
    prop::collection::vec(step, 1..=most)
}

/// Plays so many histories, unless `PROPTEST_CASES` is set: then that number by this share.
fn explore<C: Case>(
    (default_cases, share): (u32, u32),
    settings: impl Strategy<Value = C::Settings>,
    steps: impl Strategy<Value = Vec<Step<C::Op>>>,
) {
    let mut config = Config::default();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = default_cases;
    }
    config.cases = config.cases.div_ceil(share);
    config.failure_persistence = None;
    config.max_shrink_iters = 20_000;
    if let RngSeed::Random = config.rng_seed {
        let seed = std::time::UNIX_EPOCH.elapsed().unwrap();
        config.rng_seed = RngSeed::Fixed(seed.as_nanos() as u64);
    }
    println!("{} histories", config.cases);
    let seed = config.rng_seed;
    let result = TestRunner::new(config).run(&(settings, steps), |(settings, steps)| {
        C::new(&settings).play(&steps);
        Ok(())
    });
    if let Err(TestError::Fail(reason, (settings, steps))) = result {
        let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
        let steps = steps.join("\n");
        panic!("PROPTEST_RNG_SEED={seed}: {reason}\n{settings:?}\n{steps}");
    }
    result.unwrap();
}

/// The reply of a command, or of a parked request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    Granted,
    Refused,
    Parked,
    Freed,
    StillHeld,
    NotHeld,
    Renewed,
    Lost,
    Broken,
    /// Of a release or a renewal of several keys: the number of keys.
    Done(usize),
    /// The answer of `SEM.SET`.
    Permits(Option<u32>),
    Error(&'static str),
}

impl<T> From<Answer<T>> for Reply {
    fn from(answer: Answer<T>) -> Reply {
        match answer {
            Answer::Granted(_) => Reply::Granted,
            Answer::Refused => Reply::Refused,
            Answer::Waits(_) => Reply::Parked,
        }
    }
}

impl From<Released> for Reply {
    fn from(released: Released) -> Reply {
        match released {
            Released::Freed => Reply::Freed,
            Released::StillHeld => Reply::StillHeld,
            Released::NotHeld => Reply::NotHeld,
        }
    }
}

impl From<usize> for Reply {
    fn from(keys: usize) -> Reply {
        Reply::Done(keys)
    }
}

impl Reply {
    fn of<T: Into<Reply>>(result: Result<T, LockError>) -> Reply {
        result.map_or_else(|error| Reply::Error(code(&error)), T::into)
    }

    fn yes_or(result: Result<bool, LockError>, yes: Reply, no: Reply) -> Reply {
        Reply::of(result.map(|done| if done { yes } else { no }))
    }

    /// What a parked request gets.
    fn to_waiter(outcome: &Outcome) -> Reply {
        match outcome {
            Outcome::Granted(_) | Outcome::GrantedAll(_) => Reply::Granted,
            Outcome::Nil => Reply::Refused,
            Outcome::Failed(error) => Reply::Error(code(error)),
            Outcome::Open => unreachable!("no latch here"),
        }
    }
}

fn code(error: &LockError) -> &'static str {
    match error {
        LockError::WrongType => "WRONGTYPE",
        LockError::LockType | LockError::HeldExclusively | LockError::HeldReadWrite => "LOCKTYPE",
        LockError::Busy => "LOCKBUSY",
        LockError::QueueFull => "QUEUEFULL",
        LockError::Unblocked => "UNBLOCKED",
        LockError::Broken => "LOCKBROKEN",
        LockError::TryAgain => "TRYAGAIN",
        LockError::InStartupDelay(_) => "DELAY",
        LockError::Deadlock(_) => "DEADLOCK",
        LockError::Upgrade => "DEADLOCK of two upgrades",
        LockError::WhichHold => "READ or WRITE?",
        other => panic!("unexpected: {other}"),
    }
}

pub fn conn_of(owner: usize, conn: u64) -> u64 {
    owner as u64 * CONNS_PER_OWNER + conn
}

pub fn lease(ms: i64) -> Lease {
    Lease::from_ms(ms).unwrap()
}

/// `None`: without `BLOCK`; `Some(None)`: without an end.
fn wait_of(wait: Option<Option<u64>>) -> Wait {
    match wait {
        None => Wait::No,
        Some(None) => Wait::ForEver,
        Some(Some(ms)) => Wait::Ms(ms),
    }
}

fn sim_terms(terms: Terms) -> sim::Terms {
    match terms {
        Terms::Named(ms) => sim::Terms::Named(lease(ms)),
        Terms::Unnamed => sim::Terms::Unnamed,
        Terms::Session => sim::Terms::Session,
    }
}

/// `LOCK.ACQUIRE` on both sides. `None`: the client is blocked, or the channel has no subscriber, and the shell refuses
/// the request.
fn acquire(
    sim: &mut Sim,
    model: Option<&mut Model>,
    (name, owner): (&str, &str),
    ask: &Ask,
    tag: u32,
) -> Option<(Result<Answer, LockError>, Option<Reply>)> {
    let is_deaf = |ticket: Ticket| !sim.subscribed.contains(CHANNELS[ticket.channel]);
    if sim.is_blocked(ask.conn) || ask.ticket.is_some_and(is_deaf) {
        return None;
    }
    let ticket = ask.ticket.map(|ticket| Ticket::new(ticket.channel, tag));
    sim.notify = ticket.map(Ticket::named);
    sim.queue = ask.queue;
    let how = (ask.mode, sim_terms(ask.terms), wait_of(ask.wait), ask.once);
    let got = sim.acquire(name, owner, ask.conn, how);
    let ask = Ask {
        ticket,
        ..ask.clone()
    };
    Some((got, model.map(|model| model.acquire(&ask))))
}

fn ask(
    keys: impl Strategy<Value = Vec<Key>>,
    owners: usize,
    how: impl Strategy<Value = (Mode, Terms)>,
    wait: impl Strategy<Value = Option<Option<u64>>>,
) -> impl Strategy<Value = Ask> {
    let who = (0..owners, 0..CONNS_PER_OWNER);
    let notify = prop::option::of(0..CHANNELS.len());
    let options = (any::<bool>(), notify, queue());
    (keys, who, how, wait, options).prop_map(|(keys, who, how, wait, (once, notify, queue))| Ask {
        keys,
        once,
        queue,
        ..Ask::new(0, who, how, wait).notify(notify.filter(|_| wait.is_some()))
    })
}

/// `QUEUE`, of few requests.
fn queue() -> impl Strategy<Value = Option<u32>> + Clone {
    prop::option::weighted(0.15, 0..3u32)
}

/// Without waiting, without an end, and with an end.
fn wait(shares: [u32; 3], longest_ms: u64) -> impl Strategy<Value = Option<Option<u64>>> {
    prop_oneof![
        shares[0] => Just(None),
        shares[1] => Just(Some(None)),
        shares[2] => (1..longest_ms).prop_map(|ms| Some(Some(ms))),
    ]
}

/// What the core sent: replies to parked clients, messages of tickets, and other effects.
#[derive(Debug, Default)]
struct Sent {
    replies: Vec<(u64, Reply)>,
    messages: Vec<(Ticket, Reply)>,
    /// The tokens of both, by connection or tag.
    granted: Vec<(u64, Token)>,
    rest: Vec<Out>,
}

impl Sent {
    fn by(sim: &mut Sim) -> Sent {
        let mut sent = Sent::default();
        for out in std::mem::take(&mut sim.out) {
            let (to, outcome) = match out {
                Out::Answer { conn, outcome, .. } => {
                    sent.replies.push((conn, Reply::to_waiter(&outcome)));
                    (conn, outcome)
                }
                Out::Tell {
                    channel,
                    tag,
                    outcome,
                } => {
                    let ticket = Ticket::of(&channel, &tag);
                    sent.messages.push((ticket, Reply::to_waiter(&outcome)));
                    (tag.parse().unwrap(), outcome)
                }
                other => {
                    sent.rest.push(other);
                    continue;
                }
            };
            if let Outcome::Granted(token) = outcome {
                sent.granted.push((to, token));
            }
        }
        sent
    }

    /// Asserts that the waiters got what the model states.
    fn assert_as(&self, model: &mut Model) {
        let expected = std::mem::take(&mut model.replies);
        let replies = self.replies.clone();
        assert_same(replies, expected, "the replies of parked requests");
        let expected = std::mem::take(&mut model.messages);
        assert_same(self.messages.clone(), expected, "the messages of tickets");
    }
}

/// Asserts that both sides saw the same, in any order.
fn assert_same<T: Ord + Debug>(mut got: Vec<T>, mut expected: Vec<T>, what: &str) {
    got.sort_unstable();
    expected.sort_unstable();
    assert_eq!(got, expected, "{what}");
}

/// Asserts that these owners wait for this lock, in this order.
fn assert_queue(sim: &Sim, key: &str, owners: impl Iterator<Item = &'static str>) {
    let queue = sim.locks.shared.waiters.queue(key_ref(key));
    let queue: Vec<&[u8]> = queue.map_or(Vec::new(), |q| q.iter().map(|w| w.0).collect());
    let expected: Vec<&[u8]> = owners.map(str::as_bytes).collect();
    assert_eq!(queue, expected, "the queue of {key}");
}

fn limits() -> impl Strategy<Value = Limits> {
    let some = |few: Vec<usize>| prop::sample::select(few);
    let limits = (
        some(vec![2, 5, 100]),
        some(vec![1, 3, 100]),
        some(vec![0, 1, 100]),
        some(vec![1, 3, 100]),
    );
    limits.prop_map(
        |(max_waiters, max_waiters_per_key, max_tracked, max_tickets)| Limits {
            max_waiters,
            max_waiters_per_key,
            max_tickets,
            max_wait_bytes: 10_000_000,
            user_share: 100,
            max_tracked,
        },
    )
}

fn grace(max_places: impl Strategy<Value = usize>) -> impl Strategy<Value = Grace> {
    let ms = prop::sample::select(vec![0, 3, 12]);
    (ms, max_places).prop_map(|(ms, max_places)| Grace { ms, max_places })
}
