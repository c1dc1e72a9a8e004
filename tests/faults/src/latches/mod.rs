//! A client that uses latches: closes one, counts it down, waits for it, opens it, closes its connection meanwhile.
//!
//! All clients share a few keys. A client that finds a key without a latch leads its next generation (`generation`): it
//! closes the latch, lets other clients wait and then count down, and opens the latch at the end if that is needed. It
//! keeps the rules of `crate::history::LatchOp`. `LATCH.DOWN` has no word against a repeated request: it may count
//! twice.

mod generation;
mod ticket;

use std::time::{Duration, Instant};

use crate::asking::{Asking, Exchange, Sent};
use crate::client::World;
use crate::history::{History, LatchCall, LatchOp, Only, Outcome};
use crate::request::push_words;
use crate::wire::Reply;

pub use generation::Latches;
use generation::{Generation, Part, Phase};
use ticket::Tickets;

/// The number of clients that share a key.
pub const CLIENTS_EACH: u32 = 5;

/// The highest count.
const HIGHEST: i64 = 8;

/// How long a leader lets waiters go on waiting at its open latch before it opens it again: longer than `check`
/// allows.
const RELEASED: Duration = Duration::from_millis(3_000);

/// A generation with so many requests whose outcome is unknown ends: each doubles the orders that a search has to try.
const MOST_DOUBTS: u32 = 5;

/// How many of a hundred waits are tickets.
const TICKETS: u8 = 50;

/// How long a leader tries to open its latch when the run is over.
const LAST: Duration = Duration::from_secs(8);

/// Works until the run is stopped; returns the recorded requests.
pub fn work(id: u32, world: &World, seed: u64) -> History {
    let mut client = Client {
        id,
        world,
        rng: fastrand::Rng::with_seed(seed),
        asking: Asking::new(id, world),
        tickets: Tickets::new(id, world),
        over: None,
        ops: Vec::new(),
    };
    while !world.is_over() {
        client.session();
        world.rest(&mut client.rng);
    }
    History {
        latches: client.ops,
        ..History::default()
    }
}

struct Client<'a> {
    id: u32,
    world: &'a World<'a>,
    rng: fastrand::Rng,
    asking: Asking<'a>,
    tickets: Tickets<'a>,
    /// When it noticed that the run is over.
    over: Option<Instant>,
    ops: Vec<LatchOp>,
}

impl Client<'_> {
    fn chance(&mut self, percent: u8) -> bool {
        self.rng.u8(..100) < percent
    }

    fn pause(&mut self, ms: u64) {
        let ms = self.rng.u64(..=ms);
        self.world.sleep(ms);
    }

    fn session(&mut self) {
        let latches = self.world.latches;
        let slot = self.rng.usize(..latches.len());
        let by = if self.chance(15) { 2 } else { 1 };
        let is_slow = self.chance(15);
        match latches.enter(slot, by, is_slow) {
            Part::Lead(latch) => {
                self.ops.extend(latch.proof().map(|op| LatchOp {
                    latch: latch.number,
                    ticket: false,
                    ..op
                }));
                self.lead(&latch);
                latches.end(slot, &latch);
            }
            Part::Join(latch, phase) => {
                self.join(&latch, phase);
                latch.leave();
            }
            Part::None => self.world.sleep(1),
        }
    }

    /// One generation, from its first request until it is open and left by all others.
    fn lead(&mut self, latch: &Generation) {
        let mut is_open = false;
        if self.close(latch) {
            latch.allow(Phase::Waits);
            self.pause(pace(latch));
            let is_closed = !self.chance(30) || self.reset(latch);
            if is_closed {
                latch.allow(Phase::Downs);
                is_open = self.play(latch);
                if latch.is_slow {
                    self.pause(pace(latch));
                }
            }
        }
        latch.allow(Phase::Ends);
        // Another request that opens it would release a waiter that was forgotten.
        if !is_open {
            self.open(latch);
        }
        let mut since = Instant::now();
        while latch.users() > 0 {
            std::thread::sleep(Duration::from_millis(1));
            if since.elapsed() > RELEASED {
                // An earlier state of the data may have returned.
                self.open(latch);
                since = Instant::now();
            }
        }
        if self.chance(10) || latch.proof().is_none() {
            // Refused.
            self.set(latch, Only::IfClosed);
        }
    }

    /// Closes the latch; false: it is open, or that is not known.
    fn close(&mut self, latch: &Generation) -> bool {
        let only = match self.chance(25) {
            true => Only::Always,
            false => Only::IfOpen,
        };
        if !matches!(self.set(latch, only), Outcome::Number(_)) {
            return false;
        }
        // Refused, unless a fault has opened it meanwhile.
        if self.chance(15) && is_unknown(&self.set(latch, Only::IfOpen)) {
            return false;
        }
        !self.chance(15) || self.reset(latch)
    }

    /// Changes the count of a closed latch; false: it is open, or that is not known.
    fn reset(&mut self, latch: &Generation) -> bool {
        matches!(
            self.set(latch, Only::IfClosed),
            Outcome::Number(_) | Outcome::Error(_)
        )
    }

    fn set(&mut self, latch: &Generation, only: Only) -> Outcome {
        let count = self.rng.i64(1..=HIGHEST);
        self.call(latch, LatchCall::Set { count, only }, None)
    }

    /// Counts down and waits until it is open, or no longer. Whether it is open.
    fn play(&mut self, latch: &Generation) -> bool {
        let requests = self.rng.u32(2..40);
        for _ in 0..requests {
            if self.world.is_over() || latch.doubts() > MOST_DOUBTS {
                return false;
            }
            let is_open = match self.rng.u8(..4) {
                0 | 1 => self.down(latch) == Outcome::Number(0),
                2 => {
                    let block = Some(self.rng.u32(1..20));
                    self.call(latch, LatchCall::Wait { block }, None) == Outcome::Number(1)
                }
                _ => {
                    self.pause(pace(latch));
                    false
                }
            };
            if is_open {
                return true;
            }
        }
        false
    }

    /// Opens it, until that is certain.
    fn open(&mut self, latch: &Generation) {
        let (count, only) = (0, Only::Always);
        let mut pause = 1;
        loop {
            let call = match self.rng.bool() {
                true => LatchCall::Delete,
                false => LatchCall::Set { count, only },
            };
            if matches!(self.call(latch, call, None), Outcome::Number(_)) {
                return;
            }
            if self.world.is_over() {
                let over = self.over.get_or_insert_with(Instant::now);
                if over.elapsed() > LAST {
                    return;
                }
            }
            // The server may be stopped, restarted, or refuse writes for a while.
            std::thread::sleep(Duration::from_millis(pause));
            pause = 10.min(2 * pause);
        }
    }

    fn join(&mut self, latch: &Generation, phase: Phase) {
        self.pause(pace(latch));
        let may_count = phase == Phase::Downs && latch.doubts() <= MOST_DOUBTS;
        let block = match self.rng.u8(..100) {
            n if n < 50 && may_count => {
                self.down(latch);
                return;
            }
            n if n < 60 => None,
            n if n < 85 => Some(0),
            n if n < 93 => Some(self.rng.u32(1..40)),
            _ => Some(self.rng.u32(1..3_000)),
        };
        let call = LatchCall::Wait { block };
        if block.is_some() && self.chance(5) {
            return self.twice(latch, call);
        }
        if let Some(block) = block.filter(|_| self.chance(TICKETS)) {
            return self.wait_by_ticket(latch, block);
        }
        let dies = block.is_some() && self.chance(self.world.habits.dies);
        let life = dies.then(|| Duration::from_millis(self.rng.u64(..30)));
        self.call(latch, call, life);
    }

    /// Counts down; repeats a request whose outcome is unknown, in most cases.
    fn down(&mut self, latch: &Generation) -> Outcome {
        let by = latch.by;
        let outcome = self.call(latch, LatchCall::Down { by }, None);
        if is_unknown(&outcome) && self.chance(70) {
            return self.call(latch, LatchCall::Down { by }, None);
        }
        outcome
    }

    /// Waits, and a while later waits through another connection as well.
    fn twice(&mut self, latch: &Generation, call: LatchCall) {
        let Some(first) = self.begin(latch, call) else {
            return;
        };
        self.pause(5);
        let second = self.begin(latch, call);
        for sent in second.into_iter().chain([first]) {
            let exchange = self.asking.end(&latch.base, sent, None, outcome);
            self.note(latch, call, exchange, false);
        }
    }

    /// One wait; a record for each time that it was asked for.
    fn wait_by_ticket(&mut self, latch: &Generation, block: u32) {
        let dies = self.chance(self.world.habits.dies);
        let life = dies.then(|| Duration::from_millis(self.rng.u64(..30)));
        let mut waits = Vec::new();
        let tickets = &mut self.tickets;
        tickets.wait(latch, block, life, |call, exchange| {
            waits.push((call, exchange))
        });
        for (call, exchange) in waits {
            self.note(latch, call, exchange, true);
        }
    }

    fn call(&mut self, latch: &Generation, call: LatchCall, life: Option<Duration>) -> Outcome {
        let Some(sent) = self.begin(latch, call) else {
            return Outcome::Lost;
        };
        let exchange = self.asking.end(&latch.base, sent, life, outcome);
        let outcome = exchange.outcome.clone();
        self.note(latch, call, exchange, false);
        outcome
    }

    fn begin(&mut self, latch: &Generation, call: LatchCall) -> Option<Sent> {
        let words = words(&latch.name, call);
        self.asking
            .begin(&latch.base, |wire| push_words(wire, &words))
    }

    fn note(&mut self, latch: &Generation, call: LatchCall, exchange: Exchange, ticket: bool) {
        if is_unknown(&exchange.outcome) && !matches!(call, LatchCall::Wait { .. }) {
            latch.doubt();
        }
        let op = LatchOp {
            client: self.id,
            latch: latch.number,
            call,
            sent: exchange.sent,
            done: exchange.done,
            ticket,
            outcome: exchange.outcome,
        };
        latch.learn(&op);
        self.ops.push(op);
    }
}

/// The longest pause between two requests, in milliseconds. Faults fall into slow generations.
fn pace(latch: &Generation) -> u64 {
    match latch.is_slow {
        true => 80,
        false => 4,
    }
}

fn is_unknown(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Lost | Outcome::Silent)
}

fn words(name: &str, call: LatchCall) -> Vec<String> {
    let (verb, arguments) = match call {
        LatchCall::Set { count, only } => {
            let condition = match only {
                Only::Always => None,
                Only::IfOpen => Some("NX"),
                Only::IfClosed => Some("XX"),
            };
            let condition = condition.map(String::from);
            let arguments = [Some(count.to_string()), condition];
            ("LATCH.SET", arguments.into_iter().flatten().collect())
        }
        LatchCall::Delete => ("DEL", Vec::new()),
        LatchCall::Down { by: 1 } => ("LATCH.DOWN", Vec::new()),
        LatchCall::Down { by } => ("LATCH.DOWN", vec![by.to_string()]),
        LatchCall::Wait { block: None } => ("LATCH.WAIT", Vec::new()),
        LatchCall::Wait { block: Some(ms) } => {
            ("LATCH.WAIT", vec!["BLOCK".to_string(), ms.to_string()])
        }
    };
    let mut words = vec![verb.to_string(), name.to_string()];
    words.extend(arguments);
    words
}

fn outcome(reply: &Reply) -> Outcome {
    match reply {
        Reply::Int(number) => Outcome::Number(*number),
        Reply::Nil => Outcome::Nil,
        other => Outcome::Error(other.code().unwrap_or("?").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_syntax_of_the_commands() {
        let (count, block) = (3, Some(0));
        let set = |only| LatchCall::Set { count, only };
        for (call, line) in [
            (set(Only::Always), "LATCH.SET k 3"),
            (set(Only::IfOpen), "LATCH.SET k 3 NX"),
            (set(Only::IfClosed), "LATCH.SET k 3 XX"),
            (LatchCall::Delete, "DEL k"),
            (LatchCall::Down { by: 1 }, "LATCH.DOWN k"),
            (LatchCall::Down { by: 2 }, "LATCH.DOWN k 2"),
            (LatchCall::Wait { block: None }, "LATCH.WAIT k"),
            (LatchCall::Wait { block }, "LATCH.WAIT k BLOCK 0"),
        ] {
            assert_eq!(words("k", call).join(" "), line);
        }
    }
}
