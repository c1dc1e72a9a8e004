//! A Redisson instance beside the other clients: takes locks by its script, waits on the lock's channel and not in the
//! queue, releases them by its script.
//!
//! It makes each of its holds known to the module once, which gives the hold a token; from then on the judges treat
//! it like every other hold, except for the order of the queue.

use std::time::{Duration, Instant};

use redis_lock_harness::outside::channel_of;
use redis_lock_harness::scripts::{GIVE, TAKE};

use crate::asking::SLICE;
use crate::client::World;
use crate::history::{now, Call, Kind, Nanos, Op, Outcome, Tie};
use crate::request::{outcome, push};
use crate::wire::{NoReply, Reply, Wire};

/// Longer than any fault lasts: a request without a reply by then never gets one.
const LIMIT: Duration = Duration::from_secs(10);

/// Works until the run is stopped; returns the recorded requests.
pub fn work(id: u32, world: &World, seed: u64) -> Vec<Op> {
    let mut instance = Instance {
        id,
        world,
        locks: world.locks(),
        rng: fastrand::Rng::with_seed(seed),
        wires: None,
        owner: u64::from(id) * 1_000_000_000,
        ops: Vec::new(),
    };
    while !world.is_over() {
        instance.owner += 1;
        if instance.session().is_none() {
            instance.wires = None;
            world.sleep(2);
        }
        world.rest(&mut instance.rng);
    }
    instance.ops
}

struct Instance<'a> {
    id: u32,
    world: &'a World<'a>,
    locks: Vec<u32>,
    rng: fastrand::Rng,
    /// One connection for scripts, one that subscribes.
    wires: Option<(Wire, Wire)>,
    owner: u64,
    ops: Vec<Op>,
}

impl Instance<'_> {
    /// All requests of one owner. `None` if a connection was lost or the server refuses a request.
    fn session(&mut self) -> Option<()> {
        let key = self.locks[self.rng.usize(..self.locks.len())];
        let lease = self.rng.u32(self.world.habits.lease.clone());
        let wait = Duration::from_millis(self.rng.u32(self.world.habits.wait.clone()).into());
        self.connect(key)?;
        let Some(sent) = self.lock(key, lease, wait)? else {
            return Some(());
        };
        let token = self.show(key, lease, sent)?;
        let counter = &self.world.counters[key as usize];
        let read = counter.read(token);
        let nap = self.rng.u64(..4);
        self.world.sleep(nap);
        counter.write(token, &read);
        match self.rng.u8(..100) < self.world.habits.forgets {
            true => Some(()),
            false => self.unlock(key, lease),
        }
    }

    fn connect(&mut self, key: u32) -> Option<()> {
        let name = &self.world.keys[key as usize];
        let port = self.world.route.port(name);
        let kept = self.wires.take().filter(|wires| wires.0.port() == port);
        let opened = || Some((Wire::open(port)?, Wire::open(port)?));
        self.wires = kept.or_else(opened);
        if self.wires.is_none() {
            self.world.route.learn(name, port, None);
        }
        self.wires.as_ref().map(|_| ())
    }

    /// `tryLock(wait)`: the time at which the successful try was sent; `Some(None)` if none succeeded.
    fn lock(&mut self, key: u32, lease: u32, wait: Duration) -> Option<Option<Nanos>> {
        let until = Instant::now() + wait;
        let sent = now();
        if self.take(key, lease)? == Reply::Nil {
            return Some(Some(sent));
        }
        self.subscription("SUBSCRIBE", key)?;
        let taken = loop {
            let sent = now();
            let left = match self.take(key, lease)? {
                Reply::Nil => break Some(sent),
                Reply::Int(left) => Duration::from_millis(left.unsigned_abs()),
                _ => return None,
            };
            if Instant::now() >= until || self.world.is_over() {
                break None;
            }
            self.sleep_or_receive(left.min(until.saturating_duration_since(Instant::now())))?;
        };
        self.subscription("UNSUBSCRIBE", key)?;
        Some(taken)
    }

    fn take(&mut self, key: u32, lease: u32) -> Option<Reply> {
        self.run(TAKE, key, lease)
            .filter(|reply| matches!(reply, Reply::Nil | Reply::Int(_)))
    }

    fn unlock(&mut self, key: u32, lease: u32) -> Option<()> {
        let sent = now();
        let reply = self.run(GIVE, key, lease);
        let call = Call::release(false, None);
        let outcome = reply.map_or(Outcome::Lost, |reply| outcome(call, &reply));
        self.note(key, call, sent, outcome.clone());
        (outcome != Outcome::Lost).then_some(())
    }

    /// Makes the hold of that try known to the module, which replies its token. The lease of the two is the same.
    fn show(&mut self, key: u32, lease: u32, sent: Nanos) -> Option<i64> {
        let call = Call::Acquire {
            kind: Kind::Exclusive,
            tie: Tie::Outside,
            lease,
            block: None,
            once: true,
        };
        let (wire, _) = self.wires.as_mut()?;
        push(wire, &self.world.keys[key as usize], self.owner, call);
        let reply = wire.flush().then(|| wire.recv(LIMIT).ok()).flatten();
        let outcome = reply.map_or(Outcome::Lost, |reply| outcome(call, &reply));
        self.note(key, call, sent, outcome.clone());
        match outcome {
            Outcome::Granted(token) => Some(token),
            _ => None,
        }
    }

    fn run(&mut self, script: &str, key: u32, lease: u32) -> Option<Reply> {
        let name = &self.world.keys[key as usize];
        let (channel, lease) = (channel_of(name), lease.to_string());
        let owner = self.owner.to_string();
        let words = ["EVAL", script, "2", name, &channel, &lease, &owner];
        let (wire, _) = self.wires.as_mut()?;
        let is_sent = wire.send(&words.map(str::as_bytes));
        is_sent.then(|| wire.recv(LIMIT).ok()).flatten()
    }

    /// Subscribes or unsubscribes; messages that arrive before the reply are ignored.
    fn subscription(&mut self, verb: &str, key: u32) -> Option<()> {
        let channel = channel_of(&self.world.keys[key as usize]);
        let (_, ears) = self.wires.as_mut()?;
        if !ears.send(&[verb.as_bytes(), channel.as_bytes()]) {
            return None;
        }
        while ears.recv(LIMIT).ok()?.list().first()?.text() == "message" {}
        Some(())
    }

    /// Sleeps until a message comes, at most this long.
    fn sleep_or_receive(&mut self, at_most: Duration) -> Option<()> {
        let (_, ears) = self.wires.as_mut()?;
        let end = Instant::now() + at_most;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match ears.recv(left.min(SLICE)) {
                Err(NoReply::Lost) => return None,
                Err(NoReply::Late) if left.is_zero() || self.world.is_over() => return Some(()),
                Err(NoReply::Late) => {}
                Ok(_) => return Some(()),
            }
        }
    }

    fn note(&mut self, key: u32, call: Call, sent: Nanos, outcome: Outcome) {
        self.ops.push(Op {
            client: self.id,
            owner: self.owner,
            key,
            call,
            sent,
            done: now(),
            outcome,
        });
    }
}
