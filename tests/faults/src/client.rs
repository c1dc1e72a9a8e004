//! A client: takes locks, waits, thinks, sleeps, renews, releases, forgets to, and dies; and writes down what
//! it was told. One connection, one thing at a time, everything chosen from its own seed.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::counter::Counter;
use crate::history::{now, Call, Op, Outcome};
use crate::route::Route;
use crate::wire::{NoReply, Reply, Wire};

/// How long a client waits for its last answers when the run is over: by then whoever holds a lock
/// has released it or slept through its lease, whoever was in front has had its turn.
const DRAIN: Duration = Duration::from_secs(10);

/// How long one look at the socket takes at most.
const SLICE: Duration = Duration::from_millis(20);

/// What clients are like. Percentages of their sessions.
#[derive(Debug, Clone)]
pub struct Habits {
    /// Leases, in milliseconds.
    pub lease: Range<u32>,
    /// `BLOCK`, in milliseconds.
    pub wait: Range<u32>,
    /// Does not wait.
    pub tries: u8,
    /// Waits without limit.
    pub patient: u8,
    /// Sleeps 0.5 to 3 leases under the lock, then goes on as if nothing had happened.
    pub sleeps: u8,
    /// Lets the lease run out.
    pub forgets: u8,
    /// Closes its connection while it waits or holds.
    pub dies: u8,
    /// Closes its connection when nothing comes for so many milliseconds after its `BLOCK`.
    pub gives_up: Option<u64>,
    /// How long a client of short holds rests between two batches, in milliseconds.
    pub rests: u64,
}

impl Default for Habits {
    fn default() -> Habits {
        Habits {
            lease: 5..500,
            wait: 1..500,
            tries: 20,
            patient: 15,
            sleeps: 3,
            forgets: 5,
            dies: 3,
            gives_up: None,
            rests: 2,
        }
    }
}

/// What all clients of a run share.
pub struct World<'a> {
    pub keys: &'a [String],
    pub counters: &'a [Counter],
    pub route: &'a dyn Route,
    pub habits: &'a Habits,
    pub stop: &'a AtomicBool,
    /// How many holders slept.
    pub sleeps: &'a AtomicU64,
}

/// A client at work.
pub struct Client<'a> {
    id: u32,
    world: &'a World<'a>,
    rng: fastrand::Rng,
    wire: Option<Wire>,
    owners: u64,
    drain_until: Option<Instant>,
    ops: Vec<Op>,
}

/// In whose name a client acts now.
#[derive(Clone, Copy)]
struct Session {
    key: u32,
    owner: u64,
    lease: u32,
}

impl<'a> Client<'a> {
    pub fn new(id: u32, world: &'a World<'a>, seed: u64) -> Client<'a> {
        Client {
            id,
            world,
            rng: fastrand::Rng::with_seed(seed),
            wire: None,
            owners: 0,
            drain_until: None,
            ops: Vec::new(),
        }
    }

    /// Works until told to stop; returns what it has done.
    pub fn work(mut self) -> Vec<Op> {
        while !self.is_over() {
            self.session();
        }
        self.ops
    }

    fn is_over(&self) -> bool {
        self.world.stop.load(Ordering::Relaxed)
    }

    fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    /// An owner's life.
    fn session(&mut self) {
        self.owners += 1;
        let habits = self.world.habits;
        let me = Session {
            key: self.rng.u32(..self.world.keys.len() as u32),
            owner: u64::from(self.id) * 1_000_000_000 + self.owners,
            lease: self.rng.u32(habits.lease.clone()),
        };
        let block = match self.rng.u8(..100) {
            n if n < habits.tries => None,
            n if n < habits.tries + habits.patient => Some(0),
            _ => Some(self.rng.u32(habits.wait.clone())),
        };
        let mut once = self.rng.bool();
        for _ in 0..3 {
            match self.acquire(me, block, once) {
                Outcome::Granted(token) => return self.hold(me, token, block.is_some()),
                // Many clients ask again; the place in the queue is kept a while.
                _ if self.chance(30) && !self.is_over() => once = true,
                _ => return,
            }
        }
    }

    fn acquire(&mut self, me: Session, block: Option<u32>, once: bool) -> Outcome {
        let dies = block.is_some() && self.chance(self.world.habits.dies);
        let life = dies.then(|| Duration::from_millis(self.rng.u64(..300)));
        let lease = me.lease;
        self.call(me, Call::Acquire { lease, block, once }, life)
    }

    /// Under the lock, as far as the client knows.
    fn hold(&mut self, me: Session, token: i64, waited: bool) {
        let counter = &self.world.counters[me.key as usize];
        let read = counter.read(token);
        // Of a lease that began some time ago nothing is sure: a renewal makes it so.
        if waited && self.chance(70) && self.renew(me, Some(token)) == Outcome::Number(0) {
            return;
        }
        let sleeps = self.chance(self.world.habits.sleeps);
        if sleeps {
            let lease = u64::from(me.lease);
            let nap = self.rng.u64(lease / 2..3 * lease);
            self.sleep(nap);
            self.world.sleeps.fetch_add(1, Ordering::Relaxed);
        } else if self.rng.bool() {
            let nap = self.rng.u64(..4);
            self.sleep(nap);
        }
        let mut holds = 1;
        if !sleeps && self.chance(10) {
            let once = self.rng.bool();
            let again = self.acquire(me, None, once);
            holds += i32::from(!once && again == Outcome::Granted(token));
        }
        counter.write(token, &read);
        if self.chance(10) {
            let token = self.rng.bool().then_some(token);
            self.renew(me, token);
        }
        self.part(me, token, holds);
    }

    /// Releases, most of the time.
    fn part(&mut self, me: Session, token: i64, holds: i32) {
        if self.chance(self.world.habits.forgets) {
            return;
        }
        if self.chance(self.world.habits.dies) {
            self.wire = None;
            return;
        }
        let all = self.rng.bool();
        let token = self.rng.bool().then_some(token);
        for _ in 0..if all { 1 } else { holds } {
            self.call(me, Call::Release { all, token }, None);
        }
    }

    fn renew(&mut self, me: Session, token: Option<i64>) -> Outcome {
        let lease = me.lease;
        self.call(me, Call::Renew { lease, token }, None)
    }

    /// Sends a request and writes down what came of it. With a `life`, the client dies after it.
    fn call(&mut self, me: Session, call: Call, life: Option<Duration>) -> Outcome {
        let name = &self.world.keys[me.key as usize];
        let Some(mut wire) = self.connection(name) else {
            self.sleep(2);
            return Outcome::Lost;
        };
        let sent = now();
        push(&mut wire, name, me.owner, call);
        let reply = if wire.flush() {
            self.reply(&mut wire, call, life)
        } else {
            Some(Err(NoReply::Lost))
        };
        let done = now();
        let outcome = match reply {
            Some(Ok(reply)) => outcome(call, &reply),
            Some(Err(_)) => Outcome::Lost,
            None => Outcome::Silent,
        };
        self.ops.push(Op {
            client: self.id,
            owner: me.owner,
            key: me.key,
            call,
            sent,
            done,
            outcome: outcome.clone(),
        });
        self.after(name, wire, &outcome);
        outcome
    }

    /// Keeps the connection, unless it is lost; and looks for another server if this one was wrong.
    fn after(&mut self, name: &str, wire: Wire, outcome: &Outcome) {
        let port = wire.port();
        match outcome {
            Outcome::Lost | Outcome::Silent => {
                wire.close();
                self.world.route.learn(name, port, None);
                self.sleep(1);
            }
            Outcome::Error(code) => {
                self.wire = Some(wire);
                self.world.route.learn(name, port, Some(code));
                self.sleep(2);
            }
            _ => self.wire = Some(wire),
        }
    }

    fn connection(&mut self, name: &str) -> Option<Wire> {
        let port = self.world.route.port(name);
        let kept = self.wire.take().filter(|wire| wire.port() == port);
        let wire = kept.or_else(|| Wire::open(port));
        if wire.is_none() {
            self.world.route.learn(name, port, None);
        }
        wire
    }

    /// The reply; `Lost` when the client has died or given up; `None` when the run is over, everything
    /// healed, and still there is none.
    fn reply(
        &mut self,
        wire: &mut Wire,
        call: Call,
        life: Option<Duration>,
    ) -> Option<Result<Reply, NoReply>> {
        let block = match call {
            Call::Acquire { block, .. } => block.filter(|block| *block > 0),
            _ => None,
        };
        let gives_up = self.world.habits.gives_up.map(|limit| {
            let block = Duration::from_millis(block.unwrap_or(0).into());
            block + Duration::from_millis(limit)
        });
        let limit = life.into_iter().chain(gives_up).min();
        let start = Instant::now();
        loop {
            let left = limit.map_or(SLICE, |limit| limit.saturating_sub(start.elapsed()));
            match wire.recv(left.min(SLICE)) {
                Err(NoReply::Late) if left.is_zero() => return Some(Err(NoReply::Lost)),
                Err(NoReply::Late) if self.is_drained() => return None,
                Err(NoReply::Late) => {}
                other => return Some(other),
            }
        }
    }

    fn is_drained(&mut self) -> bool {
        if !self.is_over() {
            return false;
        }
        let until = self
            .drain_until
            .get_or_insert_with(|| Instant::now() + DRAIN);
        Instant::now() > *until
    }

    /// Sleeps, but not past the end of the run.
    fn sleep(&self, ms: u64) {
        let end = Instant::now() + Duration::from_millis(ms);
        while !self.is_over() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(SLICE));
        }
    }
}

/// Adds a request to the connection's next write.
pub fn push(wire: &mut Wire, key: &str, owner: u64, call: Call) {
    let owner = owner.to_string();
    let text = |number: Option<i64>| number.map_or_else(String::new, |number| number.to_string());
    let (lease, block, token) = match call {
        Call::Acquire { lease, block, .. } => (Some(lease), block, None),
        Call::Renew { lease, token } => (Some(lease), None, token),
        Call::Release { token, .. } => (None, None, token),
    };
    let numbers = [
        ("PX", text(lease.map(i64::from))),
        ("BLOCK", text(block.map(i64::from))),
        ("TOKEN", text(token)),
    ];
    let (name, flag) = match call {
        Call::Acquire { once, .. } => ("LOCK.ACQUIRE", once.then_some("ONCE")),
        Call::Renew { .. } => ("LOCK.RENEW", None),
        Call::Release { all, .. } => ("LOCK.RELEASE", all.then_some("ALL")),
    };
    let mut words = vec![name, key, &owner];
    for (option, number) in numbers.iter().filter(|(_, number)| !number.is_empty()) {
        words.extend([option, number.as_str()]);
    }
    words.extend(flag);
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    wire.push(&words);
}

/// What a reply to this request means.
pub fn outcome(call: Call, reply: &Reply) -> Outcome {
    match (call, reply) {
        (Call::Acquire { .. }, Reply::Int(token)) => Outcome::Granted(*token),
        (_, Reply::Int(number)) => Outcome::Number(*number),
        (_, Reply::Nil) => Outcome::Nil,
        (_, other) => Outcome::Error(other.code().unwrap_or("?").into()),
    }
}
